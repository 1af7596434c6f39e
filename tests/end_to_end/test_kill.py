"""`kill -9` at a random moment, then the same command: the same numbers to the last bit."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

TIMES = ("step_time", "time/")
STEPS = 8


def command(out: Path) -> list[str]:
    """A short run of the character model, with a checkpoint after every second iteration."""
    return [
        *(sys.executable, "-m", "anypo", "train", "grpo", "--policy", "tiny"),
        *("--task", "first_letter", "--steps", str(STEPS), "--prompts", "4", "--group", "4"),
        *("--save-every", "2", "--eval-every", "3", "--eval-size", "20", "--out", str(out)),
    ]


def environment() -> dict[str, str]:
    """The same thread count for every run: sums of floats depend on it."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def numbers(out: Path) -> list[dict]:
    """The metrics without times."""
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith(TIMES)} for row in rows]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Path:
    """The run that nobody killed."""
    out = tmp_path_factory.mktemp("whole")
    subprocess.run(command(out), env=environment(), check=True, capture_output=True)
    return out


@pytest.mark.parametrize("kills", [1, 2])
def test_a_killed_run_goes_on_to_the_same_bits(kills, uninterrupted, tmp_path):
    rng = random.Random(kills)
    out = tmp_path / "run"
    for _ in range(kills):
        process = subprocess.Popen(
            command(out), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        metrics, wanted = out / "metrics.jsonl", rng.randint(1, STEPS - 3)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            if metrics.exists() and len(metrics.read_text().splitlines()) >= wanted:
                break
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.4))
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = subprocess.run(command(out), env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert numbers(out) == numbers(uninterrupted)
    ours, theirs = (
        load_file(o / f"checkpoint-{STEPS}" / "model.safetensors") for o in (out, uninterrupted)
    )
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[k], theirs[k]) for k in ours)


def test_the_same_command_on_a_finished_run_changes_nothing(uninterrupted):
    before = numbers(uninterrupted)
    done = subprocess.run(command(uninterrupted), env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert numbers(uninterrupted) == before
