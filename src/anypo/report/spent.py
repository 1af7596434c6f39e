"""Where the time of a profiled run went, for its page."""

from __future__ import annotations

from typing import Any

from anypo.backends.profile import read_profile
from anypo.engine.profile import MEANS, PARTS
from anypo.report.charts import short
from anypo.report.run import RunData
from anypo.report.text import visible


def spent(run: RunData) -> dict[str, Any]:
    """Rows of spans and of the floor's parts with their bars on one scale; empty without a profile.

    A bar is `bar` percent of the longest span's, in seconds of the median iteration.
    """
    profile = read_profile(run.out)
    if profile is None:
        return {}
    longest = max(profile.seconds.values()) or 1.0
    spans = [
        {**_row(name, MEANS, x, longest), "share": f"{100 * profile.shares[name]:.1f} %"}
        for name, x in profile.seconds.items()
    ]
    floor = [{**_row(n, PARTS, x, longest), "share": ""} for n, x in profile.floor.items()]
    return {
        "iterations": profile.iterations,
        "iteration": short(profile.iteration),
        "spans": spans,
        "floor": floor,
        "least": short(sum(profile.floor.values())),
        "ratio": f"{profile.ratio:.2f}",
        "rates": [(name, short(x)) for name, x in profile.rates.items()],
    }


def _row(name: str, means: dict[str, str], seconds: float, longest: float) -> dict[str, Any]:
    bar = min(100 * seconds / longest, 100.0)
    says = means.get(name, "")
    return {"name": visible(name), "means": says, "seconds": short(seconds), "bar": f"{bar:.1f}"}
