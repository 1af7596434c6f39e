"""Rollouts of language policies: prompts in the task's order, answers sampled and scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch

from anypo.core.batch import Batch
from anypo.core.clock import span
from anypo.core.request import Request
from anypo.core.rng import key
from anypo.core.score import Score
from anypo.policies.policy import Completion, LanguagePolicy

Row = dict[str, Any]


class LanguageTask(Protocol):
    """What a rollout needs of a language task."""

    train: Sequence[Row]

    def order(self, position: int, seed: int) -> int:
        """The row of `train` that comes `position`-th in this seed's order."""
        ...

    def score(
        self,
        prompts: Sequence[Any],
        completions: Sequence[str],
        rows: Sequence[Row],
        completion_ids: Sequence[Sequence[int]] | None = None,
    ) -> list[float]:
        """Rewards of completions; NaN = not scorable."""
        ...

    def exact(self, completion: str, row: Row) -> bool:
        """Whether an evaluation counts this completion as right."""
        ...


def rollout(request: Request, policy: LanguagePolicy, task: LanguageTask) -> Batch:
    """`prompts · samples` scored completions of the policy, prompt-major.

    A step is one sampled token, the end token included, and each completion is one `seq`; one
    without a token is left out. Columns: `reward` (the task's score, on the last step; NaN where it
    is not scorable) and `logp_mu`, as recorded by the sampler. Ids: `seq`, `traj`, `group` (the
    samples of one prompt), `prompt` (row of the task's training set), `position` (of the token in
    its sequence), `version`. Table `traj`: `terminated` (an end token came), `truncated` (none
    did), `completion`, `prompt_text`, `row`, and the columns that all rows share. Inputs: `tokens`
    and `prompt_length`.

    A completion's stream is keyed by (seed, version, how many prompts came before in this run,
    sample), so it depends on no other.
    """
    places = range(request.start, request.start + request.prompts)
    picks = [task.order(place, request.seed) for place in places]
    words = [(place, g) for place in places for g in range(request.samples)]
    drawn = policy.generate(
        [_hinted(task.train[pick]["prompt"], request.hints.get(pick, "")) for pick in picks],
        request.samples,
        request.horizon,
        keys=[key(request.seed, request.stream, request.version, *w) for w in words],
        temperature=request.temperature,
    )
    drawn = [c for c in drawn if len(c.token_ids)]
    if not drawn:
        return Batch.empty()
    rows = [task.train[picks[c.prompt]] for c in drawn]
    with span("rewards"):
        scores = task.score(
            [row["prompt"] for row in rows],
            [c.text for c in drawn],
            rows,
            [c.token_ids.tolist() for c in drawn],
        )
    batch = _batch(drawn, rows, scores, [picks[c.prompt] for c in drawn], request.version)
    return _with_texts(batch, policy, drawn) if request.texts else batch


def _hinted(prompt: Any, hint: str) -> Any:
    """A prompt whose last message ends with a hint."""
    if not hint:
        return prompt
    if isinstance(prompt, str):
        return prompt + hint
    last = {**prompt[-1], "content": prompt[-1]["content"] + hint}
    return [*prompt[:-1], last]


def _with_texts(batch: Batch, policy: LanguagePolicy, drawn: Sequence[Completion]) -> Batch:
    """The table of `traj` with `texts`: what every single token says."""
    texts = [[policy.decode(token[None]) for token in c.token_ids] for c in drawn]
    table = {**batch.table("traj"), "texts": texts}
    return replace(batch, tables={**batch.tables, "traj": table})


def _batch(
    drawn: Sequence[Completion],
    rows: Sequence[Row],
    scores: Sequence[float],
    picks: Sequence[int],
    version: int,
) -> Batch:
    lengths = torch.tensor([len(c.token_ids) for c in drawn])
    traj = torch.arange(len(drawn)).repeat_interleave(lengths)
    ends = lengths.cumsum(0)
    steps = torch.arange(len(traj))
    before = torch.tensor([len(c.prompt_ids) for c in drawn])
    group = torch.unique(torch.tensor([c.prompt for c in drawn]), return_inverse=True)[1]
    reward = torch.zeros(len(traj))
    reward[ends - 1] = torch.tensor(scores, dtype=torch.float32)
    ids = {
        "seq": traj,
        "traj": traj,
        "group": group[traj],
        "prompt": torch.tensor(picks)[traj],
        "position": (before + lengths - ends)[traj] + steps,
        "version": torch.full((len(traj),), version),
    }
    columns = {"reward": reward, "logp_mu": torch.cat([c.logp for c in drawn])}
    inputs = {
        "tokens": [torch.cat([c.prompt_ids, c.token_ids]) for c in drawn],
        "prompt_length": [len(c.prompt_ids) for c in drawn],
    }
    return Batch(columns, ids, {"traj": _table(drawn, rows, scores)}, inputs)


def _table(
    drawn: Sequence[Completion], rows: Sequence[Row], scores: Sequence[float]
) -> dict[str, Any]:
    facts = [score.facts if isinstance(score, Score) else {} for score in scores]
    names = dict.fromkeys(name for found in facts for name in found)
    finished = torch.tensor([c.finished for c in drawn])
    shared = set.intersection(*(set(row) for row in rows)) - {"prompt"}
    return {
        **{name: [row[name] for row in rows] for name in sorted(shared)},
        **{name: [found.get(name) for found in facts] for name in names},
        "terminated": finished,
        "truncated": ~finished,
        "completion": [c.text for c in drawn],
        "prompt_text": [c.prompt_text for c in drawn],
        "row": list(rows),
    }


def greedy(policy: LanguagePolicy, rows: Sequence[Row], horizon: int) -> list[Completion]:
    """The most likely continuation, token by token, of each row's prompt."""
    prompts = [row["prompt"] for row in rows]
    return policy.generate(prompts, 1, horizon, keys=[0] * len(rows), temperature=0.0)


def correct(
    policy: LanguagePolicy, task: LanguageTask, rows: Sequence[Row], horizon: int
) -> list[bool]:
    """Whether the greedy answer to each row is exact."""
    answers = greedy(policy, rows, horizon)
    return [task.exact(c.text, row) for c, row in zip(answers, rows, strict=True)]
