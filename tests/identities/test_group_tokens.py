"""Credit of tokens: by their entropy, and by what good and bad answers have in common."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

import anypo
from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from tests.identities.small import close, last, steps
from tests.identities.test_group_weights import advantage

# ── GTPO (token) and GRPO-S ──────────────────────────────────────────────────────────────────────

LENGTHS = [2, 3, 1, 2]
ENTROPY = [0.5, 1.0, 1.5, 0.25, 0.75, 2.0, 0.4, 0.8]


def told(outcomes: list[float], entropy: list[float] = ENTROPY) -> Batch:
    """Answers of several tokens in one group."""
    return steps(LENGTHS, reward=last(LENGTHS, outcomes), entropy_old=entropy)


def rewards_of(name: str, batch: Batch, **arguments) -> torch.Tensor:
    """What a method makes of the reward."""
    (piece,) = anypo.recipe(name, **arguments).reward
    return piece(batch)


def test_right_tokens_compete_with_those_at_their_place():
    got = rewards_of("gtpo_token", told([1, 1, 1, 0]), base=0.9)
    first, second = 0.5 + 1.5 + 2.0, 1.0 + 0.25
    close(
        got,
        [0.9 + 0.3 * 0.5 / first, 0.9 + 0.2 * 1.0 / second]
        + [0.9 + 0.3 * 1.5 / first, 0.9 + 0.2 * 0.25 / second, 1.0]
        + [0.9 + 0.3 * 2.0 / first, -1.0, -1.0],
    )


def test_wrong_tokens_share_by_the_inverse():
    got = rewards_of("gtpo_token", told([0, 0, 1, 0]), base=1.0, bonus=0.2)
    first = 1 / 0.5 + 1 / 1.5 + 1 / 0.4
    close(got[[0, 2, 6]], [-1 - 0.6 / h / first for h in (0.5, 1.5, 0.4)])
    close(got[4], -1.2)


def test_gtpo_without_a_bonus_or_with_one_entropy_tells_nothing():
    for batch, bonus in ((told([1, 1, 0, 0]), 0.0), (told([1, 1, 0, 0], [0.7] * 8), 0.1)):
        close(advantage("gtpo_token", batch, bonus=bonus), [0.0] * 8)
    apart = advantage("gtpo_token", told([1, 1, 0, 0], [0.7] * 8), apart=False)
    mean, variance = 1.1 / 4, 1.1**2 * (1 - 1 / 16)  # five times 1.1, three times −1.1
    close(apart, [(x - mean) / math.sqrt(variance + 1e-8) for x in [1.1] * 5 + [-1.1] * 3])


def test_right_tokens_of_no_entropy_get_no_bonus():
    close(rewards_of("gtpo_token", told([1, 1, 1, 1], [0.0] * 8)), [1.0] * 8)


def test_grpo_s_without_a_bonus_is_grpo_on_plus_and_minus_one():
    batch = told([1, 0, 0, 1])
    signs = batch.with_({"reward": torch.tensor(last(LENGTHS, [1.0, -1, -1, 1])).double()})
    want = advantage("grpo", signs, eps=1e-8)
    close(advantage("grpo_s", batch, bonus=0.0), want.tolist())


def test_grpo_s_shares_the_bonus_by_the_mean_entropy():
    batch = told([1, 0, 1, 0])
    got = batch.sum(rewards_of("grpo_s", batch, bonus=0.2), within="traj")[batch.last("traj")]
    right, wrong = (0.75, 2.0), (2.5 / 3, 0.6)
    a, b = (1 + 0.4 * h / sum(right) for h in right)
    c, d = (-1 - 0.4 / h / sum(1 / x for x in wrong) for h in wrong)
    close(got, [a, c, b, d])
    close(got[0] + got[2], 2 * 1.2)
    swapped = told([1, 0, 1, 0], [1.0, 0.5, 0.25, 0.75, 1.5, 2.0, 0.8, 0.4])
    again = rewards_of("grpo_s", swapped, bonus=0.2)
    close(again, rewards_of("grpo_s", batch, bonus=0.2).tolist())


def test_grpo_s_averages_the_ratios_themselves():
    batch = steps([2], logp=[math.log(1.0), math.log(3.0)], logp_old=[0.0, 0.0])
    close(anypo.recipe("grpo_s").ratio(batch).exp(), [2.0, 2.0])


# ── GTPO (trajectory) ────────────────────────────────────────────────────────────────────────────


def written(tokens: list[list[int]], outcomes: list[float], entropy: float = 0.2) -> Batch:
    """Answers of these tokens in one group, behind a prompt of one token."""
    lengths = [len(t) for t in tokens]
    count = sum(lengths)
    batch = steps(lengths, reward=last(lengths, outcomes), entropy_old=[entropy] * count)
    position = torch.tensor([t + 1 for n in lengths for t in range(n)])
    return replace(
        batch,
        ids={**batch.ids, "position": position},
        inputs={"tokens": [torch.tensor([99, *t]) for t in tokens]},
    )


def factors(batch: Batch, **arguments) -> torch.Tensor:
    """The column of token weights."""
    piece = anypo.recipe("gtpo_trajectory", **arguments).advantage
    return piece.targets(batch, piece(batch))["token_weight"]


def test_what_both_kinds_begin_and_end_with_is_protected():
    batch = written([[5, 6, 7, 9, 1], [5, 6, 8, 9, 1]], [1, 0])
    close(factors(batch), [2, 2, 1, 2, 2, 0, 0, 1, 0, 0])
    close(factors(batch, boost=3.0)[:5], [3, 3, 1, 3, 3])
    close(factors(batch, per_conflict=True), [0.5, 0.5, 0.25, 0.5, 0.5, 0, 0, 0.25, 0, 0])
    twins = written([[5, 6], [5, 6]], [1, 0])
    close(factors(twins), [4, 4, 0, 0])
    alike = written([[5, 6], [5, 6]], [1, 1])
    close(factors(alike), [1, 1, 1, 1])


def test_only_an_unbroken_run_counts_and_ends_are_aligned():
    """The common 6 in the middle is in no run; ends of answers of unequal length are compared."""
    close(factors(written([[5, 6, 7], [4, 6, 8]], [1, 0])), [1] * 6)
    close(factors(written([[5, 1, 2], [4, 3, 1, 2]], [1, 0])), [1, 2, 2, 1, 1, 0, 0])


def test_other_groups_do_not_conflict():
    batch = written([[5, 6], [5, 7], [5, 6], [5, 7]], [1, 1, 0, 0])
    apart = replace(batch, ids={**batch.ids, "group": torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])})
    close(factors(apart), [1] * 8)
    assert float(factors(batch)[0]) == 4.0  # it begins and ends with what both kinds have


def test_entropy_costs_and_too_much_of_it_drops_the_answer():
    batch = written([[1, 2], [3, 4]], [1, 0], entropy=0.2)
    close(advantage("gtpo_trajectory", batch), [0.48, 0.48, -0.52, -0.52])
    close(advantage("gtpo_trajectory", batch, penalty=0.0), [0.5, 0.5, -0.5, -0.5])
    close(advantage("gtpo_trajectory", batch, most_entropy=0.1), [0] * 4)
    uniform = written([[1], [2]], [1, 1], entropy=0.5)
    close(advantage("gtpo_trajectory", uniform), [-0.05, -0.05])


def test_tokens_are_asked_for():
    with pytest.raises(UsageError, match="needs a language policy"):
        advantage("gtpo_trajectory", told([1, 0, 0, 1]))


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("gtpo_token", {"bonus": -0.1}, "at least 0"),
        ("grpo_s", {"base": math.inf}, "finite"),
        ("gtpo_trajectory", {"penalty": -0.1}, "penalty must be at least 0"),
        ("gtpo_trajectory", {"most_entropy": math.inf}, "finite"),
    ],
)
def test_bad_arguments_are_refused(name, arguments, words):
    with pytest.raises(UsageError, match=f"^{name}: ") as caught:
        anypo.recipe(name, **arguments)
    assert words in str(caught.value)
