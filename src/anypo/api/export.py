"""`export`: from a run to a folder that other software loads as it is, with a model card."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from anypo.backends.export import origin, write
from anypo.backends.policies import run_of
from anypo.core.errors import UsageError
from anypo.engine import checkpoint as checkpoints
from anypo.report.card import Export, write_card
from anypo.report.run import RunData, load

LICENSES = {"smollm2-135m": "apache-2.0"}
"""Policies whose licence is known here."""


def export(
    run: Any,
    to: str | Path = "",
    *,
    merge: bool = False,
    checkpoint: int = 0,
    dtype: str = "float32",
    base: str = "",
    license: str = "",
    push: str = "",
    private: bool = False,
    notice: Callable[[str], None] = lambda text: None,
) -> Path:
    """Write a run's policy for transformers, peft and servers to load, and its model card.

    Parameters
    ----------
    run : a run's folder, one of its checkpoints, or a finished `Run`.
    to : the folder to write (default `export` inside the run's). An earlier export is replaced.
    merge : add a LoRA adapter to the weights of its base; else it stays an adapter, as peft has it.
    checkpoint : the iteration of a checkpoint (0 = the last).
    dtype : of the weights, `float32`, `bfloat16` or `float16`.
    base : what an adapter shall name as its base (default: where that lies, or its hub id).
    license : an identifier for the card, such as `apache-2.0`.
    push : also upload to the Hugging Face hub, as `user/name`. private : make that private.
    notice : called with sentences for a person.

    Returns the folder. Raises `UsageError` for anything a user can mend; the folder is written
    whole or not at all, and stays when an upload fails.
    """
    given = Path(str(getattr(run, "out", run))).expanduser()
    folder = run_of(str(given))
    if folder is None:
        raise UsageError(f"{given} is no run: name a folder that anypo train wrote")
    if private and not push:
        raise UsageError("private acts on push alone: give push=user/name, or leave it out")
    if push:
        from anypo.backends.hub import check_repo

        check_repo(push)
    source = _checkpoint(folder, given, checkpoint)
    target = Path(to).expanduser() if to else folder / "export"
    data = load(folder, completions=False)
    recipe = data.facts.get("recipe", {})
    written = write(source, target, merge=merge, dtype=dtype, base=base, recipe=recipe)
    if push and written.layout == "adapter" and Path(written.base).is_absolute():
        raise UsageError(
            f"the adapter belongs to {written.base}, which nobody else has: merge it, or name its "
            f"base on the hub with base. {target} is complete"
        )
    write_card(data, _facts(data, source, written, license, push), target)
    notice(f"{written.layout} of {source.name} in {written.dtype}: {target}")
    if push:
        from anypo.backends import hub

        notice(f"pushed to {hub.push(target, push, private=private)}")
    return target


def _checkpoint(folder: Path, given: Path, step: int) -> Path:
    """The checkpoint that is meant; `UsageError` names those that are there."""
    there = checkpoints.found(folder)
    if not there:
        raise UsageError(f"{folder} has no checkpoint yet: let the run write one")
    if not step:
        return there[-1] if given.resolve() == folder.resolve() else given
    wanted = folder / f"checkpoint-{step}"
    if wanted not in there:
        known = ", ".join(p.name.partition("-")[2] for p in there)
        raise UsageError(f"{folder} keeps no checkpoint {step}: there are {known}")
    return wanted


def _facts(data: RunData, source: Path, written: Any, license: str, repo: str) -> Export:
    policy = str(data.facts.get("policy", {}).get("name", ""))
    task = str(data.facts.get("task", {}).get("name", ""))
    method = str(data.facts.get("method", ""))
    began, dequantised = origin(policy)
    return Export(
        name=repo.partition("/")[2] or "-".join(filter(None, (Path(policy).name, method, task))),
        step=int(source.name.partition("-")[2]),
        layout=written.layout,
        dtype=written.dtype,
        base=written.base,
        chat=written.chat,
        parameters=written.parameters,
        origin=began,
        dequantised=dequantised,
        license=license or LICENSES.get(policy, ""),
        repo=repo,
    )
