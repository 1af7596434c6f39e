"""Each check on invented records: on either side of its threshold, and without what it needs."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anypo.doctor import CHECKS, Record, diagnose, examine
from anypo.doctor.record import Series, above, agreement, apart
from anypo.doctor.words import repeated

N = 40
FACTS: dict[str, Any] = {
    "method": "grpo",
    "recipe": {
        "piece": "Recipe",
        "sampling": {"piece": "Groups", "size": 8},
        "ratio": {"piece": "Ratio", "to": "logp_old"},
        "surrogate": {"piece": "Clip", "low": 0.2, "high": 0.2, "dual": {"float": "inf"}},
        "regularize": [{"piece": "KL", "beta": 0.04}],
        "update": {"piece": "Adam", "epochs": 2, "minibatches_per_epoch": 1, "max_grad_norm": 1.0},
    },
    "policy": {"name": "tiny", "lr": 0.003},
    "task": {"name": "words", "kind": "language", "horizon": 8},
    "settings": {"steps": N, "prompts": 16, "horizon": 0},
}


def wave(low: float, high: float, n: int = N) -> list[float]:
    """From low to high along a straight line, with a small ripple."""
    size = 0.02 * max(abs(low), abs(high))
    return [low + (high - low) * i / (n - 1) + size * math.sin(2.4 * i) for i in range(n)]


HEALTHY: dict[str, list[float]] = {
    "reward": wave(0.1, 0.7),
    "reward_std": [0.3] * N,
    "frac_reward_zero_std": wave(0.3, 0.2),
    "unscored": [0.0] * N,
    "sampled": [128.0] * N,
    "entropy": wave(2.0, 0.8),
    "ratio/max": wave(1.5, 1.6),
    "ratio/min": wave(0.7, 0.6),
    "ratio/capped": [0.0] * N,
    "approx_kl": wave(0.01, 0.01),
    "kl": wave(0.0, 0.2),
    "clip_ratio/region_mean": wave(0.1, 0.12),
    "grad_norm": wave(0.5, 0.6),
    "skipped_updates": [0.0] * N,
    "weights/moved": wave(1e-3, 1e-3),
    "weights/changed": wave(0.2, 0.2),
    "explained_variance": wave(0.0, 0.6),
    "staleness/mean": [0.0] * N,
    "staleness/max": [0.0] * N,
    "sampling/sampling_logp_difference/mean": wave(0.04, 0.05),
    "completions/mean_length": wave(60, 62),
    "completions/max_length": [80.0] * N,
    "completions/clipped_ratio": wave(0.1, 0.1),
    "rewards/format/mean": wave(0.2, 0.9),
    "rewards/accuracy/mean": wave(0.1, 0.6),
    "learning_rate": [1e-3] * N,
}
WORDS = [f"word{k}" for k in range(64)]


def answers(step: int) -> list[dict[str, Any]]:
    """Four groups of four different answers; those of 40 words, half of them right."""
    rng = np.random.default_rng(step)
    rows = []
    for group in range(4):
        for k in range(4):
            words = list(rng.permutation(WORDS)[:40])
            facts = {"prompt": f"p{group}", "score": float(k % 2), "truncated": k == 0}
            rows.append({"step": step, "group": group, "completion": " ".join(words), **facts})
    return rows


SCORES = {
    "before": {
        f"{s}/{k}": v for s in ("seen", "held_out") for k, v in (("correct", 5), ("total", 60))
    },
    "after": {
        "seen/correct": 45,
        "seen/total": 60,
        "held_out/correct": 40,
        "held_out/total": 60,
    },
}


def record(
    metrics: dict[str, list[Any]] | None = None,
    change: Callable[[dict[str, Any]], None] = lambda row: None,
    scores: dict[str, Any] | None = None,
    facts: dict[str, Any] | None = None,
    held_out: tuple[int, ...] = (5, 20, 35),
) -> Record:
    """A healthy record with some metrics, answers, scores or facts changed."""
    columns = HEALTHY | (metrics or {})
    rows: list[dict[str, Any]] = [
        {"step": i + 1} | {k: v[i] for k, v in columns.items() if i < len(v)} for i in range(N)
    ]
    for i, correct in zip((9, 19, 29), held_out):
        rows[i] |= {"held_out/correct": correct, "held_out/total": 60}
    shown = {step: answers(step) for step in (1, 10, 20, 30, 34, 38, 40)}
    for row in (r for rows_ in shown.values() for r in rows_):
        change(row)
    return Record({**FACTS, **(facts or {})}, rows, scores or SCORES, shown)


FLAT = wave(0.3, 0.3)
UNSOLVED = {
    "before": SCORES["before"],
    "after": {"held_out/correct": 4, "held_out/total": 60, "seen/correct": 4, "seen/total": 60},
}
STUCK: dict[str, Any] = {"scores": UNSOLVED, "held_out": (5, 4, 5)}


def spiked(times: float, at: tuple[int, ...]) -> list[float]:
    return [x * (times if i in at else 1) for i, x in enumerate(HEALTHY["grad_norm"])]


def same(row: dict[str, Any]) -> None:
    row |= {"completion": "always this", "score": 1.0 if row["step"] == 1 else 0.5}


def looped(row: dict[str, Any]) -> None:
    row["completion"] = " ".join(WORDS[:5] * 8)


def worse_when_cut(row: dict[str, Any]) -> None:
    row["truncated"] = row["group"] < 2
    row["score"] = 0.1 if row["truncated"] else 1.0


def not_worse_when_cut(row: dict[str, Any]) -> None:
    row["truncated"] = row["group"] < 2
    row["score"] = 1.0 if row["truncated"] else 0.1


def by_length(row: dict[str, Any]) -> None:
    count = 20 + 10 * (row["group"] + int(10 * row["score"])) % 37
    row |= {"completion": "x" * count, "score": count / 100}


def against_length(row: dict[str, Any]) -> None:
    by_length(row)
    row["score"] = 1 - row["score"]


def best(row: dict[str, Any]) -> None:
    row["score"] = min(row["score"], 0.7)


LONGER = {"completions/mean_length": wave(40, 70)}
GAP = "sampling/sampling_logp_difference/mean"
RISE_AND_FALL = wave(0.1, 0.8, 20) + wave(0.8, 0.1, 20)

TABLE: dict[str, tuple[Record, Record]] = {
    "no_signal": (
        record({"frac_reward_zero_std": [0.95] * N, "reward": FLAT}, **STUCK),
        record({"frac_reward_zero_std": [0.85] * N, "reward": FLAT}, **STUCK),
    ),
    "saturated": (
        record({"reward": [0.2] * 10 + wave(0.7, 0.7)[:30]}, best),
        record({"reward": [0.2] * 10 + wave(0.6, 0.6)[:30]}, best),
    ),
    "unscored": (record({"unscored": [14.0] * N}), record({"unscored": [11.0] * N})),
    "entropy_collapse": (
        record({"entropy": wave(2.0, 0.5)[:30] + [0.15] * 10, "reward": FLAT}, **STUCK),
        record({"entropy": wave(2.0, 0.5)[:30] + [0.25] * 10, "reward": FLAT}, **STUCK),
    ),
    "entropy_runaway": (
        record({"entropy": wave(1.0, 2.2), "reward": FLAT}, **STUCK),
        record({"entropy": wave(1.0, 2.2)}, **STUCK),
    ),
    "ratio_tails": (record({"ratio/max": [11.0] * N}), record({"ratio/max": [9.0] * N})),
    "policy_jumps": (record({"approx_kl": [0.22] * N}), record({"approx_kl": [0.18] * N})),
    "kl_runaway": (
        record({"kl": wave(0.0, 0.5), "reward": RISE_AND_FALL}, **{**STUCK, "held_out": ()}),
        record({"kl": wave(0.3, 0.5), "reward": RISE_AND_FALL}, **{**STUCK, "held_out": ()}),
    ),
    "clipped": (
        record({"clip_ratio/region_mean": [0.65] * N}),
        record({"clip_ratio/region_mean": [0.55] * N}),
    ),
    "never_clipped": (
        record({"clip_ratio/region_mean": [0.0] * N}),
        record({"clip_ratio/region_mean": [0.0] * (N - 1) + [0.01]}),
    ),
    "lr_too_small": (
        record({"weights/changed": [5e-4] * N, "reward": FLAT}, **STUCK),
        record({"weights/changed": [5e-4] * N}, **STUCK),
    ),
    "lr_too_large": (
        record({"weights/moved": [0.25] * N, "reward": FLAT}, **STUCK),
        record({"weights/moved": [0.15] * N, "reward": FLAT}, **STUCK),
    ),
    "gradient_spikes": (
        record({"grad_norm": spiked(12, (12, 22, 32))}),
        record({"grad_norm": spiked(12, (12, 22))}),
    ),
    "non_finite": (record({"skipped_updates": [0.0] * 39 + [1.0]}), record()),
    "critic": (
        record({"explained_variance": [-0.1] * N, "reward": FLAT}, **STUCK),
        record({"explained_variance": [0.1] * N, "reward": FLAT}, **STUCK),
    ),
    "stale_sampler": (
        record({GAP: [0.001, 0.03, *wave(0.05, 0.18)[2:]]}),
        record({GAP: [0.001, 0.03, *wave(0.05, 0.14)[2:]]}),
    ),
    "mismatch": (record({GAP: wave(0.16, 0.16)}), record({GAP: wave(0.14, 0.14)})),
    "old_data": (record({"staleness/mean": [4.5] * N}), record({"staleness/mean": [3.5] * N})),
    "length_hacking": (record(LONGER, by_length, **STUCK), record(LONGER, against_length, **STUCK)),
    "format_only": (
        record({"rewards/accuracy/mean": wave(0.1, 0.1)}, **STUCK),
        record({"rewards/accuracy/mean": wave(0.1, 0.3)}, **STUCK),
    ),
    "over_optimised": (
        record(scores=UNSOLVED, held_out=(5, 40, 20)),
        record(scores=UNSOLVED, held_out=(5, 9, 8)),
    ),
    "memorised": (
        record(scores={"after": SCORES["after"] | {"seen/correct": 58, "held_out/correct": 30}}),
        record(scores={"after": SCORES["after"] | {"seen/correct": 42, "held_out/correct": 31}}),
    ),
    "fell": (
        record({"reward": RISE_AND_FALL}),
        record({"reward": wave(0.1, 0.8, 20) + wave(0.8, 0.6, 20)}),
    ),
    "no_progress": (record({"reward": FLAT}, **STUCK), record(**STUCK)),
    "truncated": (
        record({"completions/clipped_ratio": [0.6] * N, "reward": FLAT}, worse_when_cut, **STUCK),
        record(
            {"completions/clipped_ratio": [0.6] * N, "reward": FLAT}, not_worse_when_cut, **STUCK
        ),
    ),
    "repetition": (record(change=looped), record()),
    "mode_collapse": (record(change=same), record()),
}


def kinds(x: Record) -> set[str]:
    return {f.kind for f in diagnose(x)}


SEVERE: dict[str, tuple[Record, Record]] = {
    "no_signal": (
        record({"frac_reward_zero_std": [1.0] * N, "reward": FLAT}, **STUCK),
        record({"frac_reward_zero_std": [0.95] * N, "reward": FLAT}, **STUCK),
    ),
    "unscored": (record({"unscored": [70.0] * N}), record({"unscored": [60.0] * N})),
    "ratio_tails": (record({"ratio/max": [110.0] * N}), record({"ratio/max": [90.0] * N})),
    "policy_jumps": (record({"approx_kl": [1.1] * N}), record({"approx_kl": [0.9] * N})),
    "mismatch": (record({GAP: wave(0.55, 0.55)}), record({GAP: wave(0.45, 0.45)})),
    "old_data": (record({"staleness/mean": [17.0] * N}), record({"staleness/mean": [15.0] * N})),
    "non_finite": (
        record({"skipped_updates": [0.0] * 37 + [1.0] * 3}),
        record({"skipped_updates": [0.0] * 38 + [1.0] * 2}),
    ),
}
"""Records that are serious, and such that are only a warning."""


@pytest.mark.parametrize("kind", SEVERE)
def test_a_finding_is_serious_from_its_own_threshold_on(kind):
    found = [{f.kind: f.severity for f in diagnose(x)}[kind] for x in SEVERE[kind]]
    assert found == ["serious", "warning"]


def cut(whole: int, **metrics: Any) -> Record:
    """Answers that are cut off, but for some of 16, which have better scores."""

    def change(row: dict[str, Any]) -> None:
        order[row["step"]] = order.get(row["step"], 0) + 1
        row["truncated"] = order[row["step"]] > whole
        row["score"] = 0.5

    order: dict[int, int] = {}
    columns = {"completions/clipped_ratio": [0.9] * N, "reward": FLAT, **metrics}
    return record(columns, change, scores=SLIGHTLY, held_out=(5, 4, 5))


SLIGHTLY = {"after": {"held_out/correct": 2, "held_out/total": 60}}


def loops(every: int) -> Callable[[dict[str, Any]], None]:
    """One answer in so many repeats itself."""
    count = [0]

    def change(row: dict[str, Any]) -> None:
        count[0] += 1
        if count[0] % every == 0:
            looped(row)

    return change


def plateau(last: float) -> list[float]:
    """Rewards that rise, stay, and end a little higher."""
    return wave(0.1, 0.5, 20) + [0.5] * 10 + [last] * 10


SINKING = wave(2.0, 0.5)[:30] + [0.15] * 10
EDGES: dict[str, tuple[str, Record, Record]] = {
    "movement instead of bfloat16": (
        "lr_too_small",
        record({"weights/moved": [5e-7] * N, "reward": FLAT}, **STUCK),
        record({"weights/moved": [2e-6] * N, "reward": FLAT}, **STUCK),
    ),
    "nothing moves, rewards rise": (
        "lr_too_small",
        record({"weights/moved": [5e-8] * N}),
        record({"weights/moved": [5e-7] * N}),
    ),
    "hardly any weight changes, rewards rise": (
        "lr_too_small",
        record({"weights/changed": [5e-5] * N}),
        record({"weights/changed": [5e-4] * N}),
    ),
    "rewards fall": (
        "lr_too_large",
        record({"weights/moved": [0.06] * N, "reward": wave(0.5, 0.2)}, **STUCK),
        record({"weights/moved": [0.04] * N, "reward": wave(0.5, 0.2)}, **STUCK),
    ),
    "the easy part rises a little": (
        "format_only",
        record(
            {"rewards/format/mean": wave(0.8, 0.97), "rewards/accuracy/mean": wave(0.1, 0.1)},
            **STUCK,
        ),
        record(
            {"rewards/format/mean": wave(0.8, 0.87), "rewards/accuracy/mean": wave(0.1, 0.1)},
            **STUCK,
        ),
    ),
    "one long answer in four repeats itself": (
        "repetition",
        record(change=loops(4)),
        record(change=loops(6)),
    ),
    "whole answers are too rare to compare with": ("truncated", cut(1), cut(4)),
    "rewards creep": (
        "entropy_collapse",
        record({"entropy": SINKING, "reward": plateau(0.505)}, **STUCK),
        record({"entropy": SINKING, "reward": plateau(0.53)}, **STUCK),
    ),
    "rewards are at their top, whatever is held out": (
        "entropy_collapse",
        record({"entropy": SINKING, "reward": [0.93] * N}, **STUCK),
        record({"entropy": SINKING, "reward": [0.97] * N}, **STUCK),
    ),
}


@pytest.mark.parametrize("name", EDGES)
def test_the_other_edges_of_a_check(name):
    kind, wrong, right = EDGES[name]
    assert kind in kinds(wrong)
    assert kind not in kinds(right)


@pytest.mark.parametrize(("reward", "alarm"), [(0.93, True), (0.97, False)])
def test_a_sure_policy_with_every_reward_is_no_alarm_while_it_goes(reward, alarm):
    """Live, no completion is at hand: what is measured by right answers has 1 at the top."""
    whole = record({"entropy": SINKING, "reward": [reward] * N}, **STUCK)
    live = Record(whole.facts, whole.rows)
    assert live.top is None
    assert ("entropy_collapse" in kinds(live)) is alarm


def test_the_healthy_record_is_healthy():
    found = examine(record())
    assert [f.sentence for f in found.findings] == []
    assert found.unchecked == ()
    assert found.checked == len(CHECKS)


def test_the_table_has_every_check():
    assert set(TABLE) == {c.kind for c in CHECKS}


@pytest.mark.parametrize("kind", TABLE)
def test_a_check_speaks_on_one_side_of_its_threshold_only(kind):
    wrong, right = TABLE[kind]
    assert kind in kinds(wrong)
    assert kind not in kinds(right)


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.kind)
def test_a_check_without_what_it_needs_says_so(check):
    bare = Record(FACTS, [{"step": i + 1} for i in range(N)])
    found = {u.kind: u.reason for u in examine(bare).unchecked}
    assert check.kind in found
    assert found[check.kind].startswith("needs ")
    for need in check.needs:
        assert need.split("|")[0] in found[check.kind] or check.needs.index(need) > 0


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.kind)
def test_a_check_says_what_it_looks_at_and_where_its_threshold_comes_from(check):
    doc = check.judge.__doc__ or ""
    assert "Looks at" in doc
    assert len(check.threshold) > 10
    assert "ours" in check.source or "normal" in check.source or "what a constant" in check.source


def test_too_few_iterations_are_said():
    short = Record(FACTS, record().rows[:4])
    reasons = {u.kind: u.reason for u in examine(short).unchecked}
    assert reasons["entropy_collapse"] == "needs 20 iterations, there are 4"


def test_a_diagnosis_changes_nothing_and_depends_on_nothing_else():
    wrong = TABLE["length_hacking"][0]
    before = copy.deepcopy((wrong.facts, wrong.rows, wrong.scores, wrong.completions))
    first = diagnose(wrong.facts, wrong.rows, wrong.scores, wrong.completions)
    assert (wrong.facts, wrong.rows, wrong.scores, wrong.completions) == before
    assert diagnose(*before) == first == diagnose(wrong)


def test_an_empty_record_is_no_alarm():
    assert diagnose({}) == ()
    assert diagnose(FACTS, [{"step": 1, "reward": None}]) == ()


def test_the_worst_comes_first_and_what_follows_comes_last():
    found = diagnose(record({"weights/moved": [0.3] * N, "reward": FLAT}, **STUCK))
    assert [f.kind for f in found] == ["lr_too_large", "no_progress"]
    assert found[1].because == ("lr_too_large",)


def test_causes_lead_nowhere_in_circles():
    causes = {c.kind: set(c.causes) for c in CHECKS}
    assert set().union(*causes.values()) <= set(causes)
    while causes:
        ends = {k for k, v in causes.items() if not v & set(causes)}
        assert ends, causes
        causes = {k: v for k, v in causes.items() if k not in ends}


@pytest.mark.parametrize("kind", ["stale_sampler", "mismatch"])
def test_gaps_of_replayed_samples_are_no_matter_of_the_sampler(kind):
    wrong = TABLE[kind][0]
    rows = [{**row, "staleness/max": 2.0} for row in wrong.rows]
    found = examine(Record(wrong.facts, rows, wrong.scores, wrong.completions))
    assert kind not in {f.kind for f in found.findings}
    assert "fresh samples" in {u.kind: u.reason for u in found.unchecked}[kind]


def test_one_wild_iteration_is_no_alarm():
    """Thresholds are of windows: a single outlier in any metric says nothing."""
    for name in HEALTHY.keys() - {"skipped_updates", "learning_rate"}:
        wild = list(HEALTHY[name])
        wild[-3] = 1000.0 * max(wild)
        assert kinds(record({name: wild})) == set(), name


def test_hostile_names_and_texts_are_written_out():
    def hostile(row: dict[str, Any]) -> None:
        same(row)
        row["completion"] = "\x1b]0;owned\x07\u202e same"

    parts = {"rewards/\x1b[31mformat/mean": wave(0.1, 0.9), "rewards/format/mean": []}
    wrong = record({**parts, "rewards/accuracy/mean": wave(0.1, 0.1)}, hostile, **STUCK)
    found = {f.kind: f.evidence for f in diagnose(wrong)}
    assert {"mode_collapse", "format_only"} <= set(found)
    assert not any(c in text for text in found.values() for c in "\x1b\x07\u202e")
    assert "owned" in found["mode_collapse"]


def test_no_reward_yet_is_a_note_until_iteration_40():
    nothing = record({"frac_reward_zero_std": [1.0] * N, "reward": [0.0] * N}, **STUCK)
    (late,) = (f for f in diagnose(nothing) if f.kind == "no_signal")
    early = Record(nothing.facts, nothing.rows[:30], {}, {})
    (soon,) = (f for f in diagnose(early) if f.kind == "no_signal")
    assert (late.severity, soon.severity) == ("serious", "note")
    assert "of 3840 answers: fewer than 1 in 1280 is rewarded" in soon.evidence
    half = record({"frac_reward_zero_std": [1.0] * N, "reward": [0.5] * N}, **STUCK)
    (judge,) = diagnose(Record(half.facts, half.rows[:15], {}, {}))
    assert (judge.kind, judge.severity) == ("no_signal", "serious")


@pytest.mark.parametrize(("weights", "found"), [(80_000, False), (135_000_000, True)])
def test_a_large_policy_may_move_less(weights, found):
    facts = {"policy": {"parameters": weights, "lora": 0}}
    wrong = record({"weights/moved": [0.006] * N, "reward": FLAT}, facts=facts, **STUCK)
    assert ("lr_too_large" in kinds(wrong)) is found


# ── the statistics ───────────────────────────────────────────────────────────────────────────────


def test_above_is_the_rank_sum_test():
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(0)
    for shift in (0.0, 0.5, 3.0):
        a, b = rng.normal(size=12).round(1), (rng.normal(size=9) + shift).round(1)
        p = stats.mannwhitneyu(
            b, a, alternative="greater", method="asymptotic", use_continuity=False
        ).pvalue
        assert stats.norm.sf(above(a, b)) == pytest.approx(p, abs=1e-12)
    assert above(np.ones(5), np.ones(5)) == 0.0


def test_agreement_is_one_for_the_same_order_and_none_for_a_constant():
    x = np.array([1.0, 2.0, 5.0, 9.0])
    assert agreement(x, x**3) == pytest.approx(1)
    assert agreement(x, -x) == pytest.approx(-1)
    assert agreement(x, np.ones(4)) == 0.0


def test_apart_counts_standard_errors():
    assert apart((90, 100), (50, 100)) > 5
    assert abs(apart((50, 100), (50, 100))) < 1e-12
    assert apart((1, 1), (0, 1)) < 2
    assert apart((1, 1), (0, 0)) == 0.0


def test_a_series_leaves_out_what_is_no_number():
    rows = [{"step": i, "x": v} for i, v in enumerate([1.0, None, math.nan, "a", 2.0])]
    series = Record({}, rows).series("x")
    assert isinstance(series, Series)
    assert series.steps.tolist() == [0, 4]
    assert series.values.tolist() == [1.0, 2.0]


def test_repeated_grams():
    assert repeated(list("abcdefgh")) == 0.0
    assert repeated(["a"] * 20) == pytest.approx(16 / 17)
    assert repeated(["a"]) == 0.0
