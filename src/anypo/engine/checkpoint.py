"""Checkpoints: Hugging Face layout, safetensors only, whole or not there at all."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from anypo.core.clock import span
from anypo.core.errors import UsageError
from anypo.engine.state import State

KEPT = 2
COUNTERS = ("step", "cursor", "idle", "tokens")


def found(out: Path) -> list[Path]:
    """The checkpoints of a run directory, oldest first."""
    folders = [p for p in out.glob("checkpoint-*") if re.fullmatch(r"checkpoint-\d+", p.name)]
    return sorted(folders, key=lambda p: int(p.name.split("-")[1]))


def save(state: State, out: Path) -> Path:
    """Write `checkpoint-N` beside the others and keep the last two.

    Everything is written under another name and renamed at the end, so that a checkpoint is never
    half there. Raises `UsageError` when the disk is full; older checkpoints stay.
    """
    with span("checkpoint"):
        return _save(state, out)


def _save(state: State, out: Path) -> Path:
    final, partial = out / f"checkpoint-{state.step}", out / f".partial-{state.step}"
    shutil.rmtree(partial, ignore_errors=True)
    _want_room(state, out)
    try:
        partial.mkdir(parents=True)
        _write(state, partial)
        for file in partial.iterdir():
            with open(file, "rb") as handle:
                os.fsync(handle.fileno())
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        if error.errno == errno.ENOSPC:
            raise UsageError(_full(out)) from None
        raise
    if final.exists():
        shutil.rmtree(final)
    os.replace(partial, final)
    for old in found(out)[:-KEPT]:
        shutil.rmtree(old)
    return final


@contextmanager
def rescued(state: State, out: Path) -> Iterator[None]:
    """Save what was reached when collecting fails (a reward function, say) or is interrupted.

    Between updates the state is that of a finished iteration, but for the prompts just asked for.
    """
    before = state.cursor, state.tokens
    try:
        yield
    except (UsageError, KeyboardInterrupt):
        state.cursor, state.tokens = before
        if state.step and (not found(out) or found(out)[-1].name != f"checkpoint-{state.step}"):
            save(state, out)
        raise


def _want_room(state: State, out: Path) -> None:
    tensors = [*state.policy.module.parameters(), *state.heads.parameters()]
    size = sum(p.numel() * p.element_size() * (3 if p.requires_grad else 1) for p in tensors)
    out.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(out).free < size * 1.05:
        raise UsageError(f"{_full(out)} (a checkpoint needs {size / 1e9:.2f} GB)")


def _full(out: Path) -> str:
    return f"no space left on the disk of {out}: free some, then run the same command to go on"


def _write(state: State, folder: Path) -> None:
    state.policy.save(folder)
    heads = {k: v.contiguous() for k, v in state.heads.state_dict().items()}
    save_file(heads, folder / "heads.safetensors")
    save_file(_moments(state), folder / "optimizer.safetensors")
    kept = {n: r for n in sorted(state.refreshed) if (r := state.references[n])}
    references = {f"{n}/{k}": t.contiguous() for n, r in kept.items() for k, t in r.items()}
    save_file(references, folder / "references.safetensors")
    facts = {name: getattr(state, name) for name in COUNTERS}
    facts |= {"refreshed": sorted(state.refreshed), "pieces": state.pieces}
    (folder / "trainer_state.json").write_text(json.dumps(facts, indent=1))


def _moments(state: State) -> dict[str, Tensor]:
    return {
        f"{i}/{k}/{name}": t.contiguous()
        for i, optimizer in enumerate(state.optimizers)
        for k, moments in optimizer.state_dict()["state"].items()
        for name, t in moments.items()
    }


def load(state: State, out: Path) -> bool:
    """Put the newest checkpoint of a run into a freshly started state; whether there was one."""
    folders = found(out)
    if not folders:
        return False
    folder = folders[-1]
    try:
        _read(state, folder)
    except (OSError, SafetensorError, ValueError, KeyError, RuntimeError) as error:
        raise UsageError(
            f"{folder} cannot be read ({str(error).splitlines()[0]}): it is damaged or of another "
            "run; remove that folder to go on from the one before, or choose another --out"
        ) from None
    return True


def _read(state: State, folder: Path) -> None:
    facts: dict[str, Any] = json.loads((folder / "trainer_state.json").read_text())
    state.policy.load(folder)
    state.heads.load_state_dict(load_file(folder / "heads.safetensors"))
    moments = load_file(folder / "optimizer.safetensors")
    for i, optimizer in enumerate(state.optimizers):
        kept: dict[int, dict[str, Tensor]] = {}
        for name, tensor in moments.items():
            which, k, field = name.split("/")
            if int(which) == i:
                kept.setdefault(int(k), {})[field] = tensor
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": kept, "param_groups": groups})
    for name, tensor in load_file(folder / "references.safetensors").items():
        reference, key = name.split("/", 1)
        if reference not in state.refreshed:
            state.references[reference] = {}
            state.refreshed.add(reference)
        held = state.references[reference]
        assert held is not None
        held[key] = tensor
    state.pieces = facts["pieces"]
    for name in COUNTERS:
        setattr(state, name, facts[name])
