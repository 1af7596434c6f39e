"""Methods that aim at a distribution: f-divergences, flow balance, bounded ratios.

Expectations run over every answer, or group of answers, of a few prompts.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import anypo.recipes
from anypo.core import discover
from anypo.pieces.advantage.baseline import Baseline
from tests.oracle.expectation import Expectation
from tests.oracle.test_optimum import as_table, policy, reaches, rewards, still, tilted
from tests.oracle.world import World, answers, arms, close, slope

METHODS = discover.methods(anypo.recipes)
ONE = {
    "arms": arms(rewards=((1.0, 0.2, -0.5),), weights=(1.0,)),
    "answers": answers(rewards=((1.0, 0.2, -0.5),), weights=(1.0,)),
}
WORLD = arms()
BETA = 0.8

DIVERGENCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "kl": lambda pi, p: (p * (p / pi).log()).sum(),
    "reverse_kl": lambda pi, p: (pi * (pi / p).log()).sum(),
    "js": lambda pi, p: (pi * (2 * pi / (pi + p)).log() + p * (2 * p / (pi + p)).log()).sum(),
    "tv": lambda pi, p: 0.5 * (pi - p).abs().sum(),
    "chi_square": lambda pi, p: ((pi - p) ** 2 / pi).sum(),
    "reverse_chi_square": lambda pi, p: ((pi - p) ** 2 / p).sum(),
}


def target(world: World) -> tuple[Tensor, float]:
    """`p ∝ ref·exp(R/β)` of the one prompt, and its mass Z."""
    ref = world.table(3)
    mass = (world.logp(ref, 0) + world.outcomes(0) / BETA).exp()
    return mass / mass.sum(), float(mass.sum())


def dpg(world: World, f: str, table: Tensor, mu: Tensor | None = None) -> Expectation:
    """f-DPG with the exact Z, a baseline that is not 0, and answers of `mu`."""
    recipe = METHODS["f_dpg"](f=f, beta=BETA, z=target(world)[1], baseline=0.3)
    return Expectation(recipe, world, table, mu=mu, old=table, ref=world.table(3))


@pytest.mark.parametrize("where", ONE)
@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("f", DIVERGENCES)
def test_f_dpg_follows_the_divergence(where, far, f):
    """`E[∇loss] = ∇D_f(π ‖ p)`, from answers of the policy or of another one."""
    world = ONE[where]
    table, p = world.table(1), target(world)[0]
    exact = slope(lambda leaf: DIVERGENCES[f](world.probabilities(leaf, 0), p), table)
    assert exact.abs().max() > 0.005
    close(dpg(world, f, table, world.table(2) if far else None).gradient(), exact)


@pytest.mark.parametrize("where", ONE)
@pytest.mark.parametrize("f", [f for f in DIVERGENCES if f != "tv"])  # its slope jumps at p
def test_f_dpg_rests_at_the_target(where, f):
    """No expected gradient at `p ∝ ref·exp(R/β)`, whoever samples."""
    world = ONE[where]
    still(dpg(world, f, as_table(world, [target(world)[0]]), world.table(2)))


def test_a_wrong_mass_of_the_target_moves_the_rest():
    """With half of Z only the reverse KL, in which Z is a baseline, still rests at the target."""
    world = ONE["arms"]
    table, z = as_table(world, [target(world)[0]]), target(world)[1] / 2
    for f in ("reverse_kl", "js", "chi_square"):
        recipe = METHODS["f_dpg"](f=f, beta=BETA, z=z)
        # At the target π/p is one number whatever Z is; around it, f' is read elsewhere.
        still(Expectation(recipe, world, table, ref=world.table(3)))
        near = table + torch.tensor([[0.5, 0.0, -0.5]], dtype=torch.float64)
        found = Expectation(recipe, world, near, ref=world.table(3)).gradient()
        exact = dpg(world, f, near).gradient()
        same = float((found - exact).abs().max()) < 1e-9
        assert same == (f == "reverse_kl")


# ── flow balance ─────────────────────────────────────────────────────────────────────────────────


def flow(**options) -> Expectation:
    """FlowRL on one-token answers, with the weight of every answer 1."""
    recipe = METHODS["flowrl"](group=2, beta=BETA, weight_low=1.0, weight_cap=1.0)
    recipe = recipe.but(**options)
    return Expectation(recipe, WORLD, WORLD.table(1), mu=WORLD.table(2), ref=WORLD.table(3))


def balanced(found: Expectation, scores: list[Tensor]) -> None:
    """Policy and log Z end at `ref·exp(score)/Z`."""
    ref = WORLD.table(3)
    reaches(found, tilted(WORLD, ref, scores))
    for x, score in zip(WORLD, scores):
        z = torch.logsumexp(WORLD.logp(ref, x) + score, 0)
        torch.testing.assert_close(found.state.heads["log_z"].rows.data[x, 0], z, rtol=0, atol=1e-5)


def test_flow_balance_on_rewards():
    """`π* ∝ ref·exp(β R)` and `log Z = log Σ ref·exp(β R)`, whoever samples."""
    found = flow(advantage=Baseline("traj", "group", centre="off"))
    balanced(found, rewards(WORLD, BETA))
    assert found.loss() < 1e-12


def test_flow_balance_on_centred_rewards():
    """The group's mean holds the answer's own reward: `ref·exp(β (G−1)/G R)`, log Z shifted."""
    found = flow(advantage=Baseline("traj", "group"))
    shifts = [float(p @ WORLD.outcomes(x)) for x, p in zip(WORLD, policy(WORLD, WORLD.table(2)))]
    balanced(found, [BETA * 0.5 * (WORLD.outcomes(x) - shifts[x]) for x in WORLD])


def test_flow_balance_as_published():
    """With GRPO's advantages, the score of an answer is the mean advantage that it gets."""
    found = flow()
    scores = [torch.zeros(3, dtype=torch.float64) for _ in WORLD]
    mu = policy(WORLD, WORLD.table(2))
    for p, batch in found.drawn:
        for x, k, a in zip(batch.id("prompt"), batch.inputs["token"][:, 0], batch["advantage"]):
            scores[x][k] += BETA * p / WORLD.weights[x] * a / mu[x][k] / 2
    balanced(found, scores)


