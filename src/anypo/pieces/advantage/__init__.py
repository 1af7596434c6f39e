"""Axis C: credit."""

from anypo.core.neutral import Return

__all__ = ["Return"]
