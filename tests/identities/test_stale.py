"""Data of another policy: reductions to PPO, weights and centres by hand, a moving average."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import anypo
from anypo.core.errors import UsageError
from anypo.core.neutral import Adam, Mean
from anypo.core.recipe import Recipe
from anypo.engine.problem import Problem
from anypo.pieces.advantage.gae import Whiten
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.regularizer.kl import KL
from anypo.pieces.regularizer.variance import RatioVariance
from anypo.pieces.surrogate.clip import Clip
from anypo.pieces.surrogate.window import CentredClip
from anypo.pieces.update.average import Averaged
from tests.identities.evaluate import evaluate, same, scene
from tests.identities.small import close, steps
from tests.properties.test_invariance import Alone, prepared
from tests.toys import ToyPolicy, toy_batch, toy_state

FREE = Clip(1.0, math.inf)


def tokens(**axes: Any) -> Recipe:
    """PPO's clip on group advantages, a mean over all tokens."""
    return anypo.recipe("grpo", beta=0).but(aggregate=Mean("step", "batch"), **axes)


def actor(name: str, **arguments: Any) -> Recipe:
    """A recipe with a critic, without the critic's loss."""
    recipe = anypo.recipe(name, **arguments)
    kept = tuple(p for p in recipe.regularize if not p.modules())
    return recipe.but(regularize=kept)


def at(advantage: list[float], mu: Any, centre: list[float], now: list[float]):
    """Steps with these probabilities under the sampler, the centre, and the policy."""
    mu, old, logp = torch.tensor([mu, centre, now], dtype=torch.float64).log()
    columns = {"logp": logp, "logp_mu": mu, "logp_old": old}
    return steps([1] * len(mu), advantage=advantage, **columns).with_({"ref.ewma": old})


def slope(recipe: Recipe, batch):
    """Minus the gradient of the loss in logp, times the number of steps."""
    return -evaluate(recipe, batch)[1]["logp"] * len(batch)


def known(batch):
    """The scene with its group advantages."""
    return batch.with_({"advantage": tokens().advantage(batch)})


# ── GePPO ────────────────────────────────────────────────────────────────────────────────────────


def test_on_fresh_data_geppo_is_ppo():
    batch = known(scene())
    fresh = batch.with_({"logp_mu": batch["logp_old"]})
    same(actor("geppo"), tokens(), fresh)


def test_the_window_of_geppo_stands_where_the_old_policy_is():
    """π/μ is 1.75, 1.65, 0.35, 0.45 and 1; c is 1.5, 0.5 and 1, so the bounds are c ± 0.2."""
    batch = at(
        [1, 1, -1, -1, 2],
        [0.25] * 4 + [0.5],
        [0.375, 0.375, 0.125, 0.125, 0.5],
        [0.4375, 0.4125, 0.0625, 0.1125, 0.5],
    )
    close(slope(actor("geppo"), batch), [0, 1.65, 0, -0.45, 2])


def test_older_data_narrow_the_window():
    """Of three policies the half-width is 0.2·2/4."""
    batch = at([1, 1], [0.25] * 2, [0.375] * 2, [0.39, 0.41])
    recipe = actor("geppo")
    close(slope(recipe, batch), [1.56, 1.64])
    close(slope(recipe.set("surrogate.policies", 3), batch), [1.56, 0])
    with pytest.raises(UsageError, match="policies must be 1"):
        recipe.set("surrogate.policies", 3).check()


def test_standardisation_with_weights():
    """c = 3 and 1: the mean is (3·1 + 5)/4, the deviation that of 3 and 5."""
    batch = steps([1, 1], advantage=[1.0, 5.0], logp_old=[math.log(3), 0.0], logp_mu=[0.0, 0.0])
    close(Whiten(weighted=True, eps=0.0)(batch), [-1 / math.sqrt(2), 3 / math.sqrt(2)])
    even = batch.with_({"logp_old": batch["logp_mu"]})
    close(Whiten(weighted=True)(even), Whiten()(even).tolist())


# ── decoupled PPO ────────────────────────────────────────────────────────────────────────────────


def test_when_the_old_policy_sampled_decoupled_ppo_is_ppo():
    batch = scene()
    same(anypo.recipe("decoupled_ppo"), tokens(), batch.with_({"logp_mu": batch["logp_old"]}))


def test_unclipped_the_centre_does_not_matter():
    recipe = anypo.recipe("decoupled_ppo", clip_low=1, clip_high=99, weight_cap=math.inf)
    same(recipe, tokens(ratio=Ratio("step", to="logp_mu"), surrogate=FREE), scene())


