"""Reward models, learned from which of two answers was preferred, and rewards of every step."""

from __future__ import annotations

from anypo.core.method import method
from anypo.core.neutral import Groups, Mean
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.advantage.onward import Onward
from anypo.pieces.ratio.worth import Worth
from anypo.pieces.reward.place import Place
from anypo.pieces.sampling.split import Split
from anypo.pieces.surrogate.regression import Preference
from anypo.recipes.group_relative import grpo


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


@method(paper="2402.03300", title="GRPO with process supervision", aliases=("grpo_ps",))
def grpo_process(
    group: int = 8, clip: float = 0.2, beta: float = 0.04, eps: float = 1e-6, marker: str = "\n"
) -> Recipe:
    """GRPO whose rewards stand at the end of every step: a token earns what is still to come.

    `r̃_ik = (r_ik − mean R)/(std R + eps)`, R the rewards of all steps of the group's answers;
    `A_it = Σ_{k: step k ends at t or later} r̃_ik`. Clip, mean and KL of `grpo`.

    Parameters: `group` (8), `clip` (0.2), `beta` (0.04), `eps` (1e-6) as in `grpo`, `marker` (text
    at the end of a step, a line break). A reward reports `steps`, a number for each step of the
    answer, as a process model does (`--reward process:FOLDER`).
    Deviations: the paper does not say how steps are cut, nor whether the outcome counts as well;
    here the steps' rewards alone do, and the standard deviation divides by k − 1, as in `grpo`.
    Reference: 2402.03300, section 4.1.3.
    """
    return grpo(group, clip, beta).but(
        sampling=Groups(group) >> Split(marker),
        reward=(Place("steps"),),
        advantage=Baseline("segment", "group", scale="std", eps=eps) >> Onward(),
    )
