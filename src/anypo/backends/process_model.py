"""A process reward model: a classifier that says of every step of an answer how good it is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch

from anypo.backends import classifier
from anypo.core.errors import UsageError
from anypo.core.score import Score
from anypo.tasks.task import Prompt, Row


class ProcessModel:
    """Scores the steps of completions; the score of the whole is made of theirs.

    Each score reports `steps`, one number for each part of the answer that ends with the marker,
    cut as the piece `Split` cuts it: `Place("steps")` puts them on the ends of the parts.

    A token classifier (as TRL's PRM trainer saves one: two labels, read at the last token of each
    step) says how probable it is that a step is right; one with a single output says a number. A
    sequence classifier with one output is asked about each beginning of the answer.

    Parameters
    ----------
    source : a folder or hub id.
    marker : text at the end of a step (default a line break, TRL's separator; a last step without
        it is scored with it).
    reduce : what the score is: the `min` of the steps (default, of 2312.08935), their `prod`uct (of
        2305.20050), their `mean`, or the `last`.
    batch : texts of one forward pass (default 16).
    name : of its curve (default the folder's).

    An answer that does not fit the model's context, and one without a step, is not scorable.
    Raises `UsageError` for a model that is neither kind of classifier.
    """

    required = True

    def __init__(
        self,
        source: str,
        marker: str = "\n",
        reduce: Literal["min", "prod", "mean", "last"] = "min",
        batch: int = 16,
        name: str = "",
    ) -> None:
        if reduce not in REDUCE:
            raise UsageError(f"reduce={reduce!r}: it must be one of {', '.join(REDUCE)}")
        if not marker:
            raise UsageError(
                "marker is empty: name the text that ends a step, such as a line break"
            )
        self.marker, self.reduce, self.batch = marker, reduce, batch
        place, short = classifier.place_of(source)
        self.name, self.label = f"the process model {source}", name or short
        self.tokens = "TokenClassification" in classifier.architecture(place)
        self.model, self.tokenizer = classifier.load(_kind(self.tokens), place, source)
        most = 2 if self.tokens else 1
        if not 1 <= self.model.config.num_labels <= most:
            raise UsageError(
                f"{source!r} has {self.model.config.num_labels} outputs; a process model has {most}"
                f"{' at most' * self.tokens}: name another model"
            )
        self._version = classifier.version_of(place, self.model)

    @property
    def version(self) -> str:
        """A hash of the model's files, and how steps are cut and reduced."""
        return f"{self._version} {self.marker!r} {self.reduce}"

    def check(self, columns: Iterable[str]) -> None:
        """It needs no column."""

    def __call__(
        self,
        prompts: Sequence[Prompt],
        completions: Sequence[str],
        rows: Sequence[Row],
        completion_ids: Sequence[Sequence[int]] | None = None,
    ) -> list[float]:
        """The reduced score of each completion, with the fact `steps`."""
        parts = [cut(text, self.marker) for text in completions]
        read = self._by_token if self.tokens else self._by_beginning
        found = read([(p, s) for p, s in zip(prompts, parts, strict=True)])
        return [self._score(steps) for steps in found]

    def _score(self, steps: list[float]) -> float:
        if not steps or any(math.isnan(x) for x in steps):
            return math.nan
        return Score(REDUCE[self.reduce](steps), {"steps": steps})

    def _by_beginning(self, asked: Sequence[tuple[Prompt, list[str]]]) -> list[list[float]]:
        texts = [(p, "".join(s[: k + 1])) for p, s in asked for k in range(len(s))]
        ids = [classifier.encoded(self.tokenizer, prompt, text) for prompt, text in texts]
        logits = iter(classifier.logits(self.model, ids, self.batch))
        return [[next(logits) for _ in steps] for _, steps in asked]

    def _by_token(self, asked: Sequence[tuple[Prompt, list[str]]]) -> list[list[float]]:
        rows = [self._encode(prompt, steps) for prompt, steps in asked]
        out: list[list[float]] = [[math.nan] * len(places) for _, places in rows]
        most = classifier.longest(self.model)
        fits = [i for i, (ids, places) in enumerate(rows) if places and len(ids) <= most]
        for part in classifier.batches([rows[i][0] for i in fits], self.batch):
            chosen = [fits[k] for k in part]
            inputs = classifier.padded([rows[i][0] for i in chosen], 0, self.model.device)
            with torch.no_grad():
                logits = self.model(**inputs).logits.double()
            for line, i in zip(logits, chosen):
                out[i] = _right(line[rows[i][1]])
        return out

    def _encode(self, prompt: Prompt, steps: Sequence[str]) -> tuple[list[int], list[int]]:
        """Token ids of prompt and steps, and the place of the last token of each step."""
        ids = classifier.asked(self.tokenizer, prompt)
        places = []
        for step in steps:
            whole = step if step.endswith(self.marker) else step + self.marker
            ids = [*ids, *self.tokenizer(whole, add_special_tokens=False)["input_ids"]]
            places.append(len(ids) - 1)
        return ids, places


def cut(text: str, marker: str) -> list[str]:
    """The parts of a text, each with the marker that ends it; the last may have none."""
    parts = text.split(marker)
    whole = [part + marker for part in parts[:-1]]
    return [*whole, parts[-1]] if parts[-1] else whole


def _kind(tokens: bool) -> Any:
    import transformers

    names = ("AutoModelForSequenceClassification", "AutoModelForTokenClassification")
    return getattr(transformers, names[tokens])


def _right(logits: torch.Tensor) -> list[float]:
    """How probable the second of two labels is, or the single output as it is."""
    values = logits.softmax(-1)[:, 1] if logits.shape[-1] == 2 else logits[:, 0]
    return values.tolist()


REDUCE = {
    "min": min,
    "prod": math.prod,
    "mean": lambda steps: math.fsum(steps) / len(steps),
    "last": lambda steps: steps[-1],
}
