"""What replaces PPO's clip: reductions to PPO, GSPO and CISPO, and numbers worked by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import anypo
from anypo.core.errors import UsageError
from anypo.core.neutral import Mean, Reinforce
from anypo.core.recipe import Recipe
from anypo.math import coarse, select
from anypo.pieces.advantage.gauge import Gauge
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.regularizer.kl import KL
from anypo.pieces.surrogate.clip import Clip
from tests.identities.evaluate import evaluate, same, scene
from tests.identities.small import close, steps

TOKENS = Mean("step", "batch")
FREE = Clip(1.0, math.inf)


def ppo(low: float = 0.2, high: float = 0.2, dual: float = math.inf, **axes: Any) -> Recipe:
    """PPO's clip on group advantages, a mean over all tokens."""
    return anypo.recipe("grpo", beta=0).but(
        surrogate=Clip(low, high, dual), **{"aggregate": TOKENS, **axes}
    )


def at(ratios: list[float], advantage: list[float], lengths: list[int] | None = None, **more: Any):
    """Steps with these ratios to an old probability of one half."""
    old = torch.full((len(ratios),), math.log(0.5), dtype=torch.float64)
    logp = old + torch.tensor(ratios, dtype=torch.float64).log()
    columns = {"logp": logp, "logp_old": old, "logp_mu": old, **more}
    return steps(lengths or [1] * len(ratios), advantage=advantage, **columns)


def slope(recipe: Recipe, batch) -> Tensor:
    """Minus the gradient of the loss in logp, times the number of steps."""
    return -evaluate(recipe, batch)[1]["logp"] * len(batch)


# ── CE-GPPO ──────────────────────────────────────────────────────────────────────────────────────


def test_ce_gppo_without_leaks_has_the_gradient_of_ppo():
    none = anypo.recipe("ce_gppo", beta1=0, beta2=0)
    same(none, ppo(0.2, 0.28, 3.0), scene(), values=False)


def test_a_leak_is_the_bound_whatever_the_ratio():
    recipe = anypo.recipe("ce_gppo", beta1=0.5, beta2=0.75, dual_clip=3.0)
    far = at([0.5, 0.1, 2, 50, 2.5, 9, 0.5], [-1, -1, 2, 2, -1, -1, 1])
    close(slope(recipe, far), [-0.4, -0.4, 1.92, 1.92, -2.5, 0, 0.5])
    loss, _ = evaluate(recipe, far)
    assert loss == pytest.approx(-(-0.4 - 0.4 + 1.92 + 1.92 - 2.5 - 3 + 0.5) / 7)


# ── Clip-Cov and KL-Cov ──────────────────────────────────────────────────────────────────────────


def test_the_largest_members_and_their_ties():
    lot = torch.tensor([0.4, 0.3, 0.2, 0.1])
    value = torch.tensor([1.0, 2.0, 1.0, -torch.inf])
    assert select.largest(value, lot, 2).tolist() == [False, True, True, False]
    assert select.largest(value, lot, 4).tolist() == [True, True, True, False]
    assert [select.quota(0.1, n) for n in (5, 19, 20)] == [1, 1, 2]


def test_one_advantage_for_all_leaves_clip_cov_as_ppo():
    batch = at([0.5, 1, 3], [2, 2, 2], lot=[0.1, 0.2, 0.3])
    same(anypo.recipe("clip_cov", clip_low=0.2, clip_high=0.2), ppo(), batch)


def covarying(lots: list[float]):
    """Parts of the covariance: 2, 2, 1 and 1, about means of 0 and −2."""
    logp = [-1.0, -3.0, -1.0, -3.0]
    return steps([1] * 4, advantage=[2, -2, 1, -1], logp=logp, logp_old=logp, lot=lots)


@pytest.mark.parametrize(
    ("lots", "arguments", "dropped"),
    [
        ([0.1, 0.2, 0.3, 0.4], {}, [0]),
        ([0.4, 0.3, 0.2, 0.1], {}, [3]),
        ([0.4, 0.3, 0.2, 0.1], {"cov_ratio": 0.5}, [2, 3]),
        ([0.4, 0.3, 0.2, 0.1], {"cov_lb": 1.5}, [1]),
        ([0.1, 0.2, 0.3, 0.4], {"cov_ub": 1.5}, [2]),
        ([0.4, 0.3, 0.2, 0.1], {"cov_lb": 1.5, "cov_ratio": 1.0}, [0, 1]),
        ([0.4, 0.3, 0.2, 0.1], {"cov_lb": 1.0, "cov_ub": 2.0}, []),
    ],
)
def test_clip_cov_drops_the_smallest_lots_among_the_candidates(lots, arguments, dropped):
    batch, expected = covarying(lots), torch.tensor([2.0, -2, 1, -1])
    expected[dropped] = 0
    recipe = anypo.recipe("clip_cov", **{"cov_lb": 0.5, **arguments})
    close(slope(recipe, batch), expected.tolist())


