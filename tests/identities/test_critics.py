"""REINFORCE++, ReMax, AAPO, AEPO, PSFT and the critics: reductions, and numbers by hand."""

from __future__ import annotations

import math

import pytest
import torch

import anypo
from anypo.core.batch import Batch
from anypo.core.neutral import Return
from anypo.core.recipe import Recipe
from anypo.core.request import Request
from anypo.engine.collect import credit, shape
from anypo.pieces.sampling.steer import Steer
from tests.identities.evaluate import evaluate, same, scene
from tests.identities.small import close, last, steps

LENGTHS = [2, 1, 1, 3]


def pairs(**columns) -> Batch:
    """Two pairs of answers with outcomes 1, 0 and 2, 2."""
    given = {"reward": last(LENGTHS, [1, 0, 2, 2])} | columns
    return steps(LENGTHS, [0, 0, 1, 1], **given)


def advantage(recipe: Recipe, batch: Batch) -> torch.Tensor:
    """The credit of a batch, shaped first."""
    return credit(recipe, shape(recipe, batch))["advantage"]


# ── REINFORCE++ ──────────────────────────────────────────────────────────────────────────────────


def test_reinforce_pp_of_one_token_each_is_a_z_score_over_the_batch():
    batch = steps([1] * 4, [0, 0, 1, 1], reward=[1, 0, 0, 3])
    values = torch.tensor([1.0, 0, 0, 3], dtype=torch.float64)
    expected = (values - 1) / (values.var() + 1e-8).sqrt()
    close(advantage(anypo.recipe("reinforce_pp", beta=0.0), batch), expected.tolist())


def test_reinforce_pp_is_standardised_by_the_token():
    """Long answers count for more: ΣA = 0 and ΣA²/(N−1) = V/(V + 1e-8) over steps."""
    got = advantage(anypo.recipe("reinforce_pp", beta=0.0), pairs())
    assert float(got.sum()) == pytest.approx(0, abs=1e-12)
    assert float((got**2).sum()) / 6 == pytest.approx(1, abs=1e-7)
    assert got[0] == got[1] and got[4] == got[6]


def test_reinforce_pp_pays_for_divergence_to_go():
    """With γ = ½ a cost of later tokens reaches earlier ones by half."""
    columns = {"logp_old": [-1, -2, -1, -1, -1, -1, -1], "ref.base": [-1, -1, -1, -1, -1, -1, -1]}
    batch = pairs(**columns)
    recipe = anypo.recipe("reinforce_pp", gamma=0.5, beta=0.2)
    raw = recipe.but(advantage=Return(0.5))
    close(advantage(raw, batch)[:2], [0.5 * 1.2, 1.2])


def test_reinforce_pp_with_a_baseline_has_no_signal_in_a_uniform_group():
    recipe = anypo.recipe("reinforce_pp", variant="baseline", group=2, beta=0.0)
    got = advantage(recipe, pairs())
    plain = torch.tensor([0.5, 0.5, -0.5, 0, 0, 0, 0], dtype=torch.float64)
    expected = (plain - plain.mean()) / (plain.var() + 1e-8).sqrt()
    close(got, expected.tolist())


# ── ReMax, AAPO, AEPO ────────────────────────────────────────────────────────────────────────────


def test_remax_subtracts_the_greedy_reward_and_knows_no_shift():
    recipe = anypo.recipe("remax", beta=0.0)
    batch = pairs(greedy=[0.5, 0.5, 0.5, 1, 1, 1, 1])
    close(advantage(recipe, batch), [0.5, 0.5, -0.5, 1, 1, 1, 1])
    more = pairs(reward=last(LENGTHS, [4, 3, 5, 5]), greedy=[3.5, 3.5, 3.5, 4, 4, 4, 4])
    close(advantage(recipe, more), advantage(recipe, batch).tolist())
    limited = anypo.recipe("remax", beta=0.0, limit=0.75)
    close(advantage(limited, batch), [0.5, 0.5, -0.5, 0.75, 0.75, 0.75, 0.75])


def test_remax_with_the_groups_mean_is_a_centred_policy_gradient():
    mean = pairs(greedy=[0.5, 0.5, 0.5, 2, 2, 2, 2])
    close(advantage(anypo.recipe("remax", beta=0.0), mean), [0.5, 0.5, -0.5, 0, 0, 0, 0])


def test_aapo_without_a_gap_is_grpo():
    batch = pairs(reference=[1, 1, 0, 2, 2, 2, 2])
    grpo = anypo.recipe("grpo", group=2, beta=0.0, eps=1e-4)
    expected = advantage(grpo, batch).tolist()
    close(advantage(anypo.recipe("aapo", group=2), batch), expected)


