"""Methods whose credit is no factor on a baseline: order, risk, process, the step itself."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import pytest
import torch

import anypo
from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.engine.problem import Problem
from anypo.math.step_size import signal_step
from tests.identities.small import close
from tests.identities.test_group_weights import advantage, answers, z
from tests.properties.test_invariance import Alone, prepared
from tests.toys import ToyPolicy, toy_batch, toy_state

# ── max@k ────────────────────────────────────────────────────────────────────────────────────────

REWARDS = [1.0, 0.0, 0.5, 0.2, 0.5]


def subsets(n: int, k: int, out: int = -1) -> list[tuple[int, ...]]:
    """All k-subsets of n, without one member."""
    return list(combinations([i for i in range(n) if i != out], k))


def best(members: tuple[int, ...]) -> float:
    """The best reward of a subset."""
    return max(REWARDS[i] for i in members)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_max_at_k_is_the_sum_over_subsets(k):
    sets = subsets(5, k)
    want = [sum(best(s) for s in sets if i in s) / len(sets) for i in range(5)]
    got = advantage("max_at_k", answers([REWARDS, [0.5] * 5]), k=k)
    close(got[:5], want)
    close(got[5:], [k / 5 * 0.5] * 5)
    estimate = sum(best(s) for s in sets) / len(sets)
    close(got[:5].sum(), k * estimate)


def test_max_at_k_by_hand_and_of_right_and_wrong_answers():
    close(advantage("max_at_k", answers([[1, 0, 0.5, 0.2]]), k=2), [0.5, 17 / 60, 1 / 3, 17 / 60])
    got = advantage("max_at_k", answers([[1, 0, 0, 1]]), k=3)
    close(got[[0, 3]], [3 / 4, 3 / 4])  # pass@k: a success is in k/n of the subsets


@pytest.mark.parametrize("k", [2, 3, 5])
def test_a_subset_less_its_best_without_the_member(k):
    sets = subsets(5, k)
    want = [
        sum(best(s) - best(tuple(j for j in s if j != i)) for s in sets if i in s) / len(sets)
        for i in range(5)
    ]
    got = advantage("max_at_k", answers([REWARDS, [0.3] * 5]), k=k, baseline="loo-1")
    close(got, [*want, *[0.0] * 5])


@pytest.mark.parametrize("k", [1, 2, 4])
def test_a_baseline_of_the_others(k):
    sets = subsets(5, k)
    own = [sum(best(s) for s in sets if i in s) / len(sets) for i in range(5)]
    others = [subsets(5, k, out=i) for i in range(5)]
    want = [a - k / 5 * sum(map(best, o)) / len(o) for a, o in zip(own, others, strict=True)]
    got = advantage("max_at_k", answers([REWARDS, [0.3] * 5]), k=k, baseline="loo")
    close(got, [*want, *[0.0] * 5])
    if k == 1:
        close(got[:5], (advantage("rloo", answers([REWARDS]), beta=0.0) / 5).tolist())


def test_max_at_k_sums_over_a_group_and_leaves_small_groups_out():
    batch = answers([REWARDS, [1.0, 0.0]])
    recipe = anypo.recipe("max_at_k", k=3)
    close(recipe.advantage(batch)[5:], [0, 0])
    close(recipe.aggregate(batch), [0.5] * 7)
    with pytest.raises(UsageError, match="at least 5 trajectories"):
        anypo.recipe("max_at_k", group=4, k=4, baseline="loo")


# ── OBLR-PO ──────────────────────────────────────────────────────────────────────────────────────


def test_the_baseline_of_least_variance():
    even = answers([[1.0, 0.0, 0.2]], score_norm=[2.0, 2.0, 2.0])
    close(advantage("oblr_po", even), advantage("dr_grpo", even).tolist())
    close(advantage("oblr_po", answers([[1, 0]], score_norm=[3, 1])), [0.25, -0.75])


def test_the_step_follows_the_signal():
    assert signal_step(2.0, 0.0, 1, 4.0)["lr"] == 0.25
    assert signal_step(2.0, 6.0, 3, 4.0) == {"lr": 0.125, "snr": 1.0}
    assert signal_step(0.0, 1.0, 1, 4.0) == {"lr": 0.0, "snr": 0.0}
    assert signal_step(2.0, 6.0, 6, 4.0)["lr"] > 0.125


def oblr(seed: int = 0, **arguments: float):
    """A toy problem under the recipe."""
    recipe = anypo.recipe("oblr_po", group=2, **arguments)
    state = toy_state(recipe, ToyPolicy())
    batch = prepared(recipe, toy_batch([[3, 1], [2, 4], [1, 2], [2, 2]], seed), state)
    return recipe, state, Problem(recipe.objectives[0], batch, state, Alone())


def flat(state) -> torch.Tensor:
    """The parameters in a row."""
    return torch.cat([p.detach().flatten() for p in state.parameters(0)])


def test_halves_add_up_and_a_certain_step_is_adams():
    recipe, state, problem = oblr(floor=1.0)
    half = problem.batch.id("group") < 2
    grads = []
    for part in (half, ~half):
        problem.part(part).accumulate()
    grads = [p.grad.clone() for p in state.parameters(0)]
    for p in state.parameters(0):
        p.grad = None
    problem.accumulate()
    for p, g in zip(state.parameters(0), grads, strict=True):
        torch.testing.assert_close(p.grad, g, rtol=1e-12, atol=1e-15)
    metrics = recipe.update.step(problem, state.optimizers[0], state.lr)
    assert metrics["learning_rate"] == pytest.approx(state.lr)
    other_recipe, other, same = oblr()
    plain = anypo.recipe("reinforce").update
    plain.step(same, other.optimizers[0], other.lr)
    torch.testing.assert_close(flat(state), flat(other), rtol=1e-12, atol=1e-15)
    assert other_recipe.update.floor < 1


def estimates(state, problem: Problem) -> tuple[float, float]:
    """The signal and the noise of the two halves."""
    lot = problem.batch.min(problem.batch["lot"], within="group")
    half = problem.batch.rank(lot, "batch", "group") < 2
    sides = []
    for part in (half, ~half):
        problem.part(part).accumulate()
        sides.append(torch.cat([2 * p.grad.flatten() for p in state.parameters(0)]))
        for p in state.parameters(0):
            p.grad = None
    return float(sides[0] @ sides[1]), float((sides[0] - sides[1]).square().sum()) / 4


def test_the_step_of_two_halves_and_its_memory():
    recipe, state, problem = oblr(2, floor=0.0, smoothness=2.0)
    first = estimates(state, problem)
    assert first[0] > 0
    metrics = recipe.update.step(problem, state.optimizers[0], state.lr)
    assert metrics["learning_rate"] == pytest.approx(0.5 * first[0] / sum(first), rel=1e-9)
    second = estimates(state, problem)
    again = recipe.update.step(problem, state.optimizers[0], state.lr)
    signal, noise = (0.9 * a + 0.1 * b for a, b in zip(first, second, strict=True))
    assert again["snr"] == pytest.approx(signal / noise, rel=1e-5)
    kept = [s for s in state.optimizers[0].state.values() if "signal" in s]
    assert len(kept) == 1  # the estimates are in the optimizer's state, and so in a checkpoint


def test_what_is_coupled_is_not_halved():
    with pytest.raises(UsageError, match="couples groups"):
        anypo.recipe("gvpo").but(update=anypo.recipe("oblr_po").update).check()


# ── PAPO ─────────────────────────────────────────────────────────────────────────────────────────


def judged(outcomes: list[float], process: list[float]) -> Batch:
    """One group with a judge's scores."""
    return answers([outcomes], {"process": process}, score=outcomes)


