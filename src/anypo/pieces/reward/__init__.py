"""Axis A: shaping."""
