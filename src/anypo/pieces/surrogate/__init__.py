"""Axis E: what is maximised."""

from anypo.core.neutral import Reinforce

__all__ = ["Reinforce"]