def test_papo_adds_the_process_score_of_right_answers():
    close(
        advantage("papo_process", judged([1, 1, 0, 0], [1, 0, 0.9, 0.1]), eps=0.0),
        [math.sqrt(0.75) + math.sqrt(0.5), math.sqrt(0.75) - math.sqrt(0.5)]
        + [-math.sqrt(0.75)] * 2,
    )
    same = judged([1, 1, 0, 0], [0.4, 0.4, 0.9, 0.1])
    close(advantage("papo_process", same), advantage("grpo", same).tolist())
    right = judged([1, 1, 1], [1.0, 0.0, 0.5])
    close(advantage("papo_process", right, lam=0.5), [0.5 * x for x in z([1.0, 0.0, 0.5])])
    close(advantage("papo_process", judged([0, 0], [1, 0])), [0, 0])


# ── KRPO ─────────────────────────────────────────────────────────────────────────────────────────


def filtered(rewards: list[float], q: float = 1e-5, r: float = 1e-2) -> list[float]:
    """The filter, one outcome after the other."""
    x, p, out = 0.0, 1.0, []
    for reward in rewards:
        p += q
        k = p / (p + r)
        x, p = x + k * (reward - x), (1 - k) * p
        out.append((reward - x) / (math.sqrt(p) + 1e-8))
    return out


