"""What a run shows while it trains: two live lines, or one plain line per iteration."""

from __future__ import annotations

import time
from collections import deque
from itertools import pairwise
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from anypo.engine.callbacks import Callback
from anypo.report.text import visible

BARS = "▁▂▃▄▅▆▇█"
RECENT = 10


class Progress(Callback):
    """Shows iterations as they finish; `notice` shows sentences."""

    def __init__(self, screen: Console, name: str, steps: int) -> None:
        self.screen, self.name, self.steps = screen, name, steps
        self.live: Live | None = None
        self.curve: list[float] = []
        self.times: deque[float] = deque(maxlen=RECENT)
        self.tokens, self.started, self.last = 0, time.monotonic(), 0.0
        self.held_out = ""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        if self.live:
            self.live.stop()

    def notice(self, text: str) -> None:
        """A sentence above the live lines."""
        self.screen.print(Text(visible(text), style="dim"), soft_wrap=True)

    def on_iteration(self, row: dict[str, Any]) -> None:
        """Show an iteration."""
        facts = self.facts(row)
        if not self.screen.is_terminal:
            line = "  ".join(f"{name} {value}" for name, value in facts.items())
            self.screen.print(f"{row['step']:>4}/{self.steps}  {line}", soft_wrap=True)
            return
        if self.live is None:
            self.live = Live(console=self.screen, auto_refresh=False, transient=False)
            self.live.start()
        self.live.update(self.lines(row["step"], facts), refresh=True)

    def facts(self, row: dict[str, Any]) -> dict[str, str]:
        """What is shown of a row, in order; what it lacks is left out."""
        now = time.monotonic()
        self.times.append(now - self.last if self.last else row.get("step_time", 0.0))
        self.last = now
        fresh = row.get("num_tokens", 0) - self.tokens
        speed = fresh / row["step_time"] if self.tokens or row["step"] == 1 else 0.0
        self.tokens = row.get("num_tokens", 0)
        given = "nll" in row and not row.get("reward_std")  # demonstrations, all worth 1
        self.curve.append(row.get("nll" if given else "reward") or 0.0)
        if "held_out/accuracy" in row:
            self.held_out = f"{100 * row['held_out/accuracy']:.0f} %"
        elif row.get("held_out/nll") is not None:
            self.held_out = f"{row['held_out/nll']:.3f}"
        left = sum(self.times) / len(self.times) * (self.steps - row["step"])
        unit = "steps/s" if "rollout/ep_rew_mean" in row else "tokens/s"
        shown = {
            "nll": number(row.get("nll"), 3) if given else "",
            "reward": "" if given else number(row.get("reward"), 3),
            "return": number(row.get("rollout/ep_rew_mean"), 1),
            "held out": self.held_out,
            "entropy": number(row.get("entropy"), 3),
            "KL": number(row.get("kl", row.get("approx_kl")), 4),
            "length": number(row.get("completions/mean_length"), 1),
            unit: f"{speed:.0f}" if speed else "",
            "left": clock(left) if row["step"] < self.steps else "",
        }
        return {name: value for name, value in shown.items() if value}

    def lines(self, step: int, facts: dict[str, str]) -> Group:
        """A bar with times, the numbers below it, and what is learned so far as a small curve."""
        grid = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=self.steps, completed=step, width=24)
        spent = f"{clock(time.monotonic() - self.started)} spent"
        left = f", {facts['left']} left" if "left" in facts else ""
        curve = Text(sparkline(self.curve, 24), style="cyan")
        name, place = Text(self.name, style="bold"), f"{step}/{self.steps}"
        grid.add_row(name, bar, place, spent + left, curve)
        numbers = Text()
        for name, value in facts.items():
            if name != "left":
                numbers.append(f"{name} ", style="dim")
                numbers.append(f"{value}   ")
        return Group(grid, numbers)


def number(value: float | None, digits: int) -> str:
    """A number for a line, an empty string for none."""
    return "" if value is None else f"{value:.{digits}f}"


def clock(seconds: float) -> str:
    """`1:05` or `2:03:04`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def sparkline(values: list[float], width: int) -> str:
    """A curve of block characters; every one is the mean of a stretch of values."""
    count = min(width, len(values))
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, span = min(means), max(means) - min(means)
    return "".join(BARS[round((m - low) / span * (len(BARS) - 1)) if span else 0] for m in means)
