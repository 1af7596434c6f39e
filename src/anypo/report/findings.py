"""What the doctor says of a run, for the page."""

from __future__ import annotations

from typing import Any

from anypo.core.errors import UsageError
from anypo.doctor import examine, read_run
from anypo.report.run import RunData
from anypo.report.text import visible


def findings(run: RunData) -> dict[str, Any]:
    """Findings, worst first, how many checks were made, and which could not be.

    Empty for a run without an iteration, and while a file of it is not whole.
    """
    if not run.rows:
        return {}
    try:
        found = examine(read_run(run.out))
    except UsageError:
        return {}
    named = {f.kind: f.title for f in found.findings}
    return {
        "found": [_shown(f, named) for f in found.findings],
        "checked": found.checked,
        "unchecked": [(visible(u.title), visible(u.reason)) for u in found.unchecked],
    }


def _shown(finding: Any, named: dict[str, str]) -> dict[str, Any]:
    first, last = finding.iterations
    span = f"iteration {first}" if first == last else f"iterations {first} to {last}"
    return {
        "severity": finding.severity,
        "title": visible(finding.title),
        "evidence": visible(finding.evidence),
        "span": span,
        "advice": [visible(a) for a in finding.advice],
        "because": [visible(named[k]) for k in finding.because if k in named],
        "threshold": visible(finding.threshold),
        "source": visible(finding.source),
    }
