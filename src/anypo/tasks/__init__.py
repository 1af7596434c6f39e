"""What can be solved: verifiable problems, pairs, demonstrations, environments, generators."""
