"""Measurements of speed, run by `make bench`."""
