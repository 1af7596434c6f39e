"""What counts once, and within what: answers of unequal length, groups that differ, and edges."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

import anypo
from anypo.core.neutral import Return
from anypo.engine.collect import credit
from anypo.math import coarse, subsets
from anypo.math.solve import TINY, conjugate_gradient, trust_region_step
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.advantage.beside import Fallback
from anypo.pieces.advantage.bundles import BundleRisk
from anypo.pieces.advantage.conflict import Conflict
from anypo.pieces.advantage.curve import Curve
from anypo.pieces.advantage.gae import GAE, Whiten
from anypo.pieces.advantage.gauge import Gauge
from anypo.pieces.advantage.group import AnswerEntropy, Compensate
from anypo.pieces.advantage.order import Kalman, MaxAtK
from anypo.pieces.advantage.pseudo_reward import PseudoReward
from anypo.pieces.advantage.softmax import Softmax
from anypo.pieces.advantage.spots import Excess
from anypo.pieces.advantage.win_rate import WinRate
from anypo.pieces.aggregate.subset import Subset
from anypo.pieces.ratio.partition import Partition
from anypo.pieces.ratio.transform import LogClip
from anypo.pieces.regularizer.covariance import TopCovariance
from anypo.pieces.surrogate.covariance import CovarianceClip
from anypo.pieces.surrogate.importance import Importance
from anypo.pieces.surrogate.regression import PairClip
from tests.identities.evaluate import evaluate
from tests.identities.small import close, last, steps

F64 = torch.float64
UNEVEN = [2, 1, 1, 3, 1]
GROUPS = [0, 0, 0, 1, 1]


def uneven(outcomes, **columns):
    """A group of three answers and one of two, of 2, 1, 1, 3 and 1 tokens."""
    return steps(UNEVEN, GROUPS, reward=last(UNEVEN, outcomes), **columns)


def per_answer(got):
    """The first step's value of each answer."""
    return got[[0, 2, 3, 4, 7]]


# ── math ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_binary_divergence_is_finite_where_a_token_is_certain():
    """q = 1 leaves log(1/p); p = 1 leaves (1−q)·log((1−q)/1e-8) and q·log q."""
    zero, half = torch.zeros(1, dtype=F64), torch.tensor([math.log(0.5)], dtype=F64)
    close(coarse.binary(half, zero, "kl"), [math.log(2)])
    expected = 0.5 * (math.log(0.5 + 1e-8) - math.log(1e-8)) + 0.5 * math.log(0.5)
    close(coarse.binary(zero, half, "kl"), [expected])


@pytest.mark.parametrize("form", ["kl", "tv"])
def test_top_divergences_sum_over_the_last_axis(form):
    logp = torch.log_softmax(torch.arange(12, dtype=F64).reshape(2, 3, 2) / 7, -1) - 0.5
    anchor = torch.log_softmax(-torch.arange(12, dtype=F64).reshape(2, 3, 2) / 5, -1) - 0.4
    whole = coarse.top(logp, anchor, form)
    torch.testing.assert_close(whole[1], coarse.top(logp[1], anchor[1], form))


def test_no_slope_no_step():
    found = trust_region_step(lambda v: 2 * v, torch.zeros(3, dtype=F64))
    close(found.step, [0, 0, 0])
    assert found.scale.isfinite()


def test_one_round_of_conjugate_gradient_divides_by_what_guards_it():
    """With A = 1 the first step is 1/(1 + 1e-8) of the way."""
    target = torch.tensor([3.0, -4.0], dtype=F64)
    got = conjugate_gradient(lambda v: v, target, iterations=1)
    close(got, (target / (1 + TINY)).tolist())


def test_subsets_without_a_member_need_one_more():
    close(subsets.excluding(torch.tensor([1.0, 2.0]), torch.zeros(2).long(), 2), [0, 0])
    close(subsets.excluding(torch.tensor([1.0, 3.0, 2.0]), torch.zeros(3).long(), 2), [3, 2, 3])


# ── advantages ───────────────────────────────────────────────────────────────────────────────────


def test_a_groups_outcome_is_the_mean_over_its_answers():
    got = Baseline("group", "batch")(uneven([1, 2, 6, 1, 0]))
    close(per_answer(got), [1.25, 1.25, 1.25, -1.25, -1.25])


def test_a_fallback_looks_at_sizes_and_at_its_own_group():
    raw = Return()
    got = Fallback(raw, 10.0 * Return(), limit=5.0)(uneven([1, -6, 2, 1, 2]))
    close(per_answer(got), [10, -60, 20, 1, 2])


