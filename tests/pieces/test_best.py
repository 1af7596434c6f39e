"""The best of each group: who stays, in ties too, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anypo.core.errors import UsageError
from anypo.core.neutral import Groups
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.sampling.best import Best
from tests.identities.small import last, steps


def kept(piece: Best, rewards: list[float], groups: list[int], lots: list[float] | None = None):
    """The places of the trajectories that stay; each has one step more than the one before."""
    lengths = [1 + k for k in range(len(rewards))]
    lots = lots or [k / len(rewards) for k in range(len(rewards))]
    lot = [x for n, x in zip(lengths, lots, strict=True) for x in [x / 2] * (n - 1) + [x]]
    place = [k for k, n in enumerate(lengths) for _ in range(n)]
    batch = steps(lengths, groups, reward=last(lengths, rewards), lot=lot, place=place)
    stays = piece.thin(batch)
    assert len(stays) == sum(1 + int(k) for k in stays["place"].unique())
    return sorted({int(k) for k in stays["place"]})


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        (Best(), [1, 5]),
        (Best(2), [1, 2, 4, 5]),
        (Best(0, least=0.5), [0, 1, 2, 5]),
        (Best(2, least=0.5), [1, 2, 5]),
        (Best(1, least=2.5), [1]),
        (Best(0, least=2.0), [1, 5]),
    ],
)
def test_the_largest_rewards_of_each_group_stay(piece, expected):
    assert kept(piece, [0.5, 3.0, 1.0, -1.0, 0.0, 2.0], [0, 0, 0, 1, 1, 1]) == expected


def test_ties_are_broken_by_the_larger_lot():
    groups = [0, 0, 0, 0]
    assert kept(Best(1), [1.0, 1.0, 0.0, 1.0], groups, [0.2, 0.7, 0.9, 0.6]) == [1]
    assert kept(Best(2), [1.0, 1.0, 0.0, 1.0], groups, [0.2, 0.7, 0.9, 0.6]) == [1, 3]
    assert kept(Best(1), [0.0] * 4, groups, [0.2, 0.1, 0.9, 0.6]) == [2]


def test_groups_of_equal_rewards_go_if_asked():
    rewards, groups = [1.0, 1.0, 0.0, 1.0, 0.0], [0, 0, 1, 1, 2]
    assert kept(Best(1, differ=True), rewards, groups) == [3, 4]
    assert kept(Best(0, differ=True), rewards, groups) == [2, 3, 4]
    assert kept(Best(1), rewards, groups) == [1, 3, 4]


@given(
    rewards=st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=8),
    count=st.integers(1, 3),
    seed=st.integers(0, 99),
)
@settings(max_examples=50)
def test_exactly_count_stay_whatever_ties_there_are(rewards, count, seed):
    lots = torch.rand(len(rewards), generator=torch.Generator().manual_seed(seed)).tolist()
    found = kept(Best(count), rewards, [0] * len(rewards), lots)
    by_rank = sorted(range(len(rewards)), key=lambda k: (rewards[k], lots[k]))
    assert found == sorted(by_rank[-count:])


def test_the_advantage_is_that_of_the_whole_group():
    """Selection comes after the statistics: the mean is 1 and the best is 2 above it."""
    batch = steps([1, 1, 1], reward=[0, 0, 3], lot=[0.1, 0.2, 0.3])
    batch = batch.with_({"advantage": Baseline()(batch)})
    assert Best().keep(batch) is batch
    assert Best().thin(batch)["advantage"].tolist() == [2.0]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Best(-1), r"count=-1\): count must be at least 0"),
        (lambda: Best(1, least=math.inf), "least must be below ∞"),
        (lambda: Best(1, least=math.nan), "least must be below ∞"),
        (lambda: Best(0), "which would keep all"),
        (lambda: Recipe(sampling=Groups(1) >> Best()).check(), "raise the group"),
        (lambda: Recipe(sampling=Groups(4) >> Best(4)).check(), "keeps whole groups of 4: lower"),
    ],
)
def test_what_selects_nothing_is_refused(make, says):
    with pytest.raises(UsageError, match=says):
        make()


def test_one_answer_to_a_prompt_can_be_held_to_a_bar():
    assert Recipe(sampling=Groups(1) >> Best(0, least=1.0)).check()
    assert kept(Best(0, least=1.0), [1.0, 0.5], [0, 1]) == [0]
