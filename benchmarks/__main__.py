"""How fast this machine reduces, samples and updates: `python -m benchmarks [POLICY …]`.

One line per measurement, the median of several. Language policies (default: `tiny`) run a few
iterations of GRPO on one-digit arithmetic; the first iteration warms up and is left out.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable

import torch

import anypo
from anypo.core.batch import Batch

STEPS, LENGTH, GROUP = 1_000_000, 50, 8


def seconds(call: Callable[[], object], times: int = 5) -> float:
    """Median time of a call."""
    spent = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        spent.append(time.perf_counter() - start)
    return statistics.median(spent)


def show(name: str, value: float, unit: str) -> None:
    """One line."""
    print(f"{name:44}{value:14,.1f} {unit}", flush=True)


def primitives() -> None:
    """The three primitives of `Batch` on a million steps."""
    traj = torch.arange(STEPS) // LENGTH
    x = torch.randn(STEPS, generator=torch.Generator().manual_seed(0))
    batch = Batch({"reward": x}, {"traj": traj, "seq": traj, "group": traj // GROUP})
    outcome = batch.sum(x, within="traj")
    calls: dict[str, Callable[[], object]] = {
        "reduce: sum within traj": lambda: batch.sum(x, within="traj"),
        "reduce: std over traj within group": lambda: batch.std(outcome, "group", over="traj"),
        "scan: discounted returns within traj": lambda: batch.scan(x, 0.99),
        "at: one row per traj": lambda: batch.at("traj"),
    }
    for name, call in calls.items():
        show(name, STEPS / seconds(call) / 1e6, "million steps/s")


def iterations(name: str, recipe: str, policy: str, task: str, **settings: int) -> None:
    """Iterations of a run, and the trainable steps that they sampled and learned from."""
    with tempfile.TemporaryDirectory() as folder:
        rows = anypo.train(recipe, policy, task, steps=5, out=folder, **settings).metrics
    times = [row["step_time"] for row in rows[1:]]
    sampled = rows[-1]["num_tokens"] - rows[0]["num_tokens"]
    show(f"{name}: iteration", 1e3 * statistics.median(times), "ms")
    show(f"{name}: sampled and learned", sampled / sum(times), "steps/s")


def main(policies: list[str]) -> None:
    """Everything."""
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    primitives()
    iterations("ppo, categorical, CartPole-v1", "ppo", "categorical", "CartPole-v1")
    for policy in policies:
        iterations(
            f"grpo, {policy}, arithmetic", "grpo", policy, "arithmetic", eval_every=0, eval_size=1
        )


if __name__ == "__main__":
    main(sys.argv[1:] or ["tiny"])
