"""What a run decides and a recipe does not: how long, how much, how fast, under which seed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from anypo.core.errors import UsageError
from anypo.engine import limits


@dataclass(frozen=True)
class Settings:
    """Settings of a run.

    Parameters
    ----------
    steps : iterations; one iteration collects a batch and updates on it.
    seed : of every random stream.
    prompts : prompts (language), environment streams (control) or conditions per iteration.
    horizon : most completion tokens, or environment steps of a fragment (0 = the task's own).
    temperature : of the sampled and scored distribution (default 1: no reshaping).
    lr : learning rate (0 = the policy's own).
    token_budget : most tokens (or rows) of one forward pass; changes memory, never a gradient.
    save_every : `"300s"` seconds or `"20"` iterations between checkpoints.
    eval_every : iterations between evaluations on held-out questions (0 = only at the ends).
    eval_size : most questions of each side in an evaluation.
    record_every : iterations between stored completions (0 = none).
    patience : iterations without any gradient after which the run stops and says why.
    max_time : training time after which the run ends, `90s`, `30m` or `1.5h` (empty = none); that
        of earlier sittings of the same run counts.
    max_tokens : sampled tokens (or steps) after which the run ends (0 = none).
    max_completions : sampled completions (fragments, points) after which the run ends (0 = none).
    max_cost : money after which the run ends, in the currency of `hourly_price` (0 = none).
    hourly_price : what an hour of training costs; with it, `cost` is a metric (0 = unknown).
    stop_at : end the run when a metric gets there: `held_out/accuracy>=0.9` (empty = never).
    stall : end the run after so many measurements without a better one, of held-out accuracy (or
        likelihood) where it is measured, else of the return or the reward (0 = never).
    """

    steps: int = 140
    seed: int = 0
    prompts: int = 16
    horizon: int = 0
    temperature: float = 1.0
    lr: float = 0.0
    token_budget: int = 8192
    save_every: str = "300s"
    eval_every: int = 10
    eval_size: int = 100
    record_every: int = 1
    patience: int = 60
    max_time: str = ""
    max_tokens: int = 0
    max_completions: int = 0
    max_cost: float = 0.0
    hourly_price: float = 0.0
    stop_at: str = ""
    stall: int = 0

    def __post_init__(self) -> None:
        for name in ("prompts", "token_budget", "patience"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        least = "steps horizon lr eval_every eval_size record_every max_tokens max_cost stall"
        for name in (*least.split(), "hourly_price", "max_completions"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} must be at least 0, not {getattr(self, name)}")
        if self.temperature <= 0:
            raise UsageError("temperature must be above 0: a greedy sampler explores nothing")
        if not re.fullmatch(r"[1-9]\d*s?", self.save_every):
            raise UsageError(
                f"save_every={self.save_every!r}: write 20 (iterations) or 300s (time)"
            )

        limits.seconds(self.max_time)
        if self.stop_at:
            limits.condition(self.stop_at)
        if self.max_cost and not self.hourly_price:
            raise UsageError("max_cost needs hourly_price: what an hour of training costs")

    def due(self, step: int, seconds: float) -> bool:
        """Whether a checkpoint is due after `step` iterations, `seconds` after the last one."""
        if self.save_every.endswith("s"):
            return seconds >= int(self.save_every[:-1])
        return step % int(self.save_every) == 0
