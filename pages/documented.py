"""Public names of the package and their docstrings, read from the source without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

Named = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | Named


def modules(package: Path) -> dict[str, ast.Module]:
    """Dotted name → syntax of every module of a package that can be imported."""
    found = {}
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if not any(part.startswith("_") for part in name.split(".")):
            found[name] = ast.parse(file.read_text("utf-8"))
    return found


def public(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, Named]]:
    """Dotted name and syntax of every public class, function and method below a node.

    Functions inside functions cannot be imported. `__call__` is public: it is what a piece does.
    A setter and an overload share the docstring of the name that they belong to.
    """
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, Named):
            if not isinstance(child, ast.expr):  # a name may be defined under `if` or `try`
                yield from public(child, prefix)
        elif (child.name[0] != "_" or child.name == "__call__") and not _shares(child):
            yield prefix + child.name, child
            if isinstance(child, ast.ClassDef):
                yield from public(child, f"{prefix}{child.name}.")


def _shares(node: Named) -> bool:
    marks = {ast.unparse(d).rpartition(".")[2] for d in node.decorator_list}
    return bool(marks & {"overload", "setter", "deleter"})


def undocumented(package: Path) -> list[str]:
    """Names without a docstring: modules, and what they make public."""
    every: list[tuple[str, Documented]] = []
    for name, tree in modules(package).items():
        every.append((name, tree))
        every += [(f"{name}.{inner}", node) for inner, node in public(tree)]
    return [name for name, node in every if not (ast.get_docstring(node) or "").strip()]
