"""Methods that are a factor on a group baseline: what they reduce to, and numbers by hand."""

from __future__ import annotations

import math

import pytest
import torch

import anypo
from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from tests.identities.small import close, last, steps


def answers(groups: list[list[float]], table: dict | None = None, **columns: list[float]) -> Batch:
    """One-step answers with these outcomes."""
    flat = [r for group in groups for r in group]
    ids = [g for g, group in enumerate(groups) for _ in group]
    return steps([1] * len(flat), ids, table, reward=flat, **columns)


def advantage(name: str, batch: Batch, **arguments):
    """The advantage that a method gives a batch, after its shaping."""
    recipe = anypo.recipe(name, **arguments)
    for piece in recipe.reward:
        batch = batch.with_({"reward": piece(batch)})
    return recipe.advantage(batch)


def z(values: list[float], ddof: int = 1, eps: float = 1e-6) -> list[float]:
    """The z-score of GRPO."""
    mean = sum(values) / len(values)
    sd = math.sqrt(sum((x - mean) ** 2 for x in values) / (len(values) - ddof))
    return [(x - mean) / (sd + eps) for x in values]


MIXED = [[1.0, 0.0, 0.0, 1.0], [0.3, 0.9, 0.1, 0.2]]


# ── Lite PPO and 2-GRPO ──────────────────────────────────────────────────────────────────────────


def test_lite_ppo_of_one_group_is_grpo_and_of_two_divides_by_the_batch():
    one = answers([[1.0, 0.0, 0.5]])
    close(advantage("lite_ppo", one), advantage("grpo", one).tolist())
    close(advantage("lite_ppo", answers([[1, 0], [1, 1]]), eps=0.0), [1, -1, 0, 0])
    weight = anypo.recipe("lite_ppo").aggregate(steps([1, 3], reward=[0.0] * 4))
    close(weight, [0.25] * 4)


@pytest.mark.parametrize(("rewards", "sign"), [([1.0, 0.0], 1), ([0.49, 0.51], -1)])
def test_a_pair_has_the_same_advantage_whatever_its_difference(rewards, sign):
    pair = answers([rewards])
    close(advantage("two_grpo", pair, eps=0.0), [sign * math.sqrt(0.5), -sign * math.sqrt(0.5)])
    close(advantage("two_grpo", pair, eps=0.0, ddof=0), [sign, -sign])
    d = rewards[0] - rewards[1]
    close(advantage("rloo", pair, beta=0.0), [d, -d])
    close(advantage("dr_grpo", pair), [d / 2, -d / 2])
    assert anypo.recipe("two_grpo").sampling.group == 2


# ── BNPO ─────────────────────────────────────────────────────────────────────────────────────────


def spread_of(variance: float) -> Batch:
    """Two groups whose mean rewards have mean ½ and this variance."""
    d = math.sqrt(variance / 2)
    return answers([[0.1, 0.9 + 2 * d], [0.3, 0.7 - 2 * d]])


@pytest.mark.parametrize(
    "batch", [answers([[1.0, 0.0, 0.0]]), answers([[1, 0], [0, 1]]), answers([[1, 1], [0, 0]])]
)
def test_bnpo_without_a_spread_of_success_is_dr_grpo(batch):
    """One group, equal groups; and groups that are uniform have no advantage at any weight."""
    close(advantage("bnpo", batch), advantage("dr_grpo", batch).tolist())


def test_bnpo_at_three_halves_is_grpo_with_the_bernoulli_deviation():
    batch = spread_of(1 / 16)  # a = b = 3/2
    p = batch.mean(batch["reward"], "group")
    want = math.pi / 8 * (batch["reward"] - p) / (p * (1 - p)).sqrt()
    close(advantage("bnpo", batch), want.tolist())


