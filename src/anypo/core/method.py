"""`@method`: a function that returns a recipe, with the facts that a catalogue wants."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from anypo.core.errors import RecipeError, UsageError, nearest
from anypo.core.recipe import Recipe


@dataclass(frozen=True)
class MethodInfo:
    """What is known of a method: how it is called, where it comes from, what it is for."""

    name: str
    title: str
    paper: str
    domain: str
    kind: str
    aliases: tuple[str, ...]
    build: Callable[..., Recipe]

    @property
    def slug(self) -> str:
        """The name as catalogues write it, with dashes."""
        return self.name.replace("_", "-")

    @property
    def parameters(self) -> dict[str, Any]:
        """The method's arguments and their defaults."""
        return {k: p.default for k, p in inspect.signature(self.build).parameters.items()}

    @property
    def doc(self) -> str:
        """The whole docstring."""
        return inspect.getdoc(self.build) or ""


class Method(Protocol):
    """A recipe function with its facts attached."""

    info: MethodInfo

    def __call__(self, *args: Any, **arguments: Any) -> Recipe:
        """The recipe for these arguments."""
        ...


def bounded(name: str, value: float, low: float = 0.0, high: float = math.inf) -> float:
    """An argument that no piece bounds, such as a factor: refused outside `[low, high]`."""
    if not low <= value <= high:
        allowed = f"at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
        raise UsageError(f"{name}={value!r}: {name} must be {allowed}")
    return value


def method(
    *,
    paper: str,
    title: str = "",
    domain: str = "language",
    kind: str = "recipe",
    aliases: Iterable[str] = (),
) -> Callable[[Callable[..., Recipe]], Method]:
    """Mark a function of a recipe file as a method.

    Parameters: `paper` (arXiv id or DOI), `title` (shown name, default the first docstring line),
    `domain` (language, generator, control, …), `kind` (recipe, system, sketch), `aliases` (the
    spellings of other libraries). An argument that the function does not have is an error that
    names the nearest one; the recipe is checked when it is built.
    """

    def mark(build: Callable[..., Recipe]) -> Method:
        head = (inspect.getdoc(build) or "").split("\n")[0].rstrip(".")
        info = MethodInfo(build.__name__, title or head, paper, domain, kind, tuple(aliases), build)

        @functools.wraps(build)
        def checked(*args: Any, **arguments: Any) -> Recipe:
            for name in arguments:
                if name not in info.parameters:
                    near = nearest(name, info.parameters)
                    known = ", ".join(info.parameters) or "none"
                    raise UsageError(f"{info.name} has no option {name!r}{near} (options: {known})")
            try:
                return build(*args, **arguments).check(info.name)
            except RecipeError as error:  # of a method that this one derives from
                raise RecipeError(info.name, error.sentence) from None
            except UsageError as error:  # of a piece that refuses a value
                raise RecipeError(info.name, str(error)) from None

        checked.info = info  # pyright: ignore[reportAttributeAccessIssue]
        return checked  # pyright: ignore[reportReturnType]

    return mark
