"""Small errors in a source file: every one that a fixed list of edits of its syntax tree makes."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

Put = Callable[[ast.AST], None]
Edit = tuple[ast.AST, str]

FILES = (
    "math/*.py",
    "pieces/advantage/*.py",
    "pieces/ratio/*.py",
    "pieces/surrogate/*.py",
    "pieces/regularizer/*.py",
    "pieces/aggregate/*.py",
    "core/neutral.py",
)
"""Sources whose arithmetic is mutated, below the package."""

KINDS = ("sign", "denominator", "key", "bound", "constant", "other")

SWAPS: dict[type[ast.AST], tuple[type[ast.AST], str]] = {
    ast.Add: (ast.Sub, "sign"),
    ast.Sub: (ast.Add, "sign"),
    ast.Mult: (ast.Div, "denominator"),
    ast.Div: (ast.Mult, "denominator"),
    ast.BitAnd: (ast.BitOr, "other"),
    ast.BitOr: (ast.BitAnd, "other"),
    ast.And: (ast.Or, "other"),
    ast.Or: (ast.And, "other"),
}
"""Operator → the wrong one, and the kind of the error."""

COMPARISONS: dict[type[ast.AST], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
}

NAMES = {
    "min": ("max", "bound"),
    "minimum": ("maximum", "bound"),
    "exp": ("expm1", "other"),
    "mean": ("sum", "denominator"),
    "segment_mean": ("segment_sum", "denominator"),
    "floor": ("ceil", "bound"),
}
NAMES |= {wrong: (right, kind) for right, (wrong, kind) in NAMES.items()}
"""Called function → the wrong one."""

DROPS = {"detach": "other", "clamp": "bound", "abs": "sign"}
"""Methods that are left out: `x.clamp(…)` becomes `x`."""

LEVELS = {
    "step": "traj",
    "turn": "traj",
    "traj": "step",
    "group": "batch",
    "batch": "group",
    "seq": "group",
    "prompt": "batch",
    "segment": "traj",
    "stage": "traj",
    "anchor": "group",
    "block": "traj",
    "amax": "amin",
    "amin": "amax",
}
"""Unit, or reduction, named by a string → the wrong one."""

NO_ARITHMETIC = ("__post_init__", "check", "_check", "modules", "coefficient")
"""Functions that refuse or declare and calculate nothing: by name, or by the name's beginning."""

NO_EFFECT = frozenset({"strict", "frozen", "init", "device", "dtype"})
"""Keywords of calls that change no number."""

OTHER_AXES = frozenset({"Sampling", "Update", "Likelihood", "Reward"})
"""Bases of classes of `core/neutral.py` that are no part of the question."""


@dataclass(frozen=True)
class Mutant:
    """A wrong module: `source` is its whole text, the rest says where it differs and how.

    `lines` are those whose run it can change: those of the statement in the right file, those of
    the class for the default of a field (`default`); none, (0, 0), for a constant of the module.
    """

    file: str
    function: str
    original: str
    mutated: str
    kind: str
    line: int
    lines: tuple[int, int]
    source: str
    default: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """What a reason is remembered by, from run to run."""
        return self.file, self.original, self.mutated


@dataclass(frozen=True)
class Place:
    """Where the walk is.

    `function` (or class), `statement`, `divisor` (below a division), `lines` of the class, `inside`
    a function, which gives a `tensor`.
    """

    function: str = ""
    statement: ast.stmt | None = None
    divisor: bool = False
    lines: tuple[int, int] = (0, 0)
    inside: bool = False
    tensor: bool = False


def sources(package: Path) -> list[Path]:
    """The files that are mutated, of a package's folder."""
    return [f for pattern in FILES for f in sorted(package.glob(pattern))]


def mutants(path: Path, root: Path) -> list[Mutant]:
    """Every mutant of a file; its name is written relative to `root`."""
    tree = ast.parse(path.read_text("utf-8"))
    found, seen = [], {ast.unparse(tree)}
    for put, old, (new, kind), place in _walk(tree, lambda node: None, Place()):
        statement = place.statement
        assert statement is not None
        before = _head(statement)
        put(new)
        ast.fix_missing_locations(new)
        whole = new if isinstance(new, ast.stmt) else statement
        text, after = ast.unparse(tree), _head(whole)
        put(old)
        if text in seen:
            continue
        seen.add(text)
        last = _last_line(statement)
        lines = (statement.lineno, last) if place.inside else place.lines
        words = (path.relative_to(root).as_posix(), place.function, before, after, kind)
        default = not place.inside and place.lines != (0, 0)
        found.append(Mutant(*words, statement.lineno, lines, text, default))
    return found


def _head(statement: ast.stmt) -> str:
    """A statement on one line; of a compound one, what stands before its body."""
    return ast.unparse(statement).splitlines()[0]


def _last_line(statement: ast.stmt) -> int:
    body = getattr(statement, "body", None)
    return body[0].lineno - 1 if body else statement.end_lineno or statement.lineno


# ── the walk ─────────────────────────────────────────────────────────────────────────────────────