def test_bnpo_divides_by_a_beta_density():
    batch = spread_of(0.05)  # a = b = 2, so alpha = beta = 5/3
    p = batch.mean(batch["reward"], "group")
    norm = math.gamma(10 / 3) / math.gamma(5 / 3) ** 2
    want = (batch["reward"] - p) / (norm * (p * (1 - p)) ** (2 / 3))
    close(advantage("bnpo", batch), want.tolist())
    twice = batch.with_({"reward": 2 * batch["reward"] - 1})
    close(advantage("bnpo", twice, reward_min=-1.0, reward_max=1.0), want.tolist())
    capped = advantage("bnpo", batch, weight_cap=1.0)
    close(capped, torch.minimum(want.abs(), (batch["reward"] - p).abs()).mul(want.sign()).tolist())


# ── MAPO ─────────────────────────────────────────────────────────────────────────────────────────


def test_mapo_of_a_half_solved_group_is_grpo():
    batch = answers([[1.0, 0.0, 0.0, 1.0]])
    close(advantage("mapo", batch), advantage("grpo", batch).tolist())


def test_mapo_by_hand_and_its_sum():
    batch = answers([[1, 0, 0, 0], [0.3, 0.9, 0.1, 0.7], [1, 1, 1, 1], [0, 0, 0, 0]])
    got = advantage("mapo", batch, eps=0.0)
    close(got[:4], [1.875, -0.625, -0.625, -0.625])
    close(got[4:8], [-0.4, 0.8, -0.8, 0.4])  # nothing of 1: the relative gain alone
    close(got[8:], [0.0] * 8)
    close(batch.sum(got, "group"), [0.0] * 16)
    tent = 0.5 * 1.5 + 0.5 * 3
    close(advantage("mapo", batch, eps=0.0, form="tent")[:2], [tent, -tent / 3])


# ── S-GRPO ───────────────────────────────────────────────────────────────────────────────────────


def solved(right: int, size: int = 8) -> Batch:
    """A group with this many right answers."""
    return answers([[1.0] * right + [0.0] * (size - right)])


def test_s_grpo_without_noise_is_grpo():
    for right in range(1, 8):
        plain = advantage("grpo", solved(right), eps=1e-8)
        got = advantage("s_grpo_stable", solved(right), noise_p=0.0)
        torch.testing.assert_close(got, plain, rtol=1e-6, atol=0)


def test_s_grpo_damps_groups_that_noise_explains():
    score = z([1.0] * 4 + [0.0] * 4, eps=1e-8)
    got = advantage("s_grpo_stable", solved(4), noise_p=0.1)
    torch.testing.assert_close(got, 0.8 * torch.tensor(score).double(), rtol=1e-6, atol=0)
    for uniform in (0, 1, 7, 8):
        close(advantage("s_grpo_stable", solved(uniform), noise_p=0.125), [0.0] * 8)
    for right in range(1, 8):  # symmetric in right and wrong
        mirrored = advantage("s_grpo_stable", solved(8 - right), noise_p=0.1).flip(0)
        close(advantage("s_grpo_stable", solved(right), noise_p=0.1), (-mirrored).tolist())
    signs = solved(3).with_({"reward": 2 * solved(3)["reward"] - 1})  # right is what is above 0
    got = advantage("s_grpo_stable", signs, noise_p=0.1)
    want = advantage("s_grpo_stable", solved(3), noise_p=0.1)
    torch.testing.assert_close(got, want, rtol=1e-7, atol=0)


# ── SEED-GRPO and COPO ───────────────────────────────────────────────────────────────────────────


