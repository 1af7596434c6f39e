"""DPO's relatives: what their margin is, where they are at rest, and how rounds go on."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import anypo
from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.neutral import Mean
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.surrogate.clip import Clip
from tests.identities.evaluate import evaluate, same, scene
from tests.identities.small import close, steps


def pair(chosen: float, rejected: float, lengths: tuple[int, int] = (1, 1), **more: float) -> Batch:
    """One pair whose first answer is preferred, with these log-ratios to a reference of 0."""
    first = [0, lengths[0]]
    zeros = [0.0] * sum(lengths)

    def spread(a: float, b: float) -> list[float]:
        return [{first[0]: a, first[1]: b}.get(i, 0.0) for i in range(len(zeros))]

    logp, reward = spread(chosen, rejected), spread(1.0, 0.0)
    columns = {"logp": logp, "reward": reward, "ref.base": zeros, "ref.previous": zeros, **more}
    return steps(lengths, **columns)


# ── IPO and INPO ────────────────────────────────────────────────────────────────────────────────


def test_ipo_rests_at_its_target_and_pulls_back_beyond_it():
    """Δ = 1/(2β) = 5: nothing to do; Δ = 7: the gradient has DPO's opposite sign."""
    ipo = anypo.recipe("ipo", beta=0.1)
    loss, grads = evaluate(ipo, pair(3, -2))
    assert loss == 0
    close(grads["logp"], [0, 0])
    loss, grads = evaluate(ipo, pair(4, -3))
    assert loss == pytest.approx(4)
    close(grads["logp"], [4, -4])
    assert evaluate(anypo.recipe("dpo"), pair(4, -3))[1]["logp"][0] < 0


def test_ipo_by_the_token_is_that_of_mean_log_ratios():
    """Δ = 6/3 − (−2)/1 = 4 by the token, and 8 by the answer."""
    batch = pair(6, -2, (3, 1))
    assert evaluate(anypo.recipe("ipo"), batch)[0] == pytest.approx(9)
    loss, grads = evaluate(anypo.recipe("ipo", mean=True), batch)
    assert loss == pytest.approx(1)
    close(grads["logp"], [-2 / 3, -2 / 3, -2 / 3, 2])
    same(anypo.recipe("ipo"), anypo.recipe("ipo", mean=True), pair(2, 1))


def test_a_tie_prefers_nobody():
    batch = pair(2, 1).with_({"reward": torch.ones(2).double()})
    for name in ("ipo", "inpo", "p3o_pairwise", "rpo_regularized", "sppo"):
        more = {"logp_old": batch["logp"], "lot": torch.tensor([0.1, 0.2]).double()}
        _, grads = evaluate(anypo.recipe(name), batch.with_(more))
        if name != "sppo":  # there a draw is a result: its target is 0
            close(grads["logp"], [0, 0])
        else:
            close(grads["logp"], [4, 2])


@pytest.mark.parametrize("eta", [0.0075, 0.1, 2.0])
def test_inpo_with_only_the_reference_is_ipo(eta):
    same(anypo.recipe("inpo", eta=eta, ratio=1.0), anypo.recipe("ipo", beta=eta), scene())


def test_inpo_without_the_reference_is_ipo_against_the_round_before():
    moving = anypo.recipe("ipo", beta=0.2).but(ratio=Ratio("traj", to="ref.previous"))
    same(anypo.recipe("inpo", eta=0.2, ratio=0.0), moving, scene())


def test_inpos_margin_is_between_its_two_anchors():
    """H = 4 − (1/4)·2 − (3/4)·(−2) = 5 = 1/(2η): no loss."""
    batch = pair(3, -1).with_({"ref.base": torch.tensor([1.0, -1.0]).double()})
    batch = batch.with_({"ref.previous": torch.tensor([-1.0, 1.0]).double()})
    assert evaluate(anypo.recipe("inpo", eta=0.1, ratio=0.25), batch)[0] == pytest.approx(0)


