"""DisCO and REAL: rewards as labels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch

import anypo
from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from tests.identities.evaluate import evaluate
from tests.identities.small import close, last, steps


def labelled(
    labels: Sequence[float], moved: Sequence[float], groups: Sequence[int] | None = None
) -> Batch:
    """One-token answers with these rewards and log-ratios to the old policy."""
    ones = [1] * len(labels)
    old = torch.full((len(labels),), -1.0, dtype=torch.float64)
    batch = steps(ones, groups, reward=list(labels), logp_old=old)
    return batch.with_({"logp": old + torch.tensor(moved, dtype=torch.float64)})


# ── DisCO ───────────────────────────────────────────────────────────────────────────────────────


def test_disco_has_no_bias_for_the_difficulty_of_a_prompt():
    """At r = 1: −1/(Q·P·n) on a right answer's token, +1/(Q·N·n) on a wrong one's."""
    lengths, rewards = [1, 2, 1, 1], [1, 0, 0, 0]
    batch = steps(lengths, reward=last(lengths, rewards), logp=[-1] * 5, logp_old=[-1] * 5)
    for variant in ("basic", "dro"):
        loss, grads = evaluate(anypo.recipe("disco", variant=variant), batch)
        close(grads["logp"], [-1, 1 / 6, 1 / 6, 1 / 3, 1 / 3])
        assert loss == pytest.approx(0)


def test_disco_counts_prompts_that_say_nothing():
    batch = labelled([1, 0, 1, 1, 0, 0], [0] * 6, [0, 0, 1, 1, 2, 2])
    _, grads = evaluate(anypo.recipe("disco", group=2), batch)
    close(grads["logp"], [-1 / 3, 1 / 3, 0, 0, 0, 0])


def test_disco_pushes_the_likeliest_wrong_answer_most():
    """DRO at τ = 0.5: the weight of a wrong answer is a softmax of 2r; τ → ∞ is the mean."""
    batch = labelled([1, 0, 0], [0.0, math.log(1.2), math.log(0.7)])
    free = {"delta": 10.0}
    _, dro = evaluate(anypo.recipe("disco", tau=0.5, **free), batch)
    share = torch.softmax(torch.tensor([2.4, 1.4], dtype=torch.float64), 0).tolist()
    close(dro["logp"], [-1, share[0] * 1.2, share[1] * 0.7])
    basic, _ = evaluate(anypo.recipe("disco", variant="basic", **free), batch)
    assert basic == pytest.approx(-(1 - 0.95))
    assert evaluate(anypo.recipe("disco", tau=1e6, **free), batch)[0] == pytest.approx(
        basic, abs=1e-6
    )
    hardest = evaluate(anypo.recipe("disco", tau=1e-3, **free), batch)[0]
    assert hardest == pytest.approx(-(1 - 1.2), abs=1e-3)


def test_disco_by_log_likelihood_reads_no_ratio():
    batch = labelled([1, 0], [0.3, -0.2])
    loss, grads = evaluate(anypo.recipe("disco", group=2, score="logp", delta=10.0), batch)
    close(grads["logp"], [-1, 1])
    assert loss == pytest.approx(-(-0.7 + 1.2))


def test_disco_acts_on_the_budget_only_beyond_it():
    """K = mean(r − 1 − log r); beyond δ the gradient is that of b/2·(K − δ)²."""
    moved = [math.log(2.0), math.log(0.5)]
    batch = labelled([1, 1], moved)  # a uniform group: only the budget acts
    k = (0.5 + 0.0) / 2  # (2 − 1 − ln 2 + 0.5 − 1 + ln 2)/2
    recipe = anypo.recipe("disco", group=2, delta=0.1, penalty=8.0)
    loss, grads = evaluate(recipe, batch)
    slope = 8 * (k - 0.1)
    assert loss == pytest.approx(slope * k)
    close(grads["logp"], [slope * (2 - 1) / 2, slope * (0.5 - 1) / 2])
    close(evaluate(anypo.recipe("disco", group=2, delta=0.3), batch)[1]["logp"], [0, 0])


# ── REAL ────────────────────────────────────────────────────────────────────────────────────────


def test_real_on_policy():
    """P = 1, M = 3, τ = 0.5: L = ln 2 + ln 4; weights 1/(τ(1+P)) and 1/(τ(1+M))."""
    loss, grads = evaluate(anypo.recipe("real", group=4), labelled([1, 0, 0, 0], [0] * 4))
    assert loss == pytest.approx(math.log(2) + math.log(4))
    close(grads["logp"], [-1, 0.5, 0.5, 0.5])


def test_real_never_pushes_more_than_its_temperature():
    """A right answer that lost everything has weight 1/τ, one that won everything 0."""
    _, grads = evaluate(
        anypo.recipe("real", group=4), labelled([1, 1, 0, 0], [-900, 900, 900, -900])
    )
    torch.testing.assert_close(grads["logp"], torch.tensor([-2.0, 0.0, 2.0, 0.0]).double())


def test_real_scores_answers_by_the_token():
    lengths = [2, 1]
    batch = steps(lengths, reward=last(lengths, [1, 0]), logp=[-1, -1, -1], logp_old=[-2, -1, -1])
    _, grads = evaluate(anypo.recipe("real", group=2, tau=1.0), batch)
    weight = 1 / (1 + math.exp(0.5))
    close(grads["logp"], [-weight / 2, -weight / 2, 0.5])


def test_real_learns_nothing_from_one_class_and_counts_it():
    batch = labelled([1, 0, 1, 1, 0, 0], [0.1] * 6, [0, 0, 1, 1, 2, 2])
    loss, grads = evaluate(anypo.recipe("real", group=2), batch)
    alone, _ = evaluate(anypo.recipe("real", group=2), labelled([1, 0], [0.1, 0.1]))
    assert loss == pytest.approx(alone / 3)
    close(grads["logp"][2:], [0, 0, 0, 0])


def test_real_calls_an_average_answer_wrong():
    """Rewards 1, 1/2, 0: the one at the mean is no positive."""
    _, grads = evaluate(anypo.recipe("real", group=3), labelled([1, 0.5, 0], [0, 0, 0]))
    close(grads["logp"], [-1, 2 / 3, 2 / 3])


FREE = {"group": 3, "delta": 10.0}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("real", {"group": 3}), ("disco", FREE), ("disco", {**FREE, "variant": "basic"})],
    ids=["real", "disco", "basic"],
)
def test_prompts_are_compared_apart(name, arguments):
    """The loss of two prompts is the mean of what each has alone, whatever their order."""
    recipe = anypo.recipe(name, **arguments)
    first, second = ([1, 0, 0], [0.3, -0.2, 0.9]), ([1, 1, 0], [-0.7, 0.1, 0.4])
    both = labelled([1, 1, 0, 1, 0, 0], [0.3, -0.7, -0.2, 0.1, 0.9, 0.4], [0, 1, 0, 1, 0, 1])
    alone = [evaluate(recipe, labelled(*x)) for x in (first, second)]
    loss, grads = evaluate(recipe, both)
    assert loss == pytest.approx((alone[0][0] + alone[1][0]) / 2)
    close(grads["logp"][0::2], (alone[0][1]["logp"] / 2).tolist())
    close(grads["logp"][1::2], (alone[1][1]["logp"] / 2).tolist())


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("disco", {"group": 1}),
        ("disco", {"score": "length"}),
        ("disco", {"variant": "all"}),
        ("disco", {"tau": 0.0}),
        ("disco", {"delta": -1.0}),
        ("disco", {"penalty": 0.0}),
        ("real", {"group": 1}),
        ("real", {"tau": 0.0}),
        ("real", {"beta": -1.0}),
    ],
)
def test_bad_arguments_are_refused(name, arguments):
    with pytest.raises(UsageError, match=f"^{name}: "):
        anypo.recipe(name, **arguments)
