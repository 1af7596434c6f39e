"""Recipes: one file per family, one function per method; nothing else."""
