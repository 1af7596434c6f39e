"""A reward model: a sequence classifier with one output, in Hugging Face layout."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from anypo.backends import classifier
from anypo.core.errors import UsageError
from anypo.tasks.task import Prompt, Row


class RewardModel:
    """Scores completions by a sequence classifier with one output: its logit is the reward.

    Prompt and answer are written by the model's own chat template; without one they follow each
    other. Which token is read is the architecture's rule in transformers: the last that is no
    padding. An answer that does not fit the model's context is not scorable.

    Parameters
    ----------
    source : a folder, the folder of a run of `bradley_terry`, or a hub id.
    batch : texts of one forward pass (default 16).
    name : of its curve (default the folder's).

    Raises `UsageError` for a model that cannot be loaded, has no trained head, or has several
    outputs.
    """

    required = True

    def __init__(self, source: str, batch: int = 16, name: str = "") -> None:
        from transformers import AutoModelForSequenceClassification

        place, short = classifier.place_of(source)
        self.name, self.label, self.batch = f"the reward model {source}", name or short, batch
        self.model, self.tokenizer = classifier.load(
            AutoModelForSequenceClassification, place, source
        )
        outputs = self.model.config.num_labels
        if outputs != 1:
            raise UsageError(
                f"{source!r} has {outputs} outputs, a reward model has 1: name another model"
            )
        self._version = classifier.version_of(place, self.model)

    @property
    def version(self) -> str:
        """A hash of the model's files."""
        return self._version

    def check(self, columns: Iterable[str]) -> None:
        """It needs no column."""

    def __call__(
        self,
        prompts: Sequence[Prompt],
        completions: Sequence[str],
        rows: Sequence[Row],
        completion_ids: Sequence[Sequence[int]] | None = None,
    ) -> list[float]:
        """The logit of each completion, NaN for one that does not fit."""
        pairs = zip(prompts, completions, strict=True)
        ids = [classifier.encoded(self.tokenizer, p, c) for p, c in pairs]
        return classifier.logits(self.model, ids, self.batch)


# ── writing one ──────────────────────────────────────────────────────────────────────────────────


def save_reward_model(policy: Any, head: nn.Module, folder: Path) -> None:
    """Write a language policy and its reward head as a sequence classifier with its tokenizer.

    Whoever renders a conversation by the tokenizer's chat template and asks the model, as users of
    transformers and of vLLM do, reads the state on which the head was trained: the template is cut
    before the token that ends the answer, and this token is called padding, so that it is not read
    either where text without a template ends with it. A bias of the head is left out: a constant
    changes no preference.

    Raises `UsageError` for an architecture without a classifier.
    """
    from transformers import AutoModelForSequenceClassification

    causal = _merged(policy)
    config = copy.deepcopy(causal.config)
    config.num_labels = 1
    tokenizer, end = _tokenizer(policy)
    config.pad_token_id = config.get_text_config().pad_token_id = end
    try:
        with torch.random.fork_rng(devices=[]):
            model: Any = AutoModelForSequenceClassification.from_config(config)
    except ValueError as error:
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"{policy.name} cannot be saved as a reward model: transformers has no sequence "
            f"classifier of its architecture ({reason[:120]}); train another policy"
        ) from None
    getattr(model, model.base_model_prefix).load_state_dict(causal.get_decoder().state_dict())
    with torch.no_grad():
        model.score.weight.copy_(head.weight)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


SAMPLE = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]


def _merged(policy: Any) -> Any:
    """The policy's causal model, an adapter's weights added to a copy."""
    if not policy.lora:
        return policy.module
    return copy.deepcopy(policy.module).merge_and_unload()


def _tokenizer(policy: Any) -> tuple[Any, int]:
    """The tokenizer of the classifier, and the token that counts as padding: an answer's end."""
    tokenizer = copy.deepcopy(policy.tokenizer)
    end = tokenizer.eos_token_id if tokenizer.eos_token_id in policy.ends else min(policy.ends)
    if tokenizer.chat_template:
        whole = str(tokenizer.apply_chat_template(SAMPLE, tokenize=False)).rstrip()
        last = tokenizer(whole, add_special_tokens=False)["input_ids"][-1]
        end = last if last in tokenizer.all_special_ids else end
        word = tokenizer.convert_ids_to_tokens(end)
        cut = "{{ said.rstrip().removesuffix(" + json.dumps(word) + ") }}"
        written = tokenizer.chat_template
        tokenizer.chat_template = "{% set said %}" + written + "{% endset %}" + cut
        said = tokenizer.apply_chat_template(SAMPLE, tokenize=False)
        if said != whole.removesuffix(word):  # a template that cannot stand in another
            tokenizer.chat_template = written
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(end)
    return tokenizer, end
