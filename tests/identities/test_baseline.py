"""Baselines: every option on numbers that can be checked by hand."""

from __future__ import annotations

import math

import pytest

from anypo.pieces.advantage.baseline import Baseline
from tests.identities.small import close, last, steps


def outcomes(*rewards: float, **columns: list[float]):
    """One-step trajectories of one group."""
    return steps([1] * len(rewards), reward=list(rewards), **columns)


def test_the_defaults_are_whole_trajectories_within_their_group():
    batch = steps([2, 1, 1], [0, 0, 1], reward=[1.0, 2.0, 7.0, 9.0])
    close(Baseline()(batch), [-2, -2, 2, 0])


def test_the_default_divisor_is_the_deviation_and_a_millionth():
    sd = math.sqrt(0.5)
    close(Baseline(scale="std")(outcomes(0, 1)), [-0.5 / (sd + 1e-6), 0.5 / (sd + 1e-6)])


def test_scaled_by_the_mean():
    close(Baseline(scale="mean", eps=0.5)(outcomes(0, 1, 2)), [-1 / 1.5, 0, 1 / 1.5])


def test_a_median_and_no_centre():
    close(Baseline(centre="median")(outcomes(0, 1, 5)), [-1, 0, 4])
    close(Baseline(centre="off")(outcomes(0, 1, 5)), [0, 1, 5])
    close(Baseline(centre="off", shift=0.5)(outcomes(0, 1)), [-0.5, 0.5])


@pytest.mark.parametrize("tau", [1.0, 0.5, 2.0])
def test_a_soft_centre_is_the_log_of_a_mean_of_exponentials(tau):
    centre = tau * math.log((1 + math.exp(1 / tau) + math.exp(3 / tau)) / 3)
    close(Baseline(centre="soft", tau=tau)(outcomes(0, 1, 3)), [-centre, 1 - centre, 3 - centre])


def test_a_soft_centre_of_large_rewards_does_not_overflow_and_its_temperature_is_1():
    close(Baseline(centre="soft")(outcomes(0, 2000)), [math.log(2) - 2000, math.log(2)])


def test_means_weighted_by_length_and_by_score():
    batch = steps([1, 3], reward=last([1, 3], [1, 5]), score_norm=[0.6, 0.2, 0.2, 0.2])
    close(Baseline(weight="length")(batch), [-3, 1, 1, 1])
    close(Baseline(weight="score_norm")(batch), [-1, 3, 3, 3])
    small = batch.with_({"score_norm": batch["score_norm"] / 4})
    close(Baseline(weight="score_norm")(small), [-1, 3, 3, 3])
    none = batch.with_({"score_norm": 0 * batch["score_norm"]})
    close(Baseline(weight="score_norm")(none), [-2, 2, 2, 2])


def test_only_correct_ones_are_compared():
    """The judge's score of a whole trajectory is at least 1; rewards are something else."""
    batch = steps(
        [2, 1, 1, 1],
        reward=[0.5, 0.5, 5, 3, 2],
        score=[0.5, 0.5, 0, 2, 1],
    )
    close(Baseline(among="correct")(batch), [-1, -1, 0, 1, 0])


def test_a_fact_stands_in_for_the_reward():
    batch = steps([2, 1], table={"hits": [1.0, 4.0]}, reward=[0.0, 9.0, 2.0])
    close(Baseline(fact="hits")(batch), [-1.5, -1.5, 1.5])


def test_the_only_one_of_a_group_is_left_with_the_shift():
    close(Baseline(leave_one_out=True, shift=0.5)(outcomes(3)), [-0.5])
    close(Baseline(leave_one_out=True)(outcomes(3)), [0])
