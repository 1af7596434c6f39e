"""Imitation: of answers that the data give, and of the policy's own best ones."""

from __future__ import annotations

import math
from typing import Literal

from anypo.core.errors import UsageError
from anypo.core.method import method
from anypo.core.neutral import Adam, Groups, Mean, Return
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.curve import Curve
from anypo.pieces.sampling.best import Best

ALIKE = Return() >> Curve(steepness=0.0)
"""The advantage 1 on every step, whatever is rewarded: the curve at 0 is at its top."""


@method(paper="2203.02155", title="SFT", aliases=("supervised_fine_tuning",))
def sft(
    mean: Literal["token", "answer"] = "token", epochs: int = 1, minibatches: int = 1
) -> Recipe:
    """Supervised fine-tuning: the likelihood of given answers is raised.

    `L = −Σ_it logp_it / Σ_it 1`, the mean over all trained tokens of the update batch; by answers
    `L = −mean_i (1/n_i)·Σ_t logp_it`.

    Parameters: `mean` (`token`, as in TRL, or `answer`: long answers count no more than short
    ones), `epochs` (passes over what one iteration collects, 1), `minibatches` (optimizer steps of
    a pass, 1).
    Data: a file with `prompt` and `completion`, or `messages`, or `text`, without a reward
    function; in chats the assistant's tokens are trained, up to the one that ends a turn.
    Deviations: none; the mean is always that of the whole update batch, however it is cut.
    Reference: the first stage of InstructGPT, 2203.02155; averages, TRL.
    """
    if mean not in ("token", "answer"):
        raise UsageError(f"mean={mean!r}: it must be token or answer")
    levels = ("step", "batch") if mean == "token" else ("step", "traj", "batch")
    return Recipe(advantage=ALIKE, aggregate=Mean(*levels), update=Adam(epochs, minibatches))


@method(paper="2304.06767", title="RAFT", aliases=("rejection_sampling", "best_of_n"))
def raft(
    group: int = 8,
    keep: int = 1,
    least: float = -math.inf,
    differ: bool = False,
    epochs: int = 1,
    minibatches: int = 1,
) -> Recipe:
    """Reward-ranked fine-tuning: the best of several own answers is imitated.

    `y* = argmax_{k ≤ K} r(x, y_k)`, `y_k ~ π(·|x)`; `L = −Σ_it logp(y*_it) / Σ_it 1`.

    Parameters: `group` (K = 8; the paper tries 8, 16 and 32, its code 5), `keep` (answers of a
    prompt that stay, 1; 0: all that reach `least`), `least` (smallest reward that is imitated, −∞),
    `differ` (leave out prompts whose answers are all rewarded alike, no), `epochs` (passes over
    what was kept, 1), `minibatches` (optimizer steps of a pass, 1). `keep=0, least=1` imitates all
    right answers (RFT, STaR); in ties a lot decides.
    Deviations: one optimizer step on each batch, where a stage of the paper is a whole fine-tuning
    on the best answers to some 2048 prompts (`--epochs`, `--minibatches`, `--prompts`); the
    authors' code also trains the tokens of the prompt, samples at 0.85, and can rank all answers of
    a batch together. STaR and RFT start each round from the original model, here it goes on.
    Reference: 2304.06767; code, LMFlow; RFT, 2308.01825; STaR, 2203.14465.
    """
    best = Best(keep, least, differ)
    return sft("token", epochs, minibatches).but(sampling=Groups(group) >> best)