def test_seed_grpo_weighs_by_the_mean_surprise_of_classes():
    rewards = [1.0, 0.0, 0.0, 0.0]
    centred = [0.75, -0.25, -0.25, -0.25]
    batch = answers([rewards], {"cluster": ["a", "a", "b", "c"]})
    share = (math.log(2) + 2 * math.log(4)) / 3 / math.log(4)
    close(advantage("seed_grpo", batch, alpha=1.0), [(1 - share) * x for x in centred])
    assert share == pytest.approx(5 / 6)
    fading = [math.exp(-0.5 * share) * x for x in centred]
    close(advantage("seed_grpo", batch, alpha=0.5, form="exp"), fading)
    close(advantage("seed_grpo", batch, alpha=0.0), centred)
    close(advantage("seed_grpo", batch, alpha=3.0), [0.0] * 4)  # not below 0
    one = answers([rewards], {"cluster": ["a"] * 4})
    close(advantage("seed_grpo", one, alpha=1.0), centred)


def test_classes_are_of_one_group():
    both = answers([[1.0, 0.0], [1.0, 0.0]], {"cluster": [1, 2, 1, 1]})
    close(advantage("seed_grpo", both, alpha=0.5), [0.25, -0.25, 0.5, -0.5])


def test_copo_with_a_closed_and_an_open_gate():
    batch = answers(MIXED, {"cluster": [1, 2, 3, 4, 1, 1, 2, 2]})
    local = advantage("grpo", batch)
    close(advantage("copo_consistency", batch, gamma=1e6, rho=0.0), local.tolist())
    across = advantage("copo_consistency", batch, gamma=1e6, rho=9.0)
    close(across, [s for s in z([0.5, 0.375]) for _ in range(4)])
    close(across[[0, 4]].sum(), 0.0)
    one = answers(MIXED[:1], {"cluster": [1, 2, 3, 4]})
    close(advantage("copo_consistency", one, gamma=1e6, rho=9.0), [0.0] * 4)


def test_copo_of_uniform_groups_compares_prompts():
    """Without a signal inside, A is (1 − w) of the z-score across prompts; more answers, more w."""
    batch = answers([[1, 1], [0, 0]], {"cluster": [1, 1, 2, 3]})
    got = advantage("copo_consistency", batch, gamma=2.0, rho=1.0)
    gates = [1 / (1 + math.exp(-2 * (h - 1))) for h in (0.0, math.log(2))]
    scores = z([1.0, 0.0])
    close(got, [(1 - w) * s for w, s in zip(gates, scores, strict=True) for _ in range(2)])


def test_copo_weighs_answers_by_their_probability():
    batch = answers([[1, 1, 1, 1], [0, 0, 0, 0]], {"cluster": [1, 1, 1, 2] + [1] * 4})
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    got = advantage("copo_consistency", batch, gamma=1.0, rho=0.0)
    gate = 1 / (1 + math.exp(-entropy))
    close(got[0], (1 - gate) * z([1.0, 0.0])[0])


def test_groups_of_unequal_size_are_compared_by_their_means():
    batch = answers([[1, 1, 1], [0.5, 0.5]], {"cluster": [1] * 5})
    got = advantage("copo_consistency", batch, gamma=1e6, rho=9.0)
    close(got, [z([1.0, 0.5])[i] for i in (0, 0, 0, 1, 1)])


# ── GRPO-LEAD ────────────────────────────────────────────────────────────────────────────────────


def test_grpo_lead_without_its_terms_is_grpo_on_plus_and_minus_one():
    batch = answers(MIXED)
    flat = {"alpha": 0.0, "bottom": 1.0, "top": 1.0}
    signs = batch.with_({"reward": torch.where(batch["reward"] > 0, batch["reward"], -1.0)})
    close(advantage("grpo_lead", batch, **flat), advantage("grpo", signs).tolist())


def test_grpo_lead_weighs_the_two_signs_by_their_own_share():
    batch = answers([[1.0, 1.0, 1.0, 0.0]])  # three quarters right: at the middle of the curve
    got = advantage("grpo_lead", batch, alpha=0.0)
    score = z([1.0, 1.0, 1.0, -1.0])
    wrong = 0.4 + 1.1 / (1 + math.exp(10 * (0.25 - 0.75)))
    close(got, [0.95 * score[0]] * 3 + [wrong * score[3]])
    none = 0.4 + 1.1 / (1 + math.exp(-7.5))
    assert none == pytest.approx(1.49939, abs=1e-5)


