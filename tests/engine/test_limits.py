"""Budgets, levels and stalls: when a run ends early, and that it says why."""

from __future__ import annotations

import pytest

from anypo.core.errors import UsageError
from anypo.engine.callbacks import Callback, Callbacks
from anypo.engine.limits import condition, reached, seconds
from anypo.engine.log import Log
from anypo.engine.loop import train
from anypo.engine.movement import Movement
from anypo.engine.settings import Settings
from tests.engine.test_run import SavedToy, Source, Task, recipe_of
from tests.toys import ToyPolicy


def rows(**columns):
    """Metric rows of 60 s each, with some columns."""
    made = [{"step": k + 1, "step_time": 60.0, "num_tokens": 100 * (k + 1)} for k in range(4)]
    for name, values in columns.items():
        for row, value in zip(made, values, strict=True):
            row |= {} if value is None else {name.replace("__", "/"): value}
    return made


@pytest.mark.parametrize(
    ("text", "expected"), [("", 0), ("90s", 90), ("30m", 1800), ("1.5h", 5400), ("2d", 172800)]
)
def test_times(text, expected):
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["30", "m", "-3m", "0s", "3 m", "1h30m"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(UsageError, match="such as 90s"):
        Settings(max_time=text)


@pytest.mark.parametrize("text", ["reward", "reward=1", ">=3", "reward>=high"])
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(UsageError, match="a comparison and a number"):
        Settings(stop_at=text)


def test_a_condition_is_read():
    assert condition("held_out/accuracy >= 0.9") == ("held_out/accuracy", ">=", 0.9)
    assert condition("kl>1e-3") == ("kl", ">", 1e-3)


@pytest.mark.parametrize(
    ("settings", "columns", "said"),
    [
        ({"max_time": "4m"}, {}, "max_time=4m"),
        ({"max_time": "5m"}, {}, ""),
        ({"max_tokens": 400}, {}, "max_tokens=400"),
        ({"max_tokens": 401}, {}, ""),
        ({"max_completions": 90}, {"sampled": (20, 20, 30, 20)}, "max_completions=90"),
        ({"max_completions": 91}, {"sampled": (20, 20, 30, 20)}, ""),
        ({"max_cost": 2.0, "hourly_price": 30.0}, {}, "max_cost=2 is spent"),
        ({"max_cost": 2.01, "hourly_price": 30.0}, {}, ""),
        ({"stop_at": "reward>=0.5"}, {"reward": (0.9, 0.1, 0.2, 0.5)}, "reward is 0.5"),
        ({"stop_at": "reward>=0.5"}, {"reward": (0.9, 0.9, 0.9, 0.4)}, ""),
        ({"stop_at": "kl<1"}, {"reward": (1, 1, 1, 1)}, ""),
        ({"stall": 2}, {"held_out__accuracy": (0.2, 0.5, 0.4, 0.5)}, "best 2 measurements ago"),
        ({"stall": 2}, {"held_out__accuracy": (0.2, 0.5, None, 0.4)}, ""),
        ({"stall": 2}, {"held_out__accuracy": (0.2, 0.3, 0.4, 0.5), "reward": (9, 1, 1, 1)}, ""),
        ({"stall": 3}, {"reward": (9, 1, 1, 1)}, "reward was best 3"),
        ({"stall": 2}, {"held_out__nll": (3, 2, 2.5, 2.1)}, "nll was best 2 measurements ago (2)"),
        ({"stall": 2}, {"held_out__nll": (3, 2, 1, 0.5), "reward": (1, 1, 1, 1)}, ""),
    ],
)
def test_what_ends_a_run(settings, columns, said):
    found = reached(Settings(**settings), rows(**columns))
    assert said in found and bool(said) == bool(found)
    assert not reached(Settings(**settings), [])


def test_a_budget_without_a_price_is_refused():
    with pytest.raises(UsageError, match="hourly_price"):
        Settings(max_cost=3.0)


class Recorder(Callback):
    """Writes down what it hears, and ends the run where it is told to."""

    def __init__(self, last: int = 99) -> None:
        self.heard, self.last = [], last

    def on_iteration(self, row):
        """The number of the iteration."""
        self.heard.append(row["step"])
        return "enough" if row["step"] >= self.last else None

    def on_checkpoint(self, folder):
        """Its name, once it is whole."""
        assert (folder / "trainer_state.json").is_file()
        self.heard.append(folder.name)


def run(out, callback=None, **settings):
    made = Settings(**{"steps": 7, "prompts": 3, "save_every": "2", "record_every": 0, **settings})
    callback = callback or Callback()
    return train(recipe_of("dr_grpo"), Task(), SavedToy(), Source(), made, out, callback)


def test_callbacks_hear_of_iterations_and_checkpoints_in_order(tmp_path):
    one, other = Recorder(), Recorder()
    state = run(tmp_path, Callbacks([one, other]), steps=3)
    assert one.heard == other.heard == [1, 2, "checkpoint-2", 3, "checkpoint-3"]
    assert state.ended == ""


def test_a_callback_ends_a_run_after_a_checkpoint(tmp_path):
    callback = Recorder(last=3)
    state = run(tmp_path, callback)
    assert (state.step, state.ended) == (3, "enough")
    assert callback.heard[-1] == "checkpoint-3"


def test_a_spent_budget_stays_spent_and_a_raised_one_goes_on(tmp_path):
    per_iteration = run(tmp_path / "probe", steps=1).tokens
    first = run(tmp_path / "a", max_tokens=2 * per_iteration)
    assert first.step == 2 and "max_tokens" in first.ended
    again = run(tmp_path / "a", max_tokens=2 * per_iteration)
    assert again.step == 2 and "max_tokens" in again.ended
    more = run(tmp_path / "a", max_tokens=3 * per_iteration)
    assert more.step == 3


def test_extremes_of_several_updates_are_extremes_and_the_rest_are_means(tmp_path):
    log, facts = Log(tmp_path, 0), {}
    for low, high, loss in ((0.5, 1.5, 1.0), (0.9, 3.0, 2.0), (0.8, 2.0, 6.0)):
        new = {"ratio/min": low, "ratio/max": high, "loss": loss, "grad_norm": 1.0}
        facts = log.fold(facts, new)
    assert (facts["ratio/min"], facts["ratio/max"], facts["loss"]) == (0.5, 3.0, 3.0)


def test_movement_is_relative_and_bfloat16_sees_only_large_steps():
    policy = ToyPolicy()
    before, weights = Movement(policy), list(policy.module.parameters())
    assert before.measure() == {"weights/moved": 0.0, "weights/changed": 0.0}
    for p in weights:
        p.data *= 1 + 1e-6
    found = before.measure()
    assert found["weights/moved"] == pytest.approx(1e-6, rel=1e-6)
    assert found["weights/changed"] < 0.05
    for p in weights:
        p.data *= 2
    assert before.measure()["weights/changed"] == 1.0