@pytest.mark.parametrize(("high", "expected"), [(0.2, [0, 0, 0, -1]), (9.0, [0, 2, -1, -1])])
def test_what_ppo_clips_is_no_candidate(high, expected):
    """All parts of the covariance are log 2 / 2."""
    batch = at([2, 2, 1, 1], [1, 1, -1, -1], lot=[0.1, 0.2, 0.3, 0.4])
    recipe = anypo.recipe("clip_cov", cov_lb=0.3, cov_ratio=0.25, clip_high=high)
    close(slope(recipe, batch), expected)


def test_kl_cov_without_a_penalty_is_unclipped_and_with_all_tokens_a_distance():
    same(anypo.recipe("kl_cov", kl_coef=0), ppo().but(surrogate=FREE), scene())
    near = ppo().but(surrogate=FREE, regularize=(KL("old", 2.0, form="abs"),))
    same(anypo.recipe("kl_cov", kl_coef=2, cov_ratio=1), near, scene())


def test_kl_cov_holds_the_largest_signed_covariance():
    """Both of the large products are negative: neither is held, the small positive one is."""
    batch = at([1.5, 0.5, 1.25], [-3, 3, 0.5], lot=[0.1, 0.2, 0.3])
    held = slope(anypo.recipe("kl_cov", kl_coef=0.7), batch)
    free = slope(ppo().but(surrogate=FREE), batch)
    close(held - free, [0, 0, -0.7])


# ── DPPO ─────────────────────────────────────────────────────────────────────────────────────────


def test_dppo_without_thresholds_is_a_capped_importance_weight():
    recipe = anypo.recipe("dppo_divergence", low=math.inf, high=math.inf, ratio_cap=1.5)
    capped = ppo(ratio=Ratio("step", to="logp_mu")).but(surrogate=Reinforce(math.inf, 0.5))
    same(recipe, capped, scene())


@pytest.mark.parametrize("divergence", ["binary_tv", "binary_kl"])
@pytest.mark.parametrize("trust", ["logp_mu", "logp_old"])
def test_dppo_at_the_sampler_is_the_policy_gradient(divergence, trust):
    recipe = anypo.recipe("dppo_divergence", divergence=divergence, trust=trust)
    close(slope(recipe, at([1, 1], [2, -3])), [2, -3])


def moved(q: list[float], p: list[float], advantage: list[float], **more: Any):
    """Steps whose probability went from q to p."""
    logp, old = (torch.tensor(x, dtype=torch.float64).log() for x in (p, q))
    columns = {"logp": logp, "logp_mu": old, "logp_old": logp, **more}
    return steps([1] * len(q), advantage=advantage, **columns)


def test_dppo_keeps_a_rare_token_that_ppo_clips_and_drops_a_frequent_one_that_it_keeps():
    batch = moved([0.01, 0.9, 0.3, 0.9], [0.03, 0.6, 0.6, 0.6], [1, -1, 1, 1])
    close(slope(anypo.recipe("dppo_divergence"), batch), [3, 0, 0, 2 / 3])
    own = anypo.recipe("dppo_divergence", trust="logp_old")  # nothing moved since the update began
    close(slope(own, batch), [3, -2 / 3, 2, 2 / 3])
    tight = anypo.recipe("dppo_divergence", low=0.31, high=0.01)
    close(slope(tight, batch), [0, -2 / 3, 0, 2 / 3])


def logs(*probabilities: float) -> Tensor:
    return torch.tensor(probabilities, dtype=torch.float64).log()