def test_aapo_pays_uniform_groups_for_the_gap_and_bounds_it():
    batch = pairs(reward=last(LENGTHS, [1, 1, 0, 0]), reference=[0, 0, 0, 1, 1, 1, 1])
    close(advantage(anypo.recipe("aapo", group=2), batch), [0.28] * 3 + [-0.2] * 4)


def test_aapo_reads_no_old_policy():
    batch = scene(reference=[0.5] * 8)
    moved = batch.with_({"logp_old": batch["logp_old"] - 1.0})
    (_, one), (_, two) = (evaluate(anypo.recipe("aapo", group=2), b) for b in (batch, moved))
    assert torch.equal(one["logp"], two["logp"])


def test_aepo_without_control_samples_is_grpo_by_the_token():
    recipe = anypo.recipe("aepo", group=2)
    plain = recipe.but(advantage=anypo.recipe("grpo", group=2, beta=0.0).advantage)
    same(recipe, plain, scene(control=[0.0] * 8))


def test_aepo_draws_hotter_below_its_target_and_colder_above():
    steer = Steer(target=0.5, high=1.2, low=0.8)
    asked = {}
    for name, entropy in (("below", 0.1), ("at", 0.5), ("above", 0.9)):
        wanted = Request(16, state={**steer.init(), **_entropy(steer, entropy)})
        asked[name] = steer.request(Batch.empty(), wanted, 1)
    assert {k: r.temperature for k, r in asked.items()} == {"below": 1.2, "at": 1.2, "above": 0.8}
    assert all(r.prompts == 4 and r.tags["control"] == 1.0 for r in asked.values())


def _entropy(steer: Steer, value: float) -> dict[str, float]:
    (name,) = steer.init()
    return {name: value}


def test_learning_from_hot_right_answers_raises_the_entropy():
    """E over softmax(z/T) of ∇logp raises the entropy for T > 1, and does nothing for T = 1."""
    z = torch.tensor([2.0, 0.5, -1.0], dtype=torch.float64, requires_grad=True)
    logp = torch.log_softmax(z, 0)
    entropy = -(logp.exp() * logp).sum()
    (rise,) = torch.autograd.grad(entropy, z, retain_graph=True)
    for temperature, sign in ((1.2, 1), (1.0, 0), (0.8, -1)):
        drawn = torch.softmax(z.detach() / temperature, 0)
        (push,) = torch.autograd.grad((drawn * logp).sum(), z, retain_graph=True)
        change = float(push @ rise)
        assert math.copysign(1, change) == sign if sign else abs(change) < 1e-12


# ── imitation ────────────────────────────────────────────────────────────────────────────────────


def test_psft_begins_as_the_mean_negative_log_likelihood():
    batch = steps([2, 1], reward=[0, 1, 1], logp=[-1, -2, -3], logp_old=[-1, -2, -3])
    loss, grads = evaluate(anypo.recipe("psft"), batch)
    close(grads["logp"], [-1 / 3] * 3)
    assert loss == pytest.approx(-1)


def test_psft_stops_at_its_upper_bound_and_knows_no_lower_one():
    """A token of probability ½ is pushed until 0.64."""
    logp = [math.log(x) for x in (0.64 - 1e-9, 0.64 + 1e-9, 0.01)]
    batch = steps([3], reward=[0, 0, 1], logp=logp, logp_old=[math.log(0.5)] * 3)
    _, grads = evaluate(anypo.recipe("psft"), batch)
    assert grads["logp"].tolist() == pytest.approx([-1.28 / 3, 0, -0.02 / 3], rel=1e-8)
    for low in (0.0, 0.9):
        same(anypo.recipe("psft", clip_low=low), anypo.recipe("psft"), batch)


# ── critics ──────────────────────────────────────────────────────────────────────────────────────

CRITIC = {"value": [0.5, 0.25, -1, 0, 0.5, 0.5, 1], "value_next": [0.25, 0, 0, 0, 0.5, 1, 0]}


def test_a2c_with_lambda_one_is_the_return_less_the_value():
    recipe = anypo.recipe("a2c", gamma=0.5)
    close(
        advantage(recipe, pairs(**CRITIC)),
        [0.5 * 1 - 0.5, 1 - 0.25, 1.0, 2.0, 0.25 * 2 - 0.5, 0.5 * 2 - 0.5, 2 - 1],
    )


def test_a2c_is_ppo_before_it_moves_but_for_whitening():
    batch = scene(value=[0.1] * 8, value_next=[0.0] * 8)
    batch = batch.with_({"logp_old": batch["logp"], "value_old": batch["value"]})
    ppo = anypo.recipe("ppo", lam=1.0, gamma=0.99, value_clip=math.inf)
    ppo = ppo.but(advantage=ppo.advantage.first)
    a2c = anypo.recipe("a2c", value_coef=0.25)
    (_, one), (_, two) = evaluate(a2c, batch), evaluate(ppo, batch)
    for column in ("logp", "value"):
        torch.testing.assert_close(one[column], two[column], rtol=1e-12, atol=1e-14)


