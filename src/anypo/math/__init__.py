"""Pure functions of tensors and ids."""
