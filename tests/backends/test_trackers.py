"""Trackers, against the libraries themselves: what was written is read back from their files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from anypo.backends import tracker_facts, trackers
from anypo.backends.parquet import write_rows
from anypo.backends.tracker_sinks import SINKS, Sink
from anypo.core.errors import UsageError

ROOT = Path(__file__).parents[2]
SECRET = "hf_abcdefghijklmnopqrst"
FACTS = {
    "method": "grpo",
    "recipe": {"piece": "Recipe", "surrogate": {"piece": "Clip", "low": 0.2}},
    "settings": {"seed": 3, "token_budget": 8192},
    "given": {"api_key": "do-not-tell"},
    "versions": {"anypo": "0.1.0"},
    "command": f"anypo train grpo --judge-key also-secret --policy {SECRET}",
}
SCORES = {"before": {"held_out/accuracy": 0.25}, "after": {"held_out/accuracy": 0.75}}
HOSTILE = "</code><script>alert(1)</script>\n```\x1b[2J"


def row(step: int, **more: float) -> dict:
    return {"step": step, "reward": step / 10, "kl": None, "num_tokens": 5 * step, **more}


def folder(tmp_path: Path) -> Path:
    out = tmp_path / "run"
    out.mkdir()
    (out / "metrics.jsonl").write_text("")
    shown = [{"step": 1, "prompt": "a?", "completion": HOSTILE, "reward": 1.0, "tokens": ["x"]}]
    write_rows(out / "completions" / "step_00001.parquet", shown)
    return out


def append(out: Path, *rows: dict) -> None:
    with open(out / "metrics.jsonl", "a") as handle:
        handle.writelines(json.dumps(r) + "\n" for r in rows)


def sitting(word: str, out: Path, steps: range, end: bool = True) -> None:
    """A run in this process: start, some iterations, perhaps an end."""
    (tracker,) = trackers.make(word, out, "mine", notice=pytest.fail)
    tracker.on_start({**FACTS, "out": str(out)})
    for step in steps:
        append(out, row(step))
        assert tracker.on_iteration(row(step)) is None
    if end:
        tracker.on_end(SCORES)
    else:
        del tracker


def twice(word: str, out: Path) -> None:
    """Interrupted after iteration 3; goes on from a checkpoint at 2, to 5."""
    sitting(word, out, range(1, 4), end=False)
    rows = (out / "metrics.jsonl").read_text().splitlines(keepends=True)
    (out / "metrics.jsonl").write_text("".join(rows[:2]))
    sitting(word, out, range(3, 6))


def told(out: Path) -> None:
    """Nothing secret is in any file that a tracker wrote."""
    for file in out.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            assert not any(s in data for s in (b"do-not-tell", b"also-secret", SECRET.encode()))


REWARDS = [(step, pytest.approx(step / 10)) for step in range(1, 6)]


def test_tensorboard(tmp_path):
    out = folder(tmp_path)
    twice("tensorboard", out)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(out / "tensorboard"), size_guidance={"tensors": 0}).Reload()
    assert [(e.step, e.value) for e in read.Scalars("reward")] == REWARDS
    assert [e.value for e in read.Scalars("after/held_out/accuracy")] == [0.75]
    assert "kl" not in read.Tags()["scalars"]
    text = {t: [b.decode() for e in read.Tensors(t) for b in e.tensor_proto.string_val]
            for t in read.Tags()["tensors"]}  # fmt: skip
    (config,) = text["config/text_summary"]
    assert '"low": 0.2' in config
    (shown,) = text["completions/text_summary"]
    assert all(line.startswith("    ") for line in shown.split("\n"))
    assert "\x1b" not in shown
    assert r"\\x1b[2J" in shown
    told(out)


def test_mlflow(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    out = folder(tmp_path)
    twice("mlflow", out)
    from mlflow import MlflowClient

    client = MlflowClient((tmp_path / "mlruns").as_uri())
    home = client.get_experiment_by_name("anypo")
    (run,) = client.search_runs([home.experiment_id])
    assert run.info.run_name == "mine"
    assert run.info.status == "FINISHED"
    assert run.data.params["recipe.surrogate.low"] == "0.2"
    assert run.data.params["given.api_key"] == "[hidden]"
    history = client.get_metric_history(run.info.run_id, "reward")
    assert [(m.step, m.value) for m in history] == REWARDS
    assert run.data.metrics["after/held_out/accuracy"] == 0.75
    assert run.data.metrics["num_tokens"] == 25
    assert [f.path for f in client.list_artifacts(run.info.run_id, "completions")] == [
        "completions/step_00001.json"
    ]
    told(tmp_path)


OFFLINE = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "HF_HUB_OFFLINE": "1"}


def elsewhere(word: str, out: Path, **env: str) -> str:
    """Both sittings in a process of its own; what it printed on the standard output."""
    code = f"from tests.backends import test_trackers as t; t.twice({word!r}, t.Path({str(out)!r}))"
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("WANDB", "HF_"))}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**clean, **OFFLINE, **env, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def records(data: bytes) -> list[bytes]:
    """The records of a W&B file: LevelDB's log format in blocks of 32 KiB after 7 bytes."""
    found, whole, at = [], b"", 7
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:  # too little for a header: the block's end is padding
            at += 32768 - at % 32768
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # full, or the last part
            found.append(whole)
            whole = b""
    return found