@pytest.mark.parametrize(("name", "reference"), [("inpo", "previous"), ("sppo", "base")])
def test_rounds_begin_with_a_fresh_reference(name, reference):
    recipe = anypo.recipe(name, rounds=3, round_steps=10)
    found = {k: recipe.refreshes(k) for k in range(40) if recipe.refreshes(k)}
    assert found == {10: (reference,), 20: (reference,)}
    assert not anypo.recipe(name, rounds=1).phases
    assert reference in recipe.references


# ── SPPO ────────────────────────────────────────────────────────────────────────────────────────


def test_sppo_pulls_the_winner_up_and_the_loser_down_by_the_same_target():
    """(h_w − 5)² + (h_l + 5)² at h = (1, 2): the sum of the pair, not its mean."""
    loss, grads = evaluate(anypo.recipe("sppo", beta=0.1), pair(1, 2))
    assert loss == pytest.approx(16 + 49)
    close(grads["logp"], [-8, 14])


def test_sppo_in_a_group_counts_wins():
    """Rewards 3, 1, 1: wins 1, 1/4, 1/4 of the two others (a draw is half a win)."""
    recipe = anypo.recipe("sppo", beta=0.25, group=3)
    batch = steps([1, 1, 1], reward=[3, 1, 1], logp=[0] * 3).with_({"ref.base": torch.zeros(3)})
    _, grads = evaluate(recipe, batch)
    close(grads["logp"], [-2 * 0.5 / 0.25, 2 * 0.25 / 0.25, 2 * 0.25 / 0.25])


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_sppo_hears_only_who_wins_unless_it_is_soft(scale):
    hard, soft = anypo.recipe("sppo"), anypo.recipe("sppo", soft=True)
    batch, louder = scene(), scene().with_({"reward": scale * scene()["reward"]})
    torch.testing.assert_close(evaluate(hard, batch)[1]["logp"], evaluate(hard, louder)[1]["logp"])
    a, b = evaluate(soft, batch)[1]["logp"], evaluate(soft, louder)[1]["logp"]
    assert not torch.allclose(a, b)


def test_soft_sppo_with_certain_wins_is_half_of_the_hard_one():
    """Probabilities 1 and 0 of winning are hard labels; a mean of the pair is half the sum."""
    hard = anypo.recipe("sppo", beta=0.1)
    halved = hard.but(aggregate=Mean("step", "traj", "group", "batch"))
    same(anypo.recipe("sppo", beta=0.1, soft=True), halved, scene())
    (half, _), (whole, _) = (evaluate(r, scene()) for r in (halved, hard))
    assert whole == pytest.approx(2 * half)


# ── P3O ─────────────────────────────────────────────────────────────────────────────────────────


def old_pair(moved: tuple[float, float], rewards: tuple[float, float], swap: bool = False) -> Batch:
    """Two one-token answers with these log-ratios; the first has the smaller lot."""
    order = [1, 0] if swap else [0, 1]

    def column(x: tuple[float, float]) -> Tensor:
        return torch.tensor([x[k] for k in order], dtype=torch.float64)

    zeros = torch.zeros(2).double()
    columns = {"logp": column(moved), "reward": column(rewards), "lot": column((0.1, 0.7))}
    return steps([1, 1]).with_({**columns, "logp_old": zeros})


@pytest.mark.parametrize("mode", ["separate", "joint"])
def test_p3o_starts_as_half_the_reward_difference(mode):
    """At r = 1: −(R1 − R2)/2 on one answer, the opposite on the other, whatever is added to R."""
    recipe = anypo.recipe("p3o_pairwise", mode=mode)
    for shift in (0.0, 5.0):
        _, grads = evaluate(recipe, old_pair((0, 0), (3 + shift, 1 + shift)))
        close(grads["logp"], [-1, 1])


def test_p3o_at_the_start_is_half_of_rloo_of_two():
    batch = scene()
    batch = batch.with_({"logp": batch["logp_old"]})
    rloo = anypo.recipe("rloo", group=2, beta=0.0).but(aggregate=Mean("group", "batch"))
    for mode in ("separate", "joint"):
        _, got = evaluate(anypo.recipe("p3o_pairwise", mode=mode), batch)
        _, whole = evaluate(rloo, batch)
        torch.testing.assert_close(got["logp"], whole["logp"] / 2)


