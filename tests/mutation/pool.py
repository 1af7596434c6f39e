"""A process that has imported the heavy libraries, and forks one child for every mutant."""

from __future__ import annotations

import importlib
import multiprocessing
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from tests.mutation.judge import Baseline, baseline, judge
from tests.mutation.mutants import Mutant

FORK = multiprocessing.get_context("fork")
SECONDS = 60.0
"""How long a mutant may take: one that never ends is dead."""


def copy(root: Path, place: Path) -> Path:
    """The sources and the tests as they are now, so that editing goes on while mutants die."""
    skip = shutil.ignore_patterns("__pycache__", ".hypothesis")
    for name in ("src", "tests"):
        shutil.copytree(root / name, place / name, ignore=skip)
    shutil.copy(root / "pyproject.toml", place)
    return place


def _send(pipe: Any, call: Callable[..., Any], *arguments: Any) -> None:
    try:
        pipe.send(call(*arguments))
    except BaseException as error:  # whatever a mutant raises, it is dead
        pipe.send(error if isinstance(error, Exception) else RuntimeError(repr(error)))


def measure(root: Path, files: Sequence[str], folders: Sequence[str]) -> Baseline:
    """The baseline, measured in a child; its libraries are then imported here as well."""
    mine, theirs = FORK.Pipe(duplex=False)
    child = FORK.Process(target=_send, args=(theirs, baseline, root, files, folders))
    child.start()
    theirs.close()
    try:
        answer = mine.recv()
    except EOFError:
        raise SystemExit("the checks on the right sources ended without a word") from None
    child.join()
    if isinstance(answer, Exception):
        raise answer
    found, modules = answer
    for name in sorted(modules):
        if name.split(".")[0] not in ("anypo", "tests", "conftest", "__mp_main__"):
            with suppress(Exception):  # some modules exist only after others have made them
                importlib.import_module(name)
    return found


def verdicts(
    mutants: Sequence[Mutant], base: Baseline, root: Path, jobs: int
) -> Iterator[tuple[int, tuple[str, str]]]:
    """The place of each mutant in the list, and what killed it, as they come."""
    queue, running = list(enumerate(mutants)), {}
    while queue or running:
        while queue and len(running) < jobs:
            index, mutant = queue.pop(0)
            mine, theirs = FORK.Pipe(duplex=False)
            child = FORK.Process(target=_send, args=(theirs, judge, mutant, base, root))
            child.start()
            theirs.close()
            running[mine] = (index, child, time.monotonic())
        for pipe in wait(list(running), timeout=1.0):
            index, child, _ = running.pop(pipe)
            yield index, _answer(pipe)
            child.join()
        late = [p for p, (_, _, at) in running.items() if time.monotonic() - at > SECONDS]
        for pipe in late:
            index, child, _ = running.pop(pipe)
            child.kill()
            child.join()
            yield index, ("identities", "time-out")


def _answer(pipe: Any) -> tuple[str, str]:
    try:
        answer = pipe.recv()
    except EOFError:
        return "vectors", "the process ended"
    return ("vectors", repr(answer)) if isinstance(answer, Exception) else answer
