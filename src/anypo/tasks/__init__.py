"""What can be solved: verifiable problems, preferences, environments and generators."""
