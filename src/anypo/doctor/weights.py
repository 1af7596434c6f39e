"""What the optimizer does: learning rate, gradient spikes, updates that were not made, critics."""

from __future__ import annotations

import numpy as np

from anypo.doctor.advice import fewer_visits, higher_lr, lower_lr, num, percent, raised
from anypo.doctor.finding import Seen, check
from anypo.doctor.record import Record, Series

OURS = "ours, measured in benchmarks/doctor.py"
STILL, STUCK = 1e-3, 1e-4
SHORT, NONE = 1e-6, 1e-7
LEAP, STRIDE = 0.2, 0.05
LARGE, FINER = 10_000_000, 50
SPIKE, OFTEN, PAST = 10.0, 0.05, 20
SKIPPED = 0.05


@check(
    title="The learning rate is too small to move weights",
    threshold=f"in the median iteration with a gradient {percent(STILL)} of the weights get "
    f"another bfloat16 value, or weights move by {SHORT:g} of their size, and rewards do not rise; "
    "at a tenth of either, whatever rewards do",
    source="bfloat16 keeps 8 bits: a step under 1/512 of a weight leaves its copy as it was; the "
    "share is ours (healthy runs: 30 % and more on toys, 2 to 3 % at 1e-5 on a language model)",
    needs=("weights/changed", "weights/moved", "grad_norm"),
    tasks=("language", "control", "generator", "preference", "demonstration"),
)
def lr_too_small(record: Record) -> Seen | None:
    """Gradients arrive, and the weights stay where they are.

    Looks at `weights/changed` and `weights/moved` where `grad_norm` is above 0.
    """
    rows = [r for r in record.rows if (r.get("grad_norm") or 0) > 0 and "weights/changed" in r]
    changed = [r["weights/changed"] for r in rows if r["weights/changed"] is not None]
    moved = [r["weights/moved"] for r in rows if r.get("weights/moved") is not None]
    if len(changed) < 5 or len(moved) < 5:
        return None
    few, far = float(np.median(changed)), float(np.median(moved))
    stuck = few < STUCK or far < NONE
    if not stuck and ((few >= STILL and far >= SHORT) or record.reward.rose):
        return None
    return Seen(
        f"an iteration moved the weights by {num(far)} of their size, and {percent(few)} of them "
        f"became another bfloat16 number, at a learning rate of {record.lr:.3g}.",
        (higher_lr(record), "look whether a schedule has run out: anypo show RECIPE, schedules"),
        (int(rows[0]["step"]), int(rows[-1]["step"])),
        "serious",
        "weights/changed",
    )


@check(
    title="The learning rate is too large",
    threshold=f"weights move by {percent(LEAP)} of their size in an iteration without any gain; or "
    f"by {percent(STRIDE)} while rewards surely fall; at a {FINER}th of either with {LARGE:,} "
    "weights and more, which were trained before",
    source=OURS + "; that of large policies is a guess from one run at 1e-5, which moves 2e-5",
    needs=("weights/moved", "reward"),
)
def lr_too_large(record: Record) -> Seen | None:
    """The weights are thrown about, and the policy gets worse or never better.

    Looks at `weights/moved` and at the reward: first window against last, and best against last.
    """
    moved, reward = record.updates("weights/moved"), record.reward
    if not len(moved):
        return None
    size = max(float(np.median(moved.start)), float(np.median(moved.values)))
    gained = reward.rose or record.held_out_rose or record.solved
    policy = record.facts.get("policy", {})
    large = (policy.get("parameters") or 0) >= LARGE and not policy.get("lora")
    unit = 1 / FINER if large else 1.0
    if not ((size >= LEAP * unit and not gained) or (size >= STRIDE * unit and reward.fell)):
        return None
    first, last = float(reward.values[0]), float(np.median(reward.end))
    return Seen(
        f"an iteration moved the weights by {percent(size)} of their size at a learning rate of "
        f"{record.lr:.3g}; the reward began at {num(first)} and is {num(last)}.",
        (f"--lr {record.lr / 10:.1g} (it is {record.lr:.3g})", *fewer_visits(record)),
        moved.whole,
        "serious",
        "weights/moved",
    )