def test_vc_ppo_with_one_lambda_is_ppo():
    recipe = anypo.recipe("vc_ppo", lam_actor=0.9, lam_critic=0.9).stages[-1]
    ppo = anypo.recipe("ppo", lam=0.9, value_clip=math.inf)
    got, expected = (credit(r, pairs(**CRITIC)) for r in (recipe, ppo))
    for column in ("advantage", "return"):
        close(got[column], expected[column].tolist())


def test_vc_ppos_critic_aims_at_the_reward_itself():
    credited = credit(anypo.recipe("vc_ppo").stages[-1], pairs(**CRITIC))
    close(credited["return"], [1, 1, 0, 2, 2, 2, 2])


def test_vc_ppos_adaptive_lambda_follows_the_length():
    """λ = 1 − 1/(α·n): 0.8 for a hundred tokens and α = 0.05, and 0 for twenty."""
    for length, lam in ((100, 0.8), (20, 0.0)):
        batch = steps([length], reward=last([length], [1]), value=[0] * length)
        batch = batch.with_({"value_next": torch.zeros(length, dtype=torch.float64)})
        raw = anypo.recipe("vc_ppo", adapt=0.05).stages[-1].advantage.first
        close(raw(batch)[-2:], [lam, 1.0])


@pytest.mark.parametrize("name", ["vc_ppo", "dvpo"])
def test_a_warm_up_pushes_the_critic_alone(name):
    first = anypo.recipe(name).stages[0]
    batch = scene(value=[0.1] * 8, value_next=[0.0] * 8, value_old=[0.1] * 8)
    _, grads = evaluate(first, batch)
    assert grads["logp"].abs().max() == 0 and grads["value"].abs().max() > 0
    assert type(first.likelihood).__name__ == "HeadsOnly"


def dvpo(**options) -> Recipe:
    """The second stage, without whitening."""
    recipe = anypo.recipe("dvpo", **options).stages[-1]
    return recipe.but(advantage=recipe.advantage.first)


def test_dvpo_at_the_reference_with_a_constant_value_blames_the_last_step():
    """All differences vanish but the last, −V; a bootstrap takes that away."""
    same_policy = {"logp_old": [-1.0] * 7, "ref.base": [-1.0] * 7}
    frozen = {"ref.base.value": [0.5] * 7, "ref.base.value_next": [0.5, 0, 0, 0, 0.5, 0.5, 0]}
    batch = pairs(**same_policy, **frozen)
    close(advantage(dvpo(lam=0.0), batch), [0, -0.5, -0.5, -0.5, 0, 0, -0.5])
    close(advantage(dvpo(lam=0.0, bootstrap=True), batch), [0] * 7)


def test_dvpo_reads_no_score():
    batch = {"logp_old": [-1.0, -2, -1, -1, -3, -1, -1], "ref.base": [-1.5] * 7}
    batch |= {"ref.base.value": [0.2] * 7, "ref.base.value_next": [0.2, 0, 0, 0, 0.2, 0.2, 0]}
    one, two = pairs(**batch), pairs(**batch, reward=last(LENGTHS, [9, -9, 3, 1]))
    close(advantage(dvpo(), one), advantage(dvpo(), two).tolist())


def rewards(batch: Batch, **options) -> torch.Tensor:
    """What RTO's second stage pays."""
    return shape(anypo.recipe("rto", **options).stages[-1], batch)["reward"]


def test_rto_without_its_implicit_reward_is_a_bounded_score_less_the_divergence():
    columns = {"logp_old": [-1, -2, -1, -1, -1, -1, -1], "ref.base": [-2.0] * 7}
    batch = pairs(reward=last(LENGTHS, [12, 0, 1, -30]), **columns, **{"ref.dpo": [-1.0] * 7})
    paid = [-1 * 0.1, 10, -0.1, 1 - 0.1, -0.1, -0.1, -10 - 0.1]
    close(rewards(batch, scale=0.0, beta=0.1), paid)


def test_rtos_implicit_rewards_sum_to_that_of_the_answer_where_no_bound_acts():
    columns = {"logp_old": [-2.0] * 7, "ref.base": [-2.0] * 7, "ref.dpo": [-1, -1.5] + [-2.0] * 5}
    batch = pairs(**columns)
    close(rewards(batch, scale=0.1, clip=0.0)[:2], [0.1, 1 + 0.05])
    close(rewards(batch, scale=0.1, clip=0.06)[:2], [0.06, 1 + 0.05])
