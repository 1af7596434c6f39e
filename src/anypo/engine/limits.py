"""When a run ends before its last iteration because it was told to: budgets, and enough learned."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anypo.core.errors import UsageError

if TYPE_CHECKING:
    from anypo.engine.settings import Settings

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
COMPARE = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
WATCHED = {"held_out/accuracy": 1, "held_out/nll": -1, "rollout/ep_rew_mean": 1, "reward": 1}
"""What `stall` looks at, the first of these that a run has, and whether more of it is better."""


def seconds(text: str, name: str = "max_time") -> float:
    """`90s`, `30m`, `1.5h` or `2d` in seconds; 0 for an empty text."""
    if not text:
        return 0.0
    if not (found := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)) or float(found[1]) <= 0:
        raise UsageError(f"{name}={text!r}: write a time such as 90s, 30m, 1.5h or 2d")
    return float(found[1]) * UNITS[found[2]]


def condition(text: str) -> tuple[str, str, float]:
    """Metric, comparison and number of `held_out/accuracy>=0.9`."""
    found = re.fullmatch(r"\s*([\w/.@-]+)\s*(>=|<=|>|<)\s*(-?\d+(?:\.\d+)?(?:e-?\d+)?)\s*", text)
    if not found:
        raise UsageError(
            f"stop_at={text!r}: write a metric, a comparison and a number, such as "
            "'held_out/accuracy>=0.9'"
        )
    return found[1], found[2], float(found[3])


def reached(settings: Settings, rows: Sequence[Mapping[str, Any]]) -> str:
    """Why a run with these metric rows is to end now; an empty string while it may go on.

    A pure function of the rows, so that a run which is started again ends at the same place, or
    goes on where a limit was raised.
    """
    if not rows:
        return ""
    checks = (_time(settings, rows), _tokens(settings, rows), _level(settings, rows))
    return next((reason for reason in (*checks, _stalled(settings, rows)) if reason), "")


def _time(settings: Settings, rows: Sequence[Mapping[str, Any]]) -> str:
    spent, limit = sum(row.get("step_time") or 0.0 for row in rows), seconds(settings.max_time)
    if limit and spent >= limit:
        return f"max_time={settings.max_time} is spent"
    cost = spent / 3600 * settings.hourly_price
    if settings.max_cost and cost >= settings.max_cost:
        return f"max_cost={settings.max_cost:g} is spent ({settings.hourly_price:g} an hour)"
    return ""


def _tokens(settings: Settings, rows: Sequence[Mapping[str, Any]]) -> str:
    sampled = rows[-1].get("num_tokens") or 0
    if settings.max_tokens and sampled >= settings.max_tokens:
        return f"max_tokens={settings.max_tokens} are sampled ({sampled})"
    drawn = sum(row.get("sampled") or 0 for row in rows)
    if settings.max_completions and drawn >= settings.max_completions:
        return f"max_completions={settings.max_completions} are sampled ({drawn})"
    return ""


def _level(settings: Settings, rows: Sequence[Mapping[str, Any]]) -> str:
    if not settings.stop_at:
        return ""
    name, sign, level = condition(settings.stop_at)
    known = [row[name] for row in rows if row.get(name) is not None]
    if known and COMPARE[sign](known[-1], level):
        return f"{name} is {known[-1]:.4g}, and stop_at={settings.stop_at} was asked for"
    return ""


def _stalled(settings: Settings, rows: Sequence[Mapping[str, Any]]) -> str:
    if not settings.stall:
        return ""
    named = ((n, [r[n] for r in rows if r.get(n) is not None]) for n in WATCHED)
    name, values = next(((n, v) for n, v in named if v), ("", []))
    best = max(range(len(values)), key=lambda k: WATCHED[name] * values[k], default=0)
    since = len(values) - 1 - best
    if since < settings.stall:
        return ""
    return f"{name} was best {since} measurements ago ({values[best]:.4g}), and stall={since}"
