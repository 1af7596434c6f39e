"""The method of a run, exactly: its equations, its pieces, their formulas, and its papers."""

from __future__ import annotations

import math
import re
from dataclasses import MISSING, fields
from functools import lru_cache
from typing import Any

from markupsafe import Markup, escape

import anypo.core
import anypo.pieces
import anypo.recipes
from anypo.core import discover
from anypo.core.combine import Combined
from anypo.core.dump import load, rows
from anypo.core.errors import UsageError
from anypo.core.explain import AXES, first_line, formula, further, parts, reference
from anypo.core.papers import PAPER, link, papers
from anypo.core.piece import Piece
from anypo.core.recipe import Recipe
from anypo.report.run import RunData, recipe_rows
from anypo.report.text import visible

MEANING = {
    "reward": "shapes what the task paid",
    "sampling": "how many answers, and which stay",
    "advantage": "how good each step was",
    "ratio": "how likely it is now, against then",
    "surrogate": "what is maximised",
    "regularize": "what is held back",
    "aggregate": "what one step counts",
    "likelihood": "how the network is asked",
    "update": "how the weights move",
}


@lru_cache(1)
def _known() -> tuple[dict[str, type[Any]], dict[str, Any]]:
    return discover.parts(anypo.core, anypo.pieces), discover.methods(anypo.recipes)


def described(run: RunData) -> dict[str, Any]:
    """What a page says of the method; its fields alone where a piece is not known here."""
    stored = run.facts.get("recipe") or {}
    flat = [(axis, path, visible(value)) for axis, path, value in recipe_rows(stored)]
    found: dict[str, Any] = {"fields": flat, "axes": [], "info": None, "changed": []}
    pieces, methods = _known()
    method = methods.get(str(run.facts.get("method")))
    if method:
        found["info"] = _info(method.info)
    try:
        recipe = load(stored, pieces)
    except (UsageError, TypeError, KeyError, ValueError):
        return found | {"unknown": True}
    if not isinstance(recipe, Recipe):
        return found | {"unknown": bool(stored)}
    found["axes"] = [_axis(recipe, axis) for axis in AXES]
    if more := [_piece(p) for p in further(recipe) if not isinstance(p, Combined)]:
        found["axes"].append({"letter": "", "axis": "further", "meaning": FURTHER, "pieces": more})
    found["changed"] = _changed(method, recipe) if method else []
    return found


FURTHER = "of further objectives and later phases"


def _info(info: Any) -> dict[str, Any]:
    named = papers(info.paper, info.doc)
    named[info.paper] = named.get(info.paper) or info.title
    shown = [
        {"name": _called(p), "link": link(p), "note": note if note != info.title else ""}
        for p, note in named.items()
    ]
    return {"name": info.name, "title": info.title, "papers": shown, "doc": _doc(info.doc)}


def _called(paper: str) -> str:
    return f"arXiv {paper}" if re.fullmatch(r"\d{4}\.\d{4,5}", paper) else paper


def _doc(doc: str) -> list[tuple[str, Markup]]:
    """The paragraphs of a docstring with their labels: `Parameters`, `Deviations`, …"""
    text = re.sub(r"\s*\b(Parameters|Deviations?|Sketch|References?):\s", r"\n\n\1: ", doc)
    found = []
    for part in re.split(r"\n\s*\n", text):
        label, body = re.fullmatch(
            r"(?:(Parameters|Deviations?|Sketch|References?): )?(.*)", part.strip(), re.DOTALL
        ).groups()  # pyright: ignore[reportOptionalMemberAccess]
        if body:
            found.append((label or "", marked(" ".join(body.split()))))
    return found


def marked(text: str) -> Markup:
    """Text whose code in backticks is code, and whose papers are links; nothing else is markup."""
    out = Markup()
    for i, part in enumerate(re.split(r"`([^`]+)`", text)):
        out += Markup("<code>{}</code>").format(part) if i % 2 else _linked(part)
    return out


def _linked(text: str) -> Markup:
    out, end = Markup(), 0
    for found in PAPER.finditer(text):
        anchor = Markup('<a href="{}" rel="noreferrer noopener">{}</a>')
        out += escape(text[end : found.start()]) + anchor.format(link(found[0]), found[0])
        end = found.end()
    return out + escape(text[end:])


def _axis(recipe: Recipe, axis: str) -> dict[str, Any]:
    value = getattr(recipe, axis)
    shown = [_piece(p) for p in parts(value) if not isinstance(p, Combined)]
    how = [type(p).__name__.lower() for p in parts(value) if isinstance(p, Combined)]
    facts = {"letter": AXES[axis], "axis": axis, "meaning": MEANING[axis], "pieces": shown}
    return {**facts, "how": ", ".join(how)}


def _piece(piece: Piece) -> dict[str, Any]:
    plain = {f.name: f.default for f in fields(piece) if f.default is not MISSING}  # pyright: ignore
    values = {k: v for k, v in vars(piece).items() if not _holds_pieces(v)}
    shown = [
        {"name": k, "value": _text(v), "default": k in plain and plain[k] == v}
        for k, v in values.items()
    ]
    said, law = first_line(piece), formula(piece)
    source = reference(piece)
    return {
        "name": type(piece).__name__,
        "says": marked(said),
        "formula": marked(law),
        "reference": _linked(source),
        "fields": shown,
    }


def _holds_pieces(value: Any) -> bool:
    inner = value if isinstance(value, tuple) else (value,)
    return any(isinstance(v, Piece) for v in inner)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_text, value)) or "none"
    if isinstance(value, float) and math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return visible(value) if value != "" else "–"


def _changed(method: Any, recipe: Recipe) -> list[tuple[str, str, str]]:
    """The fields in which this run's recipe is not the method as it stands: path, there, here."""
    there, here = rows(method()), rows(recipe)
    paths = dict.fromkeys((*there, *here))
    found = [(p, there.get(p, "–"), here.get(p, "–")) for p in paths]
    return [(p, visible(a), visible(b)) for p, a, b in found if a != b]
