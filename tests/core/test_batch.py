"""`Batch`: statistics by id, slicing and joining."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anypo.core.batch import Batch, concat
from anypo.core.errors import UsageError
from tests.toys import toy_batch


def test_one_value_per_unit_counts_whatever_its_length():
    batch = toy_batch([[1, 4]], outcomes=[[1.0, 3.0]])
    outcome = batch.sum(batch["reward"], within="traj")
    assert batch.mean(outcome, over="traj", within="group").tolist() == [2.0] * 5
    assert batch.mean(outcome, within="group").tolist() == [pytest.approx(13 / 5)] * 5


def test_a_statistic_over_units_refuses_values_that_vary_within_one():
    batch = toy_batch([[2, 2]])
    with pytest.raises(UsageError, match="collapse it first"):
        batch.mean(batch["reward"], over="traj", within="group")


def test_a_unit_that_crosses_another_is_refused():
    batch = Batch({}, {"traj": torch.tensor([0, 0]), "group": torch.tensor([0, 1])})
    with pytest.raises(UsageError, match="spans"):
        batch.mean(torch.ones(2), over="traj", within="group")


def test_an_absent_column_names_its_cure():
    with pytest.raises(UsageError, match="needs a critic"):
        Batch({"reward": torch.ones(1)}, {})["value"]


def test_within_may_name_several_units():
    ids = {"group": torch.tensor([0, 0, 1, 1]), "stage": torch.tensor([0, 1, 0, 0])}
    batch = Batch({}, ids)
    x = torch.tensor([1.0, 2.0, 3.0, 5.0])
    assert batch.sum(x, within=("group", "stage")).tolist() == [1.0, 2.0, 8.0, 8.0]


@given(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=1, max_size=4))
def test_parts_joined_again_are_the_batch(lengths):
    batch = toy_batch(lengths)
    parts = [batch.take_units("group", [g]) for g in range(len(lengths))]
    joined = concat(parts)
    for name in batch.columns:
        assert torch.equal(joined[name], batch[name])
    for name in batch.ids:
        if name not in ("position", "prompt"):
            assert torch.equal(joined.ids[name], batch.ids[name])
    assert torch.equal(joined.ids["prompt"], batch.ids["prompt"])
    assert len(joined.inputs["features"]) == batch.count("seq")
    assert len(joined.tables["traj"]["horizon"]) == batch.count("traj")


def test_take_slices_tables_and_inputs_with_their_units():
    batch = toy_batch([[2, 1], [3, 1]])
    kept = batch.take(batch.id("traj") >= 2)
    assert kept.id("traj").tolist() == [0, 0, 0, 1]
    assert kept.id("group").tolist() == [0] * 4
    assert kept.id("prompt").tolist() == [1] * 4
    assert [len(r) for r in kept.inputs["features"]] == [3, 1]


def test_joining_refuses_a_gap():
    a, b = toy_batch([[1]]), toy_batch([[1]])
    with pytest.raises(ValueError, match="entropy"):
        concat([a, b.with_({"entropy": torch.zeros(1)})])


def test_at_and_spread():
    batch = toy_batch([[2, 3]], outcomes=[[1.0, 2.0]])
    rows = batch.at("traj")
    assert rows["reward"].tolist() == [1.0, 2.0]
    assert batch.spread("traj", rows["reward"]).tolist() == [1.0, 1.0, 2.0, 2.0, 2.0]
    assert batch.last("traj").tolist() == [False, True, False, False, True]
    assert batch.next(torch.arange(5.0), fill=-1.0).tolist() == [1.0, -1.0, 3.0, 4.0, -1.0]
