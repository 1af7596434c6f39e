"""What is checked before a run begins: every refusal says what to do instead."""

from __future__ import annotations

from typing import Any

from anypo.core.errors import UsageError
from anypo.core.recipe import Recipe
from anypo.engine.settings import Settings


def validate(recipe: Recipe, task: Any, policy: Any, settings: Settings) -> None:
    """Raise `UsageError` unless recipe, task and policy fit together."""
    recipe.check()
    wants = "language" if task.kind in ("preference", "demonstration") else task.kind
    if wants != policy.kind:
        raise UsageError(
            f"task {task.name!r} is of kind {task.kind}, policy {policy.name!r} of kind "
            f"{policy.kind}: choose a {wants} policy"
        )
    _offers(recipe, policy)
    if task.kind == "preference" and recipe.sampling.group != 2:
        raise UsageError("a dataset of chosen and rejected answers needs a recipe on pairs: dpo")
    if task.kind == "demonstration":
        _imitates(recipe)
    _lengths(recipe, settings, task)
    _unused(task, settings)


def _offers(recipe: Recipe, policy: Any) -> None:
    wanted = recipe.frozen_needs | frozenset().union(*(o.live for o in recipe.objectives))
    bases = {c.split(".")[2] if c.count(".") == 2 else c for c in wanted}
    bases = {"logp" if c.startswith("ref.") else c.removesuffix("_old") for c in bases}
    owned = set(recipe.modules()) if "value" in policy.offers else set()  # it evaluates heads
    for column in sorted(bases - policy.offers - owned - {"score_norm"}):  # made of gradients
        readers = {type(p).__name__ for p in recipe.pieces if any(column in n for n in p.needs)}
        raise UsageError(
            f"{' and '.join(sorted(readers))} want{'s' * (len(readers) == 1)} the column "
            f"{column!r}, and policy {policy.name!r} offers only "
            f"{', '.join(sorted(policy.offers))}: choose another policy, or drop that piece"
        )


def _imitates(recipe: Recipe) -> None:
    """A recipe for demonstrations wants one answer per prompt, and nothing of a sampler's."""
    pieces = [p for stage in recipe.stages for p in stage.pieces]
    reasons = {
        "compares answers to one prompt": any(s.sampling.group > 1 for s in recipe.stages),
        "asks for further answers": any(s.sampling.probes for s in recipe.stages),
        "reads what a sampler recorded": any("logp_mu" in p.needs for p in pieces),
        "reads what a reward function says": bool(recipe.facts),
        "learns a critic, and all answers are worth 1": "value" in recipe.modules(),
    }
    for reason in (text for text, true in reasons.items() if true):
        raise UsageError(
            f"the dataset holds one answer to each prompt, to be imitated, and this recipe "
            f"{reason}: choose psft, or give a reward function so that answers are sampled"
        )


def _lengths(recipe: Recipe, settings: Settings, task: Any) -> None:
    horizon = settings.horizon or getattr(task, "horizon", 0)
    for piece in recipe.reward:
        limit = getattr(piece, "limit", 0)
        if limit and horizon and limit > horizon:
            raise UsageError(
                f"{type(piece).__name__}(limit={limit}) lies above the horizon {horizon}: it could "
                "never act; lower it, or raise --horizon"
            )


UNUSED = {
    "control": ("eval_every", "eval_size", "record_every"),
    "generator": ("horizon", "temperature", "eval_every", "eval_size", "record_every"),
    "preference": ("horizon", "temperature", "eval_every", "eval_size"),
    "demonstration": ("horizon", "temperature", "eval_every", "eval_size"),
    "language": (),
}
"""Kind of a task → settings that nothing there reads."""


def _unused(task: Any, settings: Settings) -> None:
    plain = Settings()
    for name in UNUSED[task.kind]:
        if getattr(settings, name) != getattr(plain, name):
            raise UsageError(
                f"{name}={getattr(settings, name)} has no effect on task {task.name!r} "
                f"(kind {task.kind}): leave it out"
            )
