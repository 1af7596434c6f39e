"""A page for every method, and the list of them by family."""

from __future__ import annotations

import inspect
import re
import sys

from anypo import api
from anypo.cli.cite import entry
from anypo.cli.inline import sources
from anypo.cli.methods import counted, letters
from anypo.cli.recipes import catalogue, status
from anypo.cli.show import also_called, evidence, said_needs
from anypo.core.explain import AXES, explained, fields_of
from anypo.core.method import MethodInfo
from anypo.core.papers import link, papers
from anypo.verify.faithfulness import proofs
from pages.text import code, escaped, table


def path(info: MethodInfo) -> str:
    """Where a method's page stands."""
    return f"methods/{info.slug}.md"


def families() -> dict[str, list[MethodInfo]]:
    """Family → its methods; a family is a file of recipes, named by its docstring."""
    found: dict[str, list[MethodInfo]] = {}
    for info in api.methods():
        head = inspect.getdoc(sys.modules[info.build.__module__]) or ""
        found.setdefault(re.split(r"[:.]", head)[0], []).append(info)
    return dict(sorted(found.items()))


def pages() -> dict[str, str]:
    """Path of a page → its Markdown."""
    return {"methods/index.md": index()} | {path(i): page(i) for i in api.methods()}


def index() -> str:
    """The list, by family."""
    entries = {e["name"]: e for e in catalogue()}
    lines = [
        "# Methods",
        "",
        counted(list(entries.values())) + ". [Which one when](../choose.md), and "
        "[how faithful](../faithfulness.md) they are, have pages of their own.",
        "",
        "Letters are the axes in which a method differs from plain REINFORCE: "
        + ", ".join(f"{letter} {axis}" for axis, letter in AXES.items())
        + ".",
    ]
    for family, infos in families().items():
        rows = [
            (
                f"[{code(i.name)}]({i.slug}.md)",
                escaped(i.title),
                _paper(i.paper),
                code(letters(entries[i.name])),
                status(entries[i.name]),
            )
            for i in infos
        ]
        columns = ("method", "title", "paper", "differs in", "status")
        lines += ["", f"## {escaped(family)}", "", table(columns, rows)]
    return "\n".join(lines) + "\n"


def page(info: MethodInfo) -> str:
    """A method: what its docstring says, its recipe, its pieces, what it reads, its evidence."""
    recipe = info.build()
    pieces = [
        (axis, code(name), "<br>".join(map(escaped, filter(None, (says, formula)))))
        for axis, name, formula, says in explained(recipe)
    ]
    fields = [(axis, code(name), code(value)) for axis, name, value in fields_of(recipe)]
    own, *rest = sources(info, recipe).items()
    parts = [
        f"# {escaped(info.title)}",
        f"{code(info.name)} · {info.kind} · {info.domain} · "
        + ", ".join(_paper(p) for p in papers(info.paper, info.doc)),
        *(f"Also called {a}: {', '.join(map(escaped, o))}." for a, o in also_called(info).items()),
        _prose(info.doc),
        "## Recipe",
        f"```python\n{_bare(own[1])}\n```",
        f"```sh\nanypo train {info.slug}\nanypo diff {_other(info)} {info.slug}\n```",
        "## Pieces",
        table(("axis", "piece", "what it does, and its formula"), pieces),
        "## What it reads",
        "\n".join(f"- {name}: {escaped(text)}" for name, text in said_needs(recipe)),
        "## Evidence",
        _evidence(info),
        "## Source",
        _folded("every field of the recipe", table(("axis", "field", "value"), fields)),
        *(_folded(place, f"```python\n{text}\n```") for place, text in rest),
        "## To cite it",
        f"```bibtex\n{entry(info.paper, info.title)}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _other(info: MethodInfo) -> str:
    return "grpo" if info.name != "grpo" else "reinforce"


def _paper(paper: str) -> str:
    return f"[{paper}]({link(paper)})" if link(paper) else escaped(paper)


def _prose(doc: str) -> str:
    """A docstring with its labels in bold, each on a line of its own."""
    text = re.sub(r"\s*\b(Parameters|Deviations?|Sketch|References?):\s", r"\n\n**\1:** ", doc)
    return "\n\n".join(_labelled(part) for part in re.split(r"\n\s*\n", text) if part.strip())


def _labelled(paragraph: str) -> str:
    label, text = re.fullmatch(r"(\*\*\w+:\*\* )?(.*)", paragraph.strip(), re.DOTALL).groups()  # pyright: ignore
    return (label or "") + escaped(" ".join(text.split()))


def _bare(source: str) -> str:
    """A function without its docstring, which stands above it already."""
    return re.sub(r'\n *""".*?"""(?=\n)', "", source, count=1, flags=re.DOTALL)


def _folded(title: str, body: str) -> str:
    """A part that is opened by a click."""
    lines = [f"    {line}" if line else "" for line in body.splitlines()]
    return f'??? note "{title}"\n\n' + "\n".join(lines)


def _evidence(info: MethodInfo) -> str:
    said = [f"- {escaped(text)}" for text in evidence(info)]
    origin = dict.fromkeys(p.source for p in proofs().get(info.name, ()))
    return "\n".join([*said, *(f"- Numbers: {escaped(text)}." for text in origin)])
