"""Weights of the small policies on disk, in Hugging Face layout: safetensors and a config."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from anypo.core.errors import UsageError

WEIGHTS, CONFIG = "model.safetensors", "config.json"


def save_module(module: nn.Module, folder: Path, config: Mapping[str, Any]) -> None:
    """Write `model.safetensors` and `config.json` into the folder, which is made if absent."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous() for k, v in module.state_dict().items()}, folder / WEIGHTS)
    (folder / CONFIG).write_text(json.dumps(dict(config), indent=2) + "\n")


def load_module(module: nn.Module, folder: Path) -> None:
    """Read `model.safetensors` into the module, in place.

    Raises `UsageError` for a folder without that file, a truncated file, or the weights of
    another model; the module is then as it was.
    """
    path = folder / WEIGHTS
    if not path.is_file():
        raise UsageError(f"{folder} holds no {WEIGHTS}; name a folder that anypo saved")
    try:
        weights = load_file(path)
    except SafetensorError as error:
        raise UsageError(f"{path} is truncated or no safetensors file ({error})") from error
    own = module.state_dict()
    odd = sorted(
        k
        for k in own.keys() | weights.keys()
        if k not in own or k not in weights or own[k].shape != weights[k].shape
    )
    if odd:
        raise UsageError(
            f"{path} holds the weights of another model: {', '.join(odd[:3])} do not match; "
            "use the policy and the sizes that it was saved with"
        )
    module.load_state_dict(weights)
