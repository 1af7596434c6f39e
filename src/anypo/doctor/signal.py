"""Is there something to learn from: groups without signal, rewards at their top or missing."""

from __future__ import annotations

import numpy as np

from anypo.doctor.advice import larger_groups, num, percent
from anypo.doctor.finding import Needs, Seen, check
from anypo.doctor.record import Record, Series

DEAD, ALL_DEAD, WAIT = 0.9, 0.99, 40
UNSCORED, MOSTLY_UNSCORED = 0.1, 0.5
CEILING = 0.98


@check(
    title="Groups carry no signal",
    threshold=f"{percent(DEAD)} of the groups have equal rewards, in the median of the last "
    f"quarter, and rewards do not rise; a note before iteration {WAIT} where most had no reward",
    source="ours; that equal rewards teach nothing is DAPO's dynamic sampling, 2503.14476",
    needs=("reward", "frac_reward_zero_std|reward_std"),
    causes=("mode_collapse", "entropy_collapse", "unscored", "truncated"),
)
def no_signal(record: Record) -> Seen | None:
    """Equal rewards in a group (or, without groups, in a batch) give no direction to learn in.

    Looks at `frac_reward_zero_std`, else at `reward_std`. Silent while rewards rise nevertheless,
    and where all answers are at the top, which is another matter. Where most iterations
    had no reward at all it waits: right answers that are rare take a while to be met.
    """
    dead, where = record.series("frac_reward_zero_std"), "groups"
    if not len(dead):
        spread = record.series("reward_std")
        dead, where = Series(spread.steps, (spread.values == 0).astype(float)), "batches"
    share, reward = float(np.median(dead.end)), record.series("reward")
    constant = np.ptp(reward.values) == 0
    if share < DEAD or reward.rose or record.solved or (_at_top(record) and not constant):
        return None
    rare, level = not np.median(reward.values), num(float(np.median(reward.end)))
    same = f"all rewards are {level}" if constant else f"the mean reward is {level}"
    if constant and rare and (asked := record.series("sampled").values.sum()):
        same += (
            f", of {asked:.0f} answers: fewer than 1 in {asked / 3:.0f} is rewarded, most likely"
        )
    severity = "serious" if share >= ALL_DEAD else "warning"
    return Seen(
        f"{percent(share)} of the {where} had equal rewards throughout; {same}.",
        _denser(record, constant),
        dead.span,
        "note" if rare and len(record.rows) < WAIT else severity,
        "frac_reward_zero_std" if where == "groups" else "reward_std",
    )


def _denser(record: Record, constant: bool) -> tuple[str, ...]:
    if constant:
        return (
            "look at the reward function and at some answers in report.html: every answer got the "
            "same number",
            "an easier task, or a reward that gives part of the credit for part of the way",
        )
    return (
        *larger_groups(record),
        "anypo train dapo: it asks again until enough groups have signal",
        "an easier task, or a reward that gives part of the credit for part of the way",
    )


def _at_top(record: Record) -> bool:
    reward = record.series("reward")
    return bool(record.top and len(reward) and np.median(reward.end) >= CEILING * record.top)


@check(
    title="The reward is at its ceiling",
    threshold=f"mean reward at {percent(CEILING)} of the best score seen through the last quarter, "
    "and under 90 % of held-out questions right",
    source="ours, measured in benchmarks/doctor.py",
    needs=("reward",),
    tasks=("language",),
    rows=20,
    causes=("truncated", "length_hacking"),
)
def saturated(record: Record) -> Seen | Needs | None:
    """Nothing is left to learn from the reward, although the task is not solved.

    Looks at `reward` beside the best score of any recorded completion, and at held-out accuracy.
    Without held-out questions it is a note: the run may simply be done.
    """
    if record.top is None:
        return Needs("completions with scores (record_every above 0)")
    reward = record.series("reward")
    if np.ptp(reward.values) == 0 or not _at_top(record) or (record.accuracy or 0) >= 0.9:
        return None
    low = np.flatnonzero(reward.values < CEILING * record.top)
    since = int(reward.steps[low[-1] + 1 if len(low) and low[-1] + 1 < len(reward) else 0])
    right = "" if record.accuracy is None else f", and {percent(record.accuracy)} held out right"
    return Seen(
        f"the mean reward is {num(float(np.median(reward.end)))} of at most {num(record.top)} "
        f"since about iteration {since}{right}.",
        (
            "read what scores full marks in report.html: the reward may be easier than the task",
            "a stricter reward, or harder questions",
            f"--stop-at 'reward>={num(CEILING * record.top)}' (ends a run that is done)",
        ),
        (since, record.last),
        "note" if record.accuracy is None else "warning",
        "reward",
    )


@check(
    title="Answers could not be scored",
    threshold=f"{percent(UNSCORED)} of the answers of the last quarter",
    source="ours: unscored answers are paid for and thrown away, and seldom a fair sample",
    needs=("unscored", "sampled"),
    tasks=("language", "control", "generator"),
    rows=3,
)
def unscored(record: Record) -> Seen | None:
    """The reward function returned `None` (or was stopped) for many answers.

    Looks at `unscored` beside `sampled`.
    """
    gone, asked = record.series("unscored"), record.series("sampled")
    lost, total = float(gone.end.sum()), float(asked.end.sum())
    share = lost / total if total else 0.0
    if share < UNSCORED:
        return None
    return Seen(
        f"{lost:.0f} of {total:.0f} answers ({percent(share)}) had no reward.",
        (
            "run the reward function by hand on answers of report.html: it returned None, raised, "
            "or took too long",
            "return 0 for a wrong answer; None is for one that cannot be judged",
        ),
        gone.span,
        "serious" if share >= MOSTLY_UNSCORED else "warning",
        "unscored",
    )