def test_krpo_reads_a_group_in_the_order_of_its_lots():
    rewards, lots = [1.0, 0.0, 0.5, 0.2], [0.4, 0.1, 0.9, 0.3]
    order = sorted(range(4), key=lambda i: lots[i])
    read = dict(zip(order, filtered([rewards[i] for i in order]), strict=True))
    batch = answers([rewards, [1.0, 1.0]], lot=[*lots, 0.2, 0.8])
    close(advantage("krpo", batch), [*(read[i] for i in range(4)), *filtered([1.0, 1.0])])
    assert filtered([1.0])[0] == pytest.approx(0.0995, abs=1e-4)


def test_krpo_without_reward_and_without_trust():
    zeros = answers([[0.0, 0.0, 0.0]], lot=[0.1, 0.2, 0.3])
    close(advantage("krpo", zeros), [0, 0, 0])
    some = answers([[1.0, -2.0, 0.5]], lot=[0.1, 0.2, 0.3])
    got = advantage("krpo", some, process_var=0.0, meas_var=1e12)
    torch.testing.assert_close(got, torch.tensor([1.0, -2.0, 0.5]).double(), rtol=1e-7, atol=1e-9)


# ── RiskPO ───────────────────────────────────────────────────────────────────────────────────────


def papers(
    first: list[float], second: list[float], low: float | None = None, high: float = 1.0
) -> Batch:
    """Two prompts whose k-th answers are a paper."""
    count = len(first) + len(second)
    lots = [(i + 1) / (count + 1) for i in range(count)]
    found = answers([first, second], lot=lots)
    if low is None:
        return found
    return found.with_(tracked(count, low, high))


def tracked(count: int, low: float, high: float) -> dict[str, torch.Tensor]:
    """The named state as columns."""
    kept = {"q_low": low, "q_high": high}
    return {k: torch.full((count,), float(v), dtype=torch.float64) for k, v in kept.items()}


def risk(batch: Batch, **arguments) -> torch.Tensor:
    """The credit without the two deviations."""
    piece = anypo.recipe("risk_po", credit="uniform", **arguments).advantage
    return replace(piece, standardise=False)(batch)


def test_risk_is_that_of_a_papers_sum_between_two_quantiles():
    batch = papers([0.0, 1.0, 2.0], [-1.0, 0.5, 1.0], low=0.0)  # sums −1, 1½ and 3
    close(risk(batch, mix=0.0, alpha=0.2, beta=0.7), [-1 / 0.500001, 0, 0] * 2)
    inside = papers([0.0, 0.25], [0.0, 0.25], low=-1.0, high=2.0)
    plain = risk(inside, mix=0.0, natural=False)
    close(plain, [1 / 0.600001, 1.5 / 0.600001] * 2)  # affine in the sum
    tail = risk(papers([0.0, 1.0], [-0.5, 1.0], low=0.0), natural=False, mix=1.5)
    close(tail, [1.5 * -0.5 / 0.200001 / 2.5, 1 / 0.600001 / 2.5] * 2)


