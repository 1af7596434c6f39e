"""Reward models: what scores answers, learned from which of two was preferred."""

from __future__ import annotations

from anypo.core.method import method
from anypo.core.neutral import Groups, Mean
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.ratio.worth import Worth
from anypo.pieces.surrogate.regression import Preference


@method(
    paper="2203.02155", title="Reward model (Bradley–Terry)", aliases=("reward_model", "reward")
)
def bradley_terry(smoothing: float = 0.0) -> Recipe:
    """A reward model of pairs: the preferred answer is to score higher than the other.

    `L = −mean_pairs log σ(r(x, y_w) − r(x, y_l) − m)`, r an owned linear head at the end of an
    answer, on a language model whose weights are trained as well; m the pair's `margin`, if the
    data have such a column.

    Parameters: `smoothing` (e = 0: `(1−e)·log σ(Δ) + e·log σ(−Δ)`; not with margins).
    Data: a file with `prompt`, `chosen`, `rejected`, and `margin` if there is one. On a task with a
    reward two answers are sampled, and the reward prefers one. The run's folder then serves as a
    reward: `--reward FOLDER`. A reward is known up to a constant alone.
    Deviations: the head reads the state at the last token of the answer, before the end token. The
    paper compares all pairs of the K answers to a prompt in one batch; here every pair is a row.
    Reference: 2203.02155, equation 1; margins, Llama 2, 2307.09288, equation 2.
    """
    return Recipe(
        sampling=Groups(2),
        advantage=Baseline("traj", "group"),
        ratio=Worth(),
        surrogate=Preference(1.0, smoothing, margin="" if smoothing else "margin"),
        aggregate=Mean("step", "traj", "group", "batch"),
    )