def test_binary_divergences_by_hand():
    logp, anchor = logs(0.25, 0.8), logs(0.5, 0.5)
    close(coarse.binary(logp, anchor, "tv"), [0.25, 0.3])
    kl = [0.5 * math.log(2) + 0.5 * math.log(2 / 3), 0.5 * math.log(5 / 8) + 0.5 * math.log(5 / 2)]
    got = coarse.binary(logp, anchor, "kl")
    torch.testing.assert_close(got, torch.tensor(kl).double(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("form", ["tv", "kl"])
def test_the_top_token_alone_is_the_binary_divergence(form):
    logp, anchor = logs(0.25, 0.8), logs(0.5, 0.4)
    top = coarse.top(logp[:, None], anchor[:, None], form)
    torch.testing.assert_close(top, coarse.binary(logp, anchor, form), rtol=1e-7, atol=1e-8)
    both = [torch.stack([x, (1 - x.exp()).log()], -1) for x in (logp, anchor)]
    torch.testing.assert_close(coarse.top(*both, form), top, rtol=1e-7, atol=1e-8)


# ── GMPO, FiberPO, PSPO ──────────────────────────────────────────────────────────────────────────


def test_gmpo_inside_its_bounds_is_gspo_without_a_clip():
    whole = ppo(ratio=Ratio("traj", mean=True), aggregate=Mean("step", "traj", "batch"))
    wide = anypo.recipe("gmpo", log_clip_low=9, log_clip_high=9)
    same(wide, whole.but(surrogate=FREE), scene())


def test_a_clipped_token_adds_its_bound_to_the_mean_and_has_no_gradient():
    ratios = [math.exp(10), *[1.0] * 9]
    batch = at(ratios, [1.0] * 10, [10])
    loss, grads = evaluate(anypo.recipe("gmpo"), batch)
    assert loss == pytest.approx(-math.exp(0.04))
    close(grads["logp"], [0, *[-math.exp(0.04) / 10] * 9])


@pytest.mark.parametrize(("sign", "kept"), [(1.0, [0.5, 1.0]), (-1.0, [1.0, 0.5])])
def test_gmpo_clips_only_what_the_advantage_pushes(sign, kept):
    """Log-ratios of 1 and −1 with bounds of a half."""
    recipe = anypo.recipe("gmpo", log_clip_low=0.5, log_clip_high=0.5)
    loss, grads = evaluate(recipe, at([math.e, 1 / math.e], [sign] * 2, [2]))
    assert loss == pytest.approx(-sign * math.exp((kept[0] - kept[1]) / 2))
    assert ((grads["logp"] == 0) == (torch.tensor(kept) == 0.5)).all()


@pytest.mark.parametrize(
    ("delta", "epsilon", "ratios", "gated"),
    [
        (0.1, 0.2, (0.5, -0.1, 0.2), (0.3, -0.1, 0.2)),
        (0.5, 0.25, (0.8, 0.2, 0.2), (0.65, 0.2, 0.2)),
        (0.5, 0.1, (0.8, 0.2, 0.2), (0.5, 0.3, 0.3)),
        (0.1, 0.2, (-0.9, -0.2, 0.2), (-0.3, -0.2, 0.1)),
    ],
)
def test_the_two_gates_by_hand(delta, epsilon, ratios, gated):
    """Log-ratios lie within ε of their mean, which is cut to ±δ."""
    recipe = anypo.recipe("fiberpo", delta=delta, epsilon=epsilon)
    loss, _ = evaluate(recipe, at([math.exp(x) for x in ratios], [1.0] * 3, [3]))
    assert loss == pytest.approx(-sum(math.exp(x) for x in gated) / 3)


def test_outside_of_its_window_a_token_moves_with_the_mean_unless_that_is_cut():
    batch = at([math.exp(x) for x in (0.8, 0.2, 0.2)], [1.0] * 3, [3])
    _, free = evaluate(anypo.recipe("fiberpo", delta=0.5, epsilon=0.25), batch)
    edge, own = math.exp(0.65) / 9, math.exp(0.2) / 3
    close(free["logp"], [-edge, -edge - own, -edge - own])
    _, cut = evaluate(anypo.recipe("fiberpo", delta=0.35, epsilon=0.25), batch)
    close(cut["logp"], [0, -own, -own])


def test_fiberpo_without_fibres_is_a_clipped_sequence_ratio():
    mean = anypo.recipe("fiberpo", epsilon=0, delta=9)
    whole = ppo(ratio=Ratio("traj", mean=True), aggregate=Mean("step", "traj", "batch"))
    same(mean, whole.but(surrogate=FREE), scene())


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.5])
def test_smoothing_scales_the_unclipped_gradient(alpha):
    recipe = anypo.recipe("pspo", alpha=alpha)
    mean = float(recipe.advantage(scene()).mean())
    loss, grads = evaluate(recipe, scene())
    free, expected = evaluate(ppo().but(surrogate=FREE), scene())
    wanted = (1 - alpha) * expected["logp"]
    torch.testing.assert_close(grads["logp"], wanted, rtol=1e-10, atol=1e-13)
    assert loss == pytest.approx((1 - alpha) * free - alpha * mean)


