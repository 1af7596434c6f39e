"""What a file says: keys, values, and the lines that they stand on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Unread:
    """An expression whose value only running the file would tell."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Given:
    """One key with its value, the line that it stands on (0: none) and how it is written."""

    key: str
    value: Any
    line: int = 0
    text: str = ""


@dataclass(frozen=True)
class Source:
    """What was found in a file: whose configuration it is, of which trainer, and its keys."""

    library: str
    trainer: str
    given: tuple[Given, ...]

    @property
    def values(self) -> dict[str, Any]:
        """Key → value, of those that could be read; a later one replaces an earlier one."""
        return {g.key: g.value for g in self.given if not isinstance(g.value, Unread)}
