"""Estimators that claim to be unbiased, against the exact gradient of E[R], by enumeration.

The expected gradient of the loss is summed over every group that the sampling policy could draw.
It must be `−factor · ∇E[R]`. What is biased by design is shown to be so, and in which way.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import anypo.recipes
from anypo.core import discover
from anypo.core.batch import Batch
from anypo.core.neutral import Groups, Mean, Reinforce, Return
from anypo.core.recipe import Recipe
from anypo.engine.problem import Problem
from anypo.engine.settings import Settings
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.surrogate.clip import Clip
from tests.oracle.expectation import Expectation, Listed
from tests.oracle.world import World, answers, arms, chain, close, gain, slope

METHODS = discover.methods(anypo.recipes)
WORLDS = {"arms": arms(), "answers": answers(), "chain": chain()}
EVERY = ("arms", "answers", "chain")
SHORT = ("arms",)
CENTRED = Baseline("traj", "group")
ANSWER_SUM = Mean("traj", "batch")
UNCLIPPED = Clip(1.0, math.inf)


class Claim(NamedTuple):
    """`E[∇loss] = −factor · ∇E[R]` in these worlds; `far` when another policy sampled."""

    recipe: Recipe
    worlds: tuple[str, ...] = EVERY
    factor: float = 1.0
    far: bool = False


def of(name: str, /, **arguments: Any) -> Recipe:
    """A recipe of the catalogue."""
    return METHODS[name](**arguments)


UNBIASED = {
    "reinforce": Claim(of("reinforce")),
    "reinforce, two answers": Claim(of("reinforce", group=2)),
    "rloo, two": Claim(of("rloo", group=2, beta=0.0)),
    "rloo, three": Claim(of("rloo", group=3, beta=0.0), ("arms", "answers")),
    # The mean of the group holds the answer's own reward: (G−1)/G of the gradient.
    "dr_grpo, two": Claim(of("dr_grpo", group=2, length=7), EVERY, 1 / 2 / 7),
    "dr_grpo, three": Claim(of("dr_grpo", group=3, length=7), ("arms", "answers"), 2 / 3 / 7),
    "dr_grpo, budget of the run": Claim(of("dr_grpo", group=2), ("answers",), 1 / 2 / 2),
    "grpo without deviation or length": Claim(
        of("grpo", group=3, beta=0.0).but(advantage=CENTRED, aggregate=ANSWER_SUM),
        ("arms", "answers"),
        2 / 3,
    ),
    # One-token answers: dividing by the length does nothing.
    "grpo without deviation": Claim(
        of("grpo", group=2, beta=0.0).but(advantage=CENTRED), SHORT, 0.5
    ),
    "dapo without deviation": Claim(
        of("dapo", group=2, overlong=0).but(sampling=Groups(2), advantage=CENTRED), SHORT, 0.5
    ),
    "gspo without deviation": Claim(of("gspo", group=2).but(advantage=CENTRED), SHORT, 0.5),
    "cispo without deviation": Claim(of("cispo", group=2).but(advantage=CENTRED), SHORT, 0.5),
    "bapo without deviation": Claim(of("bapo", group=2).but(advantage=CENTRED), SHORT, 0.5),
    "pspo without deviation": Claim(
        of("pspo", group=2, alpha=0.3).but(advantage=CENTRED), SHORT, 0.5 * 0.7
    ),
    "gpg": Claim(of("gpg", group=3), SHORT, 2 / 3),
    "p3o": Claim(of("p3o_pairwise"), ("arms", "answers")),
    "p3o, joint": Claim(of("p3o_pairwise", mode="joint"), ("arms", "answers")),
    # Another policy sampled, and no bound acts.
    "far, weight of whole answers": Claim(
        Recipe(ratio=Ratio("traj", to="logp_mu"), surrogate=Reinforce()), EVERY, far=True
    ),
    "far, weight of whole answers, surrogate": Claim(
        Recipe(ratio=Ratio("traj"), surrogate=UNCLIPPED, aggregate=Mean("step", "traj", "batch")),
        ("arms", "answers"),
        far=True,
    ),
    "far, weight of whole answers, leave-one-out": Claim(
        of("rloo", group=2, beta=0.0).but(ratio=Ratio("traj", to="logp_mu")), EVERY, far=True
    ),
    "far, weight of tokens": Claim(Recipe(ratio=Ratio("step", to="logp_mu")), SHORT, far=True),
    "far, cispo without bounds or deviation": Claim(
        of("cispo", group=3, clip_low=1.0, clip_high=math.inf).but(advantage=CENTRED),
        SHORT,
        2 / 3,
        far=True,
    ),
    "far, pspo without deviation": Claim(
        of("pspo", group=2, alpha=0.3).but(advantage=CENTRED), SHORT, 0.5 * 0.7, far=True
    ),
    "far, p3o without bounds": Claim(
        of("p3o_pairwise").but(surrogate=UNCLIPPED), ("arms", "answers"), far=True
    ),
    "far, dr_grpo without bounds": Claim(
        of("dr_grpo", group=3, length=7).but(surrogate=UNCLIPPED), SHORT, 2 / 3 / 7, far=True
    ),
    "far, gspo without bounds or deviation": Claim(
        of("gspo", group=2).but(advantage=CENTRED, surrogate=UNCLIPPED), SHORT, 0.5, far=True
    ),
}


def expected(recipe: Recipe, world: World, far: bool = False, **more: Any) -> Tensor:
    """The expected gradient under the fixed table, sampled by itself or by another one."""
    return Expectation(
        recipe, world, world.table(1), mu=world.table(2) if far else None, **more
    ).gradient()


def cosine(a: Tensor, b: Tensor) -> float:
    """How parallel two gradients are."""
    return float((a * b).sum() / (a.norm() * b.norm()))


CASES = [(name, world) for name, claim in UNBIASED.items() for world in claim.worlds]


@pytest.mark.parametrize(("name", "where"), CASES)
def test_expected_gradient_is_that_of_the_expected_reward(name, where):
    """Every group of every prompt, one group to a batch."""
    claim, world = UNBIASED[name], WORLDS[where]
    exact = gain(world, world.table(1))
    assert exact.abs().max() > 0.01
    close(expected(claim.recipe, world, claim.far), -claim.factor * exact)


@pytest.mark.parametrize("name", ["rloo", "dr_grpo", "reinforce"])
def test_batches_with_several_prompts(name):
    """Every pair of groups, one for each prompt: the batch averages the prompts."""
    world = answers(weights=(0.5, 0.5))
    options: dict[str, Any] = {"rloo": {"beta": 0.0}, "dr_grpo": {"length": 1}}.get(name, {})
    factor = 0.5 if name == "dr_grpo" else 1.0
    found = expected(of(name, group=2, **options), world, joint=True)
    close(found, -factor * gain(world, world.table(1)))


@pytest.mark.parametrize(("leave_one_out", "factor"), [(True, 1.0), (False, 3 / 4)])
def test_baseline_of_the_whole_batch(leave_one_out, factor):
    """The mean of the four answers of two prompts: unbiased without oneself, else 3/4."""
    world = answers(weights=(0.5, 0.5))
    advantage = Baseline("traj", "batch", leave_one_out=leave_one_out)
    found = expected(Recipe(sampling=Groups(2), advantage=advantage), world, joint=True)
    close(found, -factor * gain(world, world.table(1)))


def test_three_policies():
    """Decoupled PPO without bounds: one samples, one is the centre, and neither leaves a bias."""
    world = WORLDS["arms"]
    recipe = of("decoupled_ppo", group=2, weight_cap=math.inf).but(
        advantage=CENTRED, surrogate=UNCLIPPED
    )
    table, mu, old = world.table(1), world.table(2), world.table(4)
    found = Expectation(recipe, world, table, mu=mu, old=old).gradient()
    close(found, -0.5 * gain(world, table))


@pytest.mark.parametrize("name", ["geppo", "ppo_ewma"])
def test_windows_around_another_policy(name):
    """Windows too wide to act leave no bias, wherever their centre is; the published ones do."""
    world = WORLDS["arms"]
    wide: dict[str, Any] = {"clip": 0.99}
    policies: dict[str, Any] = {"mu": world.table(2), "old": world.table(8), "ref": world.table(5)}
    pieces: dict[str, Any] = {"advantage": Return(), "regularize": ()}
    found = [
        Expectation(r.but(**pieces), world, world.table(1), **policies).gradient()
        for r in (of(name, **wide), of(name))
    ]
    close(found[0], -gain(world, world.table(1)))
    assert (found[1] - found[0]).abs().max() > 0.01


def test_prompts_without_a_signal_are_made_up_for():
    """GPG: prompt x counts `2 − q` times, q the chance that the other prompt's group has a signal.

    α is the number of groups over that of groups with a signal, so it depends on what was drawn: a
    bias towards prompts whose company is silent.
    """
    world = arms(rewards=((1.0, 0.0), (0.0, 1.0)), weights=(0.5, 0.5))
    table = torch.tensor([[2.0, 0.0], [0.2, 0.0]], dtype=torch.float64)
    found = Expectation(of("gpg", group=2), world, table, joint=True).gradient()
    signal = [1 - float((world.probabilities(table, x) ** 2).sum()) for x in world]
    factors = torch.tensor([2 - signal[1], 2 - signal[0]], dtype=torch.float64)
    close(found, -0.5 * factors[:, None] * gain(world, table))
    assert factors.max() > 1.15 * factors.min()


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("unbiased", [True, False])
def test_training_on_a_subset_of_tokens(first, unbiased):
    """S-GRPO, over all subsets: with kept tokens over their probability it is GRPO in expectation.

    By default kept tokens share the answer's weight, and the first one, which is always kept, gets
    more than its part; so does an answer that is more likely to keep a token at all.
    """
    world, share = WORLDS["answers"], 0.4

    def subsets(batch: Batch) -> list[tuple[float, Batch]]:
        found = []
        for kept in product((True, False), repeat=len(batch)):
            lot = torch.where(torch.tensor(kept), 0.0, 0.99)
            found.append((math.prod(share if k else 1 - share for k in kept), {"lot": lot}))
        return [(p, batch.with_(lot)) for p, lot in found]

    options: dict[str, Any] = {"group": 2, "beta": 0.0}
    recipe = of("s_grpo_subset", **options, share=share, first=first, unbiased=unbiased)
    found, whole = expected(recipe, world, chances=subsets), expected(of("grpo", **options), world)
    if unbiased:
        close(found, whole)
    else:
        assert cosine(found, whole) < 0.9999


# ── biased by design ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("group", [2, 3, 4, 6])
def test_dividing_by_the_deviation_weighs_prompts_by_their_difficulty(group):
    """GRPO, rewards 0 and 1: prompt x counts `c(p) = E_k √(k(G−k)(G−1)/G³) / p(1−p)` times.

    k is the number of right answers of a group, p the success rate. From four answers on, hard and
    easy prompts count most, and the gradient is not that of E[R]; for two and three, c is constant.
    """
    world = arms(rewards=((1.0, 0.0), (0.0, 1.0)), weights=(0.5, 0.5))
    table = torch.tensor([[-2.5, 0.0], [0.1, 0.0]], dtype=torch.float64)
    recipe = of("grpo", group=group, beta=0.0, eps=0.0)
    found = Expectation(recipe, world, table).gradient()
    exact = gain(world, table)
    factors = [
        factor(group, float(world.probabilities(table, x) @ world.outcomes(x))) for x in (0, 1)
    ]
    close(found, -torch.tensor(factors, dtype=torch.float64)[:, None] * exact)
    ratio = factors[0] / factors[1]
    assert ratio == pytest.approx(1.0) if group < 4 else ratio > 1.05, "the hard prompt counts more"


def factor(group: int, p: float) -> float:
    """`E_k √(k(G−k)(G−1)/G³) / p(1−p)`, k binomial."""
    chances = [math.comb(group, k) * p**k * (1 - p) ** (group - k) for k in range(group + 1)]
    roots = [math.sqrt(k * (group - k) * (group - 1) / group**3) for k in range(group + 1)]
    return sum(c * r for c, r in zip(chances, roots)) / (p * (1 - p))


@pytest.mark.parametrize("group", [2, 3])
def test_dividing_by_the_length_favours_short_answers(group):
    """GRPO without deviation: the gradient of `E[(R − J)/n]` with the J and n of now."""
    world = WORLDS["answers"]
    table = world.table(1)
    found = expected(of("grpo", group=group, beta=0.0).but(advantage=CENTRED), world)

    def shortened(x: int) -> Tensor:
        mean = (world.probabilities(table, x) * world.outcomes(x)).sum()
        return (world.outcomes(x) - mean) / world.lengths(x)

    biased = slope(lambda leaf: world.mean(leaf, shortened), table)
    close(found, -(group - 1) / group * biased)
    assert cosine(-found, gain(world, table)) < 0.999


@pytest.mark.parametrize("name", ["dapo", "cispo"])
def test_a_mean_over_the_tokens_of_a_batch_is_biased_by_its_random_length(name):
    """One answer of 1 or 2 tokens and another: their sum divides, and depends on what was drawn."""
    world = WORLDS["answers"]
    plain = of(name, group=2).but(reward=(), sampling=Groups(2), advantage=CENTRED)
    exact = gain(world, world.table(1))
    assert cosine(-expected(plain, world), exact) < 0.999
    summed = plain.but(aggregate=ANSWER_SUM)
    close(expected(summed, world), -0.5 * exact)


def test_weights_of_single_tokens_are_biased_on_longer_answers():
    """Off policy, a token's own ratio leaves out that its state was reached by another policy."""
    world = WORLDS["answers"]
    recipe = Recipe(ratio=Ratio("step", to="logp_mu"))
    table, mu = world.table(1), world.table(2)
    exact = gain(world, table)
    found = Expectation(recipe, world, table, mu=mu).gradient()
    assert (found + exact).abs().max() > 0.01
    reached = torch.stack([torch.softmax(t, -1)[[0, 2], 1] for t in (table, mu)])
    close(found[[1, 3]] / exact[[1, 3]], -(reached[1] / reached[0])[:, None].expand(2, 2))
    first = (found + exact)[[0, 2]]  # states that every answer passes
    assert first.abs().max() > 0.001, "the first token's weight lacks the second's"


