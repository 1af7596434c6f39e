"""The cases from the field: numbers that other trainers got wrong in public."""

from __future__ import annotations

import math

import pytest
import torch

from anypo.core.batch import Batch
from anypo.core.neutral import Adam, Mean, Reinforce, Return
from anypo.core.recipe import Objective
from anypo.engine.collect import drop_unscored
from anypo.engine.problem import weigh
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.advantage.gae import GAE, Whiten
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.surrogate.clip import Clip
from anypo.pieces.surrogate.regression import Preference


def rows(lengths: list[int], groups: list[int] | None = None) -> Batch:
    """Trajectories of the given lengths without columns."""
    traj = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    group = torch.tensor(groups or [0] * len(lengths))
    return Batch({}, {"traj": traj, "seq": traj, "group": group[traj]})


def outcomes(rewards: list[float], groups: list[int] | None = None) -> Batch:
    """One-step trajectories with these rewards."""
    reward = torch.tensor(rewards, dtype=torch.float64)
    return rows([1] * len(rewards), groups).with_({"reward": reward})


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        (Mean("step", "batch"), 3.0),
        (Mean("step", "traj", "batch"), 2.5),
        (Mean("step", "traj", "batch", length=8), 1.875),
    ],
)
def test_split_invariance(aggregate, expected):
    batch = rows([2, 4, 6, 8])
    loss = batch.id("traj").double() + 1
    weight = aggregate(batch)
    assert float((weight * loss).sum()) == pytest.approx(expected, rel=1e-14)
    parts = [batch.with_({"weight": weight, "x": loss}).take_units("traj", [k]) for k in range(4)]
    assert sum(float((p["weight"] * p["x"]).sum()) for p in parts) == pytest.approx(expected)


def test_denominators_count_what_is_there():
    """Row A: 4 steps, loss 1; row B: 6 tokens, dropped: the mean over steps is 1."""
    batch = rows([4, 6]).take_units("traj", [0])
    assert float(Mean("step", "batch")(batch).sum()) == pytest.approx(1.0)


def test_a_poisoned_slot_reaches_neither_loss_nor_gradient():
    class First(Mean):
        """Selects step 0."""

        def __call__(self, batch):
            return torch.tensor([1.0, 0.0])

    objective = Objective(Ratio("step"), Clip(), aggregate=First("batch"))
    logp = torch.zeros(2, requires_grad=True)
    columns = {"logp": logp, "logp_old": torch.tensor([0.0, math.nan])}
    batch = rows([1, 1]).with_({**columns, "advantage": torch.ones(2)})
    loss = objective.loss(weigh(objective, batch))
    loss.backward()
    assert float(loss.detach()) == -1.0
    assert logp.grad.tolist() == [-1.0, 0.0]


def test_an_unscored_row_has_no_advantage_and_leaves_its_group():
    batch = outcomes([1.0, math.nan, 3.0])
    got = Baseline("traj", "group", scale="std", eps=0.0)(batch)
    assert got.tolist() == pytest.approx([-math.sqrt(0.5), 0.0, math.sqrt(0.5)])
    kept, gone = drop_unscored(batch)
    assert (gone, kept["reward"].tolist()) == (1, [1.0, 3.0])


def test_a_huge_log_ratio_stays_finite():
    columns = {"logp": torch.tensor([89.0]), "logp_old": torch.tensor([0.0])}
    batch = rows([1]).with_({**columns, "advantage": torch.tensor([-1.0])})
    log_ratio = Ratio("step")(batch)
    objective = Clip()(batch.with_({"log_ratio": log_ratio}))
    assert log_ratio.tolist() == [20.0]
    assert bool(torch.isfinite(objective).all())


@pytest.mark.parametrize(
    ("rewards", "gamma", "expected"),
    [([0.0, 1.0], 0.5, [0.5, 1.0]), ([0.0, 0.0, 0.0, 1.0], 1.0, [1.0] * 4)],
)
def test_returns_reach_across_tool_output(rewards, gamma, expected):
    """Tool tokens are not steps, so nothing stands between two actions."""
    batch = rows([len(rewards)]).with_({"reward": torch.tensor(rewards)})
    assert Return(gamma)(batch).tolist() == expected


def test_terminated_truncated_and_next_episode():
    """r = 1, V = 1, γ = 0.9, λ = 0.8; step 1 is truncated with V(final) = 5; last bootstrap 1."""
    one = torch.ones(4, dtype=torch.float64)
    ahead = torch.tensor([1.0, 5.0, 1.0, 1.0], dtype=torch.float64)
    batch = rows([2, 2]).with_({"reward": one, "value": one, "value_next": ahead})
    advantage = GAE(0.9, 0.8)(batch)
    assert advantage.tolist() == pytest.approx([4.14, 4.5, 1.548, 0.9])
    assert GAE(0.9, 0.8).targets(batch, advantage)["return"].tolist() == pytest.approx(
        [5.14, 5.5, 2.548, 1.9]
    )


def test_whitening_standardises_and_keeps_the_critics_target():
    batch = rows([2, 1]).with_(
        {
            k: torch.tensor(v)
            for k, v in {
                "reward": [0.0, 1.0, 3.0],
                "value": [0.5] * 3,
                "value_next": [0.5, 0.0, 0.0],
            }.items()
        }
    )
    chain = GAE(1.0, 1.0) >> Whiten()
    white = chain(batch)
    assert float(white.mean()) == pytest.approx(0.0, abs=1e-6)
    assert float(white.std()) == pytest.approx(1.0, rel=1e-6)
    assert chain.targets(batch, white)["return"].tolist() == pytest.approx([1.0, 1.0, 3.0])
    flat = batch.with_({"reward": batch["value"] - batch["value_next"]})
    assert chain(flat).tolist() == [0.0] * 3