def _walk(node: ast.AST, put: Put, place: Place) -> Iterator[tuple[Put, ast.AST, Edit, Place]]:
    if _skipped(node):
        return
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        name = f"{place.function}.{node.name}".lstrip(".")
        function = isinstance(node, ast.FunctionDef)
        tensor = function and node.returns is not None and ast.unparse(node.returns) == "Tensor"
        inner = replace(place, function=name, inside=function, tensor=bool(tensor))
        if isinstance(node, ast.ClassDef):
            inner = replace(inner, lines=(node.lineno, node.end_lineno or node.lineno))
        else:
            header = replace(place, function=name, statement=node)
            yield from _children(node.args, header, ("defaults", "kw_defaults"))
        yield from _children(node, inner, ("body",))
        return
    if isinstance(node, ast.stmt):
        place = replace(place, statement=node, divisor=False)
    for edit in _edits(node, place) if place.statement is not None else ():
        yield put, node, edit, place
    yield from _children(node, place, node._fields)


def _children(
    node: ast.AST, place: Place, names: tuple[str, ...]
) -> Iterator[tuple[Put, ast.AST, Edit, Place]]:
    for name in names:
        value = getattr(node, name, None)
        below = place
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and name == "right":
            below = replace(place, divisor=True)
        if name in ("annotation", "returns", "decorator_list"):
            continue
        if isinstance(value, list):
            for i, child in enumerate(value):
                if isinstance(child, ast.AST):
                    yield from _walk(child, _into(value, i), below)
        elif isinstance(value, ast.AST):
            yield from _walk(value, _onto(node, name), below)


def _into(items: list[ast.AST], i: int) -> Put:
    return lambda new: items.__setitem__(i, new)


def _onto(node: ast.AST, name: str) -> Put:
    return lambda new: setattr(node, name, new)


def _skipped(node: ast.AST) -> bool:
    """Whether a part of the tree calculates nothing: words, refusals, types, declarations."""
    if isinstance(node, (ast.Raise, ast.Import, ast.ImportFrom, ast.JoinedStr)):
        return True
    if isinstance(node, ast.Expr):
        call = node.value
        named = isinstance(call, ast.Call) and ast.unparse(call.func) in ("require", "_check")
        return named or isinstance(call, ast.Constant)
    if isinstance(node, ast.If):
        checking = ast.unparse(node.test) == "TYPE_CHECKING"
        return checking or (all(isinstance(s, ast.Raise) for s in node.body) and not node.orelse)
    if isinstance(node, ast.FunctionDef):
        return node.name in NO_ARITHMETIC or node.name.startswith("_check")
    if isinstance(node, ast.ClassDef):
        return bool(OTHER_AXES & {ast.unparse(base) for base in node.bases})
    if isinstance(node, ast.keyword):
        return node.arg in NO_EFFECT
    return isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("Literal", "ClassVar")


# ── the edits ────────────────────────────────────────────────────────────────────────────────────


def _edits(node: ast.AST, place: Place) -> Iterator[Edit]:
    if isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)) and type(node.op) in SWAPS:
        operator, kind = SWAPS[type(node.op)]
        yield _changed(node, op=operator()), kind
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.UAdd):
        yield node.operand, "sign" if isinstance(node.op, ast.USub) else "other"
    elif isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            for other in COMPARISONS.get(type(op), ()):
                ops = [*node.ops[:i], other(), *node.ops[i + 1 :]]
                yield _changed(node, ops=ops), "bound"
    elif isinstance(node, ast.Call):
        yield from _calls(node, place)
    elif isinstance(node, ast.keyword) and node.arg in ("min", "max"):
        yield _changed(node, arg="max" if node.arg == "min" else "min"), "bound"
    elif isinstance(node, ast.Constant):
        yield from _constants(node.value, place)
    elif isinstance(node, ast.Return) and place.tensor and not _zeros(node.value):
        yield _changed(node, value=ast.UnaryOp(ast.USub(), node.value)), "sign"


def _zeros(node: ast.AST | None) -> bool:
    """Nothing, or zeros, of which the sign does not matter."""
    return node is None or (
        isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("zeros", "zeros_like"))
    )


def _calls(node: ast.Call, place: Place) -> Iterator[Edit]:
    function = node.func
    if isinstance(function, ast.Attribute):
        if function.attr in NAMES:
            other, kind = NAMES[function.attr]
            yield _changed(node, func=_changed(function, attr=other)), kind
        if function.attr in DROPS:
            kind = DROPS[function.attr]
            yield function.value, "denominator" if place.divisor and kind == "bound" else kind
    elif isinstance(function, ast.Name) and function.id in NAMES:
        other, kind = NAMES[function.id]
        yield _changed(node, func=ast.Name(other)), kind


def _constants(value: object, place: Place) -> Iterator[Edit]:
    kind = "denominator" if place.divisor else "constant"
    if isinstance(value, bool):
        yield ast.Constant(not value), "other"
    elif isinstance(value, int):
        yield ast.Constant(value + 1), kind
        yield (ast.Constant(value - 1) if value else ast.UnaryOp(ast.USub(), ast.Constant(1))), kind
    elif isinstance(value, float) and math.isfinite(value):
        yield ast.Constant({0.5: 1.0, 1.0: 0.5}.get(value, value + 1)), kind
    elif isinstance(value, str) and value in LEVELS:
        yield ast.Constant(LEVELS[value]), "key" if value[:2] != "am" else "bound"


def _changed(node: ast.AST, **changes: object) -> ast.AST:
    new = type(node)(**{name: getattr(node, name, None) for name in node._fields})
    for name, value in changes.items():
        setattr(new, name, value)
    return new
