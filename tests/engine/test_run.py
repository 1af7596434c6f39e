"""The loop on a toy: resuming to the same bits, refusing damage, stopping when dead."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from anypo.api import recipe as recipe_of
from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.neutral import Adam
from anypo.core.piece import Reward
from anypo.engine import checkpoint
from anypo.engine.log import read
from anypo.engine.loop import train
from anypo.engine.settings import Settings
from anypo.engine.state import State
from tests.toys import ToyPolicy, toy_batch


class SavedToy(ToyPolicy):
    """The toy with weights on disk."""

    def save(self, folder: Path) -> None:
        """Weights as safetensors."""
        save_file(self.module.state_dict(), folder / "model.safetensors")

    def load(self, folder: Path) -> None:
        """Weights back in place."""
        self.module.load_state_dict(load_file(folder / "model.safetensors"))


class Task:
    """Of the language kind, without text."""

    kind, name, horizon = "language", "toy", 9


class Source:
    """A backend whose rollouts depend on the policy, the seed and the iteration alone."""

    rank, world = 0, 1

    def __init__(self, reward=None) -> None:
        self.reward = reward

    def rollout(self, request, state) -> Batch:
        """A toy batch, rewarded for choice 0."""
        sizes = [[3, 2]] * request.prompts
        if request.samples == 1:
            sizes = [[3]] * request.prompts
        batch = toy_batch(sizes, seed=request.seed * 1000 + request.version)
        choice = torch.cat([torch.stack(c) for c in batch.inputs["choice"]])
        hits = batch.sum((choice == 0).double(), within="traj")
        outcome = hits if self.reward is None else torch.full_like(hits, self.reward)
        last = batch.last("traj")
        columns = state.policy.columns(batch, frozenset({"logp"}), {})
        reward = torch.where(last, outcome, torch.zeros_like(outcome))
        return batch.with_({"reward": reward, "logp_mu": columns["logp"].detach()})

    def evaluate(self, state, seen=False):
        """Nothing to evaluate."""
        return {}

    def record(self, batch, state, out):
        """Nothing to store."""

    def sum_(self, tensors):
        """One rank."""


def run(name: str, out: Path, steps: int, **settings):
    policy = SavedToy()
    made = Settings(steps=steps, prompts=3, **{"save_every": "2", **settings})
    recipe = recipe_of(name) if isinstance(name, str) else name
    state = train(recipe, Task(), policy, Source(), made, out)
    return state, [
        {k: v for k, v in row.items() if "time" not in k} for row in read(out / "metrics.jsonl")
    ]


@pytest.mark.parametrize("name", ["dr_grpo", "ppo", "dpo", "rebel"])
def test_a_resumed_run_equals_an_uninterrupted_one(name, tmp_path):
    """Killed after iteration 5 (checkpoint at 4): iterations 5 … 7 are done again, to the bit."""
    whole, rows = run(name, tmp_path / "whole", 7)
    run(name, tmp_path / "cut", 5)
    shutil.rmtree(tmp_path / "cut" / "checkpoint-5")
    again, rows_again = run(name, tmp_path / "cut", 7)
    assert rows_again == rows
    for a, b in zip(
        whole.policy.module.parameters(), again.policy.module.parameters(), strict=True
    ):
        assert torch.equal(a, b)
    for a, b in zip(whole.heads.parameters(), again.heads.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_refreshed_reference_is_resumed(tmp_path):
    recipe = recipe_of("grpo", group=2).then(at=2, refresh="base")
    whole, rows = run(recipe, tmp_path / "whole", 6)
    run(recipe, tmp_path / "cut", 4)
    again, rows_again = run(recipe, tmp_path / "cut", 6)
    assert rows_again == rows
    kept, expected = again.references["base"] or {}, whole.references["base"] or {}
    assert kept.keys() == expected.keys() == again.policy.snapshot().keys()
    assert all(torch.equal(kept[k], x) for k, x in expected.items())
    # It is the policy of iteration 2, not the one at the start.
    start = SavedToy().snapshot()
    assert not any(torch.equal(kept[k], start[k]) for k in kept)


def test_only_the_last_two_checkpoints_are_kept_and_none_is_half_written(tmp_path):
    run("dr_grpo", tmp_path, 7)
    assert [p.name for p in checkpoint.found(tmp_path)] == ["checkpoint-6", "checkpoint-7"]
    assert not list(tmp_path.glob(".partial*"))
    assert not [p for p in tmp_path.rglob("*") if p.suffix in (".pt", ".pkl", ".bin")]


def test_a_kill_while_writing_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    run("dr_grpo", tmp_path, 4)

    def killed(state, folder):
        (folder / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(checkpoint, "_write", killed)
        run("dr_grpo", tmp_path, 6)
    state, _ = run("dr_grpo", tmp_path, 6)
    assert state.step == 6


@pytest.mark.parametrize("damage", ["truncate", "foreign", "absent"])
def test_a_damaged_checkpoint_is_named_with_the_cure(damage, tmp_path):
    run("dr_grpo", tmp_path, 4)
    file = tmp_path / "checkpoint-4" / "model.safetensors"
    if damage == "truncate":
        file.write_bytes(file.read_bytes()[:100])
    elif damage == "foreign":
        save_file({"other": torch.zeros(2)}, file)
    else:
        file.unlink()
    with pytest.raises(UsageError, match=r"checkpoint-4 cannot be read .*remove that folder"):
        run("dr_grpo", tmp_path, 6)
    assert (tmp_path / "checkpoint-2").exists()


def test_a_full_disk_is_named_and_nothing_is_lost(tmp_path, monkeypatch):
    run("dr_grpo", tmp_path, 4)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10))
    with pytest.raises(UsageError, match="no space left"):
        run("dr_grpo", tmp_path, 6)
    assert [p.name for p in checkpoint.found(tmp_path)] == ["checkpoint-2", "checkpoint-4"]


def test_a_run_without_any_gradient_stops_and_says_why(tmp_path):
    policy, settings = SavedToy(), Settings(steps=50, prompts=3, patience=4)
    with pytest.raises(
        UsageError, match="4 iterations without any gradient: every group had equal"
    ):
        train(recipe_of("dr_grpo", group=2), Task(), policy, Source(reward=1.0), settings, tmp_path)
    assert len(read(tmp_path / "metrics.jsonl")) == 4


def test_a_failing_reward_loses_nothing(tmp_path):
    """Iteration 4 fails while collecting: iterations 1 … 3 are saved, and the run goes on there."""
    whole, rows = run("dr_grpo", tmp_path / "whole", 5, save_every="100")

    class Failing(Source):
        """A reward function that breaks once."""

        def rollout(self, request, state):
            if state.step == 3:
                raise UsageError("reward function broke")
            return super().rollout(request, state)

    settings = Settings(steps=5, prompts=3, save_every="100")
    with pytest.raises(UsageError, match="broke"):
        train(recipe_of("dr_grpo"), Task(), SavedToy(), Failing(), settings, tmp_path / "cut")
    assert [p.name for p in checkpoint.found(tmp_path / "cut")] == ["checkpoint-3"]
    again, rows_again = run("dr_grpo", tmp_path / "cut", 5, save_every="100")
    assert rows_again == rows
    pairs = zip(whole.policy.module.parameters(), again.policy.module.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_unscored_trajectories_are_counted_and_left_out(tmp_path):
    class Half(Source):
        """Every second trajectory cannot be scored."""

        def rollout(self, request, state):
            batch = super().rollout(request, state)
            odd = (batch.id("traj") % 3 == 2) & batch.last("traj")
            nan = torch.full((len(batch),), torch.nan).double()
            return batch.with_({"reward": torch.where(odd, nan, batch["reward"])})

    settings = Settings(steps=1, prompts=3)
    train(recipe_of("dr_grpo", group=2), Task(), SavedToy(), Half(), settings, tmp_path)
    (row,) = read(tmp_path / "metrics.jsonl")
    assert (row["unscored"], row["kept"]) == (2, 4)


def test_dynamic_sampling_refills_and_is_bounded(tmp_path):
    settings = Settings(steps=2, prompts=3)
    recipe = recipe_of("dapo", group=2, overlong=0, rounds=4)
    train(recipe, Task(), SavedToy(), Source(), settings, tmp_path / "a")
    rows = read(tmp_path / "a" / "metrics.jsonl")
    assert all(row["requests"] <= 4 and row["kept"] % 2 == 0 for row in rows)
    assert any(row["requests"] > 1 for row in rows) or all(row["kept"] == 6 for row in rows)
    train(
        recipe, Task(), SavedToy(), Source(reward=0.0), Settings(steps=1, prompts=3), tmp_path / "b"
    )
    (row,) = read(tmp_path / "b" / "metrics.jsonl")
    assert (row["requests"], row["kept"], row["sampled"]) == (4, 0, 24)


def test_a_gradient_that_is_not_finite_is_never_applied():
    weight = torch.nn.Parameter(torch.ones(3))
    adam = Adam()
    optimizer = adam.optimizer([weight], 0.1)

    class Bad:
        """A problem with an infinite gradient."""

        def accumulate(self):
            weight.grad = torch.tensor([1.0, torch.inf, 0.0])
            return {"loss": 0.0}

    facts = adam.step(Bad(), optimizer, 0.1)
    assert facts["skipped_updates"] == 1.0
    assert weight.tolist() == [1.0, 1.0, 1.0]


def test_gradients_are_clipped_to_the_norm_before_they_are_applied():
    weight = torch.nn.Parameter(torch.zeros(2))
    adam = Adam(max_grad_norm=1.0, beta1=0.0, beta2=0.0, eps=1.0)
    optimizer = adam.optimizer([weight], 1.0)

    class Steep:
        """A gradient of norm 50."""

        def accumulate(self):
            weight.grad = torch.tensor([30.0, 40.0])
            return {}

    facts = adam.step(Steep(), optimizer, 1.0)
    assert facts["grad_norm"] == pytest.approx(50.0)
    assert weight.tolist() == pytest.approx([-0.6 / 1.6, -0.8 / 1.8])


def test_validation_names_what_a_policy_lacks(tmp_path):
    class Plain(SavedToy):
        """Offers no value."""

        offers = frozenset({"logp"})

    with pytest.raises(UsageError, match=r"'value'.*offers only logp"):
        train(recipe_of("ppo"), Task(), Plain(), Source(), Settings(steps=1), tmp_path)

    class Control(Task):
        """Of another kind."""

        kind = "control"

    with pytest.raises(UsageError, match="choose a control policy"):
        train(recipe_of("ppo"), Control(), SavedToy(), Source(), Settings(steps=1), tmp_path)


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        ("generator", {"horizon": 5}),
        ("generator", {"temperature": 0.5}),
        ("control", {"eval_every": 3}),
    ],
)
def test_a_setting_that_nothing_reads_is_refused(kind, setting, tmp_path):
    class Other(Task):
        """Of a kind without that setting."""

    Other.kind = kind

    class Policy(SavedToy):
        """Of the same kind."""

    Policy.kind = kind
    name = next(iter(setting))
    with pytest.raises(UsageError, match=f"{name}=.* has no effect"):
        train(recipe_of("ppo"), Other(), Policy(), Source(), Settings(**setting), tmp_path)


def test_metrics_are_strict_json(tmp_path):
    run("ppo", tmp_path, 3)
    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line, parse_constant=lambda c: pytest.fail(c))
        assert row["grad_norm"] > 0


def test_nearly_every_weight_with_a_gradient_moves():
    recipe = recipe_of("dr_grpo", group=2)
    state = State.start(recipe, SavedToy(), Settings(lr=2e-5))
    before = [p.detach().float().clone() for p in state.parameters(0)]
    state.policy.module.float()
    optimizer = recipe.update.optimizer(state.parameters(0), 2e-5)
    for p in state.parameters(0):
        p.grad = torch.randn_like(p)
    optimizer.step()
    moved = [
        (p.detach() != b).double().mean() for p, b in zip(state.parameters(0), before, strict=True)
    ]
    assert min(map(float, moved)) > 0.99


def test_metrics_of_a_batch_by_hand():
    """Entropy is the mean of −logp of what was sampled; a group with equal rewards is counted."""
    from anypo.engine.metrics import batch_metrics, interval

    batch = toy_batch([[1, 3], [2, 2]], outcomes=[[0.0, 1.0], [1.0, 1.0]])
    batch = batch.with_({"logp_mu": torch.tensor([-1.0] * 6 + [-3.0] * 2).double()})
    facts = batch_metrics(batch)
    assert facts["entropy"] == pytest.approx(1.5)
    assert facts["reward"] == pytest.approx(0.75)
    assert facts["frac_reward_zero_std"] == 0.5
    assert facts["completions/mean_length"] == 2.0
    assert facts["completions/clipped_ratio"] == 0.0
    low, high = interval(8, 10)
    assert (low, high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))


def test_a_reward_may_read_the_reference(tmp_path):
    """A penalty in the reward sees `ref.base` of every step before any statistic is taken."""
    seen = []

    @dataclass(frozen=True)
    class Penalty(Reward):
        """The reward minus the log-ratio to the reference."""

        @property
        def needs(self):
            """The reference."""
            return frozenset({"ref.base"})

        def __call__(self, batch):
            seen.append((batch["logp_mu"] - batch["ref.base"]).abs().max().item())
            return batch["reward"] - (batch["logp_mu"] - batch["ref.base"])

    recipe = recipe_of("dr_grpo", group=2).but(reward=(Penalty(),))
    assert recipe.references == {"base"}
    train(recipe, Task(), SavedToy(), Source(), Settings(steps=3, prompts=3), tmp_path)
    assert seen[0] < 1e-12 < seen[1] < seen[2]
