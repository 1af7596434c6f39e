"""Rollouts of generators: what is recorded, where the reward goes, and the random streams."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from anypo.core.batch import Batch, concat
from anypo.core.errors import UsageError
from anypo.core.request import Request
from anypo.policies.flow import FlowPolicy
from anypo.rollout.generator import rollout
from anypo.tasks.generators import EightGaussians

REQUEST = Request(prompts=3, samples=2, start=10, seed=5, version=7)


class FirstCoordinate:
    """Rewards the first coordinate, so that a reward names its point."""

    name = "first"

    def reward(self, x):
        return x[:, 0]


def policy(**settings) -> FlowPolicy:
    return FlowPolicy(2, steps=4, **settings)


def test_ids_and_tables_describe_prompt_major_paths():
    batch = rollout(REQUEST, policy(), FirstCoordinate())
    assert len(batch) == 3 * 2 * 4
    assert batch.ids["traj"].tolist() == [k for k in range(6) for _ in range(4)]
    assert batch.ids["group"].tolist() == [k for k in range(3) for _ in range(8)]
    assert batch.ids["prompt"].tolist() == [k for k in (10, 11, 12) for _ in range(8)]
    assert batch.ids["position"].tolist() == [0, 1, 2, 3] * 6
    assert batch.ids["seq"].tolist() == list(range(24))
    assert set(batch.ids["version"].tolist()) == {7}
    table = batch.table("traj")
    assert table["terminated"].tolist() == [True] * 6
    assert table["truncated"].tolist() == [False] * 6


def test_a_path_is_a_chain_and_its_end_is_rewarded_once():
    batch = rollout(REQUEST, policy(), FirstCoordinate())
    x, x_next = (batch.inputs[k].reshape(6, 4, 2) for k in ("x", "x_next"))
    assert torch.equal(x[:, 1:], x_next[:, :-1])
    assert torch.equal(batch.table("traj")["sample"], x_next[:, -1])
    reward = batch["reward"].reshape(6, 4)
    assert not reward[:, :-1].any()
    assert torch.equal(reward[:, -1], x_next[:, -1, 0])
    t, dt = (batch.inputs[k].reshape(6, 4) for k in ("t", "dt"))
    torch.testing.assert_close(t[0], torch.tensor([1.0, 0.75, 0.5, 0.25], dtype=torch.float64))
    torch.testing.assert_close(dt, torch.full((6, 4), -0.25, dtype=torch.float64))


def test_the_first_ratio_is_one():
    flow = FlowPolicy.for_task(EightGaussians())
    batch = rollout(replace(REQUEST, prompts=12, samples=8), flow, EightGaussians())
    logp = flow.columns(batch, frozenset({"logp"}), {})["logp"].detach()
    assert float((logp - batch["logp_mu"]).abs().max()) < 1e-6
    expected = batch.inputs["scale"] * (-batch.inputs["dt"]).sqrt()
    torch.testing.assert_close(batch["std"], expected.float())


def test_a_path_depends_on_its_own_key_alone():
    whole = rollout(REQUEST, policy(), FirstCoordinate())
    alone = rollout(replace(REQUEST, prompts=1, start=12), policy(), FirstCoordinate())
    torch.testing.assert_close(alone.table("traj")["sample"], whole.table("traj")["sample"][4:])
    again = rollout(REQUEST, policy(), FirstCoordinate())
    assert torch.equal(again.inputs["x_next"], whole.inputs["x_next"])
    starts = whole.inputs["x"].reshape(6, 4, 2)[:, 0]
    for change in ({"seed": 6}, {"version": 8}):
        other = rollout(replace(REQUEST, **change), policy(), FirstCoordinate())
        assert not torch.isclose(other.inputs["x"].reshape(6, 4, 2)[:, 0], starts).any()
    assert torch.pdist(starts).min() > 1e-3, "every path has noise of its own"


def test_slices_and_joins_keep_the_inputs_of_their_steps():
    flow, first = policy(), rollout(REQUEST, policy(), FirstCoordinate())
    second = rollout(replace(REQUEST, start=13, version=8), flow, FirstCoordinate())
    part: Batch = concat([first, second]).take(torch.tensor([40, 3, 27]))
    logp = flow.columns(part, frozenset({"logp"}), {})["logp"]
    torch.testing.assert_close(logp, part["logp_mu"], rtol=0, atol=1e-5)
    assert part.ids["prompt"].tolist() == [15, 10, 13]


def test_temperature_has_no_silent_effect():
    with pytest.raises(UsageError, match="no temperature"):
        rollout(replace(REQUEST, temperature=0.5), policy(), FirstCoordinate())


def test_rewards_of_another_shape_are_refused():
    class Column(FirstCoordinate):
        def reward(self, x):
            return x[:, :1]

    with pytest.raises(UsageError, match=r"shape \(6, 1\) for 6 points"):
        rollout(REQUEST, policy(), Column())


def test_membership_of_the_wanted_mode_is_the_reward():
    """Mode 2 has its centre at (0, 2), and counts up to a distance of 0.6."""
    points = torch.tensor([[0, 2], [0, 2.59], [0.59, 2], [0, 1.39], [2, 0], [0, -2]])
    assert EightGaussians(mode=2).reward(points).tolist() == [1, 1, 1, 0, 0, 0]


def test_the_record_tells_tasks_apart():
    assert EightGaussians(mode=3).settings() == {
        "kind": "generator",
        "name": "eight_gaussians",
        "mode": 3,
        "radius": 2.0,
        "spread": 0.15,
        "reach": 0.6,
    }


def test_the_data_have_the_stated_modes():
    task = EightGaussians(spread=0.1)
    x = task.sample(8000, torch.Generator().manual_seed(0))
    angles = torch.arange(8) * (torch.pi / 4)
    centres = 2 * torch.stack([angles.cos(), angles.sin()], 1)
    nearest = torch.cdist(x, centres).argmin(1)
    assert torch.bincount(nearest).min() > 900
    residual = x - centres[nearest]
    assert float(residual.std()) == pytest.approx(0.1, abs=0.003)
    assert float(residual.mean(0).abs().max()) < 0.005
