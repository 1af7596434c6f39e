"""Axis G: weights of steps."""

from anypo.core.neutral import Mean

__all__ = ["Mean"]
