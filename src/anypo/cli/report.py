"""`anypo report`: write the report page of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from anypo.cli.options import gather, parse, said

CURVE = said("also draw reward and held-out accuracy into this file", "FILE.png")


@dataclass(frozen=True)
class Report:
    """Write report.html into the folder of a run, finished or not."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """the run's folder"""
    curve: Annotated[str, CURVE] = ""


def run(words: list[str]) -> int:
    """Print the path of the page."""
    options = parse(Report, gather(Report, words), "report")
    from anypo.report.report import learning_curve, write_report
    from anypo.report.text import visible

    print(visible(write_report(options.run)))
    if options.curve:
        print(visible(learning_curve(options.run, Path(options.curve))))
    return 0
