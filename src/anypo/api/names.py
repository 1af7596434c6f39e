"""Names of methods: what a slug, an alias or an ambiguous acronym means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anypo.core
import anypo.pieces
import anypo.recipes
from anypo.core import discover
from anypo.core.dump import load
from anypo.core.errors import UsageError, nearest
from anypo.core.method import Method, MethodInfo
from anypo.core.recipe import Recipe


def methods() -> list[MethodInfo]:
    """Every method that the package knows, by name."""
    return [m.info for m in discover.methods(anypo.recipes).values()]


def find(name: str) -> Method:
    """The method of a name, slug or alias.

    A word that several methods go by resolves to one only where it is that one's slug. Raises
    `UsageError` with the candidates for such a word, and with the nearest names for an unknown one.
    """
    known = discover.methods(anypo.recipes)
    word = _word(name)
    if word in known:
        return known[word]
    called = [m for m in known.values() if word in map(_word, m.info.aliases)]
    rivals = namesakes(name)
    if len(called) == 1 and (not rivals or word in [_word(n.slug) for n in rivals]):
        return called[0]
    rivals = rivals or [Namesake(m.info.slug, m.info.title) for m in called]
    if not rivals:
        raise UsageError(f"unknown recipe {name!r}{nearest(word, known)} (see: anypo methods)")
    raise UsageError(_choose(name, rivals))


@dataclass(frozen=True)
class Namesake:
    """One of the methods that go by the same acronym; `here`: whether this package has it."""

    slug: str
    line: str
    here: bool = True


ACRONYMS = Path(__file__).parents[1] / "acronyms.tsv"


def namesakes(word: str) -> list[Namesake]:
    """The methods that go by an ambiguous acronym, those first that are here; none for others."""
    known = discover.methods(anypo.recipes).values()
    here = {_word(n) for m in known for n in (m.info.name, *m.info.aliases)}
    rows = [line.split("\t") for line in ACRONYMS.read_text("utf-8").splitlines()[1:]]
    plain = _letters(word)
    found = [Namesake(s, line, _word(s) in here) for a, s, line in rows if _letters(a) == plain]
    return sorted(found, key=lambda n: not n.here)


def _word(name: str) -> str:
    return name.strip().lower().replace("-", "_")


def _letters(word: str) -> str:
    """S-GRPO, s_grpo and SGRPO are one acronym."""
    return "".join(c for c in word.lower() if c.isalnum())


def _choose(name: str, rivals: list[Namesake]) -> str:
    """A sentence and one line for each candidate."""
    width = max(len(n.slug) for n in rivals)
    lines = [f"  {n.slug:{width}}  {n.line}{'' if n.here else ' (not here yet)'}" for n in rivals]
    return "\n".join([f"several methods are called {name!r}; say which by its slug:", *lines])


def recipe(name: str, **arguments: Any) -> Recipe:
    """The recipe of a method, `anypo.recipe("gspo", clip_low=1e-3)`."""
    return find(name)(**arguments)


def load_recipe(data: Mapping[str, Any]) -> Recipe:
    """The recipe that a run's `anypo.json` describes."""
    return load(data, discover.parts(anypo.core, anypo.pieces))