def test_grpo_lead_pays_for_brevity_among_right_answers():
    lengths = [1, 2, 3, 7]
    batch = steps(lengths, reward=last(lengths, [1, 1, 1, 0]))
    (brevity,) = anypo.recipe("grpo_lead", alpha=0.3).reward
    shaped = batch.sum(brevity(batch), within="traj")[batch.last("traj")]
    n = z([1.0, 2.0, 3.0])
    close(shaped, [*(math.exp(-0.3 * x) for x in n), -1.0])
    close(shaped[1], 1.0)  # of average length
    gated = anypo.recipe("grpo_lead", alpha=0.3, gate=2).reward[0]
    close(batch.sum(gated(batch), within="traj")[batch.last("traj")], [1, 1, 1, -1])
    longer = anypo.recipe("grpo_lead", alpha=0.3, gate=1).reward[0]
    close(longer(batch), brevity(batch).tolist())


# ── GPG ──────────────────────────────────────────────────────────────────────────────────────────


def push(name: str, batch: Batch, **arguments) -> torch.Tensor:
    """Advantage times weight: the factor on ∇logp."""
    recipe = anypo.recipe(name, **arguments)
    return recipe.advantage(batch) * recipe.aggregate(batch)


def test_gpg_of_groups_that_all_vary_is_a_centred_outcome():
    batch = answers(MIXED)
    close(advantage("gpg", batch), advantage("dr_grpo", batch).tolist())
    close(advantage("gpg", batch, f_norm=4.0), (advantage("dr_grpo", batch) / 4).tolist())
    close(advantage("gpg", batch, scale="std"), advantage("grpo", batch).tolist())


def test_gpg_makes_up_for_groups_without_a_signal():
    one = [[1.0, 0.0]]
    silent = [[1.0, 1.0]]
    close(advantage("gpg", answers(one + 3 * silent))[:2], [2.0, -2.0])
    alone, beside = push("gpg", answers(one)), push("gpg", answers(one + silent))
    close(beside[:2], alone.tolist())
    other = push("gpg", answers(one + silent), count="rewards")[:2]
    assert (other - push("gpg", answers(one), count="rewards")).abs().max() > 0.1
    close(advantage("gpg", answers(silent)), [0.0, 0.0])


def test_the_other_count_of_gpg_is_of_rewards_that_are_not_0():
    close(advantage("gpg", answers([[1, 0, 0, 0]]), count="rewards"), [3, -1, -1, -1])
    close(advantage("gpg", answers([[1, -1]]), count="rewards"), [1, -1])


# ── LENS ─────────────────────────────────────────────────────────────────────────────────────────


def sure(groups: list[list[float]], p: list[float]) -> Batch:
    """One-step answers given with these probabilities."""
    return answers(groups, logp_old=[math.log(x) for x in p])


def test_lens_of_a_group_that_is_all_wrong():
    batch = sure([[0, 0]], [0.5, 0.2])
    (charge,) = anypo.recipe("lens").reward
    close(charge(batch), [-0.5, -0.125])
    close(advantage("lens", batch, alpha=1.0), [-0.1875, 0.1875])
    close(advantage("lens", batch, alpha=0.25), [-0.1875 / 4, 0.1875 / 4])
    close(advantage("lens", sure([[0, 0]], [0.3, 0.3])), [0, 0])


def test_lens_charges_the_surest_mistake_most_and_at_most_one_kth():
    batch = sure([[0, 0, 0, 0]], [0.1, 0.6, 0.3, 0.2])
    charged = anypo.recipe("lens").reward[0](batch)
    assert float(charged.min()) == pytest.approx(-1 / 4)
    assert charged.argsort().tolist() == [1, 2, 3, 0]