@pytest.mark.parametrize(
    ("arguments", "weights"),
    [({}, [2, 0.5, 6]), ({"weight_cap": 3}, [2, 0.5, 0]), ({"cap_mode": "clamp"}, [2, 0.5, 5])],
)
def test_weights_above_their_cap(arguments, weights):
    """The last weight is 6; a token taken out still counts in the denominator."""
    batch = at([1, -1, 3], [0.2, 0.4, 0.1], [0.4, 0.2, 0.6], [0.4, 0.2, 0.6])
    recipe = anypo.recipe("decoupled_ppo", **{"weight_cap": math.inf, **arguments})
    if "cap_mode" in arguments:
        recipe = anypo.recipe("decoupled_ppo", **arguments)
    loss, grads = evaluate(recipe, batch)
    pushed = [w * a for w, a in zip(weights, [1, -1, 3], strict=True)]
    assert loss == pytest.approx(-sum(pushed) / 3)
    close(-3 * grads["logp"], [x for x in pushed if x])


# ── PPO-EWMA ─────────────────────────────────────────────────────────────────────────────────────


def test_when_the_average_sampled_ppo_ewma_is_ppo():
    batch = known(scene())
    batch = batch.with_({"logp_mu": batch["logp_old"], "ref.ewma": batch["logp_old"]})
    same(actor("ppo_ewma"), tokens(), batch)


def test_around_the_current_policy_nothing_is_clipped():
    batch = known(scene())
    batch = batch.with_({"ref.ewma": batch["logp"]})
    same(actor("ppo_ewma"), tokens(ratio=Ratio("step", to="logp_mu"), surrogate=FREE), batch)


def test_the_window_of_ppo_ewma_is_a_factor():
    """π/prox is 1.25 and 1.1, where PPO clips at 1.2; the objective is 2 and 4 times PPO's."""
    batch = at([1, 1], [0.2, 0.1], [0.4, 0.4], [0.5, 0.44])
    loss, _ = evaluate(actor("ppo_ewma"), batch)
    assert loss == pytest.approx(-(2 * 1.2 + 4 * 1.1) / 2)
    close(slope(actor("ppo_ewma"), batch), [0, 4.4])


def test_a_ratio_above_its_cap_pushes_as_the_cap():
    batch = at([1, -1], [0.1, 0.4], [0.5, 0.4], [0.55, 0.4])
    close(slope(actor("ppo_ewma", imp_samp_max=2), batch), [2, -1])
    penalised = actor("ppo_ewma", kl_penalty=0.5)
    assert penalised.regularize == (KL("ewma", 0.5, form="k2"),)
    close(slope(penalised, batch), [5.5 - 0.5 * math.log(1.1), -1])


def test_the_average_weighs_every_policy_by_its_age():
    """After k steps: Σ decay^(k−i) w_i over Σ decay^(k−i), the start included."""
    recipe = actor("ppo_ewma", decay=0.5, minibatches=2)
    state = toy_state(recipe, ToyPolicy())
    state.references["ewma"] = state.policy.snapshot()
    batch = prepared(recipe, toy_batch([[3, 2], [1, 4]]), state)
    seen = [state.policy.snapshot()]
    for k in range(1, 4):
        problem = Problem(recipe.objectives[0], batch, state, Alone())
        recipe.update.step(problem, state.optimizers[0], 0.05)
        seen.append(state.policy.snapshot())
        total = sum(0.5 ** (k - i) for i in range(k + 1))
        assert state.pieces["ewma_weight"] == pytest.approx(total)
        for name, kept in state.references["ewma"].items():
            wanted = sum(0.5 ** (k - i) * w[name] for i, w in enumerate(seen)) / total
            torch.testing.assert_close(kept, wanted, rtol=1e-12, atol=1e-14)
    assert "ewma" in state.refreshed
    assert not torch.equal(seen[0]["0.weight"], seen[-1]["0.weight"])


def test_a_second_update_of_a_batch_sees_the_average_as_it_is_then():
    recipe = actor("ppo_ewma", minibatches=2)
    state = toy_state(recipe, ToyPolicy())
    batch = prepared(recipe, toy_batch([[3, 2], [1, 4]]), state)
    state.references["ewma"] = ToyPolicy(seed=8).snapshot()  # it moved since
    problem = Problem(recipe.objectives[0], batch, state, Alone())
    recipe.update.step(problem, state.optimizers[0], 0.05)
    moved = ToyPolicy(seed=8).columns(batch, frozenset({"logp"}), {})["logp"].detach()
    torch.testing.assert_close(problem.batch["ref.ewma"], moved, rtol=1e-12, atol=1e-14)
    assert not torch.allclose(batch["ref.ewma"], moved)


