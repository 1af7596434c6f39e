"""A run's folder as a `Record`: all metrics, and some iterations' completions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from anypo.core.errors import UsageError
from anypo.doctor.record import Record
from anypo.engine.log import read

ITERATIONS, ANSWERS = 12, 256
"""Recorded iterations that are read, half of them the last ones, and answers of each."""


def read_run(out: Path | str) -> Record:
    """The record of a run, finished or not; `UsageError` for a folder that holds none."""
    out = Path(out)
    if not (out / "anypo.json").is_file():
        raise UsageError(f"{out} holds no run: name a folder that anypo train wrote")
    rows = read(out / "metrics.jsonl") if (out / "metrics.jsonl").is_file() else []
    scores = {"before": _json(out / "before.json")} if (out / "before.json").is_file() else {}
    scores |= _json(out / "scores.json") if (out / "scores.json").is_file() else {}
    return Record(_json(out / "anypo.json"), rows, scores, _completions(out))


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError:
        raise UsageError(f"{path} is damaged: it is no JSON") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path} is damaged: it holds no mapping")
    return found


def _completions(out: Path) -> dict[int, list[dict[str, Any]]]:
    files = [
        f for f in (out / "completions").glob("*") if re.fullmatch(r"step_\d+\.parquet", f.name)
    ]
    if not files:
        return {}
    from anypo.backends.parquet import read_rows

    by_step = {int(f.stem.removeprefix("step_")): f for f in files}
    steps = sorted(by_step)
    half = ITERATIONS // 2
    early = steps[:-half][:: max(1, len(steps[:-half]) // half)][:half]
    return {step: read_rows(by_step[step])[:ANSWERS] for step in (*early, *steps[-half:])}
