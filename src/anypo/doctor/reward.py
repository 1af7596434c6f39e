"""Does the reward measure what is wanted: length, format, over-optimisation, memory, collapse."""

from __future__ import annotations

import re

import numpy as np

from anypo.core.text import visible
from anypo.doctor.advice import lower_lr, more_prompts, num, percent, raised
from anypo.doctor.finding import Needs, Seen, check
from anypo.doctor.record import SURE, Record, Series, above, agreement, apart, is_number

OURS = "ours, measured in benchmarks/doctor.py"
LONGER, FOLLOWS = 1.25, 0.8
ROSE, STAYED = 0.1, 0.05
GAP = 0.2
LOST = 0.5
FORMAT = re.compile(r"format|tag|xml|json|template|style|structure|syntax|boxed|think|length|short")
GOAL = re.compile(r"acc|correct|exact|answer|solve|right|pass|verif|math|test|success|quality")


@check(
    title="The reward is collected by length",
    threshold=f"lengths change by {percent(LONGER - 1)}, rewards follow them within groups with a "
    f"rank correlation of {FOLLOWS}, and held-out accuracy does not rise",
    source="length explains most of many rewards: 2310.03716; the numbers are ours",
    needs=("completions/mean_length", "reward"),
    tasks=("language",),
    rows=20,
)
def length_hacking(record: Record) -> Seen | Needs | None:
    """Answers become longer (or shorter), the reward likes it, and nothing else improves.

    Looks at `completions/mean_length`, at length and score of recorded completions within their
    groups (or, without those, at how both change from one iteration to the next), and at held-out
    accuracy.
    """
    if len(record.held_out) < 2:
        return Needs("held_out/accuracy: questions to test on, and eval_every")
    length, reward = record.series("completions/mean_length"), record.reward
    first, last = float(np.median(length.start)), float(np.median(length.end))
    longer = length.rose and last >= LONGER * first
    shorter = length.fell and last <= first / LONGER
    if not (longer or shorter) or not reward.rose or record.held_out_rose or record.solved:
        return None
    follows = _follows(record) * (1 if longer else -1)
    if follows < FOLLOWS:
        return None
    return Seen(
        f"the mean length went from {num(first)} to {num(last)} steps and the reward from "
        f"{num(float(np.median(reward.start)))} to {num(float(np.median(reward.end)))}; "
        f"{'longer' if longer else 'shorter'} answers have the better reward (rank correlation "
        f"{num(follows)}), and {_accuracy(record)}.",
        (
            "take the length out of the reward, or judge what the answer says",
            "anypo train dr_grpo: no division by the length of an answer",
            "anypo train dapo (--overlong): a cost for answers near the horizon",
        ),
        length.whole,
        "serious",
        "completions/mean_length",
    )


def _follows(record: Record) -> float:
    """How closely the score follows the length within groups."""
    groups: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for row in record.answers:
        if is_number(row.get("score")):
            size = len(row.get("tokens") or row.get("completion") or "")
            key = (row.get("step", 0), row.get("group", 0))
            groups.setdefault(key, []).append((size, row["score"]))
    found = [np.array(g, float).T for g in groups.values() if len(g) >= 4]
    varied = [agreement(x, y) for x, y in found if np.ptp(x) > 0 and np.ptp(y) > 0]
    if len(varied) >= 5:
        return float(np.median(varied))
    length, reward = record.series("completions/mean_length"), record.series("reward")
    if len(length) != len(reward):
        return 0.0
    return agreement(np.diff(length.values), np.diff(reward.values))


def _accuracy(record: Record) -> str:
    (_, right, total), (_, now, of) = record.held_out[0], record.held_out[-1]
    return f"held-out accuracy went from {percent(right / total)} to {percent(now / of)}"