def test_a_smoothed_ratio_by_hand():
    loss, _ = evaluate(anypo.recipe("pspo", alpha=0.25), at([3, 0.2], [1, -1]))
    assert loss == pytest.approx(-(2.5 - 0.4) / 2)


# ── HAPO ─────────────────────────────────────────────────────────────────────────────────────────


def entropies(*values: float, **more: Any):
    """A scene of eight steps with these entropies in turn, near the old policy."""
    batch = scene(entropy_old=[values[i % len(values)] for i in range(8)], **more)
    return batch.with_({"logp": batch["logp_old"] + 0.08 * (torch.arange(8) - 3.5)})


def plain(recipe: Recipe) -> Recipe:
    """PPO's clip in place of the one that reads entropies."""
    return recipe.but(surrogate=Clip(0.2, 0.28, 3.0))


@pytest.mark.parametrize(
    ("arguments", "values"),
    [({"clip_alpha": 0.0, "adv_beta": 0.0}, (0.1, 2.0, 0.7)), ({}, (0.5,))],
)
def test_hapo_without_entropies_is_dapo(arguments, values):
    recipe = anypo.recipe("hapo", **arguments)
    same(recipe, plain(recipe), entropies(*values))
    other = anypo.recipe("hapo")
    unequal = entropies(0.1, 2.0, 0.7)
    got, expected = (slope(r, unequal) for r in (other, plain(other)))
    assert not torch.allclose(got, expected)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("corrected", [-1, -0.5, 0, 0.5, 1]), ("as-published", [1, 0.5, 0, 0.5, 1])],
)
def test_the_gauge_is_centred_on_its_pivot(mode, expected):
    entropy = [math.exp(x) for x in (-4, -2, 0, 1, 2)]
    batch = steps([5], entropy_old=entropy)
    close(Gauge(0.5, mode)(batch), expected)
    assert float(Gauge(0.75, mode)(batch)[3]) == 0
    close(Gauge(0.5, mode)(steps([3], entropy_old=[0.3] * 3)), [0, 0, 0])


def test_entropy_sets_clip_ranges_and_advantages():
    """Five steps at h = −1, −1, 1, 1, 1: bounds 0.6 below, 1.56 above; A is doubled or gone."""
    recipe = anypo.recipe("hapo")
    h = [-1.0, -1.0, 1.0, 1.0, 1.0]
    batch = at([0.7, 1.0, 1.5, 1.7, 1.1], [-1, -1, 1, 1, 1], gauge=h)
    close(slope(recipe, batch), [-0.7, 0, 3, 0, 1.1])
    bare = anypo.recipe("hapo", adv_beta=0)
    close(slope(bare, batch), [-0.7, -1, 1.5, 0, 1.1])
    ppo_like = anypo.recipe("hapo", adv_beta=0, clip_alpha=0)
    close(slope(ppo_like, batch), [0, -1, 0, 0, 1.1])


def test_hapo_compares_tokens_and_falls_back_to_answers():
    """A right answer of 3 tokens in 4: mean 3/4, deviation √3/4. One token in 40 is too far out."""
    recipe = anypo.recipe("hapo")
    batch = steps([3, 1], reward=[0, 0, 1, 0])
    root = math.sqrt(3)
    expected = [0.25 / (root / 4 + 1e-6)] * 3 + [-0.75 / (root / 4 + 1e-6)]
    close(recipe.advantage(batch), expected)
    lone = steps([1, 39], reward=[1.0, *[0.0] * 39])
    half = 0.5 / (math.sqrt(0.5) + 1e-6)
    close(recipe.advantage(lone), [half, *[-half] * 39])


# ── the sketches and GBPO ────────────────────────────────────────────────────────────────────────


def test_dhpo_at_its_ends():
    rows = Mean("step", "traj", "batch")
    same(anypo.recipe("dhpo", mix=1), ppo(aggregate=rows), scene())
    token = ppo(ratio=Ratio("traj", mean=True), aggregate=rows).but(surrogate=FREE)
    wide = anypo.recipe("dhpo", mix=0, seq_low=1, seq_high=99)
    same(wide, token, scene())