def test_the_share_of_a_paper_counts_answers_and_not_tokens():
    """Two prompts of one bundle, three papers of sums 3, 5 and 1: shares are by R − mean R.

    Those of the first paper cancel, so its answers get equal ones; the last one's are negative.
    """
    lengths, groups = [2, 1, 1, 3, 1, 1], [0, 0, 0, 1, 1, 1]
    piece = BundleRisk(size=2, natural=False, standardise=False, credit="share", mix=0.0)
    lot = [0.1, 0.1, 0.2, 0.3, 0.1, 0.1, 0.1, 0.2, 0.3]
    quantiles = {"q_low": [-9.0] * 9, "q_high": [9.0] * 9}
    outcomes = [2, 3, 0, 1, 2, 1]
    batch = steps(lengths, groups, reward=last(lengths, outcomes), lot=lot, **quantiles)
    width = 0.6 + 1e-6
    parts = [(3 - 5 / 3) / 2, (0 - 5 / 3) / -2, (2 - 4 / 3) / 2, (1 - 4 / 3) / -2]
    expected = [12 / 2, 14 * parts[0], 10 * parts[1], 12 / 2, 14 * parts[2], 10 * parts[3]]
    close(piece(batch)[[0, 2, 3, 4, 7, 8]], [x / width for x in expected])


def tokens(batch, rows):
    """The batch with what was written in each answer."""
    traj = batch.id("traj")
    place = torch.cat([torch.arange(int((traj == k).sum())) for k in range(int(traj.max()) + 1)])
    ids = {**batch.ids, "position": place}
    return replace(batch, ids=ids, inputs={"tokens": [torch.tensor(r) for r in rows]})


def test_conflicts_are_a_groups_own():
    """The same beginning in a good answer of one group and a bad one of another is no conflict."""
    batch = steps([2, 2, 2, 2], [0, 0, 1, 1], reward=last([2] * 4, [5, 4, 1, 0]))
    batch = tokens(batch, [[7, 1], [8, 2], [8, 3], [7, 4]])
    close(Conflict()(batch), [1.0] * 8)


def test_a_conflict_wants_both_sides_of_its_own_group():
    """Both answers of one group are better than all of the other: sides are the group's."""
    batch = tokens(steps([1] * 4, [0, 0, 1, 1], reward=[5, 4, 1, 0]), [[7], [7], [8], [8]])
    close(Conflict()(batch), [4, 0, 4, 0])


def test_a_side_is_against_the_mean_of_the_groups_answers():
    """Outcomes 1, 0, 0 of 1, 1 and 4 tokens: the mean is ⅓ of answers; by tokens it were ⅙."""
    batch = steps([1, 1, 4], reward=last([1, 1, 4], [0.25, 0, 0.5]))
    batch = tokens(batch, [[7], [7], [7, 1, 2, 3]])
    got = Conflict()(batch)
    close(got[[0, 1, 2]], [1, 0, 2])  # 0.25 is the mean itself: neither good nor bad
    close(Conflict(per_conflict=True)(batch), [1, 0, 2, 1, 1, 1])


def test_conflicts_per_token_of_a_run_are_at_least_one():
    batch = tokens(steps([2, 2], reward=last([2, 2], [1, 0])), [[7, 7], [7, 7]])
    close(Conflict(per_conflict=True)(batch), [2, 2, 0, 0])
    apart = tokens(steps([1, 1], reward=[1, 0]), [[7], [8]])
    close(Conflict(per_conflict=True)(apart), [1, 1])


def test_an_adaptive_lambda_reads_the_answers_own_length():
    value = {"value": [0.0] * 48, "value_next": [0.0] * 48}
    batch = steps([40, 8], reward=last([40, 8], [1, 1]), **value)
    got = GAE(adapt=0.05)(batch)
    close(got[[38, 39, 46, 47]], [0.5, 1, 0, 1])  # 1 − 1/2, and no less than 0


def test_a_bootstrap_is_for_the_last_step_alone():
    value = {"value": [1.0, 2, 3], "value_next": [5.0, 6, 0]}
    close(GAE(1.0, 0.0, bootstrap=True)(steps([3], reward=[0, 0, 0], **value)), [4, 4, 0])


def test_whitening_by_the_age_of_data_divides_the_policies():
    """Means and deviations weigh a step by π_old/μ; of equal weights nothing is left to see."""
    old = {"logp_old": [-1.0, -2, -1, -1], "logp_mu": [-1.0, -2, -1, -1]}
    batch = steps([1] * 4, advantage=[1, 2, 3, 6], **old)
    close(Whiten(weighted=True)(batch), Whiten()(batch).tolist())


@pytest.mark.parametrize("mode", ["corrected", "as-published"])
def test_equal_entropies_have_no_gauge(mode):
    close(Gauge(0.5, mode)(steps([3], entropy_old=[0.7] * 3)), [0, 0, 0])


