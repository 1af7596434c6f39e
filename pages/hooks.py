"""Hooks of mkdocs: refuse what is undocumented, add the generated pages, link method names."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # mkdocs knows this file alone

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

import anypo
from anypo import api
from anypo.verify.faithfulness import proofs
from pages import documented, methods, reference

PACKAGE = Path(anypo.__file__).parent


def on_config(config: Any) -> Any:
    """Stop where a public name has no docstring; otherwise put the generated pages in the menu."""
    if bare := documented.undocumented(PACKAGE):
        raise PluginError(f"public names without a docstring: {', '.join(bare)}")
    families: list[Any] = [
        {family: [{i.title: methods.path(i)} for i in infos]}
        for family, infos in methods.families().items()
    ]
    rooms = [{Path(p).stem: p} for p in reference.pages(PACKAGE)]
    section = next(item["Methods"] for item in config.nav if "Methods" in item)
    section += [{"All methods": "methods/index.md"}, *families]
    config.nav.append({"Reference": rooms})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    for path, text in {**methods.pages(), **reference.pages(PACKAGE)}.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn names of methods into links where methods are recommended."""
    if page.file.src_uri != "choose.md":
        return markdown
    rows = (row.split("\t") for row in api.ACRONYMS.read_text("utf-8").splitlines())
    planned = {row[1] for row in rows} | {p.file.split(".")[0] for p in proofs().get("", ())}
    return linked(noted(markdown), {i.name: methods.path(i) for i in api.methods()}, planned)


def linked(markdown: str, known: Mapping[str, str], planned: Collection[str]) -> str:
    """Names in backticks as links to the pages of known methods; a remark on planned ones."""

    def link(found: re.Match[str]) -> str:
        path = known.get(found[1].replace("-", "_"))
        if path:
            return f"[{found[0]}]({path})"
        slug = found[1].replace("_", "-")
        return f"{found[0]} (not here yet)" if slug in planned else found[0]

    return re.sub(r"(?<![\[`])`([a-z0-9_-]+)`(?!`)", link, markdown)


def noted(markdown: str) -> str:
    """Tests named in brackets become footnotes: their names are longer than a column is wide."""
    notes: dict[str, int] = {}

    def mark(found: re.Match[str]) -> str:
        tests = re.findall(r"`([^`]+)`", found[0])
        return ", ".join(f"[^{notes.setdefault(test, len(notes) + 1)}]" for test in tests)

    text = re.sub(r" \((?:`tests/[^`]+::\w+`(?:, )?)+\)", mark, markdown)
    return text + "\n" + "".join(f"[^{number}]: `{test}`\n" for test, number in notes.items())
