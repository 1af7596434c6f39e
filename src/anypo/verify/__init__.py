"""Comparing recipes with files of reference numbers."""
