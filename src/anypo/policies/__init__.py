"""What can be trained."""
