"""Discovery: every module of a package is imported once; what it defines is found, not listed."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import ModuleType
from typing import Any

from anypo.core.piece import Piece
from anypo.core.schedule import Schedule


def modules(package: ModuleType) -> list[ModuleType]:
    """All modules below a package, imported."""
    found = pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    return [importlib.import_module(m.name) for m in found]


def parts(*packages: ModuleType) -> dict[str, type[Any]]:
    """Concrete pieces and schedules by class name: what a stored recipe may name."""
    found: dict[str, type[Any]] = {}
    for module in (m for p in packages for m in modules(p)):
        for name, cls in vars(module).items():
            if not inspect.isclass(cls) or not hasattr(cls, "__dataclass_fields__"):
                continue
            known = issubclass(cls, (Piece, Schedule))
            if known and found.setdefault(name, cls) is not cls:
                raise RuntimeError(f"two pieces are called {name}")
    return found


def methods(package: ModuleType) -> dict[str, Any]:
    """Recipe functions below a package by name."""
    found: dict[str, Any] = {}
    for module in modules(package):
        for name, value in vars(module).items():
            info = getattr(value, "info", None)
            if info is not None and value.__module__ == module.__name__:
                found[name] = value
    return dict(sorted(found.items()))
