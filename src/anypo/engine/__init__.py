"""One loop for every method: it knows axes, not recipes, and never a rank's place in a formula."""
