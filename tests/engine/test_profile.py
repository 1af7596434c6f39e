"""Where the time went: metrics of an iteration, and the profile of a run."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from anypo.core.clock import Clock, Lap, Pass, listening
from anypo.core.neutral import Adam
from anypo.engine.profile import profile_of, rates, spans


def test_the_spans_of_an_iteration_add_up_to_its_time():
    """Two seconds are evaluation and checkpoint, outside; the rest of the ten is `other`."""
    seconds = {"decode": 4.0, "backward": 3.0, "evaluation": 0.5, "checkpoint": 1.5, "other": 99.0}
    assert spans(Lap(seconds), step_time=10.0) == {
        "time/decode": 4.0,
        "time/backward": 3.0,
        "time/evaluation": 0.5,
        "time/checkpoint": 1.5,
        "time/other": 3.0,
    }
    assert spans(Lap({"decode": 1.0}), step_time=0.999)["time/other"] == 0.0


def test_tokens_are_counted_in_the_time_of_their_own_spans():
    seconds = {"sampling": 1.0, "prefill": 1.0, "decode": 2.0, "forward": 3.0, "backward": 5.0}
    passes = Counter({Pass("backward", 50, 20): 3, Pass("forward", 50, 25): 3})
    found = rates(Lap(seconds, passes), sampled=100)
    assert found == {"tokens_per_second/sampled": 25.0, "tokens_per_second/learned": 7.5}
    assert rates(Lap(seconds), sampled=0) == {}
    assert rates(Lap({}, passes), sampled=100) == {}


@pytest.mark.parametrize(("slope", "stepped"), [(2.0, 6), (float("nan"), 0)])
def test_an_optimizer_says_how_many_weights_it_steps(slope, stepped):
    """Those with a gradient, and none where it is not finite."""
    weights = [torch.nn.Parameter(torch.ones(n)) for n in (6, 3)]

    class Problem:
        def accumulate(self):
            (slope * weights[0].sum()).backward()
            return {}

    clock, rule = Clock(), Adam()
    with listening(clock):
        rule.step(Problem(), rule.optimizer(weights, 0.1), 0.1)
    lap = clock.lap()
    assert lap.passes == ({Pass("optimizer", stepped, 0): 1} if stepped else {})
    assert lap.seconds["optimizer"] > 0


def row(step: int, step_time: float, **seconds: float) -> dict[str, float]:
    """A row of metrics."""
    own = {f"time/{name}": x for name, x in seconds.items()}
    return {"step": step, "step_time": step_time, "time/collect": 50.0, **own}


def test_a_profile_has_medians_and_shares_of_all_time():
    rows = [
        {"step": 1, "step_time": 7.0},  # before the run was profiled
        row(2, 10.0, decode=9.0, other=1.0) | {"tokens_per_second/sampled": 5.0},
        row(3, 4.0, decode=2.0, other=2.0, checkpoint=5.0) | {"tokens_per_second/sampled": 9.0},
        row(4, 5.0, decode=3.0, forward=1.0, other=1.0) | {"tokens_per_second/sampled": 6.0},
    ]
    found = profile_of(rows, {"checkpoint": 1.0, "other": 70.0})
    assert found.iterations == 3
    assert found.iteration == 5.0
    assert found.seconds == {"decode": 3.0, "forward": 0.0, "checkpoint": 0.0, "other": 1.0}
    assert list(found.seconds) == ["decode", "forward", "checkpoint", "other"]
    sums = {"decode": 14, "forward": 1, "checkpoint": 6, "other": 4}
    assert found.shares == {name: pytest.approx(x / 25) for name, x in sums.items()}
    assert found.rates == {"sampled": 6.0}
    assert (found.floor, found.ratio) == ({}, 0.0)


def test_the_ratio_to_the_floor_is_the_median_iterations():
    rows = [row(k, float(k), decode=float(k), other=0.0) for k in (1, 2, 3, 4)]
    floors = [{"decode": 1.0}, {"decode": 1.5, "reading": 0.5}, {"decode": 0.5}]
    found = profile_of(rows, {}, floors, bandwidth=8e9)
    assert found.ratio == 2.0  # of 2/1, 3/2 and 4/0.5
    assert found.floor == {"decode": 1.0, "reading": 0.0}
    assert found.bandwidth == 8e9
