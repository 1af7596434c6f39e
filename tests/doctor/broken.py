"""Runs with something broken in them: each is really trained, on the character model or a toy.

A name is the kind of trouble that its run must be found to have; `MAKERS` maps it to a function
that trains in a folder.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anypo
from anypo.backends.local import Local
from anypo.backends.policies import load_policy
from anypo.core.recipe import Recipe
from anypo.core.schedule import Piecewise
from anypo.core.score import Score
from anypo.pieces.regularizer.entropy import Entropy
from anypo.tasks.synthetic import first_letter, vowels
from anypo.tasks.task import Problems, each

VOWELS = "aeiou"
MAKERS: dict[str, Callable[[Path], None]] = {}


def broken(maker: Callable[[Path], None]) -> Callable[[Path], None]:
    """Register a maker under its name."""
    MAKERS[maker.__name__] = maker
    return maker


def task(
    score: Callable[..., float], horizon: int = 8, kind: type[Problems] = Problems
) -> Problems:
    """The words of the vowel task under another reward."""
    plain = vowels()
    return kind("words", plain.train, plain.held_out, each(score), horizon)


def train(out: Path, what: Any, recipe: Recipe | None = None, **settings: Any) -> None:
    """A short run of GRPO without a reference, or of another recipe."""
    settings = {"steps": 24, "prompts": 8, "eval_size": 12, "record_every": 3, **settings}
    policy = settings.pop("policy", "tiny")
    anypo.train(recipe or anypo.recipe("grpo", beta=0), policy, what, out=out, **settings)


def share(text: str, letters: str, horizon: int = 8) -> float:
    """The share of the horizon that is one of some letters."""
    return sum(c in letters for c in text[:horizon]) / horizon


@broken
def no_signal(out: Path) -> None:
    """A judge that gives every answer the same number."""
    train(out, task(lambda text, row: 0.5))


@broken
def stale_sampler(out: Path) -> None:
    """A sampler that never receives new weights."""
    policy = load_policy("tiny", task=vowels())
    first, generate = policy.snapshot(), policy.generate

    def old(*words: Any, **options: Any) -> Any:
        with policy.using(first):
            return generate(*words, **options)

    policy.generate = old
    train(out, vowels(), policy=policy)


@broken
def mismatch(out: Path) -> None:
    """A sampler at another temperature than the one that is scored."""
    policy = load_policy("tiny", task=vowels())
    generate = policy.generate

    def hotter(*words: Any, temperature: float, **options: Any) -> Any:
        found = generate(*words, temperature=2 * temperature, **options)
        return found

    policy.generate = hotter
    train(out, vowels(), policy=policy)


@broken
def old_data(out: Path) -> None:
    """Every batch is one that was sampled eight iterations ago."""
    kept: list[Any] = []
    rollout = Local.rollout

    def replayed(self: Local, request: Any, state: Any) -> Any:
        kept.append(rollout(self, request, state))
        return kept[max(0, len(kept) - 9)]

    Local.rollout = replayed  # type: ignore[method-assign]
    try:
        train(out, vowels())
    finally:
        Local.rollout = rollout  # type: ignore[method-assign]


@broken
def length_hacking(out: Path) -> None:
    """A reward that is the length of the answer."""
    train(
        out, task(lambda text, row: len(text) / 100, horizon=80), steps=24, prompts=4, eval_size=8
    )


@broken
def format_only(out: Path) -> None:
    """Two parts: small letters, which are easy, and the word backwards, which is never met."""

    def score(text: str, row: dict[str, Any]) -> float:
        tidy = sum(c.islower() for c in text[:8]) / 8
        right = float(text == row["prompt"][::-1])
        return Score(0.5 * tidy + right, {"rewards/format": tidy, "rewards/accuracy": right})

    train(out, task(score), steps=30)


class Strict(Problems):
    """An evaluation that wants more than the reward does."""

    def exact(self, completion: str, row: dict[str, Any]) -> bool:
        """Only the word backwards is right."""
        return completion == row["prompt"][::-1]


@broken
def saturated(out: Path) -> None:
    """A reward for any small letter in the answer, where the word backwards is wanted."""
    judge = task(lambda text, row: min(1.0, 2 * share(text, "abcdefghijkl")), kind=Strict)
    train(out, judge, steps=40, lr=6e-3)


@broken
def lr_too_small(out: Path) -> None:
    """A learning rate of 1e-9."""
    train(out, vowels(), lr=1e-9)


@broken
def never_clipped(out: Path) -> None:
    """Four passes over a batch with steps that change nothing."""
    train(out, vowels(), anypo.recipe("grpo", beta=0).set("update.epochs", 4), lr=1e-7, steps=12)


@broken
def lr_too_large(out: Path) -> None:
    """A learning rate of 1."""
    train(out, vowels(), lr=1.0)


def _wild(out: Path) -> None:
    """Six passes over every small batch at three times the learning rate."""
    noise = random.Random(0)
    recipe = anypo.recipe("grpo", beta=0).set("update.epochs", 8)
    train(out, task(lambda text, row: noise.random()), recipe, lr=2e-2, steps=12, prompts=4)


@broken
def policy_jumps(out: Path) -> None:
    """Updates without any measure."""
    _wild(out)


@broken
def ratio_tails(out: Path) -> None:
    """The same: a few ratios explode."""
    _wild(out)


@broken
def clipped(out: Path) -> None:
    """A clip so narrow that hardly any step is inside it after the first pass."""
    recipe = anypo.recipe("grpo", beta=0, clip=1e-4).set("update.epochs", 6)
    train(out, vowels(), recipe, steps=10)


@broken
def gradient_spikes(out: Path) -> None:
    """A judge that now and then says a thousand instead of one."""
    calls = [0]

    def score(text: str, row: dict[str, Any]) -> float:
        calls[0] += 1
        return share(text, VOWELS) * (1000 if calls[0] // 64 % 6 == 5 else 1)

    train(out, task(score), anypo.recipe("dr_grpo"), steps=40, eval_every=0, eval_size=1)


@broken
def non_finite(out: Path) -> None:
    """Every third gradient holds a NaN."""
    policy = load_policy("tiny", task=vowels())
    calls = [0]

    def poison(grad: Any) -> Any:
        calls[0] += 1
        return grad * math.nan if calls[0] % 3 == 0 else grad

    next(iter(policy.module.parameters())).register_hook(poison)
    train(out, vowels(), policy=policy, steps=12)


@broken
def unscored(out: Path) -> None:
    """A judge that gives up on most answers."""
    judge = task(lambda text, row: share(text, VOWELS) if text[:1] < "q" else math.nan)
    train(out, judge, steps=8)


@broken
def truncated(out: Path) -> None:
    """A horizon of two tokens, where four letters are wanted."""
    train(out, first_letter(), horizon=2, steps=80, lr=1e-2, prompts=6)


@broken
def entropy_collapse(out: Path) -> None:
    """An entropy penalty with the wrong sign."""
    recipe = anypo.recipe("grpo", beta=0).but(regularize=(-1.0 * Entropy(1.0),))
    train(out, first_letter(), recipe, steps=30, lr=1e-2)


@broken
def mode_collapse(out: Path) -> None:
    """A learning rate at which the first lucky answer is the last one."""
    train(out, first_letter(), lr=3e-2, steps=30)


@broken
def entropy_runaway(out: Path) -> None:
    """A policy that has learned, under an entropy bonus that outweighs any reward."""
    policy = load_policy("tiny", task=vowels())
    train(out.with_name("first"), vowels(), policy=policy, steps=30)
    recipe = anypo.recipe("grpo", beta=0).but(regularize=(Entropy(3.0),))
    train(out, vowels(), recipe, policy=policy, steps=24)


@broken
def kl_runaway(out: Path) -> None:
    """A learned policy under a reward that is noise, with a reference that hardly pulls."""
    policy = load_policy("tiny", task=vowels())
    noise = random.Random(0)
    judge = task(lambda text, row: noise.random())
    train(out, judge, anypo.recipe("grpo", beta=1e-6), policy=policy, steps=40, lr=1e-2)


@broken
def fell(out: Path) -> None:
    """An entropy bonus that is raised five hundredfold when everything is well."""
    raised = {"regularize.0.coef": Piecewise((0, 25), (0.01, 5.0))}
    recipe = anypo.recipe("grpo", beta=0).but(regularize=(Entropy(0.01),), schedules=raised)
    train(out, vowels(), recipe, steps=40)


@broken
def critic(out: Path) -> None:
    """A critic for rewards that are noise: nothing explains them, and nothing can be learned."""
    noise = random.Random(0)
    judge = task(lambda text, row: noise.random())
    train(out, judge, anypo.recipe("ppo", epochs=2, minibatches=2), steps=40, prompts=16)


@broken
def repetition(out: Path) -> None:
    """A reward for a single letter, over and over."""
    train(
        out, task(lambda text, row: share(text, "a", 36), horizon=36), steps=30, lr=1e-2, prompts=4
    )


@broken
def memorised(out: Path) -> None:
    """Ten words, each with a letter of its own that nothing in the word tells."""
    rng = random.Random(0)
    rows = tuple(
        {**row, "answer": rng.choice("wxyz")} for row in vowels().train + vowels().held_out
    )

    def score(text: str, row: dict[str, Any]) -> float:
        return float(text == row["answer"])

    few = Problems("secrets", rows[:10], rows[10:], each(score), 1)
    train(out, few, steps=120, prompts=10, eval_size=60, eval_every=0)


@broken
def over_optimised(out: Path) -> None:
    """A judge that can be fooled: an x is worth more than a vowel, once it has been found."""

    class Half(Problems):
        def exact(self, completion: str, row: dict[str, Any]) -> bool:
            return share(completion, VOWELS) >= 0.6

    calls = [0]

    def score(text: str, row: dict[str, Any]) -> float:
        calls[0] += 1
        return 0.4 * share(text, VOWELS) + (calls[0] > 20 * 64) * share(text, "bcdfgxyz")

    made = task(score, kind=Half)
    train(out, made, steps=60, eval_size=60, eval_every=5)
