"""The reference: a page for every room of the package, with each public name's first sentence."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from pages.documented import Documented, modules, public
from pages.text import escaped


def pages(package: Path) -> dict[str, str]:
    """Path of a page → its Markdown."""
    rooms: dict[str, list[str]] = {}
    for name, tree in modules(package).items():
        room = (name.split(".") + ["anypo"])[1]
        rooms.setdefault(room, []).extend(_lines(name, tree))
    return {
        f"reference/{room}.md": "\n".join([f"# anypo.{room}".replace(".anypo", ""), "", *lines])
        for room, lines in sorted(rooms.items())
    }


def _lines(name: str, tree: ast.Module) -> Iterator[str]:
    names = list(public(tree))
    yield from (f"## {name}", "", escaped(sentence(tree)), "")
    for inner, node in names:
        if not inner.endswith("__call__"):
            depth = "    " * inner.count(".")
            yield f"{depth}- `{inner}{_arguments(node)}`: {escaped(sentence(node))}"
    yield ""


def _arguments(node: ast.AST) -> str:
    if isinstance(node, ast.ClassDef):
        fields = [f.target.id for f in node.body if _field(f)]  # pyright: ignore
        return f"({', '.join(fields)})" if fields else ""
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    if any(ast.unparse(d).endswith("property") for d in node.decorator_list):
        return ""
    arguments = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return f"({', '.join(a for a in arguments if a not in ('self', 'cls'))})"


def _field(node: ast.stmt) -> bool:
    plain = isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    return plain and "ClassVar" not in ast.unparse(node) and node.target.id[0] != "_"  # pyright: ignore


def sentence(node: Documented) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
