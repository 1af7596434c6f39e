"""Pages about a run: curves, completions, recipe, scores."""
