"""`anypo doctor`: what is wrong with a run, how that shows, and what to try."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from anypo.cli.options import Flag, gather, parse

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from anypo.doctor import Diagnosis, Finding, Record

STYLES = {"serious": "bold red", "warning": "bold yellow", "note": "bold cyan"}
OTHER = "What is changed makes another run: give it another --out."
INDENT = (0, 0, 0, 2)
CURVE = 40
"""Characters of a curve."""


@dataclass(frozen=True)
class Doctor:
    """Say what is wrong with a run, finished or not; exit code 1 if something is."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """the run's folder"""
    json: Flag = False
    """print one JSON object instead of a page"""


def run(words: list[str]) -> int:
    """Print the findings, worst first; 0 for a healthy run (notes are no alarm), 1 otherwise."""
    options = parse(Doctor, gather(Doctor, words), "doctor")
    from anypo.cli.screen import console, print_json
    from anypo.doctor import examine, read_run

    record = read_run(options.run)
    diagnosis = examine(record)
    if options.json:
        print_json(as_json(record, diagnosis))
    else:
        show(console(sys.stdout), options.run, record, diagnosis)
    return 0 if diagnosis.healthy else 1


def as_json(record: Record, diagnosis: Diagnosis) -> dict[str, Any]:
    """The diagnosis as one object."""
    return {
        "healthy": diagnosis.healthy,
        "iterations": record.last,
        "checked": diagnosis.checked,
        "findings": [asdict(f) for f in diagnosis.findings],
        "unchecked": [asdict(u) for u in diagnosis.unchecked],
    }


def show(screen: Console, folder: Path, record: Record, diagnosis: Diagnosis) -> None:
    """The page: how the run stands, what is wrong, what follows from that, what was not checked."""
    screen.print()
    method = str(record.facts.get("method", "run"))
    screen.print(line((method, "bold"), (f"  {folder}", "dim")), soft_wrap=True)
    screen.print(line((standing(record), "")))
    screen.print(line((verdict(diagnosis), _style(diagnosis))))
    firsthand = [f for f in diagnosis.findings if not (f.because and f.alarm)]
    following = [f for f in diagnosis.findings if f not in firsthand]
    for finding in firsthand or following:
        show_finding(screen, record, finding)
    if firsthand and following:
        screen.print(line(("\nLikely to follow from that", "bold")))
        for finding in following:
            show_consequence(screen, finding, diagnosis)
    show_unchecked(screen, diagnosis)
    if not diagnosis.healthy:
        screen.print(line((f"\n{OTHER}", "dim")))


def _style(diagnosis: Diagnosis) -> str:
    alarms = [f.severity for f in diagnosis.findings if f.alarm]
    return STYLES[alarms[0]] if alarms else "bold green"


def verdict(diagnosis: Diagnosis) -> str:
    """One line: how much is wrong."""
    alarms = [f for f in diagnosis.findings if f.alarm]
    if not alarms:
        return f"Nothing wrong in {diagnosis.checked} checks."
    several = f"{len(alarms)} things are" if len(alarms) > 1 else "1 thing is"
    return f"{several} wrong, of {diagnosis.checked} checks."


def standing(record: Record) -> str:
    """Where the run is: iterations, the reward at first and now, held-out accuracy."""
    import numpy as np

    if not record.rows:
        return "no finished iteration yet"
    said, reward = [f"{record.last} of {record.setting('steps', record.last)} iterations"], ""
    if len(record.reward):
        first, last = (float(np.median(x)) for x in (record.reward.start, record.reward.end))
        reward = f"reward {first:.3g} → {last:.3g}"
    if record.held_out:
        (_, a, n), (_, b, m) = record.held_out[0], record.held_out[-1]
        reward += f", held out {100 * a / n:.0f} % → {100 * b / m:.0f} %"
    return ", ".join([*said, *([reward] if reward else [])])


def show_finding(screen: Console, record: Record, finding: Finding) -> None:
    """Title, evidence with a curve, when this is said and why, and what to try."""
    from rich.padding import Padding
    from rich.table import Table

    first, last = finding.iterations
    where = f"  {finding.kind}, iterations {first} to {last}"
    severity = (f"\n{finding.severity}: ", STYLES[finding.severity])
    screen.print(line(severity, (finding.title, "bold"), (where, "dim")))
    screen.print(Padding(line((sentence(finding.evidence), "")), INDENT, expand=False))
    if curve := drawn(record, finding.metric):
        screen.print(Padding(curve, INDENT, expand=False))
    rows = Table.grid(padding=(0, 2))
    for name, text in zip(("try", *["or"] * len(finding.advice)), finding.advice):
        rows.add_row(line((name, "dim")), line((text, "")))
    for name, text in (("when", finding.threshold), ("source", finding.source)):
        rows.add_row(line((name, "dim")), line((text, "dim")))
    screen.print(Padding(rows, INDENT, expand=False))


def sentence(text: str) -> str:
    """Text that begins with a capital."""
    return text[:1].upper() + text[1:]


def drawn(record: Record, name: str) -> Any:
    """A metric as a small curve with its ends, or None where there is none."""
    from anypo.cli.progress import sparkline

    series = record.series(name)
    if len(series) < 2:
        return None
    values = [float(v) for v in series.values]
    ends = f"  {name}: {min(values):.3g} to {max(values):.3g}, last {values[-1]:.3g}"
    return line((sparkline(values, CURVE), "cyan"), (ends, "dim"))


def show_consequence(screen: Console, finding: Finding, diagnosis: Diagnosis) -> None:
    """A finding that another one explains, in short."""
    from rich.padding import Padding

    titles = {f.kind: f.title for f in diagnosis.findings}
    causes = ", ".join(titles[k] for k in finding.because)
    see = f" (see: {causes})"
    text = line((f"{finding.title}: ", "bold"), (finding.evidence, ""), (see, "dim"))
    screen.print(Padding(text, INDENT, expand=False))


def show_unchecked(screen: Console, diagnosis: Diagnosis) -> None:
    """What could not be checked, and what it would need; alike reasons together."""
    from rich.padding import Padding

    if not diagnosis.unchecked:
        return
    by_reason: dict[str, list[str]] = {}
    for one in diagnosis.unchecked:
        by_reason.setdefault(one.reason, []).append(one.kind)
    screen.print(line(("\nNot checked", "bold")))
    for reason, kinds in by_reason.items():
        screen.print(
            Padding(line((f"{', '.join(kinds)}: ", ""), (reason, "dim")), INDENT, expand=False)
        )


def line(*parts: tuple[str, str]) -> Text:
    """Texts with a style each, in one line; none of them is markup."""
    from rich.text import Text

    from anypo.cli.screen import cell

    return Text().join([cell(text, style) for text, style in parts])