def test_wandb_offline(tmp_path):
    out = folder(tmp_path)
    assert elsewhere("wandb", out) == ""
    from wandb.proto import wandb_internal_pb2

    rewards, ids, summary, config, tables = [], set(), {}, {}, 0
    for file in sorted(out.glob("wandb/offline-run-*/*.wandb")):
        for data in records(file.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.run.run_id:
                ids.add(record.run.run_id)
                config |= {u.key: json.loads(u.value_json) for u in record.run.config.update}
            items = {
                i.key or "/".join(i.nested_key): json.loads(i.value_json)
                for i in record.history.item
            }
            tables += "completions" in str(items)
            if "reward" in items:
                rewards.append((items["_step"], items["reward"]))
            summary |= items
    assert rewards == REWARDS
    assert len(ids) == 1  # both sittings are one run
    assert config["recipe"]["surrogate"]["low"] == 0.2
    assert config["given"]["api_key"] == "[hidden]"
    assert summary["after/held_out/accuracy"] == 0.75
    assert tables == 1
    told(out)


def test_trackio(tmp_path):
    out = folder(tmp_path)
    kept = tmp_path / "trackio"
    assert elsewhere("trackio", out, TRACKIO_DIR=str(kept)) == ""
    code = """
import json, sys
from trackio.sqlite_storage import SQLiteStorage as S
(run,) = S.get_runs("anypo")
logs = S.get_logs("anypo", run)
print(json.dumps([run, [(r["step"], r["reward"]) for r in logs if "reward" in r],
    [r["after/held_out/accuracy"] for r in logs if "after/held_out/accuracy" in r]]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TRACKIO_DIR": str(kept), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    run, rewards, after = json.loads(done.stdout.splitlines()[-1])
    assert run.startswith("mine-")
    assert [tuple(r) for r in rewards] == REWARDS
    assert after == [0.75]
    told(tmp_path)


class Broken(Sink):
    """A library whose network is away."""

    module, package = "json", "json"
    opens = True

    def open(self, name, out, run, config):
        if not self.opens:
            raise OSError("no route to host")
        return "id"

    def write(self, step, values):
        Broken.tries += 1
        raise ConnectionError("no\nroute")

    def table(self, step, rows):
        raise ConnectionError("none for tables")

    def close(self, stopped):
        raise ConnectionError("still none")

    tries = 0


@pytest.mark.parametrize("opens", [True, False])
def test_a_tracker_that_fails_says_so_once_and_ends_nothing(tmp_path, monkeypatch, opens):
    monkeypatch.setitem(SINKS, "broken", Broken)
    monkeypatch.setattr(Broken, "opens", opens)
    monkeypatch.setattr(Broken, "tries", 0)
    out, said = folder(tmp_path), []
    (tracker,) = trackers.make("broken", out, "mine", notice=said.append)
    tracker.on_start({"out": str(out)})
    for step in range(1, 9):
        tracker.on_iteration(row(step))
    tracker.on_end(SCORES)
    reason = "no route" if opens else "no route to host"
    assert said == [f"broken does not work, and the run goes on without: {reason}"]
    assert Broken.tries == (trackers.PATIENCE if opens else 0)


class Listed(Sink):
    """A library that remembers what it was told."""

    module, package = "json", "json"

    def open(self, name, out, run, config):
        return "id"

    def write(self, step, values):
        Listed.rows.append((step, values))

    def table(self, step, rows):
        Listed.tables.append(step)

    def close(self, stopped):
        Listed.ends.append(stopped)


@pytest.fixture
def listed(monkeypatch):
    monkeypatch.setitem(SINKS, "listed", Listed)
    monkeypatch.setattr(Listed, "rows", [], raising=False)
    monkeypatch.setattr(Listed, "tables", [], raising=False)
    monkeypatch.setattr(Listed, "ends", [], raising=False)


def test_an_interrupt_closes_as_interrupted_and_an_end_as_done(tmp_path, listed):
    out = folder(tmp_path)
    sitting("listed", out, range(1, 3), end=False)
    assert Listed.ends == [True]
    sitting("listed", out, range(3, 5))
    assert Listed.ends == [True, False]
    assert [step for step, _ in Listed.rows] == [1, 2, 3, 4, 4]  # the scores, at the last one


def test_a_tracker_asked_for_later_gets_what_came_before(tmp_path, listed):
    out = folder(tmp_path)
    append(out, row(1), row(2))
    sitting("listed", out, range(3, 4))
    assert [step for step, _ in Listed.rows] == [1, 2, 3, 3]


def test_what_a_crash_lost_is_written_again(tmp_path, listed, monkeypatch):
    out = folder(tmp_path)
    sitting("listed", out, range(1, 5), end=False)
    monkeypatch.setattr(Listed, "known", lambda self: 2)  # 3 and 4 never arrived
    monkeypatch.setattr(Listed, "rows", [])
    sitting("listed", out, range(5, 6))
    assert [step for step, _ in Listed.rows] == [3, 4, 5, 5]


def test_names(tmp_path):
    assert trackers.make("none", tmp_path, "x") == trackers.make("", tmp_path, "x") == []
    both = trackers.make("tensorboard, mlflow,tensorboard", tmp_path, "x")
    assert [t.word for t in both] == ["tensorboard", "mlflow"]
    with pytest.raises(UsageError, match="no tracker 'wandbb'; did you mean wandb"):
        trackers.make("wandbb", tmp_path, "x")


def test_a_library_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pip install mlflow-skinny"):
        trackers.make("mlflow", tmp_path, "x")


def test_no_library_is_imported_before_a_run_starts():
    code = (
        "import sys; from anypo.backends import trackers as t;"
        "t.make('tensorboard,wandb,mlflow,trackio', '.', 'x');"
        "assert not {'wandb','mlflow','trackio','tensorboard'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ})


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("api_key", "x", "[hidden]"),
        ("judge.token", "x", "[hidden]"),
        ("token_budget", 8192, 8192),
        ("tokenizer", "gpt2", "gpt2"),
        ("command", "anypo train --api-key=x y", "anypo train --api-key=[hidden] y"),
        ("command", "anypo train --max-tokens 8", "anypo train --max-tokens 8"),
        ("url", "https://me:pw@host/v1", "https://[hidden]@host/v1"),
        ("text", f"see {SECRET}.", "see [hidden]."),
        ("header", "Bearer abc", "Bearer [hidden]"),
    ],
)
def test_secrets_are_hidden_and_nothing_else(name, value, shown):
    assert tracker_facts.scrubbed({name: value}) == {name: shown}