@pytest.mark.parametrize("mix", [0.0, 0.3, 1.0])
def test_dhpo_starts_as_the_policy_gradient(mix):
    batch = at([1, 1, 1], [2, 2, -1], [2, 1])
    close(-2 * evaluate(anypo.recipe("dhpo", mix=mix), batch)[1]["logp"], [1, 1, -1])


def test_an_outlier_is_bounded_in_both_branches():
    loss, grads = evaluate(anypo.recipe("dhpo"), at([100], [1]))
    assert loss == pytest.approx(-(1 + 0.1 + 2e-4))
    close(grads["logp"], [0])


def test_egspo_with_and_without_attenuation():
    batch = entropies(0.1, 0.2, 0.3, 0.4)
    same(anypo.recipe("egspo", attenuation=1), ppo(), batch)
    same(anypo.recipe("egspo", quantile=0), ppo(), batch)
    expected = slope(ppo(), batch) * torch.tensor([0.25, 0.25, 1, 1] * 2)
    close(slope(anypo.recipe("egspo", quantile=0.5, attenuation=0.25), batch), expected.tolist())
    _, grads = evaluate(anypo.recipe("egspo", quantile=0.5, attenuation=0), batch)
    close(-8 * grads["logp"], slope(ppo(), batch)[[2, 3, 6, 7]].tolist())


@pytest.mark.parametrize(("ratio", "signal", "push"), [(1, 40, 1), (1, -40, -1), (1.3, 40, -1.3)])
def test_gbpo_with_a_hard_target_starts_as_ppo_and_pulls_back_beyond_it(ratio, signal, push):
    sign = math.copysign(1, signal)
    batch = at([ratio], [2 * sign], target=[signal])
    close(slope(anypo.recipe("gbpo"), batch), [2 * push])


def test_gbpo_rests_at_its_target():
    """u = 0: the middle of the bounds, 1.05 between 0.8 and 1.3; log 3 is three quarters up."""
    recipe = anypo.recipe("gbpo", clip_high=0.3, tau=2.0)
    loss, _ = evaluate(recipe, at([1.05], [1], target=[0]))
    assert loss == pytest.approx(0, abs=1e-12)
    loss, _ = evaluate(recipe, at([1.0], [3], target=[2 * math.log(3)]))
    assert loss == pytest.approx(3 * (0.8 + 0.75 * 0.5 - 1))


def test_gbpo_measures_its_target_from_the_median():
    recipe = anypo.recipe("gbpo")
    batch = steps([1] * 3, reward=[0, 1, 5])
    advantage = recipe.advantage(batch)
    sd = math.sqrt(7) + 1e-6
    close(advantage, [-2 / sd, -1 / sd, 3 / sd])
    close(recipe.advantage.targets(batch, advantage)["target"], [-1 / sd, 0, 4 / sd])


# ── what is refused ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "arguments", "field"),
    [
        ("ce_gppo", {"beta1": -1}, "beta1"),
        ("ce_gppo", {"clip_low": 1.5}, "low"),
        ("ce_gppo", {"dual_clip": 1}, "dual"),
        ("clip_cov", {"cov_ratio": 0}, "cov_ratio"),
        ("clip_cov", {"cov_lb": 6}, "cov_ub"),
        ("kl_cov", {"cov_ratio": 2}, "cov_ratio"),
        ("dppo_divergence", {"divergence": "kl"}, "form"),
        ("dppo_divergence", {"ratio_cap": 0.5}, "high"),
        ("gmpo", {"log_clip_low": -0.1}, "low"),
        ("fiberpo", {"delta": -1}, "delta"),
        ("pspo", {"alpha": 1}, "alpha"),
        ("hapo", {"pivot": 1.5}, "pivot"),
        ("hapo", {"adv_beta": 2}, "adv_beta"),
        ("dhpo", {"mix": 1.1}, "mix"),
        ("egspo", {"quantile": 2}, "quantile"),
        ("egspo", {"attenuation": 2}, "below"),
        ("gbpo", {"tau": 0}, "temperature"),
        ("gbpo", {"group": 1}, "group"),
    ],
)
def test_bad_arguments_are_refused(name, arguments, field):
    with pytest.raises(UsageError, match=f"^{name}: .*{field}"):
        anypo.recipe(name, **arguments)
