"""Text of models and users, made harmless for a screen and for a page."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

OBEYED = ("Cc", "Cf", "Cs", "Co", "Cn")
"""Unicode categories that a terminal or a browser may obey instead of showing."""

ODD = re.compile(r"[^\t\n\x20-\x7e]")
"""Characters whose category has to be looked up."""


def visible(text: Any) -> str:
    """Text with control and format characters written out, as `\\x1b`; line ends and tabs stay.

    Direction marks are among them: they could make a line read as another one.
    """
    return ODD.sub(lambda found: _shown(found[0]), str(text))


def _shown(c: str) -> str:
    if unicodedata.category(c) not in OBEYED:
        return c
    return c.encode("unicode_escape").decode("ascii")


def script_json(value: Any) -> str:
    """JSON that may stand in a `<script>` element: no `<`, `>` or `&` is left in it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for c in "<>&":
        text = text.replace(c, f"\\u{ord(c):04x}")
    return text


def sendable(text: str) -> str:
    """Text that UTF-8 can hold: a lone surrogate becomes a question mark."""
    return text.encode("utf-8", "replace").decode()