@pytest.mark.parametrize("name", ["grpo", "dapo", "cispo", "dr_grpo"])
def test_clipping_off_policy_is_biased(name):
    """With the published bounds, another policy's samples do not give the gradient of E[R]."""
    world = WORLDS["arms"]
    recipe = of(name, group=2).but(
        reward=(), sampling=Groups(2), advantage=CENTRED, regularize=(), aggregate=ANSWER_SUM
    )
    far = expected(recipe, world, far=True)
    assert cosine(-far, gain(world, world.table(1))) < 0.999
    close(expected(recipe, world), -0.5 * gain(world, world.table(1)))


ENGINE: dict[str, dict[str, Any]] = {
    **{name: {"group": 2} for name in "rloo dr_grpo grpo bapo gvpo flowrl real rpg".split()},
    "reg_grpo": {"group": 3},  # the standardised log-ratios of a pair are constants
    "f_dpg": {"z": 2.0},  # estimated from one answer alone, Z would make its pseudo-reward 0
    "dpo": {},
    "p3o_pairwise": {"mode": "joint"},
}


@pytest.mark.parametrize("name", ENGINE)
@pytest.mark.parametrize("budget", [1, 1000])
def test_the_engine_reaches_the_same_expectation(name, budget):
    """`Problem.accumulate` on every group, each counted with its probability.

    The engine leaves out steps that it probes to have no gradient, and takes two passes where a
    group does not fit into the budget of a pass; no expectation may notice.
    """
    world = WORLDS["answers"]
    recipe = of(name, **ENGINE[name])
    whole = Expectation(recipe, world, world.table(1), mu=world.table(2))
    whole.state.settings = Settings(prompts=1, token_budget=budget)
    found = torch.zeros_like(whole.parameter)
    for p, batch in whole.drawn:
        whole.parameter.grad = None
        Problem(whole.objective, batch, whole.state, Listed(batch)).accumulate()
        if whole.parameter.grad is not None:
            found += p * whole.parameter.grad
    assert found.abs().max() > 1e-3
    close(found, whole.gradient())
