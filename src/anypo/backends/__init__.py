"""The adapters: the only place that imports heavy libraries."""
