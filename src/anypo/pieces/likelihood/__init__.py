"""Axis H: the calls of a network."""

from anypo.core.neutral import Direct

__all__ = ["Direct"]