def test_p3os_separate_form_clips_each_answer():
    """A = 2, r = (1.5, 0.5): both are beyond the bound that A pushes against."""
    recipe = anypo.recipe("p3o_pairwise")
    loss, grads = evaluate(recipe, old_pair((math.log(1.5), math.log(0.5)), (3, 1)))
    close(grads["logp"], [0, 0])
    assert loss == pytest.approx(-0.5 * (2 * 1.2 - 2 * 0.8))
    _, grads = evaluate(recipe, old_pair((math.log(0.5), math.log(1.5)), (3, 1)))
    close(grads["logp"], [-0.5, 1.5])


@pytest.mark.parametrize("swap", [False, True])
def test_p3os_joint_form_goes_by_lot_and_not_by_order(swap):
    """q = r1/r2 = 1.1 lies inside though r1 = 1.65 alone would not; A < 0 is clipped from below."""
    recipe = anypo.recipe("p3o_pairwise", mode="joint")
    inside = old_pair((math.log(1.65), math.log(1.5)), (3, 1), swap)
    loss, grads = evaluate(recipe, inside)
    assert loss == pytest.approx(-1.1)
    close(grads["logp"], [1.1, -1.1] if swap else [-1.1, 1.1])
    beyond = old_pair((math.log(0.5), 0.0), (1, 3), swap)
    loss, grads = evaluate(recipe, beyond)
    assert loss == pytest.approx(0.8)
    close(grads["logp"], [0, 0])
    far = old_pair((math.log(2.0), 0.0), (1, 3), swap)
    assert evaluate(recipe, far)[0] == pytest.approx(2.0)


def test_p3o_by_the_token_is_a_clipped_rloo_of_sequence_ratios():
    batch = scene()
    near = batch.with_({"logp": 0.8 * batch["logp_old"] + 0.2 * batch["logp"]})
    other = anypo.recipe("rloo", group=2, beta=0.0).but(
        ratio=Ratio("traj", mean=True),
        surrogate=Clip(0.2, 0.2),
        aggregate=Mean("step", "traj", "group", "batch"),
    )
    same(anypo.recipe("p3o_pairwise", mean=True), other, near)


# ── RPO ─────────────────────────────────────────────────────────────────────────────────────────


def test_rpo_without_imitation_is_dpo():
    same(anypo.recipe("rpo_regularized", eta=0.0), anypo.recipe("dpo"), scene())


@pytest.mark.parametrize(("mean", "per_token"), [(True, [1 / 4] * 2), (False, [1 / 2] * 2)])
def test_rpo_adds_the_likelihood_of_the_chosen_answer_alone(mean, per_token):
    """−η·(1/2)·Σ over two pairs of the chosen answer's mean (or sum): 1/(2·n_w) or 1/2 a token."""
    rpo, dpo = anypo.recipe("rpo_regularized", eta=0.3, sft_mean=mean), anypo.recipe("dpo")
    batch = scene()  # chosen: the first answer of two tokens, and the last of two
    (loss, grads), (plain, base) = evaluate(rpo, batch), evaluate(dpo, batch)
    extra = grads["logp"] - base["logp"]
    nothing = [0.0] * 4
    close(extra, [-0.3 * x for x in [*per_token, *nothing, *per_token]])
    chosen = torch.cat([batch["logp"][:2], batch["logp"][-2:]])
    assert loss - plain == pytest.approx(-0.3 * float(chosen.sum()) * per_token[0])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("ipo", {"beta": 0.0}),
        ("inpo", {"eta": 0.0}),
        ("inpo", {"ratio": 1.5}),
        ("inpo", {"rounds": 0}),
        ("inpo", {"round_steps": 0}),
        ("sppo", {"beta": 0.0}),
        ("sppo", {"group": 1}),
        ("sppo", {"rounds": 0}),
        ("p3o_pairwise", {"clip": -0.1}),
        ("p3o_pairwise", {"clip": -0.1, "mode": "joint"}),
        ("p3o_pairwise", {"mode": "both"}),
        ("rpo_regularized", {"eta": -0.1}),
    ],
)
def test_bad_arguments_are_refused(name, arguments):
    with pytest.raises(UsageError, match=f"^{name}: "):
        anypo.recipe(name, **arguments)
