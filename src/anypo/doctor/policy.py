"""How the policy moves: entropy, ratios, steps too long, distance from the reference, clipping."""

from __future__ import annotations

import math

import numpy as np

from anypo.doctor.advice import fewer_visits, lower_lr, more_prompts, num, percent, raised
from anypo.doctor.finding import Needs, Seen, check
from anypo.doctor.record import SURE, Record, above, apart

OURS = "ours, measured in benchmarks/doctor.py"
GONE = 0.1
UP, UP_NATS = 1.5, 0.5
TAIL, LONG_TAIL = 10.0, 100.0
JUMP, LEAP = 0.2, 1.0
FAR = 1.0
CLIPPED = 0.6


@check(
    title="Entropy collapsed",
    threshold=f"a last-quarter median under {percent(GONE)} of the first, rewards no longer "
    "rising, neither at their top, and the task not solved",
    source="that a policy without entropy learns no more: 2505.22617; the number is ours",
    needs=("entropy", "reward"),
    tasks=("language", "control"),
    rows=20,
    causes=("lr_too_large", "stale_sampler", "mismatch", "memorised", "saturated"),
)
def entropy_collapse(record: Record) -> Seen | Needs | None:
    """The policy has all but stopped to explore before it learned the task.

    Looks at `entropy` (per step, of what was sampled). A task that is solved, rewards at their top,
    or rewards that rose where nobody knows their top, excuse it: a policy that knows the answer is
    sure of it.
    """
    entropy = record.series("entropy")
    if entropy.values.min() < -1e-6:
        return Needs("an entropy of choices; that of a density has no zero")
    first, last = float(np.median(entropy.start)), float(np.median(entropy.end))
    excused = record.solved or record.full or record.reward.rising
    if record.accuracy is None and record.top is None:
        excused = excused or record.reward.rose
    if last > GONE * first or excused:
        return None
    low = int(entropy.steps[np.flatnonzero(entropy.values <= GONE * first)[0]])
    return Seen(
        f"it fell from {num(first)} to {num(last)} nats a step (below {percent(GONE)} of the start "
        f"since iteration {low}), with {_standing(record)}.",
        (
            lower_lr(record),
            more_prompts(record),
            "anypo train kl_cov, or clip_cov: they brake the tokens that cost the most entropy",
        ),
        (low, record.last),
        "serious",
        "entropy",
    )


def _standing(record: Record) -> str:
    reward = num(float(np.median(record.reward.end)))
    if record.accuracy is None:
        return f"the reward at {reward}"
    return f"the reward at {reward} and {percent(record.accuracy)} held out right"


@check(
    title="Entropy runs away",
    threshold=f"a last-quarter median above {UP} times the first and {UP_NATS} nats more, without "
    "better rewards",
    source=OURS,
    needs=("entropy", "reward"),
    tasks=("language", "control"),
    rows=20,
    causes=("lr_too_large", "stale_sampler", "mismatch"),
)
def entropy_runaway(record: Record) -> Seen | None:
    """The policy becomes more random, and not better: it is being taken apart.

    Looks at `entropy` and at the reward.
    """
    entropy = record.series("entropy")
    first, last = float(np.median(entropy.start)), float(np.median(entropy.end))
    if last < max(UP * first, first + UP_NATS) or record.reward.rose:
        return None
    if record.solved and not record.reward.fell:
        return None
    return Seen(
        f"it rose from {num(first)} to {num(last)} nats a step, with {_standing(record)}.",
        (
            lower_lr(record),
            "a smaller entropy bonus, if the recipe has one (anypo show RECIPE, axis F)",
            "--beta 0.04 with grpo (a pull towards the start)",
        ),
        entropy.span,
        "warning",
        "entropy",
    )


@check(
    title="Importance ratios have long tails",
    threshold=f"a largest ratio of {TAIL:.0f} in the median of the last quarter",
    source="dual clip, 1912.09729, bounds the harm at a ratio of 3; 10 is ours",
    needs=("ratio/max",),
    causes=("lr_too_large", "stale_sampler", "mismatch", "old_data", "policy_jumps"),
)
def ratio_tails(record: Record) -> Seen | None:
    """A few steps weigh ten times as much as they should, and rule the gradient.

    Looks at `ratio/max` and at `ratio/capped`, the share at the cap of the ratio. A clip bounds
    only one side: a large ratio with a negative advantage passes it.
    """
    largest, capped = record.updates("ratio/max"), record.updates("ratio/capped")
    if not len(largest):
        return None
    tail = float(np.median(largest.end))
    cut = float(np.median(capped.end)) if len(capped) else 0.0
    if tail < TAIL and not cut:
        return None
    also = f", and {percent(cut)} of the steps at the cap" if cut else ""
    open_ = [path for path, x in record.fields("surrogate", "dual").items() if x == math.inf]
    dual = tuple(f"--recipe.{path} 3 (bounds what a bad answer can weigh)" for path in open_)
    return Seen(
        f"the largest ratio of an iteration was {num(tail)} (median){also}.",
        (*fewer_visits(record), *dual, lower_lr(record)),
        largest.span,
        "serious" if tail >= LONG_TAIL or cut else "warning",
        "ratio/max",
    )


