"""Folders of runs, as train leaves them, for the tests of what reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anypo.recipes
from anypo.backends.parquet import write_rows
from anypo.core import discover
from anypo.core.dump import dump

METHODS = discover.methods(anypo.recipes)
Row = dict[str, Any]


def facts(**changes: Any) -> Row:
    """What `anypo.json` says of a run of GRPO on a task of sums."""
    return {
        "method": "grpo",
        "recipe": dump(METHODS["grpo"]()),
        "policy": {"name": "tiny", "kind": "language"},
        "task": {"name": "sums", "kind": "language", "train": 100, "held_out": 60},
        "settings": {"steps": 12, "seed": 7},
        "versions": {"torch": "2.0"},
        "hardware": {"threads": 2},
        "command": "anypo train grpo --task sums",
        "given": {},
        **changes,
    }


def metrics(steps: int) -> list[Row]:
    """Rows whose reward rises by 1/steps and whose entropy falls."""
    return [
        {
            "step": k,
            "reward": k / steps,
            "entropy": 2.0 - k / steps,
            "step_time": 1.0 + k / steps,
            "time/collect": 0.5,
            "num_tokens": 100 * k,
        }
        for k in range(1, steps + 1)
    ]


def completion(step: int, index: int, **changes: Any) -> Row:
    """A row of four tokens, the first two made likelier, the third less likely, the fourth not."""
    return {
        "step": step,
        "prompt": f"{index // 2} + {index // 2}?",
        "completion": f"it is {step}.{index}",
        "rewards/format": 1.0,
        "rewards/right": float(index % 2),
        "score": index % 3,
        "reward": float(index % 3),
        "advantage": index - 2.5,
        "group": index // 2,
        "truncated": False,
        "tokens": ["it", " is", f" {step}", f".{index}"],
        "gradient": [0.004, 0.001, -0.004, 0.0],
        **changes,
    }


def make(
    out: Path,
    steps: int = 12,
    rows: int = 6,
    made: Callable[[int, int], Row] = completion,
    **changes: Any,
) -> Path:
    """A finished run: facts, metrics, scores, and as many completions of each iteration."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "anypo.json").write_text(json.dumps(facts(**changes)))
    (out / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in metrics(steps)))
    before = {"held_out/correct": 6, "held_out/total": 60}
    after = {"held_out/correct": 48, "held_out/total": 60}
    (out / "before.json").write_text(json.dumps(before))
    (out / "scores.json").write_text(json.dumps({"before": before, "after": after}))
    for k in range(1, steps + 1) if rows else ():
        table = [made(k, i) for i in range(rows)]
        write_rows(out / "completions" / f"step_{k:05d}.parquet", table)
    return out