@check(
    title="Only the format improves",
    threshold=f"a part of the reward rises by {ROSE} of its size while the part that measures the "
    f"answer stays within {STAYED}, and held-out accuracy does not rise",
    source=OURS,
    needs=("reward",),
    tasks=("language",),
    rows=20,
)
def format_only(record: Record) -> Seen | Needs | None:
    """The reward grows by the part that is easy to please.

    Looks at `rewards/NAME/mean` of every part, and at held-out accuracy. Which part measures the
    answer is read off its name (accuracy, correct, answer …); failing that, it is any part whose
    name does not speak of format.
    """
    names = record.parts
    if len(names) < 2:
        return Needs(
            "rewards/NAME/mean of two parts at least: give the reward as several functions"
        )
    rose = [n for n in names if _gain(record, n) >= ROSE and _part(record, n).rose]
    goals = [n for n in names if GOAL.search(n.lower())]
    goals = goals or [n for n in names if not FORMAT.search(n.lower())]
    easy = [n for n in rose if n not in goals] or [n for n in rose if FORMAT.search(n.lower())]
    flat = [n for n in goals if n not in rose and _gain(record, n) < STAYED]
    if not easy or not flat or len(flat) < len([n for n in goals if n not in easy]):
        return None
    if record.held_out_rose or record.solved:
        return None
    tested = f", and {_accuracy(record)}" if len(record.held_out) > 1 else ""
    return Seen(
        f"{_tale(record, easy)}; {_tale(record, flat)}{tested}.",
        (
            "less weight on the easy part, or count it only where the answer is right",
            "questions that the policy sometimes answers: while none is right, format is all there "
            "is to learn",
            *raised(record, "sampling", "size", 2),
        ),
        record.series("reward").whole,
        "warning",
        f"rewards/{easy[0]}/mean",
    )


def _part(record: Record, name: str) -> Series:
    return record.series(f"rewards/{name}/mean")


def _gain(record: Record, name: str) -> float:
    """How much a part rose, in units of the largest it ever was (1 at least for small rewards)."""
    part = _part(record, name)
    if len(part) < 2:
        return 0.0
    size = max(float(np.abs(part.values).max()), 1e-9)
    return float(np.median(part.end) - np.median(part.start)) / size


def _tale(record: Record, names: list[str]) -> str:
    parts = [(visible(n), _part(record, n)) for n in names[:3]]
    return ", ".join(
        f"{n!r} went from {num(float(np.median(p.start)))} to {num(float(np.median(p.end)))}"
        for n, p in parts
    )


@check(
    title="The reward rises and the answers get worse",
    threshold="a reward surely above its start, and held-out accuracy 10 points and 3 standard "
    "errors below its best",
    source="over-optimisation: 2210.10760; 3 standard errors, since the best of many measurements "
    "is a lucky one: ours",
    needs=("reward",),
    tasks=("language",),
    rows=20,
    causes=("length_hacking", "format_only"),
)
def over_optimised(record: Record) -> Seen | Needs | None:
    """What is rewarded and what is wanted have parted.

    Looks at the reward and at held-out accuracy, its best against its last.
    """
    if len(record.held_out) < 3:
        return Needs("held_out/accuracy three times: questions to test on, and eval_every")
    step, right, total = max(record.held_out, key=lambda p: p[1] / p[2])
    _, now, of = record.held_out[-1]
    lower = right / total - now / of >= 0.1 and apart((right, total), (now, of)) >= 3
    if not lower or not record.reward.rose or record.reward.fell:
        return None
    reward = record.reward
    return Seen(
        f"held-out accuracy was {percent(right / total)} at iteration {step} and is "
        f"{percent(now / of)}, while the reward went from {num(float(np.median(reward.start)))} "
        f"to {num(float(np.median(reward.end)))}.",
        (
            f"take the policy of about iteration {step}; --stall 3 ends a run at its best",
            "read the latest answers with the highest rewards in report.html: they show the way "
            "around",
            *raised(record, "regularize", "beta", 4),
        ),
        (step, record.last),
        "serious",
        "held_out/accuracy",
    )


