"""What is checked before a run begins: every refusal says what to do instead."""

from __future__ import annotations

from typing import Any

import torch

from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.neutral import Groups
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
    if task.kind in ("language", "control", "generator"):
        _looks(recipe)
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
    now = "choose sft or psft, or give a reward function so that answers are sampled"
    then = "end this run before it, and begin the next one with --policy RUN"
    for n, stage in enumerate(recipe.stages):
        who, cure = ("a later phase of this recipe", then) if n else ("this recipe", now)
        for reason in _unfit(stage):
            raise UsageError(
                "the dataset holds one answer to each prompt, to be imitated, and "
                f"{who} {reason}: {cure}"
            )


def _unfit(stage: Recipe) -> list[str]:
    """What in a recipe speaks against demonstrations."""
    reasons = {
        "compares answers to one prompt": stage.sampling.group > 1,
        "asks for further answers": bool(stage.sampling.probes),
        "reads what a sampler recorded": any("logp_mu" in p.needs for p in stage.pieces),
        "reads what a reward function says": bool(stage.facts),
        "learns a critic, and all answers are worth 1": "value" in stage.modules(),
    }
    return [text for text, true in reasons.items() if true]


def _looks(recipe: Recipe) -> None:
    """A recipe for sampled answers must tell them apart, by their credit or by which it keeps."""
    for stage in recipe.stages:
        if type(stage.sampling) is Groups and not stage.reward and _alike(stage):
            raise UsageError(
                "all answers count alike in this recipe, so nothing is learned from those that "
                "the policy samples: give a dataset of demonstrations (prompt and completion, "
                "messages, or text) without a reward function, and begin the next run with "
                "--policy RUN; or choose raft, which imitates the best of several own answers"
            )


def _alike(recipe: Recipe) -> bool:
    """Whether bad and good answers to a prompt all get the same credit, above 0."""
    row = torch.arange(max(recipe.sampling.group, 2))
    ids = {"traj": row, "seq": row, "group": 0 * row, "prompt": 0 * row}
    columns = {name: row.double() / row.max() for name in ("reward", "score", "lot")}
    try:
        credit = recipe.advantage(Batch(columns, ids))
    except UsageError:  # it reads more than rewards
        return False
    return bool((credit == credit[0]).all() and credit[0] > 0)


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
    "preference": ("horizon", "temperature"),
    "demonstration": ("horizon", "temperature"),
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