@check(
    title="Updates jump too far",
    threshold=f"an approximate KL of {JUMP} nats a step between the policies before and after, in "
    "the median of the last quarter",
    source="PPO implementations stop at 0.01 to 0.05; ten times the middle of it is ours",
    needs=("approx_kl",),
    causes=("lr_too_large",),
)
def policy_jumps(record: Record) -> Seen | None:
    """One iteration changes the policy so much that its own samples no longer describe it.

    Looks at `approx_kl`, which is 0 by construction where a batch is seen once.
    """
    gap = record.updates("approx_kl")
    last = float(np.median(gap.end)) if len(gap) else 0.0
    if last < JUMP:
        return None
    return Seen(
        f"the policy moved {num(last)} nats a step within an iteration (median; at most "
        f"{num(float(gap.end.max()))}).",
        (*fewer_visits(record), lower_lr(record), more_prompts(record)),
        gap.span,
        "serious" if last >= LEAP else "warning",
        "approx_kl",
    )


@check(
    title="The policy runs away from its reference",
    threshold="the KL has doubled since the best score and the score surely fell; or "
    f"{FAR:.0f} nat a step without any gain",
    source="over-optimisation: 2210.10760; the numbers are ours",
    needs=("kl", "reward"),
    rows=20,
    causes=("lr_too_large", "stale_sampler", "mismatch", "entropy_runaway"),
)
def kl_runaway(record: Record) -> Seen | None:
    """Distance from the reference is spent and buys nothing any more.

    Looks at `kl` beside held-out accuracy, or beside the reward where that is not measured.
    """
    kl = record.series("kl")
    last = float(np.median(kl.end))
    best, what, worse = _best(record)
    if math.isnan(last):
        return None
    there = float(np.median(kl.values[: max(1, int((kl.steps <= best).sum()))][-kl.width :]))
    gained = record.reward.rose or record.held_out_rose or record.solved
    doubled = worse and last >= 2 * there and last > 0.01
    if not doubled and (gained or last < FAR):
        return None
    tale = f"{num(there)} when {what} was best (iteration {best}), {num(last)} now"
    stronger = raised(record, "regularize", "beta", 4)
    flat = f"no better than at the start, when the KL was {num(float(np.median(kl.start)))}"
    return Seen(
        f"the KL was {tale}, and {what} fell."
        if doubled
        else f"the KL is {num(last)} nats a step, and the reward is {flat}.",
        (*stronger, lower_lr(record), f"take the policy of about iteration {best}"),
        (best if doubled else kl.whole[0], record.last),
        "warning",
        "kl",
    )


def _best(record: Record) -> tuple[int, str, bool]:
    """Where the run was best, by what, and whether it is surely worse now."""
    points = record.held_out
    if len(points) >= 3:
        step, right, total = max(points, key=lambda p: p[1] / p[2])
        return step, "held-out accuracy", apart((right, total), points[-1][1:]) >= SURE
    value, step, window = record.reward.best
    gain = value - float(np.median(record.reward.start))
    fall = value - float(np.median(record.reward.end))
    return step, "the reward", fall > 0.2 * gain and above(record.reward.end, window) >= SURE


@check(
    title="Most steps are clipped",
    threshold=f"{percent(CLIPPED)} of the steps with an advantage have no gradient, in the "
    "median of the last quarter",
    source="PPO is usually tuned to 10 to 30 %, and GSPO, 2507.18071, reports 15 %; 60 is ours",
    needs=("clip_ratio/region_mean",),
    causes=("lr_too_large", "stale_sampler", "mismatch", "old_data", "policy_jumps"),
)
def clipped(record: Record) -> Seen | None:
    """The clip throws most of the batch away.

    Looks at `clip_ratio/region_mean`.
    """
    share = record.updates("clip_ratio/region_mean")
    last = float(np.median(share.end)) if len(share) else 0.0
    if last < CLIPPED:
        return None
    wider = raised(record, "surrogate", "high", 2)
    return Seen(
        f"{percent(last)} of the steps with an advantage lay outside the clip.",
        (*fewer_visits(record), lower_lr(record), *wider),
        share.span,
        "warning",
        "clip_ratio/region_mean",
    )


@check(
    title="The clip never acts",
    threshold="no step clipped in any iteration, although batches are seen several times",
    source="ours; a note, since it does no harm by itself",
    needs=("clip_ratio/region_mean", "ratio/max"),
    causes=("lr_too_small", "no_signal"),
)
def never_clipped(record: Record) -> Seen | None:
    """Ratios never reach the bounds: the policy hardly moves within a batch.

    Looks at `clip_ratio/region_mean` and `ratio/max` of recipes that see a batch several times.
    """
    share = record.series("clip_ratio/region_mean")
    finite = [b for b in record.fields("surrogate", "high").values() if 0 < b < math.inf]
    if share.values.any() or record.visits == 1 or not finite:
        return None
    high, low = record.series("ratio/max").values, record.series("ratio/min").values
    width = f"{num(float(low.min() if len(low) else 1))} to {num(float(high.max()))}"
    return Seen(
        f"ratios stayed within {width}, and the clip lies at {num(1 + finite[0])}.",
        (
            f"--lr {3 * record.lr:.1g} (it is {record.lr:.3g}), or more epochs on a batch",
            "leave it: nothing is wrong if rewards rise",
        ),
        share.whole,
        "note",
        "ratio/max",
    )
