"""Language policies by name: the built-in ones, a folder, a hub id, an adapter."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from anypo.backends import smollm2, tiny
from anypo.backends.transformers import HFPolicy
from anypo.core.errors import UsageError, nearest

NAMES = ("smollm2-135m", "tiny")


def load_policy(name: str, *, lora: int = 0, precision: str = "", seed: int = 0) -> HFPolicy:
    """A language policy by name: `smollm2-135m`, `tiny`, a folder, or a hub id (`owner/model`).

    Parameters
    ----------
    name : as above. A folder may hold a model or a LoRA adapter, as `HFPolicy.save` writes them.
    lora : rank of a fresh adapter; 0 trains all weights.
    precision : see `HFPolicy`; `tiny` takes float32 unless told otherwise.
    seed : of the weights of `tiny`, and of the adapter.

    Raises `UsageError` for a name that is none of these, and whatever its source raises.
    """
    logging.disable_progress_bar()  # a run has its own, and a policy is loaded in a second
    if name == "tiny":
        lr = tiny.LR_LORA if lora else tiny.LR
        precision = precision or "float32"
        made = tiny.model(seed), tiny.tokenizer()
        return HFPolicy(*made, name=name, lora=lora, precision=precision, lr=lr, seed=seed)
    if name == "smollm2-135m":
        made = _from_pretrained(str(smollm2.folder()), name)
        return HFPolicy(*made, name=name, lora=lora, precision=precision, seed=seed)
    folder = Path(name).expanduser()
    if (folder / "adapter_config.json").is_file():
        return _from_adapter(folder, lora, precision, seed)
    if not folder.is_dir() and not _is_hub_id(name):
        raise UsageError(
            f"unknown policy {name!r}{nearest(name, NAMES)}: give {', '.join(NAMES)}, a folder "
            "with a model, or a hub id such as Qwen/Qwen3-0.6B"
        )
    made = _from_pretrained(str(folder) if folder.is_dir() else _source(name), name)
    lr = 0.0 if lora else float(getattr(made[0].config, "anypo_lr", 0.0))
    return HFPolicy(*made, name=name, lora=lora, precision=precision, lr=lr, seed=seed)


def _source(hub_id: str) -> str:
    """The hub id where the hub answers, else the folder where it was fetched before."""
    if smollm2.hub_answers(hub_id):
        return hub_id
    kept = try_to_load_from_cache(hub_id, "config.json")
    if isinstance(kept, str):
        return str(Path(kept).parent)
    raise UsageError(
        f"policy {hub_id!r} is not on this machine and the Hugging Face hub does not answer for "
        "it: check the name and the connection, or give a folder with the model"
    )


def _from_pretrained(source: str, name: str) -> tuple[Any, Any]:
    """Model and tokenizer of a folder or hub id; safetensors only, and nothing may be missing."""
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
        )
        tokenizer = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UsageError(
            f"policy {name!r} cannot be loaded ({reason}): a folder must hold config.json, "
            "model.safetensors and a tokenizer, all complete"
        ) from error
    causal, facts = loaded
    odd = sorted(map(str, [*facts["missing_keys"], *facts["mismatched_keys"]]))
    if odd:
        raise UsageError(
            f"the weights of policy {name!r} do not fit its config: {', '.join(odd[:3])} are "
            "missing or of another shape; fetch or save the model again"
        )
    return causal, tokenizer


def _from_adapter(folder: Path, lora: int, precision: str, seed: int) -> HFPolicy:
    """The base model that an adapter names, with that adapter."""
    written = json.loads((folder / "adapter_config.json").read_text())
    base, rank = written["base_model_name_or_path"], written["r"]
    if lora not in (0, rank):
        raise UsageError(f"{folder} holds an adapter of rank {rank}: leave lora out, or give that")
    seed = int(written.get("revision") or seed)
    policy = load_policy(base, lora=rank, precision=precision, seed=seed)
    policy.load(folder)
    return policy


def _is_hub_id(name: str) -> bool:
    return re.fullmatch(r"[\w.-]+/[\w.-]+", name) is not None and not name.startswith(".")