def test_a_lone_answer_has_no_entropy_even_relatively():
    batch = steps([1, 1, 1], [0, 1, 1], {"cluster": ["a", "b", "c"]}, reward=[0, 0, 0])
    close(AnswerEntropy(relative=True)(batch), [0, 1, 1])


def test_signals_are_counted_by_answers_and_by_size():
    """verl's count: answers over those whose reward is not 0; ours: groups over those with A."""
    batch = uneven([1, 0, 0, 0, -1], advantage=[1, 1, 0, 0, 0, 0, 0, -1])
    close(Compensate(count="rewards")(batch)[:2], [2.5, 2.5])
    both = uneven([0, 0, 0, 1, 0], advantage=[0, 0, -1, -1, 1, 1, 1, -1])
    close(Compensate()(both)[2:4], [-1, -1])  # a group that is only pushed down has a signal
    only_bad = uneven([0, 0, 0, 1, 0], advantage=[0, 0, -1, -1, 0, 0, 0, 0])
    close(Compensate()(only_bad)[2:4], [-2, -2])
    dense = steps([2, 1], reward=[1, -1, 2], advantage=[1, 1, 1])  # 1 − 1 is no reward
    close(Compensate(count="rewards")(dense), [2, 2, 2])


def test_the_best_of_k_of_uneven_groups():
    """Equal outcomes of one group give 0 whatever the other has; sizes are answers."""
    piece = MaxAtK(2, baseline="loo-1")
    got = per_answer(piece(uneven([1, 1, 1, 3, 0])))
    close(got[:3], [0, 0, 0])
    # n = k = 2: the best 3 is shared by both, less (k/n)·mean best of the other alone
    close(got[3:], [3 - 0, 3 - 3])
    spread = per_answer(piece(uneven([1, 2, 6, 0, 0])))
    assert float(spread[:3].abs().max()) > 0 and spread[3:].tolist() == [0, 0]


@pytest.mark.parametrize("baseline", ["loo", "loo-1"])
@pytest.mark.parametrize("level", [0.1, 0.7, 1 / 3])
def test_equal_outcomes_have_exactly_no_share_in_the_best(baseline, level):
    """Whatever another group has, above or below."""
    for other in (-5.0, 5.0):
        outcomes = [level] * 7 + [other, other + 1, other + 3, other]
        batch = steps([1] * 11, [0] * 7 + [1] * 4, reward=outcomes)
        assert MaxAtK(3, baseline)(batch)[:7].tolist() == [0.0] * 7


