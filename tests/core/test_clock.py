"""The clock of an iteration: exclusive spans that add up, passes that are counted."""

from __future__ import annotations

import threading
import time

import pytest

from anypo.core import clock
from anypo.core.clock import OTHER, Clock, Pass, listening, span, work


@pytest.fixture
def ticks(monkeypatch):
    """Time stands still unless it is moved on by hand."""
    now = [0.0]
    monkeypatch.setattr(clock.time, "perf_counter", lambda: now[0])

    def move(seconds: float) -> None:
        now[0] += seconds

    return move


def test_time_belongs_to_the_innermost_span(ticks):
    watch = Clock()
    with listening(watch):
        ticks(1)
        with span("decode"):
            ticks(2)
            with span("rewards"):
                ticks(4)
                with span("decode"):
                    ticks(8)
            ticks(16)
        ticks(32)
    assert watch.lap().seconds == {OTHER: 33, "decode": 26, "rewards": 4}


def test_a_lap_begins_anew_and_open_spans_go_on(ticks):
    watch = Clock()
    with listening(watch), span("decode"):
        ticks(3)
        work("decode", 8, scored=8, cached=80)
        first = watch.lap()
        ticks(5)
        work("forward", 7)
    second = watch.lap()
    assert first.seconds == {"decode": 3, OTHER: 0}
    assert (first.passes, first.cached) == ({Pass("decode", 8, 8): 1}, 80)
    assert second.seconds == {"decode": 5, OTHER: 0}
    assert (second.passes, second.cached) == ({Pass("forward", 7, 0): 1}, 0)


def test_a_span_ends_with_an_error(ticks):
    watch = Clock()
    with listening(watch):
        with pytest.raises(KeyError), span("rewards"):
            ticks(1)
            raise KeyError
        ticks(2)
    assert watch.lap().seconds == {"rewards": 1, OTHER: 2}


def test_passes_of_one_kind_are_counted_together():
    watch = Clock()
    with listening(watch):
        for cached in (10, 20):
            work("decode", 4, scored=4, cached=cached)
        work("backward", 9, scored=2)
    lap = watch.lap()
    assert lap.passes == {Pass("decode", 4, 4): 2, Pass("backward", 9, 2): 1}
    assert lap.cached == 30


def test_nothing_is_kept_where_nobody_listens(ticks):
    watch = Clock()
    with listening(watch):
        thread = threading.Thread(target=_busy, args=(ticks,))
        thread.start()
        thread.join()
        with listening(None):
            _busy(ticks)
    _busy(ticks)
    lap = watch.lap()
    assert set(lap.seconds) == {OTHER}
    assert not lap.passes


def _busy(ticks):
    with span("decode"):
        ticks(1)
        work("decode", 1)


def test_the_device_is_waited_for_before_the_time_is_read(ticks):
    watch = Clock(wait=lambda: ticks(10))
    with listening(watch), span("forward"):
        ticks(1)
    assert watch.lap().seconds == {OTHER: 20, "forward": 11}


def test_real_spans_add_up_to_the_time_that_passed():
    watch = Clock()
    started = time.perf_counter()
    with listening(watch):
        for _ in range(100):
            with span("a"), span("b"):
                time.sleep(1e-4)
    total = sum(watch.lap().seconds.values())
    assert total == pytest.approx(time.perf_counter() - started, abs=5e-3)
