"""Where the time of an iteration goes: exclusive spans, and the network's passes, for a listener.

Code says `with span("decode"):` and `work("decode", rows)` wherever it stands; nothing is kept
unless a `Clock` listens in the same thread.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

OTHER = "other"
"""The time of no span."""

_NOTHING = nullcontext()
_here = threading.local()


class Pass(NamedTuple):
    """One kind of pass through the network, as far as its matrix products are concerned.

    `kind` is `prefill`, `decode`, `forward` or `backward`; `tokens` the rows of the products of its
    layers, `scored` those of its readout.
    """

    kind: str
    tokens: int
    scored: int


@dataclass(frozen=True)
class Lap:
    """What a clock collected since it was last read.

    `seconds` by span add up to the time since; `passes` counts each kind of pass; `cached` is the
    number of tokens whose keys and values were read from a cache, summed over rows and passes.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    passes: Counter[Pass] = field(default_factory=Counter)
    cached: int = 0


class Clock:
    """Collects the spans and the passes of the thread in which it listens.

    A moment belongs to the innermost span that is open, or else to `other`.

    Parameters
    ----------
    wait : called where a span begins or ends, before the time is read; a device that works while
        the program goes on is waited for by it (default: nothing to wait for).
    """

    def __init__(self, wait: Callable[[], object] | None = None) -> None:
        self._wait = wait
        self._open = [OTHER]
        self._spans: dict[str, _Span] = {}
        self._start()

    def _start(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._passes: Counter[Pass] = Counter()
        self._cached = 0
        self._last = time.perf_counter()

    def lap(self) -> Lap:
        """What was collected since the last call, and begin anew; open spans stay open."""
        self._tick()
        lap = Lap(dict(self._seconds), self._passes, self._cached)
        last = self._last
        self._start()
        self._last = last
        return lap

    def span(self, name: str) -> AbstractContextManager[None]:
        """The span of this name; it may be open several times within itself."""
        if name not in self._spans:
            self._spans[name] = _Span(self, name)
        return self._spans[name]

    def work(self, one: Pass, cached: int) -> None:
        """Count a pass."""
        self._passes[one] += 1
        self._cached += cached

    def enter(self, name: str) -> None:
        """From now on time goes to this span."""
        self._tick()
        self._open.append(name)

    def leave(self) -> None:
        """From now on time goes to the span around."""
        self._tick()
        self._open.pop()

    def _tick(self) -> None:
        if self._wait:
            self._wait()
        now = time.perf_counter()
        self._seconds[self._open[-1]] += now - self._last
        self._last = now


class _Span(AbstractContextManager[None]):
    """Holds nothing but its name, so one object serves however often it is opened."""

    def __init__(self, clock: Clock, name: str) -> None:
        self._clock, self._name = clock, name

    def __enter__(self) -> None:
        self._clock.enter(self._name)

    def __exit__(self, *_: object) -> None:
        self._clock.leave()


@contextmanager
def listening(clock: Clock | None) -> Iterator[None]:
    """Have the clock collect what this thread does inside the block; None: nobody listens."""
    before = getattr(_here, "clock", None)
    _here.clock = clock
    try:
        yield
    finally:
        _here.clock = before


def span(name: str) -> AbstractContextManager[None]:
    """A block whose own time, that of spans inside it left out, belongs to a name."""
    clock: Clock | None = getattr(_here, "clock", None)
    return _NOTHING if clock is None else clock.span(name)


def work(kind: str, tokens: int, *, scored: int = 0, cached: int = 0) -> None:
    """Say that the network makes one pass.

    Parameters
    ----------
    kind : `prefill`, `decode`, `forward` or `backward`.
    tokens : rows of the matrix products of its layers.
    scored : rows of its readout.
    cached : tokens whose keys and values a decoding step reads, summed over its rows.
    """
    clock: Clock | None = getattr(_here, "clock", None)
    if clock is not None:
        clock.work(Pass(kind, tokens, scored), cached)
