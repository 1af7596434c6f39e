"""On the character model: probes, steering answers, and heads that learn while the policy waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import anypo
from anypo.backends.local import Local
from anypo.backends.policies import load_policy
from anypo.core.batch import Batch
from anypo.core.neutral import Groups
from anypo.core.recipe import Recipe
from anypo.core.request import Request
from anypo.engine.collect import collect
from anypo.engine.loop import train
from anypo.engine.settings import Settings
from anypo.engine.state import State
from anypo.pieces.sampling.probe import Probe
from anypo.pieces.sampling.steer import Steer
from tests.identities.small import last, steps
from tests.learning.words import task


class Listening(Local):
    """The local backend, which keeps what was asked and what was answered."""

    def __init__(self, words: Any) -> None:
        super().__init__(words)
        self.log: list[tuple[Request, list[str]]] = []

    def rollout(self, request: Request, state: State) -> Batch:
        """An ordinary rollout, written down."""
        batch = super().rollout(request, state)
        self.log.append((request, list(batch.table("traj")["completion"])))
        return batch


def collected(recipe: Recipe, moved: bool = False, prompts: int = 4) -> tuple[Batch, State, list]:
    """One iteration's batch on `tiny`; `moved`: the policy is no longer what its references are."""
    words = task()
    policy = load_policy("tiny", task=words)
    state = State.start(recipe, policy, Settings(prompts=prompts))
    if moved:
        with torch.no_grad():
            for p in policy.module.parameters():
                p.mul_(1.5)
        policy.publish()
    backend = Listening(words)
    batch, _ = collect(recipe, backend, state)
    return batch, state, backend.log


def test_a_greedy_probe_scores_what_the_policy_most_likely_says():
    batch, state, _ = collected(greedy())
    table, last = batch.table("traj"), batch.last("traj")
    words = task()
    for row, baseline in zip(table["row"], batch["greedy"][last].tolist(), strict=True):
        (said,) = state.policy.generate([row["prompt"]], 1, 8, keys=[0], temperature=0.0)
        assert baseline == pytest.approx(words.score([row["prompt"]], [said.text], [row])[0])
    assert batch.count("traj") == 8


def greedy() -> Recipe:
    return Recipe(sampling=Groups(2) >> Probe("greedy"))


def test_the_reference_answers_in_a_stream_of_its_own():
    """At the start policy and reference are one, and still their answers differ."""
    recipe = anypo.recipe("aapo", group=4)
    batch, _, ((asked, said), (beside, answers)) = collected(recipe)
    assert (asked.policy, beside.policy) == ("", "base")
    assert len(said) == len(answers) == 16
    assert not set(said) & set(answers)
    words, rows = task(), batch.table("traj")["row"]
    paired = words.score([r["prompt"] for r in rows], answers, rows)
    assert batch["reference"][batch.last("traj")].tolist() == pytest.approx(paired)


def test_a_moved_policy_leaves_the_answers_of_the_reference_as_they_were():
    recipe = anypo.recipe("aapo", group=4)
    _, _, (own, beside) = collected(recipe)
    _, _, (own_moved, beside_moved) = collected(recipe, moved=True)
    assert own[1] != own_moved[1]
    assert beside[1] == beside_moved[1]


def test_a_greedy_probe_follows_the_policy():
    _, _, (_, before) = collected(greedy())
    _, _, (_, after) = collected(greedy(), moved=True)
    assert before[1] != after[1]
    assert before[0].stream == "probe greedy"


# ── steering ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("entropy", "kept"), [(0.2, [2, 4, 5]), (0.9, [2, 4])])
def test_right_steering_answers_stay_up_to_a_number(entropy, kept):
    """Of five right ones 3 stay below the target, and half as many, rounded up, above it; by lot.

    The lot of an answer is the largest of its steps; wrong answers at the plain temperature stay.
    """
    lengths, right = [1, 2, 1, 2, 1, 1, 1, 1], [1, 0, 1, 1, 1, 1, 0, 1]
    batch = steps(
        lengths,
        reward=[0] * 10,
        score=last(lengths, right),
        control=[0, 0, 0, 1, 1, 1, 1, 1, 1, 1],
        lot=[0.9, 0.9, 0.9, 0.3, 0.1, 0.9, 0.2, 0.4, 0.5, 0.6],
        mean_entropy=[entropy] * 10,
        answer=[k for k, n in enumerate(lengths) for _ in range(n)],
    )
    steer = Steer(target=0.5, most=3)
    once = steer.keep(batch)
    assert once["answer"].unique().tolist() == [0, 1, *kept]
    assert torch.equal(steer.keep(once)["answer"], once["answer"])
    assert len(steer.keep(batch.take(batch["answer"] == 6))) == 0


def test_steering_answers_are_sampled_at_their_temperature_and_the_entropy_is_seen():
    recipe = anypo.recipe("aepo", group=2, target=9.0)
    batch, state, log = collected(recipe, prompts=8)
    (plain, _), (hot, _) = log
    assert (plain.temperature, hot.temperature) == (1.0, pytest.approx(1.2))
    assert (plain.prompts, hot.prompts, hot.samples) == (8, 2, 2)
    assert hot.start == plain.start + 8
    assert batch["control"].sum() == 0  # a share of vowels is never 1 at the start
    state.observe(batch)
    assert state.pieces["mean_entropy"] == pytest.approx(float(batch["entropy_old"].mean()))


# ── heads alone ──────────────────────────────────────────────────────────────────────────────────


def trained(recipe: Recipe, steps: int, out: Path, policy: Any = None) -> State:
    words = task()
    policy = policy or load_policy("tiny", task=words)
    settings = Settings(steps=steps, prompts=8, eval_every=0, record_every=0, save_every="1000")
    return train(recipe, words, policy, Local(words), settings, out)


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], x) for k, x in b.items())


@pytest.mark.parametrize("name", ["vc_ppo", "dvpo"])
def test_a_warm_up_moves_the_value_head_and_no_weight_of_the_policy(name, tmp_path):
    start = load_policy("tiny", task=task()).snapshot()
    recipe = anypo.recipe(name, warmup=2, epochs=2)
    state = trained(recipe, 2, tmp_path / "warm")
    assert equal(state.policy.snapshot(), start)
    assert all(p.requires_grad for p in state.policy.module.parameters())
    assert float(state.heads["value"].weight.detach().abs().max()) > 0
    moved = trained(recipe, 3, tmp_path / "on")
    assert not any(torch.equal(moved.policy.snapshot()[k], x) for k, x in start.items())


def test_dvpos_value_model_stands_still_while_the_policy_moves(tmp_path):
    """Neither the head nor the features it reads change, so V of given answers does not."""
    recipe = anypo.recipe("dvpo", warmup=1, beta=0.0)
    first = trained(recipe, 1, tmp_path / "first")
    later = trained(recipe, 3, tmp_path / "later")
    assert not equal(first.policy.snapshot(), later.policy.snapshot())
    for name in ("weight", "bias"):
        a, b = (getattr(s.heads["value"], name) for s in (first, later))
        assert torch.equal(a, b)
    assert equal(first.policy.snapshot(), later.references["base"] or {})
