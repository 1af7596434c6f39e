"""Data types over `math`: `Batch`, `Piece`, `Recipe`, `Objective`, schedules, the method table."""
