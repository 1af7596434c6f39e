"""Where the time of a run went, as tables for a terminal."""

from __future__ import annotations

from rich.console import Console

from anypo.cli.screen import cell, table
from anypo.engine.profile import MEANS, PARTS, Profile


def print_profile(screen: Console, profile: Profile) -> None:
    """Seconds and share of every span, and the floor of the arithmetic by part."""
    columns = ("span", "", "seconds", "share")
    title = f"Where the time went, {profile.iterations} iterations: median seconds, share of all"
    screen.print(table(columns, span_rows(profile), title, right=columns[2:]))
    for name, speed in profile.rates.items():
        screen.print(cell(f"{speed:.0f} tokens {name} per second"))
    if not profile.floor:
        return
    columns = ("floor", "", "seconds")
    title = "What the arithmetic alone takes here: median seconds of an iteration"
    screen.print(table(columns, floor_rows(profile), title, right=columns[2:]))
    screen.print(cell(f"an iteration takes {profile.ratio:.2f} times its floor"))


def span_rows(profile: Profile) -> list[tuple[str, ...]]:
    """Span, what it is, seconds and share."""
    return [
        (name, MEANS.get(name, ""), seconds(x), f"{100 * profile.shares[name]:.1f} %")
        for name, x in profile.seconds.items()
    ]


def floor_rows(profile: Profile) -> list[tuple[str, ...]]:
    """Part of the floor, what it is, and seconds; the sum stands last."""
    rows = [(name, PARTS.get(name, ""), seconds(x)) for name, x in profile.floor.items()]
    return [*rows, ("in all", "", seconds(sum(profile.floor.values())))]


def seconds(x: float) -> str:
    """Seconds in three digits, `0.00234` or `12.3`."""
    return f"{x:.3g}" if x < 100 else f"{x:.0f}"
