"""The Python that README.md and docs/index.md show runs as it stands, on a smaller model."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(import anypo\n.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_example_runs(page, tmp_path):
    (code,) = BLOCK.findall((ROOT / page).read_text("utf-8"))
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    smaller = re.sub(r"steps=\d+", "steps=2", code).replace("smollm2-135m", "tiny")
    questions = [{"prompt": word} for word in ("ab", "ba", "aa", "bb", "abba", "baab")]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(q) + "\n" for q in questions))
    done = subprocess.run(
        [sys.executable, "-c", smaller],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    *numbers, report = done.stdout.splitlines()
    assert float(numbers[-1].split()[-1]) > 0
    assert "<html" in (tmp_path / report).read_text("utf-8")
