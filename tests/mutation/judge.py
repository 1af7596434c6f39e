"""In a process of its own: put a wrong module in the right one's place, and see what turns red."""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from itertools import accumulate
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from tests.mutation.mutants import Mutant

Lines = dict[str, set[int]]

BUDGET = 15.0
"""Seconds of tests, measured under the trace, that a mutant must survive."""

OFTEN = 50
"""Calls of a function by one check after which its lines are watched no longer."""


@dataclass(frozen=True)
class Check:
    """A vector file, or a test, on the right sources: how it ended and which lines it ran.

    `outcome` is the status of each case of a file, and `("passed",)` of a test that passed.
    """

    name: str
    outcome: tuple[str, ...]
    seconds: float
    lines: Lines


@dataclass(frozen=True)
class Baseline:
    """What is green on the right sources, and what pytest runs while it collects a test file."""

    vectors: tuple[Check, ...]
    tests: tuple[Check, ...]
    collecting: dict[str, Lines] = field(default_factory=dict)

    def files(self, mutant: Mutant) -> dict[str, tuple[str, ...]]:
        """The vector files that run a mutant's lines, with the right statuses of their cases."""
        return {c.name: c.outcome for c in self.vectors if _runs(c.lines, mutant)}

    def names(self, mutant: Mutant) -> list[str]:
        """The tests that run a mutant's lines, the fastest first, and not above `BUDGET`."""
        whole = {f for f, lines in self.collecting.items() if _runs(lines, mutant)}
        chosen = [c for c in self.tests if _runs(c.lines, mutant) or c.name.split("::")[0] in whole]
        chosen.sort(key=lambda c: c.seconds)
        spent = accumulate(c.seconds for c in chosen)
        return [c.name for c, total in zip(chosen, spent) if total <= BUDGET]


def _runs(lines: Lines, mutant: Mutant) -> bool:
    first, last = mutant.lines
    return not first or any(first <= n <= last for n in lines.get(mutant.file, ()))


# ── a wrong module in the right one's place ──────────────────────────────────────────────────────


class _Wrong(importlib.machinery.SourceFileLoader):
    """Loads a text as if it were the file's."""

    text = ""

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.text, self.path, "exec")


class _Finder(MetaPathFinder):
    """Finds one module, wrong."""

    def __init__(self, name: str, path: str, text: str) -> None:
        self.name, self.path, self.text = name, path, text

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != self.name:
            return None
        loader = _Wrong(fullname, self.path)
        loader.text = self.text
        return importlib.util.spec_from_file_location(fullname, self.path, loader=loader)


def install(mutant: Mutant, root: Path) -> None:
    """From now on, importing the mutant's module gives the mutant."""
    module = ".".join(Path(mutant.file).with_suffix("").parts[1:])
    sys.meta_path.insert(0, _Finder(module, str(root / mutant.file), mutant.source))


def enter(root: Path) -> None:
    """Work in a copy of the repository, without a word."""
    os.chdir(root)
    sys.path[:0] = [str(root / "src"), str(root)]
    sys.modules["tests"].__path__ = [str(root / "tests")]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


# ── the right sources ────────────────────────────────────────────────────────────────────────────


