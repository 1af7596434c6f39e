"""Hugging Face classifiers that score texts: loading them, and the token ids they read."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anypo.core.errors import UsageError
from anypo.tasks.task import Prompt

FOLDER = "reward_model"
"""Where a run keeps the reward model that it trained."""

HASHED = (".safetensors", ".json", ".jinja")


def place_of(source: str) -> tuple[str, str]:
    """A folder or hub id to load from, and a short name for it; a run's folder is its model.

    Raises `UsageError` for a run that holds no reward model.
    """
    folder = Path(source).expanduser()
    if not (folder / "anypo.json").is_file():
        return (str(folder) if folder.is_dir() else source), folder.name
    if not (folder / FOLDER / "config.json").is_file():
        raise UsageError(
            f"{folder} holds a run, but no reward model: train one with bradley_terry, to its end"
        )
    return str(folder / FOLDER), folder.resolve().name


def architecture(place: str) -> str:
    """What the config of a folder says that its model is; empty for a hub id."""
    file = Path(place) / "config.json"
    if not file.is_file():
        return ""
    return str((json.loads(file.read_text("utf-8")).get("architectures") or [""])[0])


def load(kind: Any, place: str, source: str) -> tuple[Any, Any]:
    """Model and tokenizer; safetensors only, and nothing may be missing.

    Parameters: `kind` (a class of transformers such as `AutoModelForSequenceClassification`),
    `place` (from where), `source` (what the user wrote, for errors).
    """
    from safetensors import SafetensorError
    from transformers import AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    before = logging.get_verbosity()
    logging.set_verbosity_error()  # what is missing is said below, in one sentence
    try:
        options = {"dtype": torch.float32, "use_safetensors": True}
        model, facts = kind.from_pretrained(place, output_loading_info=True, **options)
        tokenizer = AutoTokenizer.from_pretrained(place)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(
            f"the reward model {source!r} cannot be loaded ({reason}): name a folder with a "
            "classifier's config.json, model.safetensors and tokenizer, or a hub id"
        ) from None
    finally:
        logging.set_verbosity(before)
    odd = sorted(map(str, [*facts["missing_keys"], *facts["mismatched_keys"]]))
    if odd:
        raise UsageError(
            f"{source!r} is no reward model, its head is missing ({', '.join(odd[:3])}): train one "
            "with bradley_terry, or name another"
        )
    model.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    return model.requires_grad_(False), tokenizer


def version_of(place: str, model: Any) -> str:
    """SHA-256 of the files of a folder; of a hub id its commit."""
    folder = Path(place)
    if not folder.is_dir():
        return f"{place}@{getattr(model.config, '_commit_hash', '')}"
    total = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.suffix in HASHED:
            with open(file, "rb") as handle:
                total.update(hashlib.file_digest(handle, "sha256").digest())
    return total.hexdigest()


def encoded(tokenizer: Any, prompt: Prompt, completion: str) -> list[int]:
    """Token ids of a prompt and its answer, as the model's own chat template writes a conversation.

    Without a template the answer follows the prompt at once; a tokenizer that marks pairs (BERT's
    and its kin) gets the two as a pair.
    """
    if tokenizer.chat_template:
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        whole = [*messages, {"role": "assistant", "content": completion}]
        return list(tokenizer.apply_chat_template(whole, tokenize=True, return_dict=False))
    said = _said(prompt)
    if tokenizer.cls_token_id is not None and tokenizer.sep_token_id is not None:
        return list(tokenizer(said, completion)["input_ids"])
    rest = tokenizer(completion, add_special_tokens=False)["input_ids"]
    return [*tokenizer(said)["input_ids"], *rest]


def asked(tokenizer: Any, prompt: Prompt) -> list[int]:
    """Token ids of a prompt, up to where its answer begins."""
    if tokenizer.chat_template:
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        options = {"add_generation_prompt": True, "tokenize": True, "return_dict": False}
        return list(tokenizer.apply_chat_template(messages, **options))
    return list(tokenizer(_said(prompt))["input_ids"])


def _said(prompt: Prompt) -> str:
    return prompt if isinstance(prompt, str) else "\n".join(m["content"] for m in prompt)


def logits(model: Any, ids: Sequence[Sequence[int]], size: int) -> list[float]:
    """The first output of a sequence classifier for rows of token ids, `size` at a time.

    NaN for an empty row, and for one that is longer than the model reads.
    """
    out = [math.nan] * len(ids)
    fits = [i for i, row in enumerate(ids) if 0 < len(row) <= longest(model)]
    pad = model.config.get_text_config().pad_token_id
    size = 1 if pad is None else size  # without padding there is no rule for several
    for part in batches([ids[i] for i in fits], size):
        chosen = [fits[k] for k in part]
        inputs = padded([ids[i] for i in chosen], pad or 0, model.device)
        with torch.no_grad():
            found = model(**inputs).logits[:, 0].double().tolist()
        for i, value in zip(chosen, found):
            out[i] = value
    return out


def batches(rows: Sequence[Sequence[int]], size: int) -> Iterator[list[int]]:
    """Numbers of rows, those of like length together, `size` at a time."""
    order = sorted(range(len(rows)), key=lambda i: (len(rows[i]), i))
    for start in range(0, len(order), size):
        yield order[start : start + size]


def padded(rows: Sequence[Sequence[int]], pad: int, device: Any) -> dict[str, Tensor]:
    """`input_ids` and `attention_mask` of rows, filled up on the right."""
    longest = max(len(row) for row in rows)
    ids = torch.full((len(rows), longest), pad)
    mask = torch.zeros((len(rows), longest), dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
        mask[i, : len(row)] = 1
    return {"input_ids": ids.to(device), "attention_mask": mask.to(device)}


def longest(model: Any) -> int:
    """Most tokens that the model reads."""
    return int(getattr(model.config, "max_position_embeddings", 0) or 1 << 30)
