"""Axis F: penalties."""
