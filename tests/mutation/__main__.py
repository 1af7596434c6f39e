"""`python -m tests.mutation`: break every line of arithmetic, and list what nobody notices.

A full run writes `tests/mutation/survivors.json` and `docs/mutation.md`, keeps the reasons that
were written there, and fails while a sign, a denominator or a group key survives. `--again` runs
its survivors only (of some files, with `--file`), after new tests, and brings both up to date. Any
other run on one file, or on a sample, only prints.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from tests.mutation import report
from tests.mutation.judge import Baseline
from tests.mutation.mutants import Mutant, mutants, sources
from tests.mutation.pool import copy, measure, verdicts

ROOT = Path(__file__).parents[2]
IDENTITIES = ("tests/math", "tests/pieces", "tests/identities", "tests/oracle")


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--file", action="append", default=[], help="only this source file")
    parser.add_argument("--sample", type=int, default=0, help="only so many mutants, drawn")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at the same time")
    parser.add_argument("--tests", nargs="*", default=IDENTITIES, help="folders of identities")
    parser.add_argument("--plant", default="", help="JSON list of {file, before, after} instead")
    parser.add_argument("--again", action="store_true", help="only the survivors of the record")
    parser.add_argument("--list", action="store_true", help="only list the mutants")
    return parser.parse_args(words)


def chosen(options: argparse.Namespace, root: Path) -> list[Mutant]:
    """The mutants that are asked for."""
    if options.plant:
        return [planted(root, **each) for each in json.loads(Path(options.plant).read_text())]
    files = [root / f for f in options.file] or sources(root / "src" / "anypo")
    found = [m for f in files for m in mutants(f, root)]
    if options.again:
        alive = {tuple(s[k] for k in report.KEY) for s in report.load()["survivors"]}
        found = [m for m in found if m.key in alive]
    if options.sample:
        found = random.Random(options.seed).sample(found, min(options.sample, len(found)))
    return found


def planted(root: Path, file: str, before: str, after: str) -> Mutant:
    """A mutant that someone wrote down: one text in a file for another."""
    text = (root / file).read_text("utf-8")
    if text.count(before) != 1:
        raise SystemExit(f"{file} must contain {before!r} once, not {text.count(before)} times")
    line = text[: text.index(before)].count("\n") + 1
    return Mutant(file, "", before, after, "other", line, (0, 0), text.replace(before, after))


def right(root: Path, base: Baseline, jobs: int) -> None:
    """The right sources must pass everything, or no verdict means anything."""
    file = "src/anypo/math/__init__.py"
    text = (root / file).read_text("utf-8")
    mutant = Mutant(file, "", "", "", "other", 0, (0, 0), text)
    for _, (killer, what) in verdicts([mutant], base, root, jobs):
        if killer:
            raise SystemExit(f"the right sources do not pass a second time: {what}")


def run(options: argparse.Namespace, root: Path) -> tuple[list[Mutant], list[tuple[str, str]]]:
    """The mutants and their verdicts."""
    found = chosen(options, root)
    folders = [f for f in options.tests if (root / f).is_dir()]
    started = time.monotonic()
    base = measure(root, sorted({m.file for m in found}), folders)
    right(root, base, options.jobs)
    green = sum(c.outcome.count("ok") for c in base.vectors)
    spent = f"{time.monotonic() - started:.0f} s"
    say(f"{green} cases of {len(base.vectors)} vector files, {len(base.tests)} tests: {spent}")
    answers = [("", "")] * len(found)
    for done, (index, answer) in enumerate(verdicts(found, base, root, options.jobs), 1):
        answers[index] = answer
        if done % 50 == 0 or done == len(found):
            alive = done - sum(bool(a) for a, _ in answers)
            spent = time.monotonic() - started
            say(f"{done} of {len(found)} mutants, {alive} alive, {spent:.0f} s")
    return found, answers


def say(text: str) -> None:
    """A line for a person."""
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Everything."""
    options = arguments()
    if options.list:
        for m in chosen(options, ROOT):
            print(f"{m.file}:{m.line} {m.kind}: {m.original}  →  {m.mutated}")
        return 0
    with tempfile.TemporaryDirectory(prefix="mutation-") as place:
        found, answers = run(options, copy(ROOT, Path(place)))
    if options.plant:
        print(json.dumps([list(a) for a in answers]))
        return 0
    merge = report.updated if options.again else report.merged
    record = merge(found, answers, report.load())
    for s in record["survivors"]:
        print(f"{s['file']}:{s['line']} {s['kind']}: {s['original']}  →  {s['mutated']}")
        print(f"    {s['reason'] or 'no reason yet'}")
    print("\n".join(report.table(record)))
    whole = options.again or not options.file
    if whole and not (options.sample or options.tests != IDENTITIES):
        report.write(record, ROOT)
    unsafe = report.open_ones(record["survivors"])
    print(f"{len(unsafe)} signs, denominators and keys that survive and change a number")
    return 1 if unsafe else 0


if __name__ == "__main__":
    sys.exit(main())
