"""Schedules: a hyper-parameter as a function of the iteration."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass


class Schedule(ABC):
    """A value for every iteration: `schedules={"surrogate.high": Linear(0.3, 0.2, 100)}`."""

    @abstractmethod
    def __call__(self, step: int) -> float:
        """The value at iteration `step` (0 is the first)."""


@dataclass(frozen=True)
class Linear(Schedule):
    """From `start` to `end` in `steps` iterations, constant afterwards: `s + (e−s)·min(k/n, 1)`."""

    start: float
    end: float
    steps: int = 100

    def __call__(self, step: int) -> float:
        """The value at iteration `step`."""
        return self.start + (self.end - self.start) * min(step / self.steps, 1.0)


@dataclass(frozen=True)
class Cosine(Schedule):
    """From `start` to `end` along half a cosine in `steps` iterations, constant afterwards."""

    start: float
    end: float
    steps: int = 100

    def __call__(self, step: int) -> float:
        """`e + (s−e)·(1 + cos(π·min(k/n, 1)))/2`."""
        phase = math.pi * min(step / self.steps, 1.0)
        return self.end + (self.start - self.end) * (1 + math.cos(phase)) / 2


@dataclass(frozen=True)
class Piecewise(Schedule):
    """`values[i]` from iteration `steps[i]` on; `steps` ascends and begins with 0."""

    steps: tuple[int, ...]
    values: tuple[float, ...]

    def __call__(self, step: int) -> float:
        """The value at iteration `step`."""
        return [v for k, v in zip(self.steps, self.values, strict=True) if k <= step][-1]
