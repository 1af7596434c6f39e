"""Axis I: optimizer steps."""

from anypo.core.neutral import Adam

__all__ = ["Adam"]