@check(
    title="Gradient spikes",
    threshold=f"a norm {SPIKE:.0f} times the median of the {PAST} iterations before it, in "
    f"{percent(OFTEN)} of the iterations, or once with rewards that stay lower after it",
    source=OURS + "; 2504.02507 clips such spikes",
    needs=("grad_norm",),
    tasks=("language", "control", "generator", "preference", "demonstration"),
    rows=20,
    causes=("lr_too_large", "ratio_tails", "stale_sampler", "mismatch", "old_data"),
)
def gradient_spikes(record: Record) -> Seen | None:
    """Now and then one update is far larger than those around it.

    Looks at `grad_norm` (before clipping) where it is above 0, against the median of what came just
    before; a single spike counts only where the reward is lower afterwards.
    """
    norms = record.series("grad_norm")
    norms = Series(norms.steps[norms.values > 0], norms.values[norms.values > 0])
    usual = [np.median(norms.values[max(0, i - PAST) : i]) for i in range(5, len(norms))]
    times = norms.values[5:] / np.array(usual) if usual else np.array([])
    spikes = norms.steps[5:][times >= SPIKE]
    harmful = [int(s) for s in spikes if _lower_after(record.reward, int(s))]
    if not harmful and (len(spikes) < 3 or len(spikes) < OFTEN * len(norms)):
        return None
    named = ", ".join(str(s) for s in (harmful or spikes)[:5])
    after = "; rewards were lower afterwards" if harmful else ""
    tighter = raised(record, "update", "max_grad_norm", 0.5)
    return Seen(
        f"{len(spikes)} of {len(norms)} updates, up to {num(float(times.max()))} times the usual "
        f"norm (iterations {named}){after}.",
        (*tighter, lower_lr(record), "look at the answers of those iterations in report.html"),
        (int(spikes[0]), int(spikes[-1])),
        "serious" if harmful else "warning",
        "grad_norm",
    )


def _lower_after(reward: Series, step: int) -> bool:
    """Whether every one of the next rewards lies under all of those before, by a clear margin."""
    before = reward.values[reward.steps < step][-5:]
    after = reward.values[reward.steps > step][:5]
    if len(before) < 5 or len(after) < 5:
        return False
    return bool(after.max() < before.min()) and np.median(after) < 0.8 * np.median(before)


@check(
    title="Updates were skipped",
    threshold="any gradient that was not finite; serious from 5 % of the iterations on",
    source="none is normal",
    needs=("skipped_updates",),
    tasks=("language", "control", "generator", "preference", "demonstration"),
    rows=1,
    causes=("lr_too_large", "ratio_tails"),
)
def non_finite(record: Record) -> Seen | None:
    """Gradients that are infinite or no number are never applied, and something makes them.

    Looks at `skipped_updates`, and at losses and norms that could not be written as numbers.
    """
    wrong = [
        int(r["step"])
        for r in record.rows
        if (r.get("skipped_updates") or 0) > 0
        or any(name in r and r[name] is None for name in ("loss", "grad_norm"))
    ]
    if not wrong:
        return None
    named = ", ".join(map(str, wrong[:5])) + (", …" if len(wrong) > 5 else "")
    return Seen(
        f"in {len(wrong)} of {len(record.rows)} iterations a loss or a gradient was not finite "
        f"(iterations {named}).",
        (
            lower_lr(record),
            "look for rewards of inf, and for answers of extreme length, in those iterations",
            "--precision float32",
        ),
        (wrong[0], wrong[-1]),
        "serious" if len(wrong) >= max(3, SKIPPED * len(record.rows)) else "warning",
        "grad_norm",
    )


@check(
    title="The critic explains nothing",
    threshold="an explained variance of at most 0 in the median of the last quarter, and rewards "
    "that did not rise",
    source="0 is what a constant explains; the condition on rewards is ours, since at the top all "
    "returns are equal and there is nothing to explain",
    needs=("explained_variance", "reward"),
    rows=20,
    causes=("lr_too_large", "lr_too_small", "no_signal"),
)
def critic(record: Record) -> Seen | None:
    """The value function is no better than a constant: advantages are as noisy as without it.

    Looks at `explained_variance`.
    """
    explained = record.series("explained_variance")
    last = float(np.median(explained.end))
    if last > 0 or record.reward.rose or record.solved:
        return None
    return Seen(
        f"it explains {num(last)} of the variance of the returns (1 is all, 0 is none).",
        (
            "let it warm up first: anypo train vc_ppo (language)",
            *raised(record, "regularize", "coef", 2),
            "do without: grpo and rloo compare answers with each other instead",
        ),
        explained.span,
        "warning",
        "explained_variance",
    )
