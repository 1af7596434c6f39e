"""How well a recipe on pairs tells the better answer from the other."""

from __future__ import annotations

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.recipe import Objective


def compares(objective: Objective) -> bool:
    """Whether an objective says of two whole answers by how much it prefers one.

    One whose ratio starts at 1 at every update, or that reads what a sampler recorded, does not.
    """
    moving = {"logp_old", "logp_mu"} & objective.ratio.needs
    whole = objective.ratio.couples == "traj" and objective.surrogate.couples == "group"
    return whole and not moving


def margins(objective: Objective, batch: Batch) -> Tensor:
    """`h_better − h_worse` of every pair of a batch with its live columns; float64 `[pairs]`.

    The better of two is the one with the larger advantage; groups of other sizes, and ties, are
    left out.
    """
    with torch.no_grad():
        rows = batch.with_({"h": objective.ratio(batch)}).at("traj")
    advantage = rows["advantage"].double()
    centred = advantage - rows.mean(advantage, "group", "traj")
    pair = (rows.size("traj", "group") == 2) & (centred != 0)
    signed = torch.where(pair, centred.sign() * rows["h"].double(), 0.0)
    gap = rows.sum(signed, "group", "traj")
    return gap[pair & (centred > 0)]
