"""The pieces, one package per axis; the axes cannot see each other."""
