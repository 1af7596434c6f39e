"""Trajectories that a dataset already holds: demonstrations, or chosen and rejected answers."""

from __future__ import annotations

from typing import Any

import torch

from anypo.core.batch import Batch
from anypo.core.request import Request
from anypo.tasks.dataset import SIDES


def rollout(request: Request, policy: Any, task: Any) -> Batch:
    """The answers that the data give each prompt: the best with reward 1, a rejected one with 0.

    Nothing is sampled, so there is no `logp_mu`, and how many samples are asked for says nothing.
    The steps are the answer's tokens and the end token; a group is the answers of one prompt: a
    pair, or the demonstration alone. Shapes as in every language batch.
    """
    picks = [task.order(request.start + i, request.seed) for i in range(request.prompts)]
    rows = [task.train[k] for k in picks]
    parts: list[Batch] = []
    for i, (pick, row) in enumerate(zip(picks, rows, strict=True)):
        for rank, side in enumerate(SIDES[task.kind]):
            prompt, answer = policy.encode(row["prompt"], row[side])
            parts.append(_one(len(parts), i, rank, pick, prompt, answer, request.version))
    batch = _stack(parts)
    texts = [policy.decode(t[n:]) for t, n in zip(*batch.inputs.values(), strict=True)]
    prompts = [policy.decode(t[:n]) for t, n in zip(*batch.inputs.values(), strict=True)]
    ends = torch.ones(len(texts), dtype=torch.bool)
    table = {"completion": texts, "prompt_text": prompts, "terminated": ends, "truncated": ~ends}
    return Batch(batch.columns, batch.ids, {"traj": table}, batch.inputs)


def _one(
    traj: int, group: int, rank: int, pick: int, prompt: Any, answer: Any, version: int
) -> Batch:
    n = len(answer)
    reward = torch.zeros(n)
    reward[-1] = 1.0 - rank
    same = torch.zeros(n, dtype=torch.long)
    ids = {"traj": same + traj, "seq": same + traj, "group": same + group}
    ids |= {"prompt": same + pick, "version": same + version}
    ids["position"] = torch.arange(n) + len(prompt)
    inputs = {"tokens": [torch.cat([prompt, answer])], "prompt_length": [len(prompt)]}
    return Batch({"reward": reward}, ids, {}, inputs)


def _stack(parts: list[Batch]) -> Batch:
    columns = {"reward": torch.cat([p["reward"] for p in parts])}
    ids = {name: torch.cat([p.ids[name] for p in parts]) for name in parts[0].ids}
    inputs = {name: [p.inputs[name][0] for p in parts] for name in parts[0].inputs}
    return Batch(columns, ids, {}, inputs)