@check(
    title="Training questions are memorised",
    threshold=f"seen questions {percent(GAP)} and 2.6 standard errors above held-out ones after "
    "training, and that much more than before it",
    source=OURS,
    tasks=("language",),
    rows=1,
)
def memorised(record: Record) -> Seen | Needs | None:
    """The policy knows the questions it saw, and not how to answer others.

    Looks at greedy accuracy on seen and on held-out questions, in `scores.json`.
    """
    after, before = record.scores.get("after") or {}, record.scores.get("before") or {}
    if not after.get("seen/total") or not after.get("held_out/total"):
        return Needs("scores.json with seen and held-out questions: it is written at the end")
    seen, held = (
        (after[f"{side}/correct"], after[f"{side}/total"]) for side in ("seen", "held_out")
    )
    gap = seen[0] / seen[1] - held[0] / held[1]
    start = before.get("seen/accuracy", 0.0) - before.get("held_out/accuracy", 0.0)
    if gap < GAP or gap - start < GAP or apart(seen, held) < 2.6:
        return None
    return Seen(
        f"{percent(seen[0] / seen[1])} of the seen questions are answered right and "
        f"{percent(held[0] / held[1])} of the held-out ones ({seen[1]} and {held[1]} questions).",
        (
            "more questions; how often each was seen is prompts × iterations / questions",
            "end the run earlier: --stall 3 stops when held-out accuracy no longer improves",
            *raised(record, "regularize", "beta", 4),
        ),
        (0, record.last),
        "warning",
        "held_out/accuracy",
    )


@check(
    title="The run fell from its best",
    threshold=f"{percent(LOST)} of the gain surely lost, best window against last",
    source=OURS,
    needs=("reward",),
    rows=30,
    causes=("lr_too_large", "gradient_spikes", "ratio_tails", "policy_jumps", "entropy_runaway")
    + ("stale_sampler", "mismatch", "old_data", "non_finite", "entropy_collapse"),
)
def fell(record: Record) -> Seen | None:
    """It had learned, and lost it again.

    Looks at the reward (the return of whole episodes, in control): its best window against the
    first and the last.
    """
    reward = record.reward
    best, step, window = reward.best
    first, last = float(np.median(reward.start)), float(np.median(reward.end))
    gained = best > first and above(reward.start, window) >= SURE
    lost = above(reward.end, window) >= SURE and best - last >= LOST * (best - first)
    if not gained or not lost:
        return None
    return Seen(
        f"the reward was {num(first)} at first, {num(best)} up to iteration {step}, and is "
        f"{num(last)} now.",
        (
            f"--steps {step} (the checkpoint before the fall is the one to keep)",
            lower_lr(record),
            more_prompts(record),
        ),
        (step, record.last),
        "serious",
        "reward" if not len(record.series("rollout/ep_rew_mean")) else "rollout/ep_rew_mean",
    )


@check(
    title="Nothing was learned",
    threshold="after 40 iterations neither reward nor held-out accuracy is surely above its start",
    source=OURS,
    needs=("reward",),
    rows=40,
    causes=("no_signal", "lr_too_small", "lr_too_large", "stale_sampler", "mismatch", "old_data")
    + ("truncated", "unscored", "entropy_collapse", "entropy_runaway", "fell", "mode_collapse")
    + ("critic", "non_finite", "policy_jumps", "ratio_tails", "clipped", "repetition"),
)
def no_progress(record: Record) -> Seen | None:
    """The reward is where it was.

    Looks at the reward and at held-out accuracy, first window against last.
    """
    reward = record.reward
    best, first = reward.best, float(np.median(reward.start))
    already = record.solved or (record.accuracy or 0.0) >= 0.9
    if reward.rose or record.held_out_rose or already or above(reward.start, best[2]) >= 2 * SURE:
        return None
    tested = f"; {_accuracy(record)}" if len(record.held_out) > 1 else ""
    return Seen(
        f"the reward went from {num(first)} to {num(float(np.median(reward.end)))} in "
        f"{len(reward)} iterations{tested}.",
        (
            f"--lr {3 * record.lr:.1g} (it is {record.lr:.3g})",
            more_prompts(record),
            "an easier task first: what the policy never gets right, it cannot learn from",
        ),
        reward.whole,
        "warning",
        "reward",
    )