class _Trace:
    """Which lines of some files run, entered under a name."""

    def __init__(self, root: Path, files: Sequence[str]) -> None:
        self.known = {str(root / f): f for f in files}
        self.found: dict[str, Lines] = {}
        self.here: Lines = {}
        self.calls: Counter[CodeType] = Counter()

    def under(self, name: str) -> None:
        """What runs now belongs to `name`; nothing is watched when it is empty."""
        self.here = self.found.setdefault(name, {})
        self.calls.clear()
        sys.settrace(self._call if name else None)

    def _call(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        file = self.known.get(frame.f_code.co_filename)
        self.calls[frame.f_code] += 1
        if file is None or self.calls[frame.f_code] > OFTEN:
            return None
        lines = self.here.setdefault(file, set())

        def line(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
            lines.add(frame.f_lineno)
            return line

        return line(frame, event, argument)


class _Watch:
    """pytest plugin: outcome, time and lines of every test."""

    def __init__(self, trace: _Trace) -> None:
        self.trace, self.collecting = trace, {}
        self.good: dict[str, bool] = {}
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: Any) -> Any:
        name = collector.nodeid.split("::")[0]
        self.trace.under(f"collecting {name}")
        try:
            return (yield)
        finally:
            self.trace.under("")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Any:
        self.trace.under(item.nodeid)
        try:
            return (yield)
        finally:
            self.trace.under("")

    def pytest_runtest_logreport(self, report: Any) -> None:
        name = report.nodeid
        self.good[name] = self.good.get(name, True) and report.outcome == "passed"
        self.seconds[name] = self.seconds.get(name, 0.0) + report.duration


def baseline(root: Path, files: Sequence[str], folders: Sequence[str]) -> tuple[Baseline, set[str]]:
    """The checks on the right sources, and the names of the modules that they import."""
    enter(root)
    from anypo.api import methods

    methods()  # what runs while modules are imported belongs to no check
    trace = _Trace(root, files)
    vectors = []
    for path in sorted((root / "tests" / "vectors").glob("*.json")):
        started = time.monotonic()
        trace.under(path.name)
        try:
            outcome = statuses(path)
        except Exception:  # a file that someone is still writing counts for nothing
            outcome = ()
        finally:
            trace.under("")
        spent = time.monotonic() - started
        vectors.append(Check(path.name, outcome, spent, trace.found[path.name]))
    watch = _Watch(trace)
    if folders:
        _pytest(folders, watch)
    tests = tuple(
        Check(name, ("passed",), watch.seconds[name], trace.found.get(name, {}))
        for name, good in watch.good.items()
        if good
    )
    mark = "collecting "
    collecting = {n[len(mark) :]: lines for n, lines in trace.found.items() if n.startswith(mark)}
    ok = tuple(c for c in vectors if "ok" in c.outcome)
    return Baseline(ok, tests, collecting), set(sys.modules)


def statuses(path: Path) -> tuple[str, ...]:
    """The status of every case of a vector file."""
    from anypo.verify.verify import verify

    return tuple(row.status for row in verify(path, _resolve))


def _resolve(name: str, **arguments: Any) -> Any:
    return _find(name)(**arguments)


@functools.cache
def _find(name: str) -> Any:
    from anypo.api import find

    return find(name)


# ── the verdict ──────────────────────────────────────────────────────────────────────────────────


class _Only:
    """pytest plugin: some tests, in some order."""

    def __init__(self, names: Sequence[str]) -> None:
        self.place = {name: i for i, name in enumerate(names)}
        self.red = ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = sorted(
            (i for i in items if i.nodeid in self.place), key=lambda i: self.place[i.nodeid]
        )

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.red:
            self.red = report.nodeid


def judge(mutant: Mutant, base: Baseline, root: Path) -> tuple[str, str]:
    """What turns red first: (`vectors` or `identities`, its name), or two empty texts."""
    enter(root)
    install(mutant, root)
    for name, right in base.files(mutant).items():
        try:
            now = statuses(root / "tests" / "vectors" / name)
        except Exception as error:
            return "vectors", f"{name}: {type(error).__name__}"
        changed = len(now) != len(right) or any(
            before == "ok" and after != "ok" for before, after in zip(right, now, strict=True)
        )
        if changed:
            return "vectors", name
    names = base.names(mutant)
    if not names:
        return "", ""
    only = _Only(names)
    code = _pytest(sorted({n.split("::")[0] for n in names}), only, "-x")
    green = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    return ("", "") if code in green else ("identities", only.red or "collection")


def _pytest(places: Sequence[str], plugin: object, *words: str) -> int:
    quiet = ("-q", "-p", "no:cacheprovider", "--no-header", "--no-summary")
    return int(pytest.main([*places, *quiet, *words], plugins=[plugin]))