def test_a_kalman_filter_begins_at_its_mean_and_counts_answers():
    """x = m + K·(r − m): with m = 2 and r = 2 every innovation is 0."""
    batch = uneven([2, 2, 2, 2, 2], lot=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
    close(Kalman(init_mean=2.0)(batch), [0.0] * 8)
    moved = Kalman(init_mean=1.0)(uneven([2, 2, 2, 2, 2], lot=batch["lot"]))
    plain = Kalman()(uneven([1, 1, 1, 1, 1], lot=batch["lot"]))
    close(moved, plain.tolist())


def test_a_kalman_filter_reads_an_answer_once_however_long_it_is():
    """The gains for Q = 1e-5, R = 1e-2, P = 1 and outcomes of 1: .0995, .0705, .0575."""
    got = per_answer(Kalman()(uneven([1, 1, 1, 1, 1], lot=[k / 10 for k in range(8)])))
    wanted = [0.09950271891968875, 0.07048054979889717, 0.05751309189784708]
    assert got.tolist() == pytest.approx(wanted + wanted[:2], rel=1e-9)


def test_a_tent_falls_on_both_sides_of_its_middle():
    batch = steps([1] * 4, reward=[0] * 4, advantage=[0.25, 0.5, 0.75, 1.0])
    close(Curve("tent")(batch), [0.5, 1, 0.5, 0])


def test_pseudo_rewards_see_the_whole_batch():
    """Z is one mean of P/μ over all answers, and so is the baseline that is kept."""
    piece = PseudoReward("reverse_kl", beta=1.0)
    old = {"logp_old": [-1.0, -1, -2, -1], "logp_mu": [-1.0, -1, -2, -1]}
    zero = {name: [x] * 4 for name, x in piece.init().items()}
    columns = {"ref.base": [-1.0, -1, -1, -1], **old, **zero}
    batch = steps([2, 1, 1], [0, 1, 1], reward=[0, math.log(2), 0, 0], **columns)
    mass = [2.0, math.e, 1.0]
    z = sum(mass) / 3
    log_t = [-math.log(m) + math.log(z) for m in mass]
    close(piece(batch)[[0, 2, 3]], [-(t + 1) for t in log_t])
    kept = piece.observe(batch, piece.init())
    assert kept["f_z"] == pytest.approx(z, rel=1e-12) and kept["f_seen"] == 3
    assert kept["f_baseline"] == pytest.approx(-sum(t + 1 for t in log_t) / 3, rel=1e-12)


def test_softmax_weights_do_not_overflow():
    batch = steps([1, 1], reward=[0, 0], advantage=[900.0, 900.0])
    close(Softmax()(batch), [0.5, 0.5])


def test_excess_is_measured_against_the_groups_own_right_answers():
    """Right answers of 2 and 4 tokens: the mean is 3, whatever wrong ones and others say."""
    lengths, groups = [2, 4, 5, 9], [0, 0, 0, 1]
    batch = steps(
        lengths,
        groups,
        {"importance": [[1.0]] * 4},
        reward=last(lengths, [1, 1, 0, 1]),
        score=last(lengths, [1, 1, 0, 1]),
    )
    traj = batch.id("traj")
    batch = replace(batch, ids={**batch.ids, "segment": traj, "stage": torch.zeros_like(traj)})
    got = Excess()(batch)
    close(got[[0, 2, 6, 11]], [0, 1 / 3, 0, 0])


def test_wins_are_of_whole_answers():
    """Rewards along an answer are summed before they are compared; alone there is no rate."""
    batch = steps([2, 1, 1], [0, 0, 1], reward=[2, 2, 3, 1])
    close(WinRate()(batch), [0.5, 0.5, -0.5, 0])


def test_recorded_credit_has_its_sign():
    recipe = anypo.recipe("aepo", group=2, alpha=0.5)
    columns = {"control": [0.0, 0.0, 0.0, 1, 1]}
    batch = steps([2, 1, 1, 1], [0, 0, 1, 1], reward=[0, 1, 0, 1, 1], **columns)
    close(credit(recipe, batch)["advantage"][3:], [0.5, 0.5])


# ── objectives ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["real", "disco"])
def test_classes_count_answers_of_their_own_group(name):
    """What another group's scores are does not change a gradient, however long an answer is."""
    lengths, groups = [2, 1, 1, 3], [0, 0, 1, 1]
    options = {"group": 2, "delta": 50.0} if name == "disco" else {"group": 2}

    def pushed(far: float):
        logp = [-1.0, -1, -2, -1 + far, -1, -1, -1]
        batch = steps(
            lengths, groups, reward=last(lengths, [1, 0, 1, 0]), logp=logp, logp_old=[-1.0] * 7
        )
        return evaluate(anypo.recipe(name, **options), batch)[1]["logp"]

    near, far = pushed(0.0), pushed(2.0)
    close(far[:3], near[:3].tolist())
    assert near[:3].abs().min() > 0


def test_classes_of_a_group_far_below_another_one_are_still_told_apart():
    batch = steps(
        [1] * 4, [0, 0, 1, 1], reward=[1, 0, 1, 0], logp=[-1, -2, -2000, -2001], logp_old=[-1] * 4
    )
    recipe = anypo.recipe("disco", group=2, score="logp", tau=1.0).but(regularize=())
    close(evaluate(recipe, batch)[1]["logp"], [-0.5, 0.5, -0.5, 0.5])


def test_an_importance_weight_is_of_the_whole_answer_unless_said():
    batch = steps([2, 1], logp=[-1, -2, -1], logp_old=[-1.5, -1, -30])
    close(Importance()(batch), [math.exp(-0.5)] * 2 + [math.exp(20)])
    close(Importance("step")(batch)[:2], [math.exp(0.5), math.exp(-1)])


@pytest.mark.parametrize(
    ("piece", "unit"),
    [
        (Partition(), "traj"),
        (LogClip(), "step"),
        (LogClip(delta=0.2), "traj"),
        (CovarianceClip(), "batch"),
        (TopCovariance(), "batch"),
        (PairClip(), "group"),
    ],
    ids=repr,
)
def test_a_piece_couples_what_it_compares(piece, unit):
    assert piece.couples == unit


def test_a_pair_that_ties_has_no_pull():
    batch = steps([1, 1], reward=[1, 1], logp=[-1, -2], logp_old=[-1, -1], lot=[0.1, 0.2])
    recipe = anypo.recipe("p3o_pairwise", mode="joint")
    loss, grads = evaluate(recipe, batch)
    assert loss == 0
    close(grads["logp"], [0, 0])


def test_a_subset_without_a_kept_step_counts_nothing():
    batch = steps([2, 1], lot=[0.9, 0.95, 0.9])
    factor = Subset(share=0.5, first=0)(batch)
    close(factor, [0, 0, 0])
