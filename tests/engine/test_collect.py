"""Collecting: lots, named state as columns, tags, and rollouts that only serve as a baseline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.neutral import Groups
from anypo.core.recipe import Recipe
from anypo.core.request import Request
from anypo.engine.collect import collect, draw, stamped
from anypo.pieces.advantage.versus import Versus
from anypo.pieces.sampling.probe import Probe, soft_mean
from tests.toys import ToyPolicy, toy_batch, toy_state


class Backend:
    """Answers with toy batches of one step, rewarded by who answered and how."""

    rank, world = 0, 1

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def rollout(self, request: Request, state: Any) -> Batch:
        """`prompts · samples` trajectories; probes are rewarded 10, 11, … in their order."""
        self.asked.append(request)
        batch = toy_batch([[1] * request.samples] * request.prompts, request.version)
        plain = {k: v for k, v in batch.columns.items() if k in ("reward", "logp_mu")}
        batch = replace(batch, columns=plain)
        if request.stream != "sample":
            batch = batch.with_({"reward": 10.0 + torch.arange(len(batch)).double()})
        return batch


def collected(sampling: Any) -> tuple[Batch, Backend]:
    """What a recipe of that sampling collects for two prompts."""
    recipe, backend = Recipe(sampling=sampling, advantage=Versus("greedy")), Backend()
    state = toy_state(recipe, ToyPolicy(), prompts=2, horizon=9)
    return collect(recipe, backend, state)[0], backend


def test_lots_are_drawn_once_per_step_from_a_stream_of_their_own():
    batch = toy_batch([[3, 2]])
    first, again, other = draw(batch, 0, 1, 1), draw(batch, 0, 1, 1), draw(batch, 0, 2, 1)
    assert torch.equal(first["lot"], again["lot"])
    assert not torch.equal(first["lot"], other["lot"])
    assert len(set(first["lot"].tolist())) == 5 and float(first["lot"].min()) >= 0
    assert "lot" in collected(Groups(2))[0]


def test_named_state_reaches_steps_as_columns():
    batch = toy_batch([[2, 1], [1, 1]])
    columns = stamped(batch, {"lam": 0.5, "length": {"0": 7.0}, "buffer": ["not a number"]})
    assert columns["lam"].tolist() == [0.5] * 5
    assert columns["length"].nan_to_num(-1).tolist() == [7, 7, 7, -1, -1]
    assert set(columns) == {"lam", "length"}


def test_a_greedy_probe_gives_each_prompt_its_baseline():
    batch, backend = collected(Groups(2) >> Probe("greedy"))
    probe = backend.asked[1]
    assert (probe.samples, probe.temperature, probe.stream) == (1, 0.0, "probe greedy")
    assert (probe.start, probe.prompts) == (backend.asked[0].start, 2)
    assert batch["greedy"].tolist() == [10, 10, 11, 11]
    assert batch.count("traj") == 4  # the probes do not train


def test_probes_are_averaged_softly_or_paired():
    batch, backend = collected(Groups(2) >> Probe("greedy", samples=3, temperature=1.0))
    assert backend.asked[1].samples == 3
    assert batch["greedy"].tolist() == [11, 11, 14, 14]
    paired, _ = collected(Groups(2) >> Probe("greedy", temperature=1.0, paired=True))
    assert paired["greedy"].tolist() == [10, 11, 12, 13]


def test_a_reference_answers_under_its_own_weights():
    recipe = Recipe(sampling=Groups(1) >> Probe("greedy", policy="base"))
    policy, seen = ToyPolicy(), []

    class Watching(Backend):
        """Notes the first weight under which each request is answered."""

        def rollout(self, request: Request, state: Any) -> Batch:
            """As before."""
            seen.append(float(next(iter(policy.module.parameters())).detach().flatten()[0]))
            return super().rollout(request, state)

    state = toy_state(recipe, policy, prompts=2, horizon=9)
    collect(recipe, Watching(), state)
    assert seen[1] == float(next(iter(state.references["base"].values())).flatten()[0]) != seen[0]


def test_the_soft_mean_has_its_limits():
    assert soft_mean([1.0, 0.0], 0.5) == pytest.approx(0.7168904152)
    assert soft_mean([1.0, 0.0], 1e-4) == pytest.approx(1.0, abs=1e-3)
    assert soft_mean([1.0, 0.0], 1e6) == pytest.approx(0.5, abs=1e-5)
    assert soft_mean([1.0, 0.0], float("inf")) == 0.5


def test_a_probe_without_a_score_says_so():
    probe = Probe("greedy")
    batch = toy_batch([[1], [1]])
    with pytest.raises(UsageError, match="no baseline"):
        probe.read(batch, batch.take(batch.id("group") == 0))


def test_many_greedy_probes_are_refused():
    with pytest.raises(UsageError, match="greedy answers do not differ"):
        Probe("greedy", samples=2)
