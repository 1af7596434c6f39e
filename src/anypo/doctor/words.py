"""What the answers look like: cut off, repeating themselves, or all the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anypo.doctor.advice import larger_groups, lower_lr, more_prompts, percent, quoted
from anypo.doctor.finding import Needs, Seen, check
from anypo.doctor.record import SURE, Record, above, is_number

OURS = "ours, measured in benchmarks/doctor.py"
CUT, RARE = 0.5, 0.1
LONG, GRAM, REPEATS, MANY = 32, 4, 0.5, 0.2
SAME = 0.5


@check(
    title="Answers are cut off",
    threshold=f"{percent(CUT)} of the answers of the last quarter end at the horizon, they score "
    "worse than whole ones (or are hardly ever right), and rewards do not rise",
    source="cut answers as noise in the reward: DAPO, 2503.14476; the number is ours",
    needs=("completions/clipped_ratio", "reward"),
    tasks=("language",),
    rows=20,
    causes=("length_hacking", "lr_too_large"),
)
def truncated(record: Record) -> Seen | None:
    """The horizon is too short for the answer.

    Looks at `completions/clipped_ratio`, and at the scores of cut and of whole completions.
    """
    cut = record.series("completions/clipped_ratio")
    share, right = float(np.median(cut.end)), record.accuracy or 0.0
    if share < CUT or record.solved or record.reward.rising or right >= 0.5:
        return None
    scores = {
        side: [r["score"] for r in record.recent if r.get("truncated") is side and _scored(r)]
        for side in (True, False)
    }
    rare = len(scores[False]) < RARE * len(record.recent)
    enough = min(len(scores[True]), len(scores[False])) >= 8 and not rare
    if enough and above(np.array(scores[True]), np.array(scores[False])) < SURE:
        return None
    if not enough and right >= 0.05:  # so a cut answer can be right
        return None
    worse = (
        f"; they score {np.mean(scores[True]):.3g} on average, whole ones "
        f"{np.mean(scores[False]):.3g}"
        if enough
        else ""
    )
    horizon = int(
        record.setting("horizon") or record.facts.get("task", {}).get("horizon") or 0
    ) or round(float(record.series("completions/max_length").end.max()))
    return Seen(
        f"{percent(share)} of the answers ended at the horizon of {horizon} tokens{worse}.",
        (
            f"--horizon {2 * horizon} (it is {horizon})",
            "ask for shorter answers in the prompt",
            "anypo train dapo: a soft cost before the horizon instead of a cut at it",
        ),
        cut.span,
        "warning",
        "completions/clipped_ratio",
    )


def _scored(row: Mapping[str, Any]) -> bool:
    return is_number(row.get("score"))


@check(
    title="Answers repeat themselves",
    threshold=f"in {percent(MANY)} of the answers of {LONG} tokens or more, {percent(REPEATS)} of "
    f"the {GRAM}-grams are repeated ones",
    source="seq-rep-4 of 1908.04319, where people's text has about 0.01; the numbers are ours",
    tasks=("language",),
    rows=1,
    causes=("lr_too_large", "entropy_collapse", "length_hacking"),
)
def repetition(record: Record) -> Seen | Needs | None:
    """The model runs in circles.

    Looks at the tokens (or the words) of the completions of the last recorded iterations.
    """
    units = [(r, r.get("tokens") or str(r.get("completion") or "").split()) for r in record.recent]
    long = [(row, words) for row, words in units if len(words) >= LONG]
    if not record.recent:
        return Needs("completions (record_every above 0)")
    if len(long) < 8:
        return Needs(f"8 recent completions of {LONG} tokens or more")
    rates = [repeated(words) for _, words in long]
    share = float(np.mean(np.array(rates) >= REPEATS))
    if share < MANY:
        return None
    worst = long[int(np.argmax(rates))][0]
    return Seen(
        f"{percent(share)} of {len(long)} long answers repeat themselves, for example "
        f"{quoted(worst.get('completion'))}.",
        (
            "look whether the reward pays for length or for single words",
            lower_lr(record),
            "--beta 0.04 with grpo (a pull towards the start)",
        ),
        _steps(record.recent),
        "warning",
        "completions/mean_length",
    )


def repeated(words: Sequence[str]) -> float:
    """The share of 4-grams that occurred before in the same text."""
    grams = [tuple(words[i : i + GRAM]) for i in range(len(words) - GRAM + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def _steps(rows: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    steps = [int(row.get("step", 0)) for row in rows] or [0]
    return min(steps), max(steps)


@check(
    title="Answers are all the same, and not right",
    threshold=f"in {percent(SAME)} of the groups every answer is the same, and below the best "
    f"score seen; or {percent(SAME)} of all answers to different questions are one text, likewise",
    source=OURS,
    tasks=("language",),
    rows=10,
    causes=("entropy_collapse", "lr_too_large", "memorised", "saturated"),
)
def mode_collapse(record: Record) -> Seen | Needs | None:
    """The policy has settled on one answer too early.

    Looks at the completions of the last recorded iterations, within groups and across them. Equal
    answers that have the best score are what learning is for.
    """
    rows = [r for r in record.recent if r.get("completion") is not None and _scored(r)]
    groups: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row.get("step", 0), row.get("group", 0)), []).append(row)
    several = [g for g in groups.values() if len(g) > 1]
    if len(several) < 4 and len({r.get("prompt") for r in rows}) < 4:
        return Needs("completions of several prompts (record_every above 0)")
    if record.solved:
        return None
    top = record.top or 0.0
    alike = [g for g in several if len({r["completion"] for r in g}) == 1 and g[0]["score"] < top]
    inside = len(alike) / len(several) if several else 0.0
    (text, count), across = Counter(r["completion"] for r in rows).most_common(1)[0], 0.0
    if len({r.get("prompt") for r in rows}) >= 4:
        score = float(np.mean([r["score"] for r in rows if r["completion"] == text]))
        across = count / len(rows) if score < 0.9 * top else 0.0
    if max(inside, across) < SAME:
        return None
    tale = [f"in {percent(inside)} of the groups all answers are the same"] * (inside >= SAME)
    tale += [f"{percent(across)} of all answers are {quoted(text)}"] * (across >= SAME)
    return Seen(
        f"{', and '.join(tale)}, with less than the best score.",
        (lower_lr(record), *larger_groups(record), more_prompts(record)),
        _steps(rows),
        "serious",
        "entropy",
    )
