"""The loss of a reward model: by hand, its sign, and what changes nothing."""

from __future__ import annotations

import math

import pytest
import torch

import anypo
from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.engine.pairs import compares, margins
from tests.identities.evaluate import evaluate
from tests.identities.small import close, last, steps

BT = anypo.recipe("bradley_terry")


def pairs(
    worth: list[float],
    outcomes: list[float],
    lengths=(2, 3, 1, 2),
    margin: list[float] | None = None,
) -> Batch:
    """Two pairs; the head says `worth` at the last step of each answer, and noise before."""
    noise = [0.7 * (-1) ** k for k in range(sum(lengths))]
    ends = last(lengths, [1.0] * len(lengths))
    said = iter(worth)
    head = [next(said) if end else x for x, end in zip(noise, ends)]
    table = {"margin": margin} if margin else {}
    reward = last(lengths, outcomes)
    return steps(lengths, (0, 0, 1, 1), table, reward=reward, reward_model=head)


def test_loss_and_gradient_agree_with_a_separate_computation():
    """Δ = 2 − ½ and −1 − 1: by hand, log(1 + e^−Δ), and −σ(−Δ)/2 on the last steps alone."""
    loss, grads = evaluate(BT, pairs([2.0, 0.5, 1.0, -1.0], [1, 0, 0, 1]))
    assert loss == pytest.approx((math.log1p(math.exp(-1.5)) + math.log1p(math.exp(2.0))) / 2)
    a, b = 1 / (1 + math.exp(1.5)) / 2, 1 / (1 + math.exp(-2.0)) / 2
    close(grads["reward_model"], [0, -a, 0, 0, a, b, 0, -b])


def test_a_step_against_the_gradient_parts_the_two():
    """The sign: going down the loss raises what was preferred and lowers the other."""
    batch = pairs([0.0, 0.0, 0.0, 0.0], [1, 0, 0, 1])
    _, grads = evaluate(BT, batch)
    moved = batch.with_({"reward_model": batch["reward_model"] - grads["reward_model"]})
    advantage = {"advantage": torch.where(moved.at("traj")["reward"] > 0, 1.0, -1.0)}
    ready = moved.with_({"advantage": advantage["advantage"][moved.id("traj")]})
    assert (margins(BT.objectives[0], ready) == 0.5).all()


def test_the_order_of_the_two_changes_nothing():
    loss, grads = evaluate(BT, pairs([2.0, 0.5, 1.0, -1.0], [1, 0, 0, 1], (2, 2, 1, 1)))
    other, swapped = evaluate(BT, pairs([0.5, 2.0, -1.0, 1.0], [0, 1, 1, 0], (2, 2, 1, 1)))
    assert loss == other
    g, s = grads["reward_model"], swapped["reward_model"]
    close(s, g[[2, 3, 0, 1, 5, 4]].tolist())


def test_a_constant_added_to_every_reward_changes_nothing():
    loss, grads = evaluate(BT, pairs([2.0, 0.5, 1.0, -1.0], [1, 0, 0, 1]))
    other, moved = evaluate(BT, pairs([5.0, 3.5, 4.0, 2.0], [1, 0, 0, 1]))
    assert other == pytest.approx(loss, rel=1e-14)
    close(moved["reward_model"], grads["reward_model"].tolist())


def test_a_margin_of_the_data_shifts_the_difference():
    """With m = 1 on the first pair, Δ = 1.5 counts as 0.5."""
    with_margin = pairs([2.0, 0.5, 1.0, -1.0], [1, 0, 0, 1], margin=[1.0, 1.0, 0.0, 0.0])
    loss, _ = evaluate(BT, with_margin)
    shifted, _ = evaluate(BT, pairs([1.0, 0.5, 1.0, -1.0], [1, 0, 0, 1]))
    assert loss == pytest.approx(shifted, rel=1e-14)
    smooth = anypo.recipe("bradley_terry", smoothing=0.1)
    plain = pairs([2.0, 0.5, 1.0, -1.0], [1, 0, 0, 1])
    assert evaluate(smooth, with_margin)[0] == evaluate(smooth, plain)[0]


def test_a_margin_and_smoothing_exclude_each_other():
    with pytest.raises(UsageError, match="margin must be empty"):
        BT.set("surrogate.smoothing", 0.1)


def test_a_pair_that_nobody_prefers_teaches_nothing():
    _, grads = evaluate(BT, pairs([2.0, 0.5, 1.0, -1.0], [1, 1, 0, 0]))
    close(grads["reward_model"], [0.0] * 8)


def test_margins_are_of_the_better_over_the_worse():
    batch = pairs([2.0, 0.5, 1.0, -1.0], [1, 0, 0, 1])
    reward = batch.sum(batch["reward"], within="traj")
    found = margins(BT.objectives[0], batch.with_({"advantage": reward}))
    assert found.tolist() == [1.5, -2.0]
    none = margins(BT.objectives[0], batch.with_({"advantage": torch.zeros(8)}))
    assert none.tolist() == []


def test_only_lasting_scores_of_whole_answers_are_compared():
    told = {n for n in ("bradley_terry", "dpo", "ipo") if compares(anypo.recipe(n).objectives[0])}
    assert told == {"bradley_terry", "dpo", "ipo"}
    for name in ("grpo", "gspo", "p3o_pairwise", "rebel"):
        assert not compares(anypo.recipe(name).objectives[0]), name


def test_dpo_is_the_same_loss_on_another_score():
    """A reward model whose head says `β·log(π/ref)` of every answer has DPO's loss and accuracy."""
    rng = torch.Generator().manual_seed(0)
    logp = -torch.rand(8, generator=rng, dtype=torch.float64)
    ref = -torch.rand(8, generator=rng, dtype=torch.float64)
    plain = pairs([0.0] * 4, [1, 0, 0, 1])
    given = plain.with_({"logp": logp, "ref.base": ref})
    worth = 0.3 * given.sum(logp - ref, within="traj")
    dpo, _ = evaluate(anypo.recipe("dpo", beta=0.3), given)
    rm, _ = evaluate(BT, plain.with_({"reward_model": worth}))
    assert rm == pytest.approx(dpo, rel=1e-13)