def test_lens_takes_the_difficulty_from_right_answers():
    batch = sure([[1, 0], [1, 1]], [0.5, 0.1, 0.4, 0.2])
    charged = anypo.recipe("lens").reward[0](batch)
    close(charged, [1, -0.5 * 0.1 / 0.9, 1, 1])  # D = max((½ · 1/0.5)⁻¹, 2 · 0.5) = 1
    got = advantage("lens", batch)
    close(got, [*z([1.0, -0.05 / 0.9]), 0, 0])


def test_lens_normalises_by_length():
    lengths = [3, 1]
    batch = steps(lengths, reward=[0.0] * 4, logp_old=[-1.0, -2.0, 0.0, -0.5])
    charged = batch.sum(anypo.recipe("lens").reward[0](batch), within="traj")
    p, q = math.exp(-1.0), math.exp(-0.5)
    close(charged, [-0.5 * p / (2 * q - p)] * 3 + [-0.5])


# ── EGSW ─────────────────────────────────────────────────────────────────────────────────────────


def test_egsw_weighs_by_a_softmax_over_the_group():
    pair = answers([[1, 0]], entropy_old=[0.7, 0.7])
    a, b = z([1.0, 0.0])
    got = advantage("egsw", pair, alpha=0.0, tau=a)  # so that A/P is 1 and −1
    close(got, [a / (1 + math.exp(-2)), b / (1 + math.exp(2))])
    assert 1 / (1 + math.exp(-2)) == pytest.approx(0.880797, abs=1e-6)
    scaled = advantage("egsw", pair, alpha=0.0, tau=a, rescale=True)
    close(scaled, (2 * got).tolist())


def test_egsw_sees_differences_of_entropy_only():
    rewards = [[1.0, 0.0, 0.0]]
    plain = answers(rewards, entropy_old=[0.1, 0.5, 0.2])
    moved = answers(rewards, entropy_old=[1.1, 1.5, 1.2])
    close(advantage("egsw", plain, alpha=0.5), advantage("egsw", moved, alpha=0.5).tolist())
    got = advantage("egsw", plain, alpha=0.5)
    assert got[1] < got[2] < 0 < got[0]  # of two wrong answers the uncertain one counts more
    uniform = answers([[1.0, 1.0]], entropy_old=[0.1, 0.5])
    close(advantage("egsw", uniform), [0, 0])


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("lite_ppo", {"clip": 1.5}, "between 0 and 1"),
        ("lite_ppo", {"group": 1}, "group"),
        ("two_grpo", {"ddof": 2}, "0 or 1"),
        ("bnpo", {"reward_max": 0.0}, "reward_max"),
        ("bnpo", {"reward_min": 2.0}, "reward_max"),
        ("bnpo", {"weight_cap": 0.5}, "at least 1"),
        ("mapo", {"form": "round"}, "parabola"),
        ("s_grpo_stable", {"noise_p": 0.5}, "0.5)"),
        ("seed_grpo", {"alpha": -0.1}, "at least 0"),
        ("copo_consistency", {"gamma": -1.0}, "at least 0"),
        ("copo_consistency", {"group": 1}, "group"),
        ("grpo_lead", {"bottom": 2.0}, "at least bottom"),
        ("grpo_lead", {"gate": -1}, "at least 0"),
        ("gpg", {"f_norm": 0.0}, "above 0"),
        ("gpg", {"count": "tokens"}, "groups or rewards"),
        ("lens", {"alpha": -0.5}, "alpha must be at least 0"),
        ("egsw", {"tau": 0.0}, "above 0"),
    ],
)
def test_bad_arguments_are_refused(name, arguments, words):
    with pytest.raises(UsageError, match=f"^{name}: ") as caught:
        anypo.recipe(name, **arguments)
    assert words in str(caught.value)


def test_a_missing_class_is_asked_for():
    with pytest.raises(UsageError, match="AnswerEntropy reads 'cluster'"):
        advantage("seed_grpo", answers(MIXED))
