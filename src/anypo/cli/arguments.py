"""A method's own arguments, and overrides of its resolved recipe, from the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass, replace
from typing import Annotated, Any, get_type_hints

import tyro

from anypo.cli.options import convert, dashed
from anypo.core.errors import UsageError
from anypo.core.method import Method, MethodInfo
from anypo.core.piece import Piece
from anypo.core.recipe import Recipe
from anypo.engine.dry import ineffective

PREFIX = "recipe."


@dataclass(frozen=True)
class Chosen:
    """A method with the arguments and overrides it was given, as texts."""

    method: Method
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def arguments(self) -> dict[str, Any]:
        """The method's arguments, typed."""
        hints = get_type_hints(self.method.info.build)
        own = self.method.info.parameters
        return {k: convert(v, hints[k], dashed(k)) for k, v in self.texts.items() if k in own}

    @property
    def overrides(self) -> dict[str, str]:
        """Path → text of `--recipe.PATH`."""
        given = self.texts.items()
        return {k.removeprefix(PREFIX): v for k, v in given if k.startswith(PREFIX)}

    @property
    def recipe(self) -> Recipe:
        """The resolved recipe; `UsageError` for an unknown path or a value that does not fit."""
        made = self.method(**self.arguments)
        for path, text in self.overrides.items():
            made = made.set(path, typed(made, path, text))
        return made.check(self.method.info.name)

    def without(self, option: str) -> Chosen:
        """The same without one option."""
        return replace(self, texts={k: v for k, v in self.texts.items() if k != option})

    def is_default(self, option: str) -> bool:
        """Whether an option repeats what holds without it."""
        if not option.startswith(PREFIX):
            return self.arguments[option] == self.method.info.parameters[option]
        path, rest = option.removeprefix(PREFIX), self.without(option).recipe
        return at(rest, path)[0] == at(self.recipe, path)[0]


def choose(method: Method, given: Mapping[str, str]) -> Chosen:
    """A method with those of the given options that are its own or its recipe's."""
    own = method.info.parameters
    return Chosen(method, {k: v for k, v in given.items() if k in own or k.startswith(PREFIX)})


def effects(chosen: Chosen) -> list[str]:
    """Refuse options without any effect; returns remarks on those that sleep in this recipe."""
    recipe, name, remarks = chosen.recipe, chosen.method.info.name, []
    for option, text in chosen.texts.items():
        if chosen.is_default(option):
            continue
        rest = chosen.without(option).recipe
        if ineffective(rest, recipe):
            raise UsageError(
                f"{dashed(option)} {text} has no effect on {name}: a dry run gives the same "
                f"gradients without it. Leave it out, or see what acts: anypo show {name}"
            )
        if recipe.update.visits == 1 and ineffective(rest, recipe, fresh=True):
            remarks.append(
                f"{dashed(option)} {text} does not act here: with one optimizer step per batch "
                "every ratio is exactly 1; --recipe.update.epochs 2 would make it act"
            )
    return remarks


def at(recipe: Recipe, path: str) -> tuple[Any, Any]:
    """The value at a dotted path, and what holds it; `UsageError` names what is near."""
    parent, node = None, recipe
    for name in path.split("."):
        known = isinstance(node, tuple) and name.isdigit() and int(name) < len(node)
        if not known and not (hasattr(node, "__dataclass_fields__") and name in vars(node)):
            recipe.set(path, None)
        parent, node = node, node[int(name)] if isinstance(node, tuple) else getattr(node, name)
    return node, parent


def typed(recipe: Recipe, path: str, text: str) -> Any:
    """The text of an override as a value of the type of the field at its path."""
    (value, parent), option = at(recipe, path), f"--{PREFIX}{path}"
    if isinstance(value, Piece):
        inside = ", ".join(f"{option}.{name}" for name in vars(value))
        cure = f"set one of its fields: {inside}" if inside else "it has no fields"
        raise UsageError(f"{option} is the piece {type(value).__name__}; {cure}")
    if parent is recipe:
        raise UsageError(f"{option} holds several pieces: set a field of one, {option}.0.NAME")
    return convert(text, get_type_hints(type(parent))[path.split(".")[-1]], option)


def own_options(info: MethodInfo) -> str:
    """The method's own options, as the end of a sentence."""
    return f" ({info.name}'s own: {', '.join(map(dashed, info.parameters)) or 'none'})"


def with_arguments(cls: type[Any], info: MethodInfo) -> type[Any]:
    """A command's dataclass with the method's own arguments as a group of options."""
    hints, helps = get_type_hints(info.build), described(info.doc)
    made = [
        (name, Annotated[hints[name], tyro.conf.arg(help=helps.get(name, ""))], field(default=x))
        for name, x in info.parameters.items()
    ]
    if not made:
        return cls
    group = make_dataclass(info.name, made, frozen=True)
    group.__doc__ = f"Arguments of {info.name}; any field as well: --recipe.PATH VALUE"
    hint = tyro.conf.OmitArgPrefixes[group]
    extra = [(info.name, hint, field(default_factory=group))]
    whole = make_dataclass(cls.__name__, extra, bases=(cls,), frozen=True)
    whole.__doc__ = cls.__doc__
    return whole


def described(doc: str) -> dict[str, str]:
    """Argument → what the docstring says of it: after `Parameters:`, in brackets or to a comma."""
    text = " ".join(doc.partition("Parameters:")[2].partition("Deviations:")[0].split())
    inside = r"\((?:[^()]|\([^()]*\))*\)"
    found = re.findall(rf"`(\w+)` ?(?:→ )?({inside}|[^`,.(]*)", text)
    bare = {name: said.strip(" ;").removeprefix("(").removesuffix(")") for name, said in found}
    return {name: said for name, said in bare.items() if not re.fullmatch(r"[\d.e∞-]*", said)}
