"""Axis B: what is asked for and what stays."""

from anypo.core.neutral import Groups

__all__ = ["Groups"]
