"""Trajectories that a dataset already holds: demonstrations, or chosen and rejected answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.request import Request
from anypo.policies.policy import Transcript
from anypo.tasks.dataset import SIDES
from anypo.tasks.task import Given, Row


def rollout(request: Request, policy: Any, task: Any) -> Batch:
    """The answers that the data give each prompt: the best with reward 1, a rejected one with 0.

    Nothing is sampled, so there is no `logp_mu`, and how many samples are asked for says nothing.
    The steps are the answer's tokens and those that end its turns; a group is the answers of one
    prompt: a pair, or the demonstration alone. Ids: `seq` (a conversation has several only where
    its template rewrites what was said before), `turn`, `traj`, `group`, `prompt`, `position`,
    `version`. Tables and inputs as in every language batch; an answer that was cut is `truncated`.
    """
    places = range(request.start, request.start + request.prompts)
    picks = [task.order(place, request.seed) for place in places]
    return shown(policy, task, [task.train[k] for k in picks], picks, request.version)


def shown(
    policy: Any, task: Any, rows: Sequence[Row], picks: Sequence[int], version: int = 0
) -> Batch:
    """The given answers of some rows as a batch; `picks` are the rows' numbers.

    A row of which nothing is left within the task's limit, or that is to be dropped, is left out.
    """
    made = [(pick, _answers(policy, task, row)) for pick, row in zip(picks, rows, strict=True)]
    made = [(pick, answers) for pick, answers in made if answers]
    if not made:
        return Batch.empty()
    parts = [a for _, answers in made for a in answers]
    groups = [g for g, (_, answers) in enumerate(made) for _ in answers]
    numbers = [pick for pick, answers in made for _ in answers]
    ranks = [rank for _, answers in made for rank in range(len(answers))]
    batch = _batch(policy, parts, groups, numbers, ranks, version)
    known = dict(zip(picks, rows, strict=True))
    return _with_columns(batch, [known[n] for n in numbers])


def _with_columns(batch: Batch, rows: Sequence[Row]) -> Batch:
    """The batch whose table of `traj` has the numbers and labels of the rows, such as `margin`."""
    plain = [k for k in rows[0] if k != "prompt" and isinstance(rows[0][k], (int, float))]
    table = {**{k: [row[k] for row in rows] for k in plain}, **batch.table("traj")}
    return replace(batch, tables={**batch.tables, "traj": table})


def _answers(policy: Any, task: Any, row: Row) -> list[tuple[Transcript, bool]]:
    """The answers of a row, the best first, each with whether it was cut; none if one is gone."""
    limit = getattr(task, "max_length", 0) or policy.context
    found = []
    for side in SIDES[task.kind]:
        whole = policy.encode(row["prompt"], row[side], row.get("tools") or ())
        long = whole.length > limit
        kept = whole.cut(limit) if long else whole
        if kept is None or (long and getattr(task, "too_long", "drop") == "drop"):
            return []
        found.append((kept, long))
    return found


def _batch(
    policy: Any,
    answers: Sequence[tuple[Transcript, bool]],
    groups: Sequence[int],
    picks: Sequence[int],
    ranks: Sequence[int],
    version: int,
) -> Batch:
    texts = [t for t, _ in answers]
    lengths = torch.tensor([len(t.position) for t in texts])
    traj = torch.arange(len(texts)).repeat_interleave(lengths)
    reward = torch.zeros(len(traj))
    reward[lengths.cumsum(0) - 1] = 1.0 - torch.tensor(ranks)
    ids = {
        "traj": traj,
        "seq": torch.cat(_counted([t.seq for t in texts])),
        "turn": torch.cat(_counted([t.turn for t in texts])),
        "group": torch.tensor(groups)[traj],
        "prompt": torch.tensor(picks)[traj],
        "version": torch.full((len(traj),), version),
        "position": torch.cat([t.position for t in texts]),
    }
    spans = [_first(t, k) for t in texts for k in range(len(t.sequences))]
    inputs = {"tokens": [s for t in texts for s in t.sequences], "prompt_length": spans}
    cut = torch.tensor([long for _, long in answers])
    table = {
        "completion": [_said(policy, t) for t in texts],
        "prompt_text": [policy.decode(t.sequences[0][: _first(t, 0)]) for t in texts],
        "terminated": ~cut,
        "truncated": cut,
    }
    return Batch({"reward": reward}, ids, {"traj": table}, inputs)


def _counted(numbers: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Numbers that begin at 0 in each part, so that they go on from part to part."""
    found, offset = [], 0
    for part in numbers:
        _, dense = torch.unique(part, return_inverse=True)
        found.append(dense + offset)
        offset += int(dense.max()) + 1
    return found


def _first(text: Transcript, k: int) -> int:
    return int(text.position[text.seq == k].min())


def _said(policy: Any, text: Transcript) -> str:
    """What is said in all turns, a line for each."""
    turns = []
    for number in torch.unique(text.turn).tolist():
        mine = text.turn == number
        tokens = text.sequences[int(text.seq[mine][0])]
        turns.append(policy.decode(tokens[text.position[mine]]))
    return "\n".join(turns)


def fitted(task: Any, policy: Any) -> tuple[Any, list[str]]:
    """The task without rows that are too long, and what a person should know of them.

    Every row is cut into tokens once, so that a row which a chat template refuses is found before
    a run begins. The counts are kept in the task's record. Other kinds of task stay as they are.
    """
    if not isinstance(task, Given):
        return task, []
    limit = task.max_length or policy.context
    if limit > policy.context:
        raise UsageError(
            f"max_length={limit} is above the context of {policy.name}, {policy.context} tokens: "
            "lower it, or take another policy"
        )
    sides, long, gone = [], 0, 0
    for rows in (task.train, task.held_out):
        found = [_answers(policy, task, row) for row in rows]
        long += sum(any(cut for _, cut in answers) for answers in found)
        gone += sum(not answers for answers in found)
        sides.append(tuple(row for row, answers in zip(rows, found, strict=True) if answers))
    total = len(task.train) + len(task.held_out)
    if not sides[0]:
        raise UsageError(
            f"all rows of {task.name} have more than {limit} tokens: raise max_length, or give "
            "too_long=cut to keep their beginnings"
        )
    details = {**task.details, "rows_cut": long, "rows_dropped": gone}
    made = replace(task, train=sides[0], held_out=sides[1], details=details)
    notes = []
    if long:
        notes.append(f"{long} of {total} rows are cut to their first {limit} tokens")
    if gone:
        cure = " (too_long=cut keeps their beginnings)" if task.too_long == "drop" else ""
        notes.append(f"{gone} of {total} rows are left out, above {limit} tokens{cure}")
    return made, notes
