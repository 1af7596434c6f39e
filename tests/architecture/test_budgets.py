"""Line budgets: file 400, training loop 60, piece 40, recipe 15 with a median of 11.

Lines are lines of code: blank lines, comments and docstrings are free. A recipe is held to its
budget in statements and in lines of code, since one statement may span many lines.
Each checker takes source text, so that a planted excess can show that it bites.
"""

from __future__ import annotations

import ast
import io
import statistics
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import anypo.core
import anypo.pieces
from anypo.api import methods
from anypo.cli.summary import summary
from anypo.core import discover

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "anypo"
FREE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstring(node: ast.AST) -> ast.Expr | None:
    """The statement that is the docstring of a module, class or function."""
    if isinstance(node, Documented) and ast.get_docstring(node, clean=False) is not None:
        first = node.body[0]
        assert isinstance(first, ast.Expr)
        return first
    return None


def lines_of_code(source: str, node: ast.AST | None = None) -> int:
    """Lines of `node` (or of the file) that hold code."""
    tree = ast.parse(source)
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in FREE:
            code.update(range(token.start[0], token.end[0] + 1))
    for each in ast.walk(tree):
        if text := docstring(each):
            code.difference_update(range(text.lineno, text.end_lineno + 1))  # type: ignore[operator]
    if node is not None:
        code.intersection_update(range(node.lineno, node.end_lineno + 1))  # type: ignore[attr-defined]
    return len(code)


def body_lines(source: str, function: ast.FunctionDef) -> int:
    """Lines of code below a function's signature."""
    start = function.body[0].lineno
    whole = ast.Pass(lineno=start, end_lineno=function.end_lineno)
    return lines_of_code(source, whole)


def statements(function: ast.FunctionDef) -> int:
    """Statements in a function's body, nested ones included, the docstring not."""
    inside = [n for part in function.body for n in ast.walk(part) if isinstance(n, ast.stmt)]
    return len(inside) - (docstring(function) is not None)


def is_method(function: ast.FunctionDef) -> bool:
    """Whether a function is decorated with `@method(...)`."""
    calls = [d.func if isinstance(d, ast.Call) else d for d in function.decorator_list]
    return any(isinstance(c, ast.Name) and c.id == "method" for c in calls)


def recipes(source: str) -> Iterator[ast.FunctionDef]:
    """The recipe functions of a file."""
    nodes = ast.walk(ast.parse(source))
    return (n for n in nodes if isinstance(n, ast.FunctionDef) and is_method(n))


def long_file(source: str) -> list[str]:
    """A file may have 400 lines, everything counted."""
    count = len(source.splitlines())
    return [f"{count} lines in the file"] if count > 400 else []


def long_pieces(source: str) -> list[str]:
    """A piece may have 40 lines of code."""
    classes = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ClassDef)]
    sizes = {c.name: lines_of_code(source, c) for c in classes}
    return [f"piece {name}: {size} lines" for name, size in sizes.items() if size > 40]


def long_recipes(source: str) -> list[str]:
    """A recipe may have 15 statements, and 15 lines of code below its signature."""
    sizes = {f.name: max(statements(f), body_lines(source, f)) for f in recipes(source)}
    return [f"recipe {name}: {size}" for name, size in sizes.items() if size > 15]


def long_loop(source: str) -> list[str]:
    """The training loop, the function `train`, may have 60 lines with its signature."""
    functions = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef)]
    sizes = [lines_of_code(source, f) for f in functions if f.name == "train"]
    return [f"train: {size} lines" for size in sizes if size > 60] if sizes else ["no train"]


def bare_docstrings(source: str) -> list[str]:
    """A recipe's docstring says more than its name: several lines, and its parameters by name."""
    poor = []
    for f in recipes(source):
        text = ast.get_docstring(f) or ""
        missing = [a.arg for a in f.args.args + f.args.kwonlyargs if a.arg not in text]
        if len(text.splitlines()) < 3 or missing:
            poor.append(f"recipe {f.name}: {', '.join(missing) or 'a docstring of some lines'}")
    return poor


def bare_pieces(source: str) -> list[str]:
    """A public piece's docstring is a sentence at least, and names its fields."""
    poor = []
    for c in (n for n in ast.parse(source).body if isinstance(n, ast.ClassDef)):
        text = ast.get_docstring(c) or ""
        fields = [f.target.id for f in c.body if _is_field(f)]  # type: ignore[union-attr]
        missing = [name for name in fields if name not in text]
        if not c.name.startswith("_") and (len(text.split()) < 6 or missing):
            poor.append(f"piece {c.name}: {', '.join(missing) or 'a docstring of a sentence'}")
    return poor


def _is_field(node: ast.stmt) -> bool:
    if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
        return False
    return "ClassVar" not in ast.unparse(node.annotation) and not node.target.id.startswith("_")


def subclassed_pieces(sources: dict[str, str]) -> list[str]:
    """A piece is final: behaviour is changed by wrapping, so no piece derives from another."""
    nodes = [n for text in sources.values() for n in ast.walk(ast.parse(text))]
    classes = [n for n in nodes if isinstance(n, ast.ClassDef)]
    final = {c.name for c in classes if not c.name.startswith("_")}
    pairs = [(c.name, ast.unparse(base)) for c in classes for base in c.bases]
    return [f"{name} derives from {base}" for name, base in pairs if base.split(".")[-1] in final]