def test_credit_is_shared_or_divided():
    batch = papers([1.0, 0.0], [0.0, 0.5], low=-3.0, high=3.0)
    uniform = anypo.recipe("risk_po", credit="uniform", natural=False).advantage(batch)
    share = anypo.recipe("risk_po", credit="share", natural=False).advantage(batch)
    close(share[0] + share[2], float(uniform[0]))  # a paper's shares add up
    close(share[[0, 2]], [2 * float(uniform[0]), -float(uniform[0])])  # ½ and −¼ of ¼
    apart = anypo.recipe("risk_po", credit="std", natural=False).advantage(batch)
    close(apart[:2], (uniform[:2] / (math.sqrt(0.5) + 1e-6)).tolist())
    spread = math.sqrt(0.125)  # of the sums 1 and ½
    whole = risk(batch, natural=False) / (spread + 1e-6)
    close(uniform, whole.tolist())


def test_the_quantiles_are_those_of_papers_at_first_and_then_move():
    piece = anypo.recipe("risk_po").advantage
    batch = papers([0.0, 1.0, 2.0], [0.0, 1.0, 2.0])
    first = piece.observe(batch, {})
    assert first == pytest.approx({"q_low": 0.8, "q_high": 3.2})  # of 0, 2 and 4
    second = piece.observe(batch, {"q_low": 1.0, "q_high": 5.0, "other": 1})
    want = {"q_low": 1.0 + 0.1 * (0.2 - 1 / 3), "q_high": 5.0 + 0.1 * (0.8 - 1), "other": 1}
    assert second == pytest.approx(want)
    known = papers([0.0, 1.0, 2.0], [0.0, 1.0, 2.0], low=0.8, high=3.2)
    close(piece(batch), piece(known).tolist())


def test_papers_follow_the_lots_and_incomplete_ones_have_no_credit():
    batch = papers([0.0, 1.0, 2.0], [3.0, 5.0], low=-9.0, high=99.0)
    got = risk(batch, mix=0.0, natural=False)
    close(got, [12 / 0.600001, 15 / 0.600001, 0, 12 / 0.600001, 15 / 0.600001])
    late = batch.with_({"lot": torch.tensor([0.9, 0.2, 0.3, 0.5, 0.4]).double()})
    close(
        risk(late, mix=0.0, natural=False), [0] + [x / 0.600001 for x in (15.0, 14.0, 14.0, 15.0)]
    )
    equal = anypo.recipe("risk_po").advantage(papers([1.0, 0.0], [0.0, 1.0], low=5.0, high=6.0))
    close(equal, [0, 0, 0, 0])


def test_bundles_are_nearly_equal_parts():
    rewards = [[float(g), float(g + 1)] for g in range(4)]
    batch = answers(rewards, lot=[g / 4 + k / 9 for g in range(4) for k in range(2)])
    batch = batch.with_(tracked(8, -9, 99))
    got = risk(batch, size=2, mix=0.0, natural=False)
    close(got, [(s + 9) / 0.600001 for s in (1.0, 3.0, 1.0, 3.0, 5.0, 7.0, 5.0, 7.0)])
    one = risk(batch, size=4, mix=0.0, natural=False)
    close(one, [(s + 9) / 0.600001 for s in (6.0, 10.0)] * 4)
    torch.testing.assert_close(risk(batch, size=9, mix=0.0, natural=False), one)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("max_at_k", {"k": 0}, "at least 1"),
        ("max_at_k", {"group": 4, "k": 5}, "at least 5"),
        ("max_at_k", {"k": 1, "baseline": "loo-1"}, "off or loo"),
        ("oblr_po", {"smoothing": 1.0}, "[0, 1)"),
        ("oblr_po", {"floor": 1.1}, "between 0 and 1"),
        ("papo_process", {"lam": -1.0}, "lam must be at least 0"),
        ("krpo", {"meas_var": 0.0}, "above 0"),
        ("krpo", {"group": 1}, "group"),
        ("risk_po", {"alpha": 0.8}, "below beta"),
        ("risk_po", {"size": 0}, "at least 1"),
    ],
)
def test_bad_arguments_are_refused(name, arguments, words):
    with pytest.raises(UsageError, match=f"^{name}: ") as caught:
        anypo.recipe(name, **arguments)
    assert words in str(caught.value)