QUIET: dict[str, Any] = {"eval_every": 0, "eval_size": 1, "record_every": 0, "prompts": 8}


def test_a_run_that_goes_on_keeps_its_average(tmp_path: Path):
    recipe = anypo.recipe("ppo_ewma", minibatches=2)

    def rows(out: str, iterations: int) -> list[tuple[float, float]]:
        where = {"policy": "tiny", "task": "vowels", "out": tmp_path / out}
        run = anypo.train(recipe, steps=iterations, **where, **QUIET)
        return [(row["loss"], row["state/ewma_weight"]) for row in run.metrics]

    rows("cut", 1)
    cut, whole = rows("cut", 3), rows("whole", 3)
    assert cut == whole
    assert whole[-1][1] == pytest.approx(sum(0.889**i for i in range(7)))


def test_an_average_that_nobody_reads_is_refused():
    with pytest.raises(UsageError, match="no piece reads it"):
        tokens(update=Averaged(Adam())).check()


# ── R²VPO ────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_multiplier_r2vpo_is_unclipped():
    same(anypo.recipe("r2vpo", lam=0, eta=0), tokens(surrogate=FREE), scene())


@pytest.mark.parametrize("lam", [0.04, 3.0])
def test_r2vpo_starts_as_the_policy_gradient_and_rests_beyond(lam):
    """The slope is r·(A − 2λ(r − 1)): A at r = 1, and 0 at r = 1 + A/(2λ)."""
    recipe = anypo.recipe("r2vpo", lam=lam, eta=0)
    logp = [0.0, math.log(1 + 0.06 / (2 * lam)), math.log(0.5)]
    batch = steps([1] * 3, advantage=[-2, 0.06, 1], logp=logp, logp_old=[0, 0, 0])
    close(slope(recipe, batch), [-2, 0, 0.5 * (1 + lam)])


@pytest.mark.parametrize(("delta", "expected"), [(0.1, 0.5 + 2 * 0.525), (2.0, 0.0)])
def test_the_multiplier_rises_where_the_constraint_is_broken(delta, expected):
    """r = 2 and 0.5: (1 + 0.25)/2 = 0.625; it never falls below 0."""
    piece = RatioVariance(0.5, delta, eta=2.0)
    moved = steps([1, 1], logp=[math.log(2), math.log(0.5)], logp_old=[0, 0])
    assert piece.observe(moved, piece.init()) == {"ratio_multiplier": pytest.approx(expected)}
    assert RatioVariance(0.5, delta).observe(moved, {}) == {}


def test_the_multiplier_that_was_learned_is_the_one_that_acts():
    recipe = anypo.recipe("r2vpo", lam=0.04, eta=1.0)
    batch = known(scene()).with_({"ratio_multiplier": torch.full((8,), 3.0)})
    same(recipe, anypo.recipe("r2vpo", lam=3.0, eta=0), batch)


def test_a_run_measures_the_ratio_after_its_update(tmp_path: Path):
    """One update a batch: before it every ratio is 1, so a variance above 0 is that after it."""
    found = {}
    for delta in (1e-9, 1e3):
        recipe = anypo.recipe("r2vpo", lam=0.04, delta=delta, eta=1e-3)
        run = anypo.train(
            recipe, policy="tiny", task="vowels", steps=2, out=tmp_path / str(delta), **QUIET
        )
        found[delta] = [row["state/ratio_multiplier"] for row in run.metrics]
    assert 0.04 < found[1e-9][0] < found[1e-9][1]
    assert found[1e3] == [0, 0]


# ── what is refused ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "arguments", "field"),
    [
        ("geppo", {"clip": -0.1}, "low"),
        ("geppo", {"epochs": 0}, "epochs"),
        ("decoupled_ppo", {"weight_cap": 0}, "cap"),
        ("decoupled_ppo", {"cap_mode": "drop"}, "cap_mode"),
        ("decoupled_ppo", {"group": 1}, "group"),
        ("ppo_ewma", {"decay": 1}, "decay"),
        ("ppo_ewma", {"imp_samp_max": 0}, "cap"),
        ("r2vpo", {"lam": -1}, "lam"),
        ("r2vpo", {"delta": 0}, "delta"),
    ],
)
def test_bad_arguments_are_refused(name, arguments, field):
    with pytest.raises(UsageError, match=f"^{name}: .*{field}"):
        anypo.recipe(name, **arguments)


def test_a_centred_window_wants_the_sampler_as_anchor():
    with pytest.raises(UsageError, match="logp_mu"):
        tokens(surrogate=CentredClip()).check()
