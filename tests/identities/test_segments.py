"""Segment operations on units of two axes, without members, and under several ids at once."""

from __future__ import annotations

import math

import torch

from anypo.math import segments
from tests.identities.small import close

IDS = torch.tensor([0, 0, 1])


def test_a_product_of_partitions_is_numbered_like_words_in_a_dictionary():
    first, second = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([0, 1, 0, 1, 0, 1])
    assert segments.combine(first, second).tolist() == [0, 1, 2, 3, 4, 5]
    assert segments.combine(second, first).tolist() == [0, 3, 1, 4, 2, 5]
    assert segments.combine(first, first).tolist() == first.tolist()


def test_sums_and_means_keep_further_dimensions_and_give_0_for_a_unit_without_members():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.float64)
    close(segments.segment_sum(x, IDS, 3), [[4, 6], [5, 6], [0, 0]])
    close(segments.segment_mean(x, IDS, 3), [[2, 3], [5, 6], [0, 0]])
    close(segments.segment_mean(x[:, 0], IDS, 3), [2, 5, 0])
    cube = x[:, :, None].expand(3, 2, 2)
    close(segments.segment_mean(cube, IDS, 2)[..., 1], [[2, 3], [5, 6]])


def test_a_deviation_divides_by_one_less_unless_told_otherwise():
    x = torch.tensor([1.0, 3.0, 7.0], dtype=torch.float64)
    close(segments.segment_std(x, IDS, 3), [math.sqrt(2), 0, 0])
    close(segments.segment_std(x, IDS, 3, ddof=0), [1, 0, 0])
    close(segments.segment_std(x, torch.zeros(3).long(), 1), [math.sqrt(28 / 3)])


def test_the_next_value_is_0_behind_the_last_step():
    assert segments.shift(torch.tensor([1.0, 2.0, 3.0]), IDS).tolist() == [2.0, 0.0, 0.0]
    assert segments.shift(torch.tensor([1.0, 2.0, 3.0]), IDS, 9.0).tolist() == [2.0, 9.0, 9.0]


def test_steps_of_a_unit_keep_their_order_among_those_of_others():
    """Three hundred steps of three units, interleaved: an unstable sort would mix them."""
    ids = torch.arange(300) * 7 % 11 % 3
    x = torch.arange(300, dtype=torch.float64)
    ahead, sums = torch.zeros(300, dtype=torch.float64), torch.zeros(300, dtype=torch.float64)
    for unit in range(3):
        mine = torch.nonzero(ids == unit).flatten()
        ahead[mine[:-1]] = x[mine[1:]]
        sums[mine] = x[mine].flip(0).cumsum(0).flip(0)
    assert torch.equal(segments.shift(x, ids), ahead)
    assert torch.equal(segments.scan(x, torch.ones_like(x), ids), sums)
