"""`metrics.jsonl`, and stopping a run that is dead."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from anypo.engine.state import State

SUMMED = frozenset({"skipped_updates"})
LARGEST = frozenset({"ratio/max", "sampling/sampling_logp_difference/max", "two_pass_drift"})
SMALLEST = frozenset({"ratio/min"})


class Log:
    """One JSON object per iteration in `metrics.jsonl`; a resumed run cuts it back first."""

    def __init__(self, out: Path, step: int) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.path = out / "metrics.jsonl"
        self._updates = 0
        self.rows: list[dict[str, Any]] = []
        self._cut(step)

    def _cut(self, step: int) -> None:
        rows = read(self.path) if self.path.exists() else []
        self.rows = [row for row in rows if row["step"] <= step]
        partial = self.path.with_suffix(".partial")
        partial.write_text("".join(json.dumps(row) + "\n" for row in self.rows))
        os.replace(partial, self.path)

    def fold(self, facts: dict[str, Any], new: dict[str, float]) -> dict[str, Any]:
        """Metrics of one more optimizer step of the iteration: means, sums, extremes."""
        self._updates = 1 + (self._updates if "grad_norm" in facts else 0)
        n = self._updates
        for name, x in new.items():
            before = facts.get(name, 0.0 if name in SUMMED else x)
            if name in SUMMED:
                facts[name] = before + x
            elif name in LARGEST:
                facts[name] = max(before, x)
            elif name in SMALLEST:
                facts[name] = min(before, x)
            else:
                facts[name] = before + (x - before) / n
        facts["updates"] = n
        return facts

    def write(self, state: State, facts: dict[str, Any]) -> dict[str, Any]:
        """Append the row of a finished iteration; returns it."""
        row = {"step": state.step, **facts, "num_tokens": state.tokens}
        row["learning_rate"] = state.optimizers[0].param_groups[0]["lr"]
        numbers = {k: v for k, v in state.pieces.items() if isinstance(v, (int, float))}
        row |= {f"state/{k}": v for k, v in numbers.items()}
        if price := state.settings.hourly_price:
            row["cost"] = sum(r["step_time"] for r in (*self.rows, row)) / 3600 * price
        clean = {k: _plain(v) for k, v in row.items()}
        with open(self.path, "a") as handle:
            handle.write(json.dumps(clean) + "\n")
            handle.flush()
        self.rows.append(clean)
        return clean

    def verdict(self, state: State, facts: dict[str, Any]) -> str:
        """Why the run must stop: `patience` iterations without a gradient, or three not finite.

        An empty string while it is alive.
        """
        if facts.get("skipped_updates", 0) and state.idle >= 3:
            return (
                "three gradients in a row were not finite and were not applied: lower --lr, or "
                "look at the rewards"
            )
        if state.idle < state.settings.patience:
            return ""
        why = "no trajectory had an advantage" if facts.get("kept") else "no trajectory was kept"
        if facts.get("frac_reward_zero_std") == 1.0:
            why = f"every group had equal rewards (the last all {facts.get('reward', 0.0):g})"
        return (
            f"{state.idle} iterations without any gradient: {why}. Try an easier task, a larger "
            "group, a denser reward, or more --patience"
        )


def _plain(x: Any) -> Any:
    if isinstance(x, float):
        return None if not math.isfinite(x) else x
    return x


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics file; a last line cut short by a kill is left out."""
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows
