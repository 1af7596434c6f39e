"""Imitation: the likelihood itself, and the methods that are it in a limit."""

from __future__ import annotations

import math

import pytest

import anypo
from anypo.core.errors import UsageError
from anypo.core.neutral import Mean
from tests.identities.evaluate import evaluate, same, scene
from tests.identities.small import close, steps


def test_sft_is_the_mean_negative_log_likelihood():
    batch = steps([2, 1], reward=[0, 1, 1], logp=[-1, -2, -4])
    loss, grads = evaluate(anypo.recipe("sft"), batch)
    assert loss == pytest.approx(7 / 3)
    close(grads["logp"], [-1 / 3] * 3)
    loss, grads = evaluate(anypo.recipe("sft", mean="answer"), batch)
    assert loss == pytest.approx((1.5 + 4) / 2)
    close(grads["logp"], [-1 / 4, -1 / 4, -1 / 2])


def test_sft_counts_every_answer_alike_whatever_it_is_rewarded():
    plain = scene()
    for rewards in ([1.0] * 8, [0.0] * 8, [-3.0] * 8):
        other = scene(reward=rewards)
        assert evaluate(anypo.recipe("sft"), other)[0] == evaluate(anypo.recipe("sft"), plain)[0]


def test_psft_without_bounds_is_sft_before_it_moves():
    batch = scene(reward=[0, 1, 0, 0, 1, 1, 0, 1])
    batch = batch.with_({"logp_old": batch["logp"]})
    free = anypo.recipe("psft", clip_low=1.0, clip_high=math.inf)
    same(free, anypo.recipe("sft"), batch, values=False)


def test_reinforce_on_answers_of_reward_one_is_sft():
    batch = scene(reward=[0, 1, 0, 0, 1, 1, 0, 1])
    reinforce = anypo.recipe("reinforce").but(aggregate=Mean("step", "batch"))
    same(reinforce, anypo.recipe("sft"), batch)


def test_raft_on_what_it_kept_is_sft():
    batch = scene()
    kept = anypo.recipe("raft", group=2).sampling.thin(batch)
    assert kept.count("traj") == 2
    assert set(kept.sum(kept["reward"], within="traj").tolist()) == {1.0}
    same(anypo.recipe("raft", group=2), anypo.recipe("sft"), kept)


def test_a_mean_of_another_name_is_refused():
    with pytest.raises(UsageError, match="mean='sequence': it must be token or answer"):
        anypo.recipe("sft", mean="sequence")
