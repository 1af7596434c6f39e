"""Text of models and users, made harmless; it lives in `core`, where every room can see it."""

from anypo.core.text import OBEYED, script_json, visible

__all__ = ["OBEYED", "script_json", "visible"]
