"""False alarms of `anypo doctor`: `python -m benchmarks.doctor FOLDER --seeds 10-29`.

Runs healthy trainings of several recipes, tasks and seeds, keeps them in FOLDER (a run that is
there is not made again), and counts what the doctor, and its warnings along the way, say of them.
Healthy is decided without the doctor: the run reached the level that its line of `HEALTHY` names.
Those that did not are counted apart, since there an alarm may be right.

The thresholds were chosen on seeds 0 to 4; the rate that docs/doctor.md states is of other seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anypo
from anypo.doctor import Live, diagnose, read_run
from anypo.engine.metrics import interval

ALARMS = ("serious", "warning")


@dataclass(frozen=True)
class Case:
    """A training that is known to work: what is run, and the level that shows that it worked."""

    name: str
    recipe: str
    task: str
    metric: str
    level: float
    steps: int = 60
    arguments: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def run(self, folder: Path, seed: int) -> Path:
        """The folder of this training under a seed; made where it is not there yet."""
        out = folder / f"{self.name}-{seed}"
        if not (out / "scores.json").is_file():
            policy = "tiny" if self.task in ("first_letter", "vowels") else ""
            recipe = anypo.recipe(self.recipe, **self.arguments)
            more = {"record_every": 5} if policy else {}
            settings = {"seed": seed, "steps": self.steps, **more, **self.settings}
            anypo.train(recipe, policy, self.task, out=out, **settings)
        return out

    def reached(self, rows: list[dict[str, Any]], scores: dict[str, Any]) -> bool:
        """Whether the run reached its level: at the end, or as the median of its last rows."""
        last = scores["after"].get(self.metric)
        if last is None:
            values = [row[self.metric] for row in rows if row.get(self.metric) is not None]
            last = statistics.median(values[-5:])
        return last >= self.level


def _words(recipe: str, **arguments: Any) -> list[Case]:
    tasks = {"first_letter": 0.8, "vowels": 0.8}
    return [
        Case(f"{recipe}-{task}", recipe, task, "held_out/accuracy", level, arguments=arguments)
        for task, level in tasks.items()
    ]


HEALTHY = [
    *_words("grpo"),
    *_words("rloo", group=8),
    *_words("dr_grpo"),
    *_words("gspo", clip_low=0.2, clip_high=0.2),
    *_words("dapo", group=8, rounds=2, overlong=0.0),
    *_words("cispo"),
    Case(
        "ppo-CartPole-v1",
        "ppo",
        "CartPole-v1",
        "rollout/ep_rew_mean",
        300,
        steps=25,
        arguments={"gamma": 0.99, "value_clip": float("inf"), "epochs": 10, "minibatches": 8},
        settings={"prompts": 4},
    ),
    Case(
        "flow_grpo-eight_gaussians",
        "flow_grpo",
        "eight_gaussians",
        "reward",
        0.35,
        steps=40,
        arguments={"clip": 1e-2, "beta": 0.01},
        settings={"prompts": 8},
    ),
]


def said_live(out: Path) -> list[str]:
    """Kinds that the live warnings would have spoken of, while this run went."""
    live = Live(notice=lambda text: None)
    live.on_start({**json.loads((out / "anypo.json").read_text()), "out": str(out)})
    for line in (out / "metrics.jsonl").read_text().splitlines():
        live.on_iteration(json.loads(line))
    return sorted(live.said)


def main() -> None:
    """Train what is missing, then the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", default="10-29", help="first and last")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--made", action="store_true", help="count what is there, train nothing")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    cases = [c for c in HEALTHY if options.only in c.name]
    healthy: list[tuple[str, list[str], list[str]]] = []
    others: list[tuple[str, list[str], list[str]]] = []
    for seed in range(int(first), int(last or first) + 1):
        for case in cases:
            out = options.folder / f"{case.name}-{seed}"
            if options.made and not (out / "scores.json").is_file():
                continue
            case.run(options.folder, seed)
            record = read_run(out)
            found = [f.kind for f in diagnose(record) if f.severity in ALARMS]
            there = healthy if case.reached(record.rows, record.scores) else others
            there.append((out.name, found, said_live(out)))
    show("healthy runs: false alarms", healthy)
    show("runs that did not arrive: alarms, some of them right", others)


def show(title: str, runs: list[tuple[str, list[str], list[str]]]) -> None:
    """How many runs had an alarm, after the end and along the way, by kind, with intervals."""
    print(f"\n{title} ({len(runs)} runs)")
    for place, column in (("at the end", 1), ("along the way", 2)):
        alarmed = [run for run in runs if run[column]]
        kinds = Counter(kind for run in runs for kind in run[column])
        print(f"{place:16}{rate(len(alarmed), len(runs))}")
        for kind, count in kinds.most_common():
            names = ", ".join(run[0] for run in runs if kind in run[column])
            print(f"    {kind:20}{rate(count, len(runs))}  {names}")


def rate(count: int, total: int) -> str:
    """`2 of 100 = 2.0 % (0.6 to 7.0)`."""
    low, high = interval(count, total)
    share = 100 * count / total if total else 0.0
    return f"{count} of {total} = {share:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


if __name__ == "__main__":
    main()
