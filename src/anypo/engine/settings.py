"""What a run decides and a recipe does not: how long, how much, how fast, under which seed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from anypo.core.errors import UsageError


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
    eval_every : iterations between greedy evaluations on held-out questions (0 = only at the ends).
    eval_size : most questions of each side in an evaluation.
    record_every : iterations between stored completions (0 = none).
    patience : iterations without any gradient after which the run stops and says why.
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

    def __post_init__(self) -> None:
        for name in ("prompts", "token_budget", "patience"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("steps", "horizon", "lr", "eval_every", "eval_size", "record_every"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} must be at least 0, not {getattr(self, name)}")
        if self.temperature <= 0:
            raise UsageError("temperature must be above 0: a greedy sampler explores nothing")
        if not re.fullmatch(r"[1-9]\d*s?", self.save_every):
            raise UsageError(
                f"save_every={self.save_every!r}: write 20 (iterations) or 300s (time)"
            )

    def due(self, step: int, seconds: float) -> bool:
        """Whether a checkpoint is due after `step` iterations, `seconds` after the last one."""
        if self.save_every.endswith("s"):
            return seconds >= int(self.save_every[:-1])
        return step % int(self.save_every) == 0