def unused_pieces(pieces: dict[str, str], users: dict[str, str]) -> list[str]:
    """Public pieces that no recipe names."""
    classes = [n for text in pieces.values() for n in ast.parse(text).body]
    public = {c.name for c in classes if isinstance(c, ast.ClassDef) and c.name[0] != "_"}
    nodes = [n for text in users.values() for n in ast.walk(ast.parse(text))]
    named = {n.id for n in nodes if isinstance(n, ast.Name)}
    return sorted(public - named)


def read(folder: str) -> dict[str, str]:
    """Every Python file of a folder in the package, by its path in the repository."""
    files = sorted((SOURCE / folder).rglob("*.py"))
    return {str(f.relative_to(ROOT)): f.read_text("utf-8") for f in files}


def over(checker: Callable[[str], list[str]], folder: str) -> list[str]:
    """What a checker finds in a folder of the package."""
    return [f"{name}: {each}" for name, text in read(folder).items() for each in checker(text)]


# ── the tree keeps its budgets ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("checker", "folder"),
    [
        (long_file, "."),
        (long_pieces, "pieces"),
        (bare_pieces, "pieces"),
        (long_recipes, "recipes"),
        (bare_docstrings, "recipes"),
    ],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_budget(checker, folder):
    assert read(folder)
    assert over(checker, folder) == []


def test_the_training_loop_fits_one_screen():
    assert long_loop((SOURCE / "engine" / "loop.py").read_text("utf-8")) == []


def test_the_median_recipe_has_at_most_eleven_lines():
    texts = read("recipes").values()
    sizes = [body_lines(text, f) for text in texts for f in recipes(text)]
    assert len(sizes) >= 12
    assert statistics.median(sizes) <= 11


def test_pieces_are_final_and_used():
    assert subclassed_pieces(read("pieces")) == []
    assert unused_pieces(read("pieces"), read("recipes")) == []


CATALOGUE = 397
"""Methods that the catalogue lists: what shares are shares of (docs/decisions/0008)."""


def test_a_piece_of_one_recipe_says_why_and_there_are_few():
    found = summary([], methods())
    single = [*found["used_by_one"], *found["used_by_none"]]
    known = discover.parts(anypo.core, anypo.pieces)
    texts = {name: " ".join((known[name].__doc__ or "").split()).lower() for name in single}
    assert [name for name, text in texts.items() if "own piece" not in text] == []
    assert len(single) <= 0.25 * CATALOGUE
    assert len(found["escape_hatches"]) <= 0.05 * CATALOGUE


# ── and the checkers bite ────────────────────────────────────────────────────────────────────────


def body(count: int, indent: str) -> str:
    return "".join(f"{indent}x{i} = {i}\n" for i in range(count))


def recipe(count: int, doc: str = "One.\n\n    Two.\n    ") -> str:
    head = f'@method(paper="1")\ndef some():\n    """{doc}"""\n    # why\n\n'
    return head + body(count - 1, "    ") + "    return Recipe()\n"


def piece(count: int) -> str:
    return 'class P(Ratio):\n    """Some words that say\n\n    what."""\n\n    # why\n' + body(
        count - 1, "    "
    )


def loop(count: int) -> str:
    return 'def train(recipe):\n    """Two\n    lines."""\n' + body(count - 1, "    ")


@pytest.mark.parametrize(
    ("checker", "source", "limit"),
    [
        (long_file, lambda n: "\n" * n, 400),
        (long_pieces, piece, 40),
        (long_recipes, recipe, 15),
        (long_loop, loop, 60),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_a_budget_bites_one_line_above_it(checker, source, limit):
    assert checker(source(limit)) == []
    assert len(checker(source(limit + 1))) == 1


def test_a_recipe_cannot_hide_in_one_statement_or_in_one_line():
    wide = "@method()\ndef f():\n    return g(\n" + "        1,\n" * 14 + "    )\n"
    nested = "@method()\ndef f():\n    if x:\n" + body(15, "        ")
    joined = "@method()\ndef f():\n    " + "; ".join(["x = 1"] * 16) + "\n"
    assert [len(long_recipes(text)) for text in (wide, nested, joined)] == [1, 1, 1]


def test_only_methods_are_recipes():
    plain = recipe(30).replace("@method", "@other")
    assert long_recipes(plain) == []
    assert long_recipes(recipe(30).replace('@method(paper="1")', "@method")) != []


def test_a_loop_of_another_name_is_noticed():
    assert long_loop("def run():\n    pass\n") == ["no train"]


def test_a_docstring_must_name_the_parameters():
    assert bare_docstrings(recipe(3)) == []
    assert bare_docstrings(recipe(3, doc="One.")) != []
    assert bare_docstrings(recipe(3).replace("some()", "some(beta=1)")) == ["recipe some: beta"]
    field = 'class Clip(Piece):\n    """Some words that say what it is."""\n\n    low: float = 0\n'
    assert bare_pieces(field) == ["piece Clip: low"]
    assert bare_pieces(field.replace("what it is", "how `low` counts")) == []
    assert bare_pieces(field.replace("Some words that say what it is", "low")) != []


def test_a_piece_that_derives_from_a_piece_is_noticed():
    family = {"a": "class A(Ratio): ...\nclass _B(Ratio): ...\n", "b": "class C(a.A): ...\n"}
    assert subclassed_pieces(family) == ["C derives from a.A"]
    assert subclassed_pieces({"a": "class _B(Ratio): ...\nclass C(_B): ...\n"}) == []


def test_a_piece_that_no_recipe_names_is_noticed():
    pieces = {"a": "class A(Ratio): ...\nclass B(Ratio): ...\nclass _C: ...\n"}
    assert unused_pieces(pieces, {"r": "def f():\n    return A()\n"}) == ["B"]
