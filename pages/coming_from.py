"""`docs/coming-from.md`: its examples, translated line by line by the tool that it describes."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from anypo.cli.translate import SIGNS
from anypo.translate import Translation, translate
from pages.text import escaped, table

PAGE = Path(__file__).parents[1] / "docs" / "coming-from.md"
EXAMPLE = re.compile(
    r'(^```\w+ title="(?P<name>[^"]+)"\n(?P<text>.*?)^```\n\n<!-- translated -->\n)'
    r".*?(^<!-- end -->$)",
    re.MULTILINE | re.DOTALL,
)


def write() -> list[Path]:
    """Bring the page up to date."""
    PAGE.write_text(filled(PAGE.read_text("utf-8")), "utf-8")
    return [PAGE]


def filled(page: str) -> str:
    """The page with what the tool says of each example behind it."""
    return EXAMPLE.sub(lambda m: f"{m[1]}\n{_example(m['name'], m['text'])}\n{m[4]}", page)


def _example(name: str, text: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_text(text, "utf-8")
        found = translate(Path(folder) / name)
        shown = rendered(found)
        return shown.replace(f"{folder}/", "")


def rendered(found: Translation) -> str:
    """The command, a table of the lines, one of the defaults, and Python where it is needed."""
    parts = [f"```sh\n{_folded(found)}\n```", _table(found, silent=False)]
    parts += ["What the library does without being told:", _table(found, silent=True)]
    if found.python:
        parts += ["What only Python can say:", f"```python\n{found.python}\n```"]
    return "\n\n".join(parts) + "\n"


def _folded(found: Translation) -> str:
    words = found.command.split(" --")
    return " \\\n    --".join(words)


def _table(found: Translation, silent: bool) -> str:
    rows = []
    for line in (x for x in found.lines if x.silent == silent):
        sign = SIGNS[line.verdict][0]
        remark = f"{sign}{line.remark}" if line.remark else sign.rstrip(": ")
        ours = f"`{line.ours}`" if line.ours else ""
        rows.append((f"`{line.source}`", ours, escaped(remark)))
    return table(("there", "here", "remark"), rows)