def test_uneven_groups():
    got = Baseline("traj", "group", scale="std", eps=0.0)(outcomes([1.0, 3.0, 5.0], [0, 0, 1]))
    assert got.tolist() == pytest.approx([-0.7071, 0.7071, 0.0], abs=5e-5)
    rewards = [1.0, 2.0, 3.0, 4.0, 5.0, 5.0, 5.0, 0.0, 1.0, 0.0, 1.0]
    groups = [0] * 4 + [1] * 3 + [2] * 4
    plain = Baseline("traj", "group", scale="std")(outcomes(rewards, groups))
    assert plain[4:7].tolist() == [0.0] * 3
    order = [7, 4, 0, 9, 1, 5, 10, 2, 6, 3, 8]
    shuffled = Baseline("traj", "group", scale="std")(
        outcomes([rewards[i] for i in order], [groups[i] for i in order])
    )
    assert shuffled.tolist() == pytest.approx(plain[order].tolist(), rel=1e-12)


@pytest.mark.parametrize(
    ("piece", "right", "wrong"),
    [
        (Baseline("traj", "group"), 0.625, -0.375),
        (Baseline("traj", "group", leave_one_out=True), 0.7143, -0.4286),
        (Baseline("traj", "group", scale="std", eps=1e-6), 1.2076, -0.7246),
    ],
)
def test_group_estimators(piece, right, wrong):
    got = piece(outcomes([1.0] * 3 + [0.0] * 5))
    assert got.tolist() == pytest.approx([right] * 3 + [wrong] * 5, abs=5e-5)
    assert piece(outcomes([0.1] * 3)).tolist() == [0.0] * 3


def test_baseline_scales_by_the_batch_clamps_and_counts_the_population():
    batch = outcomes([0.0, 1.0, 0.0, 3.0], [0, 0, 1, 1])
    by_batch = Baseline("traj", "group", scale="batch", eps=0.0)(batch)
    sd = math.sqrt(6 / 3)
    assert by_batch.tolist() == pytest.approx([-0.5 / sd, 0.5 / sd, -1.5 / sd, 1.5 / sd])
    population = Baseline("traj", "group", scale="std", eps=0.0, ddof=0)(batch)
    assert population.tolist() == pytest.approx([-1, 1, -1, 1])
    assert Baseline("traj", "group", limit=1.0)(batch).tolist() == [-0.5, 0.5, -1.0, 1.0]


def clip(ratio: float, advantage: float, piece: Clip) -> tuple[float, float]:
    """Objective and its gradient in the log-ratio."""
    leaf = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
    batch = rows([1]).with_({"log_ratio": leaf, "advantage": torch.tensor([advantage]).double()})
    value = piece(batch)
    (grad,) = torch.autograd.grad(value.sum(), leaf)
    return float(value.detach()), float(grad)


def test_clips():
    assert clip(3.0, 1.0, Clip(0.2, 0.2, 3.0)) == pytest.approx((1.2, 0.0))
    assert clip(5.0, -1.0, Clip(0.2, 0.2, 3.0)) == pytest.approx((-3.0, 0.0))
    assert clip(5.0, -1.0, Clip(0.2, 0.2)) == pytest.approx((-5.0, -5.0))
    assert clip(0.5, -1.0, Clip(0.2, 0.2)) == pytest.approx((-0.8, 0.0))
    assert clip(1.25, 1.0, Clip(0.2, 0.28)) == pytest.approx((1.25, 1.25))


def test_cispo_clips_the_weight_and_not_the_gradient():
    leaf = torch.tensor([-0.5], dtype=torch.float64, requires_grad=True)
    log_ratio = torch.log(torch.tensor([7.0], dtype=torch.float64))
    batch = rows([1]).with_({"log_ratio": log_ratio, "logp": leaf, "advantage": torch.ones(1)})
    value = Reinforce(high=4.0)(batch)
    value.sum().backward()
    assert float(value.detach()) == pytest.approx(5 * -0.5)
    assert leaf.grad.tolist() == [5.0]


def test_the_baseline_of_shaped_rewards_is_made_of_shaped_rewards():
    got = Baseline("traj", "group")(outcomes([0.8503, 0.7396, 0.6545, 0.0]))
    assert got.tolist() == pytest.approx([0.2892, 0.1785, 0.0934, -0.5611], abs=5e-5)


def test_preference_loss_of_a_margin():
    """Margin 6, β = 0.1: the logistic loss is 0.437488; a tie has no preference."""
    columns = {"log_ratio": torch.tensor([4.0, -2.0]), "advantage": torch.tensor([0.5, -0.5])}
    batch = rows([1, 1]).with_(columns)
    assert (-Preference(0.1)(batch)).tolist() == pytest.approx([0.437488] * 2, abs=1e-6)
    tie = batch.with_({"advantage": torch.zeros(2)})
    assert Preference(0.1)(tie).tolist() == [0.0, 0.0]


def test_a_step_of_learning_rate_moves_float32_masters_and_not_bfloat16_weights():
    """A step of 2e-5 moves nearly all float32 weights, and 4 % of bfloat16 ones."""
    torch.manual_seed(0)
    start = torch.randn(20_000) * 0.05
    moved = {}
    for dtype in (torch.float32, torch.bfloat16):
        weight = torch.nn.Parameter(start.to(dtype))
        before = weight.detach().clone()
        weight.grad = torch.randn(20_000).to(dtype)
        Adam().optimizer([weight], 2e-5).step()
        moved[dtype] = float((weight.detach() != before).double().mean())
    assert moved[torch.float32] > 0.99
    assert moved[torch.bfloat16] < 0.2
