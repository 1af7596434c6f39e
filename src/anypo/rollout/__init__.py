"""From a request, a policy and a task to a batch."""
