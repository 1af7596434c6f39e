"""Profiling a run: what its spans took, beside what its arithmetic must take."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from anypo.backends.floor import MOST, Floor
from anypo.core.clock import Clock, Lap, listening
from anypo.engine.log import read
from anypo.engine.profile import Profile, Row, profile_of, rates, spans
from anypo.engine.state import State

FILE = "profile.json"


class Profiling:
    """A profiler for the loop, and the profile of the run at its end.

    Parameters: `policy`, whose passes are timed if it is a language model.

    On a GPU every span waits for the device, so a profiled run is a little slower than others; the
    timings of the floor are made between iterations and count in none.
    """

    def __init__(self, policy: Any) -> None:
        net = getattr(policy, "net", None)
        cuda = next(policy.module.parameters()).is_cuda
        self.clock = Clock(wait=torch.cuda.synchronize if cuda else None)
        self.floor = Floor(net) if net is not None else None
        self.laps: list[Lap] = []

    def __call__(self, state: State, facts: Row, rows: Sequence[Row]) -> dict[str, float]:
        """`time/SPAN`, `tokens_per_second/…`, `floor` and its parts, and `floor/ratio`.

        The floor of a row rests on the timings so far, which are 4 of each shape in the first
        iterations; that of the whole profile on 20.
        """
        lap = self.clock.lap()
        sampled = state.tokens - (rows[-1]["num_tokens"] if rows else 0)
        found = {**spans(lap, facts["step_time"]), **rates(lap, sampled)}
        self.laps.append(lap)
        if self.floor:
            self.floor.improve([lap])
            found |= _floor(self.floor.parts(lap), facts["step_time"])
        self.clock.lap()  # what the timings took is nobody's
        return found

    @contextmanager
    def kept(self, out: Path) -> Iterator[None]:
        """Listen inside the block, and then write the profile of the run to `profile.json`."""
        with listening(self.clock):
            yield
        if self.laps:
            self._write(out)

    def _write(self, out: Path) -> None:
        rest = self.clock.lap().seconds
        floors: list[dict[str, float]] = []
        if self.floor:
            self.floor.improve(self.laps, MOST)
            floors = [self.floor.parts(lap) for lap in self.laps]
        speed = self.floor.bandwidth if self.floor else 0.0
        found = profile_of(read(out / "metrics.jsonl"), rest, floors, speed)
        partial = out / "profile.partial"
        partial.write_text(json.dumps(asdict(found), indent=1))
        os.replace(partial, out / FILE)


def _floor(parts: dict[str, float], step_time: float) -> dict[str, float]:
    total = sum(parts.values())
    named = {f"floor/{name}": x for name, x in parts.items()}
    return {"floor": total, **named, "floor/ratio": step_time / total} if total else {}


def read_profile(out: Path) -> Profile | None:
    """The profile of a run that was made with one."""
    file = out / FILE
    return Profile(**json.loads(file.read_text())) if file.is_file() else None
