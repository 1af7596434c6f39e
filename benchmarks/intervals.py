"""How often the intervals of a comparison hold the truth: the figures of docs/decisions/0009.

`python benchmarks/intervals.py [COMPARISONS]` prints them in some minutes; 1500 by default.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from scipy import stats

from anypo.report.statistics import RESAMPLES, bands, middle, pairs

GAP, QUESTIONS = 0.04, 60
Array = np.ndarray


def world(kind: str, rng: np.random.Generator, methods: int, seeds: int) -> tuple[Array, Array]:
    """Scores `[methods, seeds]` and the true means: hard seeds are hard for every method."""
    true = 0.6 + GAP * np.arange(methods)
    noise = rng.normal(0, 0.04, (methods, seeds))
    if kind == "skewed":
        noise = 0.05 * (rng.lognormal(0, 0.5, (methods, seeds)) - np.exp(0.125))
    scores = true[:, None] + rng.normal(0, 0.05, seeds) + noise
    if kind == "accuracy of 60 questions":
        scores = rng.binomial(QUESTIONS, np.clip(scores, 0, 1)) / QUESTIONS
    failing = {"all fail on a fifth": methods, "one fails on a fifth": 1}.get(kind, 0)
    lost = rng.random((failing, seeds)) < 0.2
    scores[:failing] -= 0.5 * lost
    true[:failing] -= 0.1
    return scores, true


KINDS = (
    "normal",
    "accuracy of 60 questions",
    "skewed",
    "all fail on a fifth",
    "one fails on a fifth",
)


def joint(kind: str, methods: int, seeds: int, count: int) -> float:
    """The share of comparisons all of whose intervals hold the true differences."""
    rng, held = np.random.default_rng(1), 0
    for _ in range(count):
        scores, true = world(kind, rng, methods, seeds)
        found = pairs({str(m): dict(enumerate(scores[m])) for m in range(methods)})
        gaps = [true[int(p.first)] - true[int(p.second)] for p in found]
        ends = [(p.difference.low, p.difference.high) for p in found]
        held += all(low <= gap <= high for (low, high), gap in zip(ends, gaps))
    return held / count


def bootstrap(method: str) -> Callable[[Array], tuple[Array, Array]]:
    """The usual bootstrap intervals of a mean, for comparison."""

    def interval(x: Array) -> tuple[Array, Array]:
        found = stats.bootstrap(
            (x,), np.mean, axis=-1, vectorized=True, method=method, batch=250,  # pyright: ignore
            n_resamples=RESAMPLES // 2, rng=np.random.default_rng(0),
        ).confidence_interval  # fmt: skip
        return found.low, found.high

    return interval


def student(x: Array) -> tuple[Array, Array]:
    """Student's interval of a mean."""
    found = stats.ttest_1samp(x, 0, axis=-1).confidence_interval(0.95)
    return found.low, found.high


def differences(kind: str, seeds: int, count: int) -> dict[str, float]:
    """Coverage of the mean of paired differences by other intervals."""
    rng = np.random.default_rng(2)
    made = [world(kind, rng, 2, seeds) for _ in range(count)]
    x = np.array([scores[1] - scores[0] for scores, _ in made])
    true = made[0][1][1] - made[0][1][0]
    ways = {name: bootstrap(name) for name in ("percentile", "BCa")} | {"Student": student}
    return {name: held(way(x), true) for name, way in ways.items()}


def held(ends: tuple[Array, Array], true: float) -> float:
    """The share of intervals that hold the truth."""
    return float(np.mean((ends[0] <= true) & (true <= ends[1])))


def middles(kind: str, seeds: int, count: int) -> float:
    """Coverage of the interquartile mean of one method."""
    rng = np.random.default_rng(3)
    scores = np.array([world(kind, rng, 1, seeds)[0][0] for _ in range(count)])
    everyone = np.concatenate([world(kind, rng, 1, 1)[0][0] for _ in range(40_000)])
    _, low, high = bands(scores)
    return held((low, high), float(middle(everyone)))


def main(count: int) -> None:
    """Print all figures."""
    print("differences, all pairs of a comparison together")
    for seeds in (2, 3, 5, 10):
        for kind in KINDS:
            shares = [f"{100 * joint(kind, methods, seeds, count):.1f}" for methods in (2, 3, 4)]
            print(f"{seeds:3} seeds  {kind:26} 2, 3, 4 methods: {', '.join(shares)}", flush=True)
    print("one mean of paired differences, 5 seeds, by other intervals")
    for kind in KINDS:
        print(f"  {kind:26} {differences(kind, 5, count)}", flush=True)
    print("interquartile means")
    for seeds in (5, 6, 8, 10, 20):
        shares = [f"{kind} {100 * middles(kind, seeds, count):.1f}" for kind in KINDS[:4]]
        print(f"{seeds:3} seeds  {'; '.join(shares)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1500)
