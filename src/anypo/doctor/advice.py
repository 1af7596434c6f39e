"""What to try, in options of anypo, with the numbers of the run at hand; and how numbers read."""

from __future__ import annotations

import math
from typing import Any

from anypo.core.text import visible
from anypo.doctor.record import Record


def num(x: float) -> str:
    """A number with three digits: `0.0312`, `1.2e-07`, `417`."""
    return f"{x:.3g}" if abs(x) < 1000 else f"{x:.0f}"


def percent(x: float) -> str:
    """A share: `97 %`, and `0.05 %` where it is small."""
    share = 100 * x
    return f"{share:.0f} %" if share >= 1 or share == 0 else f"{share:.1g} %"


def quoted(text: Any, most: int = 60) -> str:
    """A short piece of a model's text that may stand in a sentence and on a screen."""
    plain = " ".join(visible(str(text)[: 4 * most]).split())
    return repr(plain[:most] + ("…" if len(plain) > most or len(str(text)) > 4 * most else ""))


def lower_lr(record: Record) -> str:
    """A third of the learning rate."""
    return f"--lr {record.lr / 3:.1g} (it is {record.lr:.3g})"


def higher_lr(record: Record) -> str:
    """The policy's own learning rate, or ten times what there is."""
    own = float(record.facts.get("policy", {}).get("lr") or 0.0)
    wanted = own if own > 2 * record.lr else 10 * record.lr
    return f"--lr {wanted:.1g} (it is {record.lr:.3g})"


def more_prompts(record: Record) -> str:
    """Twice the prompts of an iteration."""
    return f"--prompts {2 * int(record.setting('prompts', 16))} (less noise in every update)"


def raised(record: Record, axis: str, name: str, factor: float) -> tuple[str, ...]:
    """A field of the recipe, several times as large; empty where it has none or no finite one."""
    found = record.fields(axis, name).items()
    numbers = {path: x for path, x in found if isinstance(x, (int, float)) and 0 < x < math.inf}
    return tuple(
        f"--recipe.{path} {_scaled(x, factor)} (it is {x:g})" for path, x in numbers.items()
    )


def _scaled(x: float, factor: float) -> str:
    return f"{max(1, round(x * factor))}" if isinstance(x, int) else f"{x * factor:.2g}"


def larger_groups(record: Record) -> tuple[str, ...]:
    """Twice the answers to a prompt."""
    return raised(record, "sampling", "size", 2)


def fewer_visits(record: Record) -> tuple[str, ...]:
    """Fewer passes over a batch, where there are several."""
    several = record.field("update", "epochs", 1) > 1
    return raised(record, "update", "epochs", 0.5) if several else ()
