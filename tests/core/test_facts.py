"""Facts of trajectories, needs that no network meets, and products of pieces."""

from __future__ import annotations

import pytest
import torch

from anypo.core import facts
from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.neutral import Groups, Mean, Reinforce, Return
from anypo.core.recipe import Recipe, recorded
from anypo.core.score import Score
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.reward.kl import KLReward
from anypo.pieces.sampling.probe import Probe
from anypo.pieces.surrogate.clip import Clip

TRAJ = torch.tensor([0, 0, 1, 2])


def batch(**table) -> Batch:
    """Three trajectories of 2, 1 and 1 steps in one group, rewards 1, 2 and 6."""
    ids = {"traj": TRAJ, "seq": TRAJ, "group": torch.zeros_like(TRAJ)}
    reward = torch.tensor([0.0, 1.0, 2.0, 6.0], dtype=torch.float64)
    return Batch({"reward": reward, "score": reward}, ids, {"traj": table})


def test_a_score_is_a_number_that_says_more():
    score = Score(0.5, {"flawed": True})
    assert score == 0.5 and score + 1 == 1.5 and score.facts == {"flawed": True}
    assert Score(1.0).facts == {}


def test_facts_reach_every_step_of_their_trajectory():
    told = batch(flawed=[True, None, False], cluster=["a", "b", "a"])
    assert facts.number(told, "flawed", "X").tolist() == [1, 1, 0, 0]
    assert facts.label(told, "cluster", "X").tolist() == [0, 0, 1, 0]


def test_facts_follow_their_trajectories_when_some_are_dropped():
    told = batch(weight=[0.1, 0.2, 0.3]).take(torch.tensor([False, False, True, True]))
    assert facts.number(told, "weight", "X").tolist() == [0.2, 0.3]


def test_an_absent_fact_names_its_reader_and_the_cure():
    with pytest.raises(UsageError, match=r'Judge reads \'flawed\'.*"flawed": …'):
        facts.number(batch(), "flawed", "Judge")


def test_what_is_recorded_is_asked_of_no_network():
    assert recorded("fact.flawed") and recorded("ref.base.rollout") and recorded("lot")
    assert not recorded("logp") and not recorded("ref.base") and not recorded("value")


def test_a_reference_that_only_samples_is_kept_and_not_scored():
    recipe = Recipe(sampling=Groups(1) >> Probe("b", policy="base", temperature=1.0))
    assert recipe.references == {"base"}
    assert recipe.frozen_needs == recipe.early_needs == frozenset()


def test_old_log_probabilities_are_scored_where_a_reward_compares_them():
    plain = Recipe(ratio=Ratio("step"), surrogate=Clip())
    assert not plain.wants_old and plain.but(reward=(KLReward(),)).wants_old


def test_a_product_multiplies_step_by_step():
    both = Return() * Return(gamma=0.5)
    assert both(batch()).tolist() == [0.5, 1.0, 4.0, 36.0]
    weight = (Mean("traj", "batch") * Mean("step", "traj"))(batch())
    assert weight.tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 3, 1 / 3])
    assert torch.equal(weight, Mean("step", "traj", "batch")(batch()))


def test_a_product_declares_what_its_factors_declare():
    both = Ratio("traj") * Ratio("step", to="logp_mu")
    assert both.needs == {"logp", "logp_old", "logp_mu"} and both.couples == "traj"


def test_axes_do_not_mix_in_a_product():
    with pytest.raises(UsageError, match="different axes"):
        Return() * Reinforce()


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        (Baseline(centre="median"), [-1, -1, 0, 4]),
        (Baseline(centre="off"), [1, 1, 2, 6]),
        (Baseline(shift=1.0), [-3, -3, -2, 2]),
        (Baseline(weight="length"), [-1.5, -1.5, -0.5, 3.5]),  # (2·1 + 2 + 6)/4 = 2.5
        (Baseline(scale="mean", eps=0), [-2 / 3, -2 / 3, -1 / 3, 1]),
        (Baseline(fact="f"), [-1, -1, 0, 1]),
        (Baseline(fact="f", among="correct"), [-1, -1, 0, 1]),
        (Baseline(within="batch"), [-2, -2, -1, 3]),
        (Baseline(within=("group", "traj")), [0, 0, 0, 0]),
        (Baseline(leave_one_out=True), [-3, -3, -1.5, 4.5]),
    ],
    ids=repr,
)
def test_baselines_by_hand(piece, expected):
    told = batch(f=[1, 2, 3])
    assert piece(told).tolist() == pytest.approx(expected)


def test_only_correct_answers_are_compared_where_asked():
    told = batch(f=[1, 2, 4])
    wrong = told.with_({"score": torch.tensor([0.0, 0.0, 1.0, 1.0])})
    assert Baseline(fact="f", among="correct")(wrong).tolist() == [0, 0, -1, 1]


def test_the_soft_centre_lies_between_mean_and_best():
    values = [float(-Baseline(centre="soft", tau=t)(batch())[0] + 1) for t in (1e6, 1.0, 1e-3)]
    expected = torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64).exp().mean().log()
    assert values[0] == pytest.approx(3.0, abs=1e-5) and values[2] == pytest.approx(6.0, abs=2e-3)
    assert values[1] == pytest.approx(float(expected), rel=1e-12)


def test_baseline_refuses_options_that_contradict():
    for options in ({"leave_one_out": True, "centre": "median"}, {"weight": "length", "tau": 0}):
        with pytest.raises(UsageError, match="must be"):
            Baseline(**options)
