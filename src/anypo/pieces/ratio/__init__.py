"""Axis D: importance ratios in log space."""

from anypo.core.piece import Off

__all__ = ["Off"]
