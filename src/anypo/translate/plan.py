"""What a configuration amounts to, before it is put into words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from anypo.core.recipe import Recipe


@dataclass
class Plan:
    """The recipe meant, what is tried to express it, and the run's options.

    `notes` are verdicts and remarks that replace the table's: key → (verdict, remark).
    """

    recipe: Recipe
    methods: tuple[str, ...]
    hints: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, tuple[str, str]] = field(default_factory=dict)

    def say(self, key: str, remark: str, verdict: str = "differs") -> None:
        """A remark on a key that its value or another key brings about."""
        self.notes[key] = (verdict, remark)

    def change(self, **axes: Any) -> None:
        """Other pieces on some axes of the recipe."""
        self.recipe = self.recipe.but(**axes)
