"""From a checkpoint to a folder that other software loads as it is: transformers, peft, servers."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anypo.backends.policies import resolved
from anypo.core.errors import UsageError, nearest

DTYPES = ("float32", "bfloat16", "float16")
MARK = "anypo_recipe.json"
"""The file by which a folder is known as an export, and may be written anew."""


@dataclass(frozen=True)
class Written:
    """What an export holds: its layout (`model`, `adapter` or `small`), and how weights are kept.

    `base` is what an adapter says it belongs to; `chat`: whether there is a chat template.
    """

    layout: str
    dtype: str
    base: str = ""
    chat: bool = False
    parameters: int = 0


def write(
    checkpoint: Path, target: Path, *, merge: bool, dtype: str, base: str, recipe: Any
) -> Written:
    """Write a checkpoint's policy to a folder, whole or not at all.

    Parameters
    ----------
    checkpoint : the folder of a checkpoint.
    target : the folder to write; one that an export wrote is replaced, another must be empty.
    merge : whether a LoRA adapter is added to the weights of its base.
    dtype : of the written weights.
    base : what the adapter shall name as its base, for where that is known by another name.
    recipe : the run's recipe as JSON, kept beside the weights.

    Raises `UsageError` for options that do not fit the checkpoint.
    """
    if dtype not in DTYPES:
        raise UsageError(f"dtype {dtype!r} is none of {', '.join(DTYPES)}{nearest(dtype, DTYPES)}")
    if target.exists() and any(target.iterdir()) and not (target / MARK).is_file():
        raise UsageError(f"{target} is not empty and holds no export: choose another --to")
    kind = _kind(checkpoint)
    if merge and kind is not _adapter:
        raise UsageError("the run trained all weights, there is no adapter to merge: leave it out")
    if base and (merge or kind is not _adapter):
        raise UsageError("base says what an adapter belongs to, and none is written: leave it out")
    partial = target.with_name(f".partial-{target.name}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        written = _merged(checkpoint, partial, dtype) if merge else None
        written = written or kind(checkpoint, partial, dtype, base, target)
        (partial / MARK).write_text(json.dumps(recipe, indent=1) + "\n")
        shutil.rmtree(target, ignore_errors=True)
        os.replace(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return written


def _kind(checkpoint: Path) -> Callable[[Path, Path, str, str, Path], Written]:
    if (checkpoint / "adapter_config.json").is_file():
        return _adapter
    config = json.loads((checkpoint / "config.json").read_text("utf-8"))
    return _small if config.get("kind") in ("control", "generator") else _model


def _small(checkpoint: Path, folder: Path, dtype: str, base: str, target: Path) -> Written:
    if dtype != "float32":
        raise UsageError("a control or generator policy is kept as it is, in float32")
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(checkpoint / name, folder / name)
    return Written("small", dtype)


def _model(checkpoint: Path, folder: Path, dtype: str, base: str, target: Path) -> Written:
    from anypo.backends.language_load import load_policy

    policy = load_policy(str(checkpoint), precision="float32")
    return _save(policy.net.causal, policy, folder, dtype, Written("model", dtype))


def _merged(checkpoint: Path, folder: Path, dtype: str) -> Written:
    from anypo.backends.language_load import load_policy

    policy = load_policy(str(checkpoint), precision="float32")
    module: Any = policy.module
    return _save(module.merge_and_unload(), policy, folder, dtype, Written("model", dtype))


def _save(causal: Any, policy: Any, folder: Path, dtype: str, written: Written) -> Written:
    """A whole model in the layout of transformers, with its tokenizer."""
    import torch

    causal.to(getattr(torch, dtype))
    causal.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    return _counted(written, causal, policy)


def _adapter(checkpoint: Path, folder: Path, dtype: str, base: str, target: Path) -> Written:
    import torch

    from anypo.backends.language_load import load_policy

    policy = load_policy(str(checkpoint), precision="float32")
    module: Any = policy.module
    module.to(getattr(torch, dtype))
    module.save_pretrained(folder, save_embedding_layers=False)
    policy.tokenizer.save_pretrained(folder)
    file = folder / "adapter_config.json"
    config = json.loads(file.read_text("utf-8"))
    found = base or _found(str(config["base_model_name_or_path"]))
    written = _counted(Written("adapter", dtype), module, policy)
    if not found:  # made on the spot: nobody else has it
        module.unload().save_pretrained(folder / "base")
        policy.tokenizer.save_pretrained(folder / "base")
    path = found or str((target / "base").resolve())
    config |= {"base_model_name_or_path": path, "revision": None}
    file.write_text(json.dumps(config, indent=2) + "\n")
    return replace(written, base=path)


def _counted(written: Written, module: Any, policy: Any) -> Written:
    own = "lora_" if written.layout == "adapter" else ""
    size = sum(p.numel() for name, p in module.named_parameters() if own in name)
    return replace(written, chat=bool(policy.tokenizer.chat_template), parameters=size)


def _found(name: str) -> str:
    """A base as peft finds it: an absolute path or a hub id; empty for one made on the spot.

    Weights that came out of a package are not those of the hub: they are named by their place.
    """
    hub, dequantised = origin(name)
    if dequantised:
        from anypo.backends import smollm2

        return str(smollm2.folder().resolve())
    folder = Path(resolved(name)).expanduser()
    return str(folder.resolve()) if folder.is_dir() else hub


def origin(name: str) -> tuple[str, bool]:
    """Of the policy that a run began with: its hub id, if any, and whether it was dequantised."""
    if name == "smollm2-135m":
        from anypo.backends import smollm2

        return smollm2.HUB_ID, "dequantised" in smollm2.source()
    is_hub_id = re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name, re.ASCII)
    return (name if is_hub_id and not Path(name).expanduser().exists() else ""), False
