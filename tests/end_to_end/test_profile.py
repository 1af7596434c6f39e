"""`--profile`: where the time of real runs went, and that nothing else changes."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

import anypo
from anypo.api import Run
from anypo.backends.profile import Profiling, read_profile
from anypo.cli import main
from anypo.core.clock import Pass
from anypo.engine.profile import BETWEEN, MEANS, PARTS
from anypo.report.report import write_report
from anypo.report.run import load
from anypo.report.spent import spent

OPTIONS = {
    "policy": "tiny",
    "task": "vowels",
    "prompts": 4,
    "save_every": "1",
    "eval_every": 2,
    "eval_size": 8,
}
LANGUAGE = {"sampling", "rewards", "credit", "forward", "backward", "optimizer", "records", "other"}
ADDED = ("time/", "tokens_per_second/", "floor")


@pytest.fixture(scope="module")
def profiled(tmp_path_factory) -> Run:
    """GRPO with a reference model, five iterations, an evaluation after every second one."""
    out = tmp_path_factory.mktemp("profiled")
    return anypo.train("grpo", steps=5, out=out, profile=True, **OPTIONS)


def test_every_span_that_must_be_there_took_time(profiled):
    first, *rows = profiled.metrics
    for row in rows:
        taken = {n.removeprefix("time/"): x for n, x in row.items() if n.startswith("time/")}
        assert all(taken[name] > 0 for name in LANGUAGE | {"reference", "checkpoint"})
        assert ("evaluation" in taken) == (row["step"] in (2, 4))
        assert set(taken) <= {*MEANS, "collect"}
        inside = sum(x for name, x in taken.items() if name not in {*BETWEEN, "collect"})
        assert inside == pytest.approx(row["step_time"])
        assert row["tokens_per_second/sampled"] > 0
    assert "time/checkpoint" not in first
    assert "time/old_logp" not in first  # one update per batch: it is logp
    profile = profiled.profile
    assert profile is not None
    assert profile.iterations == 5
    assert profile.shares["checkpoint"] > 0 and profile.shares["evaluation"] > 0
    assert sum(profile.shares.values()) == pytest.approx(1.0)


def test_a_profile_only_adds_to_the_metrics(profiled, tmp_path):
    plain = anypo.train("grpo", steps=5, out=tmp_path, **OPTIONS)
    for row, more in zip(plain.metrics, profiled.metrics, strict=True):
        names = {n for n in more if not n.startswith(ADDED)} | {"time/collect"}
        assert set(row) == names
        same = names - {"time/collect", "step_time"}
        assert {n: row[n] for n in same} == {n: more[n] for n in same}
    assert plain.profile is None
    assert "Where the time went" not in plain.report.read_text()


def test_spans_of_a_critic_and_of_several_updates(tmp_path):
    run = anypo.train("ppo", steps=1, out=tmp_path, profile=True, **OPTIONS)
    assert run.metrics[0]["time/old_logp"] > 0
    a2c = anypo.train("a2c", steps=1, out=tmp_path / "a2c", profile=True, **OPTIONS)
    assert a2c.metrics[0]["time/values"] > 0


def test_an_environment_has_spans_and_no_floor(tmp_path):
    options = {"task": "CartPole-v1", "steps": 2, "prompts": 2, "horizon": 20}
    run = anypo.train("a2c", out=tmp_path, profile=True, **options)
    row = run.metrics[-1]
    assert all(row[f"time/{name}"] > 0 for name in ("sampling", "forward", "backward", "optimizer"))
    assert "floor" not in row
    assert run.profile is not None and not run.profile.floor


def test_a_run_that_goes_on_keeps_what_was_measured(tmp_path):
    options = {**OPTIONS, "profile": True, "out": tmp_path}
    anypo.train("rloo", steps=2, **options)
    assert anypo.train("rloo", steps=3, **options).profile.iterations == 3
    before = (tmp_path / "profile.json").read_bytes()
    anypo.train("rloo", steps=3, **options)  # there is nothing left to do
    assert (tmp_path / "profile.json").read_bytes() == before


# ── the floor ────────────────────────────────────────────────────────────────────────────────────


def floored(run: Run, out: Path) -> Path:
    """The folder of a copy of a run whose profile knows a floor."""
    out.mkdir()
    for name in ("anypo.json", "metrics.jsonl", "scores.json"):
        (out / name).write_bytes((run.out / name).read_bytes())
    made = {**asdict(run.profile), "floor": {"decode": 0.25, "reading": 0.125}, "ratio": 2.5}
    (out / "profile.json").write_text(json.dumps(made))
    return out


def test_the_floor_of_an_iteration_joins_its_metrics():
    """The passes of two iterations, as a network would say them."""
    from anypo.backends.policies import load_policy

    made = Profiling(load_policy("tiny"))
    state = type("State", (), {"tokens": 80})()
    for step in (1, 2):
        for one in (Pass("decode", 8, 8), Pass("backward", 50, 20), Pass("optimizer", 9000, 0)):
            made.clock.work(one, cached=100)
        rows = [{"num_tokens": 40}] * (step - 1)
        found = made(state, {"step_time": 1.0}, rows)
        parts = {n.removeprefix("floor/"): x for n, x in found.items() if n.startswith("floor/")}
        assert found["floor/ratio"] == pytest.approx(1.0 / found["floor"])
        assert parts.pop("ratio") > 1
        assert set(parts) == {"decode", "backward", "reading", "optimizer"} <= set(PARTS)
        assert sum(parts.values()) == pytest.approx(found["floor"])
    assert made.laps[0] is not made.laps[1]
    assert made.laps[1].cached == 300
    assert not made.clock.lap().passes


def test_the_table_of_a_terminal_and_its_json(tmp_path, capsys):
    words = "train rloo --policy tiny --task vowels --steps 2 --prompts 4 --eval-size 8 --profile"
    assert main([*words.split(), "--out", str(tmp_path / "a")]) == 0
    shown = capsys.readouterr().out
    lines = {line.split()[0]: line for line in shown.splitlines() if line.strip()}
    profile = read_profile(tmp_path / "a")
    assert profile is not None
    assert "Where the time went, 2 iterations" in shown
    assert lines["forward"].split()[-3:] == [
        f"{profile.seconds['forward']:.3g}",
        f"{100 * profile.shares['forward']:.1f}",
        "%",
    ]
    assert main([*words.split(), "--out", str(tmp_path / "b"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["profile"]["seconds"]) == set(profile.seconds)
    assert main([*words.split()[:-1], "--out", str(tmp_path / "c"), "--json"]) == 0
    assert "profile" not in json.loads(capsys.readouterr().out)


def test_the_report_shows_spans_and_the_floor(profiled, tmp_path):
    out = floored(profiled, tmp_path / "run")
    shown = spent(load(out))
    bars = {row["name"]: float(row["bar"]) for row in shown["spans"]}
    assert max(bars.values()) == 100
    longest = max(profiled.profile.seconds.values())
    assert bars["forward"] == pytest.approx(
        100 * profiled.profile.seconds["forward"] / longest,
        abs=0.1,
    )
    assert [row["name"] for row in shown["floor"]] == ["decode", "reading"]
    assert shown["least"] == "0.375"
    page = write_report(out).read_text()
    assert "An iteration takes 2.50 times that." in page
    assert page.count('<i style="width:') == len(shown["spans"]) + 2
