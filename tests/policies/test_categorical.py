"""The discrete controller: its distribution, its sampling, and what the critic sees."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from anypo.core.batch import Batch
from anypo.policies.categorical import CategoricalPolicy

NEEDS = frozenset({"logp", "entropy", "value", "value_next"})


class FirstFeature(nn.Module):
    """A critic that can be checked by eye: the value of an observation is its first feature."""

    def forward(self, x):
        return x[:, :1]


def linear_policy(temperature: float = 1.0) -> CategoricalPolicy:
    """Logits are the observation itself."""
    policy = CategoricalPolicy(3, 3, temperature=temperature)
    policy.module = nn.Linear(3, 3, bias=False)
    nn.init.eye_(policy.module.weight)
    return policy


def fragments() -> Batch:
    """Three fragments: steps 0–1 terminate, steps 2–3 are truncated, step 4 is cut.

    The first feature numbers the observations; the observation after a step is the next one of
    the episode, and at the end the final one (20, 23, 25), which no step starts from.
    """
    observation = torch.tensor([10.0, 11, 12, 13, 14])[:, None] * torch.tensor([1.0, 0, 0])
    after = torch.tensor([11.0, 20, 13, 23, 25])[:, None] * torch.tensor([1.0, 0, 0])
    return Batch(
        {"reward": torch.ones(5)},
        {"seq": torch.arange(5), "traj": torch.tensor([0, 0, 1, 1, 2])},
        {"traj": {"terminated": torch.tensor([True, False, False])}},
        {
            "observation": observation,
            "next_observation": after,
            "action": torch.tensor([0, 1, 2, 0, 1]),
            "terminal": torch.tensor([False, True, False, False, False]),
        },
    )


def test_value_next_is_zero_at_termination_and_the_final_observations_at_truncation():
    columns = linear_policy().columns(fragments(), NEEDS, {"value": FirstFeature()})
    assert columns["value"].tolist() == [10, 11, 12, 13, 14]
    assert columns["value_next"].tolist() == [11, 0, 13, 23, 25]


def test_columns_of_a_step_do_not_depend_on_the_split():
    batch = fragments()
    policy = CategoricalPolicy(3, 3)
    whole = policy.columns(batch, NEEDS, {"value": FirstFeature()})
    order = torch.tensor([3, 0, 4])
    part = policy.columns(batch.take(order), NEEDS, {"value": FirstFeature()})
    assert set(part) == NEEDS
    for name, x in part.items():
        torch.testing.assert_close(x, whole[name][order])


def test_temperature_is_scored():
    """Logits [2, 1, 0] at T = 0.5: log p(0) = −0.142932; entropy by hand."""
    batch = fragments()
    batch.inputs["observation"][:] = torch.tensor([2.0, 1.0, 0.0])
    policy = linear_policy(temperature=0.5)
    columns = policy.columns(batch, frozenset({"logp", "entropy"}), {})
    normaliser = math.log(math.exp(4) + math.exp(2) + 1)
    logp = [4 - normaliser, 2 - normaliser, -normaliser]
    assert logp[0] == pytest.approx(-0.142932, abs=1e-6)
    expected = [logp[a] for a in batch.inputs["action"].tolist()]
    torch.testing.assert_close(columns["logp"], torch.tensor(expected))
    entropy = -sum(math.exp(x) * x for x in logp)
    torch.testing.assert_close(columns["entropy"], torch.full((5,), entropy))

    action, sampled = policy.act(batch.inputs["observation"][:1], torch.tensor([0.5]), 0.5)
    assert action.tolist() == [0]
    torch.testing.assert_close(sampled, torch.tensor(logp[:1]))


def test_logp_has_the_gradient_of_a_softmax():
    batch = fragments().take(torch.tensor([1]))
    policy = linear_policy()
    (grad,) = torch.autograd.grad(
        policy.columns(batch, frozenset({"logp"}), {})["logp"].sum(), policy.module.weight
    )
    observation = batch.inputs["observation"][0]
    p = observation.softmax(0)
    expected = torch.outer(torch.tensor([0.0, 1, 0]) - p, observation)
    torch.testing.assert_close(grad, expected)


def test_sampling_inverts_the_cumulative_distribution():
    """p = [0.2, 0.5, 0.3]: the thresholds are 0.2 and 0.7, and an uniform of 0 takes action 0."""
    policy = linear_policy()
    uniform = torch.tensor([0.0, 0.199, 0.201, 0.699, 0.701, 0.999], dtype=torch.float64)
    observation = torch.tensor([0.2, 0.5, 0.3]).log().expand(6, 3)
    action, logp = policy.act(observation, uniform, 1.0)
    assert action.tolist() == [0, 0, 1, 1, 2, 2]
    torch.testing.assert_close(logp.exp(), torch.tensor([0.2, 0.2, 0.5, 0.5, 0.3, 0.3]))


def test_an_impossible_first_action_is_never_sampled():
    observation = torch.tensor([[-1000.0, 0.0, -1000.0]])
    for u in (0.0, 0.999999999):
        action, _ = linear_policy().act(observation, torch.tensor([u], dtype=torch.float64), 1.0)
        assert action.tolist() == [1]


def test_temperature_zero_is_greedy_with_certainty():
    observation = torch.tensor([[0.1, 0.3, 0.2], [5.0, 1.0, 2.0]])
    action, logp = linear_policy().act(observation, torch.tensor([0.0, 0.99]), 0.0)
    assert action.tolist() == [1, 0]
    assert logp.tolist() == [0.0, 0.0]


def test_a_reference_answers_inside_its_block():
    policy, batch = CategoricalPolicy(3, 3), fragments()
    reference = policy.snapshot()
    before = policy.columns(batch, frozenset({"logp"}), {})["logp"].detach()
    with torch.no_grad():
        policy.module[-1].weight.mul_(100)
    with policy.using(reference):
        assert torch.equal(policy.columns(batch, frozenset({"logp"}), {})["logp"], before)
    moved = policy.columns(batch, frozenset({"logp"}), {})["logp"]
    assert (moved - before).abs().max() > 0.1


def test_float64_weights_give_float64_columns():
    policy = CategoricalPolicy(3, 3)
    policy.module.double()
    columns = policy.columns(fragments(), NEEDS, {"value": policy.head(1).double()})
    assert {x.dtype for x in columns.values()} == {torch.float64}