def test_flow_balance_rests_under_its_weights():
    """At the balance the residual of every answer is 0, so importance weights change nothing."""
    ref = WORLD.table(3)
    best = as_table(WORLD, tilted(WORLD, ref, rewards(WORLD, BETA)))
    z = torch.stack(
        [torch.logsumexp(WORLD.logp(ref, x) + BETA * WORLD.outcomes(x), 0) for x in WORLD]
    )
    recipe = METHODS["flowrl"](group=2, beta=BETA).but(
        advantage=Baseline("traj", "group", centre="off")
    )
    found = Expectation(recipe, WORLD, best, mu=WORLD.table(2), ref=ref, heads={"log_z": z})
    still(found)
    away = Expectation(recipe, WORLD, best, mu=WORLD.table(2), ref=ref, heads={"log_z": z + 1})
    close(away.loss().detach(), torch.tensor(float(weights(away)), dtype=torch.float64))


def weights(found: Expectation) -> float:
    """`E[mean of the answers' importance weights]`: the loss at a residual of 1."""
    total = 0.0
    for p, batch in found.drawn:
        now = torch.log_softmax(found.parameter.detach(), -1)
        logp = now[batch.id("prompt"), batch.inputs["token"][:, 0]]
        total += p * float((logp - batch["logp_old"]).exp().clamp(max=10).mean())
    return total


# ── bounded ratios ───────────────────────────────────────────────────────────────────────────────


def test_gbpo_is_attracted_to_its_target_from_both_sides():
    """Two answers, G = 2: `t = 1 ± ε·tanh(√½/(2T))`; the loss is 0 there and turns round."""
    world = arms(rewards=((1.0, 0.0), (0.0, 1.0)), weights=(0.5, 0.5))
    old = torch.zeros(2, 2, dtype=torch.float64)
    epsilon, temperature = 0.2, 0.5
    recipe = METHODS["gbpo"](group=2, clip_low=epsilon, clip_high=epsilon, tau=temperature)
    step = epsilon * math.tanh(math.sqrt(0.5) / temperature / 2)
    sides = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    best = (0.5 * (1 + step * sides)).log()
    assert Expectation(recipe, world, best, mu=old).loss() < 1e-6
    for factor, sign in ((0.5, -1.0), (1.5, 1.0)):
        near = (0.5 * (1 + factor * step * sides)).log()
        found = Expectation(recipe, world, near, mu=old).gradient()
        assert bool((found.sign() == sign * sides).all()), "pulled to the target"


def test_gbpo_with_a_hard_target_starts_as_the_policy_gradient():
    """At ratio 1 the slope is `−|A|·sign(A) = −A`: GRPO's gradient, as long as no target is 1."""
    world = arms(rewards=((1.0, 0.0), (0.0, 1.0)), weights=(0.4, 0.6))
    table = world.table(1)
    bounded = Expectation(METHODS["gbpo"](group=2, tau=1e-3), world, table).gradient()
    grpo = Expectation(METHODS["grpo"](group=2, beta=0.0), world, table).gradient()
    close(bounded, grpo)
