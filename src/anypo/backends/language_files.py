"""Language models on disk: Hugging Face layout, safetensors only, read back in place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from anypo.core.errors import UsageError

WEIGHTS, ADAPTER = "model.safetensors", "adapter_model.safetensors"
INDEX = "model.safetensors.index.json"


def read(folder: Path, name: str = WEIGHTS) -> dict[str, Tensor]:
    """The tensors of a checkpoint, in one file or in the shards that an index names.

    Raises `UsageError` for an absent, truncated or foreign file.
    """
    index = folder / INDEX
    files = [folder / name]
    if not files[0].is_file() and name == WEIGHTS and index.is_file():
        shards = json.loads(index.read_text())["weight_map"].values()
        files = [folder / shard for shard in sorted(set(shards))]
    tensors: dict[str, Tensor] = {}
    for path in files:
        if not path.is_file():
            raise UsageError(
                f"{folder} holds no {path.name}: name a folder with a complete checkpoint"
            )
        try:
            tensors |= load_file(path)
        except SafetensorError as error:
            raise UsageError(
                f"{path} is truncated or no safetensors file ({error}): take another checkpoint, "
                "or fetch it again"
            ) from error
    return tensors


def fill(own: Mapping[str, Tensor], read: Mapping[str, Tensor], folder: Path) -> None:
    """Copy what was read over a model's own tensors, all of them or none.

    Raises `UsageError` when names or shapes differ: the weights are those of another model.
    """
    odd = sorted(
        name
        for name in own.keys() | read.keys()
        if name not in own or name not in read or own[name].shape != read[name].shape
    )
    if odd:
        raise UsageError(
            f"{folder} holds the weights of another model: {', '.join(odd[:3])} do not match; use "
            "the policy, and the LoRA rank, that it was saved with"
        )
    with torch.no_grad():
        for name, x in own.items():
            x.copy_(read[name])


def distinct(module: nn.Module) -> dict[str, Tensor]:
    """A module's parameters and persistent buffers by name, each tied tensor once."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, x in module.state_dict(keep_vars=True).items():
        found.setdefault(id(x), (name, x))
    return dict(found.values())


def save_model(causal: Any, folder: Path) -> None:
    """`model.safetensors`, `config.json` and `generation_config.json`."""
    causal.save_pretrained(folder)


def load_model(causal: Any, folder: Path) -> None:
    """Read the weights of a model back, in place and strictly."""
    tensors = read(folder)
    own = distinct(causal)
    names = {id(x): name for name, x in own.items()}
    twins = {
        name: names[id(x)]
        for name, x in causal.state_dict(keep_vars=True).items()
        if id(x) in names
    }
    # a file may hold a tied tensor under either of its names, or under both
    renamed = {twins.get(name, name): x for name, x in tensors.items()}
    fill(own, renamed, folder)


def load_adapter(peft_model: Any, folder: Path) -> None:
    """Read the weights of a LoRA adapter back, in place and strictly."""
    from peft.utils import get_peft_model_state_dict

    # peft would otherwise ask the hub whether the embeddings of the base model were changed
    own = get_peft_model_state_dict(peft_model, save_embedding_layers=False)
    fill(own, read(folder, ADAPTER), folder)
