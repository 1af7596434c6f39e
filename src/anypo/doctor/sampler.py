"""Who sampled what is learned from: an old policy, another distribution, or the one that learns."""

from __future__ import annotations

import numpy as np

from anypo.doctor.advice import fewer_visits, lower_lr, num
from anypo.doctor.finding import Needs, Seen, check
from anypo.doctor.record import Record, Series

GAP, WIDE = 0.15, 0.5
ROUNDING = 0.06
OLD, VERY_OLD = 4.0, 16.0
METRIC = "sampling/sampling_logp_difference/mean"
SOURCE = (
    "rounding alone makes 0.04 with a language model in bfloat16, measured here, and nothing in "
    "float32; what such gaps do: 2510.26788; the number is ours"
)


def _gap(record: Record) -> Series | Needs:
    """How far the recorded and the recomputed log-probabilities are apart, where that says so."""
    old = record.series("staleness/max")
    if len(old) and old.end.max() > 0:
        return Needs("fresh samples: in replayed ones the policy itself has moved")
    reads_old = "logp_old" in record.fields("ratio", "to").values()
    if record.visits > 1 and not reads_old:
        return Needs("the log-probabilities before the update, which this recipe does not keep")
    return record.series(METRIC)


@check(
    title="The sampler has old weights",
    threshold=f"recorded and recomputed log-probabilities {GAP} nats a step apart in the last "
    f"quarter, and less than {ROUNDING} in the first two iterations",
    source=SOURCE,
    needs=(METRIC,),
    causes=(),
)
def stale_sampler(record: Record) -> Seen | Needs | None:
    """The sampler does not receive the weights that are trained: samples are of an older policy.

    Looks at `sampling/sampling_logp_difference/mean`: with a sampler that is left behind it begins
    at nothing and grows as the policy learns.
    """
    gap = _gap(record)
    if isinstance(gap, Needs):
        return gap
    first, last = float(gap.values[:2].min()), float(np.median(gap.end))
    if last < GAP or first >= ROUNDING:
        return None
    return Seen(
        f"the gap was {num(first)} nats a step at first and is {num(last)} now, while no sample "
        "is recorded as old.",
        (
            "see that Policy.publish() gives the sampler the new weights after every update",
            "until then correct for it: anypo train decoupled_ppo",
            lower_lr(record),
        ),
        gap.whole,
        "serious",
        METRIC,
    )


@check(
    title="Sampler and trainer disagree",
    threshold=f"recorded and recomputed log-probabilities {GAP} nats a step apart in the last "
    f"quarter, and {ROUNDING} or more in the first two iterations",
    source=SOURCE,
    needs=(METRIC,),
)
def mismatch(record: Record) -> Seen | Needs | None:
    """The sampler draws from another distribution than the one that is scored and trained.

    Looks at `sampling/sampling_logp_difference/mean`: a gap that is there before any update is no
    matter of old weights, but of temperature, truncation, precision or template.
    """
    gap = _gap(record)
    if isinstance(gap, Needs):
        return gap
    first, last = float(gap.values[:2].min()), float(np.median(gap.end))
    if last < GAP or first < ROUNDING:
        return None
    return Seen(
        f"the gap is {num(last)} nats a step, and was {num(first)} before the policy had learned "
        "anything.",
        (
            "let sampler and trainer use one temperature, no top-p, top-k or min-p, and one "
            "chat template",
            "--precision float32 (if the gap closes, it was rounding)",
            "until then correct for it: anypo train decoupled_ppo",
        ),
        gap.whole,
        "serious" if last >= WIDE else "warning",
        METRIC,
    )


@check(
    title="Samples are too old",
    threshold=f"{OLD:.0f} iterations between sampling and update, on average over the last quarter",
    source="asynchronous trainers bound it at a few versions (2505.24298), and plain GRPO loses on "
    "older data (2510.01161); the number is ours",
    needs=("staleness/mean",),
    rows=5,
)
def old_data(record: Record) -> Seen | None:
    """The batch was sampled by a policy that is long gone.

    Looks at `staleness/mean` and `staleness/max`.
    """
    age, oldest = record.series("staleness/mean"), record.series("staleness/max")
    last = float(np.median(age.end))
    if last < OLD:
        return None
    return Seen(
        f"samples are {num(last)} iterations old on average, {oldest.end.max():.0f} at most.",
        (
            "keep less: a smaller replay buffer, or a bound on the age of what is replayed",
            "anypo train decoupled_ppo: weights for old samples beside the trust region",
            *fewer_visits(record),
        ),
        age.span,
        "serious" if last >= VERY_OLD else "warning",
        "staleness/mean",
    )
