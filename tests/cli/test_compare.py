"""`anypo compare`: equal budgets, runs that go on after a kill, failures that stay alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import anypo
from anypo.api import contest, workers
from anypo.api.workers import Worker, run_all
from anypo.backends.language_load import load_policy
from anypo.backends.load_task import load_task
from anypo.cli import main
from anypo.core.errors import UsageError
from tests.end_to_end.test_kill import environment, numbers

TINY = "--policy tiny --task first_letter --seeds 2 --steps 4 --prompts 2 --eval-size 6".split()
SMALL = {"seeds": 2, "steps": 3, "prompts": 2, "eval_size": 6}


def policy(seed: int):
    """The character model, for runs in this process."""
    return load_policy("tiny", seed=seed)


def task(seed: int):
    """Its task."""
    return load_task("first_letter", seed=seed)


class Heard:
    """What a comparison tells of its runs."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def __call__(self, trial, event) -> None:
        (word,) = list(event)[:1]
        self.events.append((f"{trial.label} {trial.seed}", "before" if "before" in event else word))

    def of(self, word: str) -> list[str]:
        """The runs of which a word was told."""
        return [name for name, what in self.events if what == word]


def here(methods, out, **changed):
    """A comparison whose runs are made in this process."""
    return anypo.compare(methods, policy, task, out=out, **{**SMALL, **changed})


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Path:
    """A finished comparison of two methods on two seeds."""
    out = tmp_path_factory.mktemp("compare") / "out"
    here(["grpo", "rloo"], out)
    return out


def children(pid: int) -> list[int]:
    """Processes whose parent is this one."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


# ── the whole, in processes of its own ───────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_a_killed_comparison_leaves_nothing_running_and_goes_on(tmp_path, capsys):
    """And ends with the numbers of runs that were made alone, by the command each records."""
    out = tmp_path / "out"
    words = ["compare", "grpo", "gspo", *TINY, "--save-every", "1", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "anypo", *words, "--jobs", "1"],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    second, deadline = out / "gspo" / "seed-0" / "checkpoint-2", time.monotonic() + 120
    while not second.is_dir() and time.monotonic() < deadline:
        time.sleep(0.02)
    working = children(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert second.is_dir() and working
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").is_dir() for pid in working) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").is_dir() for pid in working)

    first = out / "grpo" / "seed-0" / "scores.json"
    written = first.stat().st_mtime_ns
    assert main([*words, "--jobs", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert first.stat().st_mtime_ns == written  # a finished run is not made again
    assert [set(m["scores"]) for m in found["methods"]] == [{"0", "1"}] * 2
    assert found["budget"] == {"unit": "completions", "amount": 4 * 2 * 8}
    assert (out / "compare.html").is_file()
    assert all(
        (out / m / f"seed-{s}" / "report.html").is_file() for m in ("grpo", "gspo") for s in (0, 1)
    )

    run = out / "gspo" / "seed-0"
    command = json.loads((run / "anypo.json").read_text())["command"].split()
    alone = [*command[1:-1], str(tmp_path / "alone")]
    assert command[-2:] == ["--out", str(run)]
    done = subprocess.run([sys.executable, "-m", *command[:1], *alone], env=environment())
    assert done.returncode == 0
    assert numbers(tmp_path / "alone") == numbers(run)


def test_a_worker_that_dies_is_a_failed_run_and_the_next_one_is_made(tmp_path, monkeypatch):
    """Each run gets a process that lives."""
    lines = "import os, sys; l = sys.stdin.readline(); "
    dies = (
        "os.kill(os.getpid(), 9) if '\"seed\": 0' in l else print('{\"done\": true}', flush=True)"
    )
    monkeypatch.setattr(workers, "START", lines + dies + "; sys.stdin.read()")
    spend = contest.Budget("completions", 8)
    runs = [
        contest.trial(contest.Contender("grpo", "grpo"), s, tmp_path, spend, {}, {}) for s in (0, 1)
    ]
    heard: dict[int, dict] = {}
    run_all(runs, 1, 1, tmp_path / "log", lambda trial, event: heard.update({trial.seed: event}))
    assert "its process was ended by signal 9" in heard[0]["failed"]
    assert heard[1] == {"done": True}


def test_a_worker_ends_in_the_middle_of_a_run_when_nobody_listens(tmp_path):
    spend = contest.Budget("completions", 10**7)
    common = {"policy": "tiny", "task": "first_letter", "task_options": {}}
    grpo = contest.Contender("grpo", "grpo")
    long = contest.trial(grpo, 0, tmp_path, spend, {"prompts": 2, "eval_size": 2}, common)
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", workers.START],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        text=True,
    )
    process.stdin.write(json.dumps({"trial": long.as_dict(), "words": long.words}) + "\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["row"]["step"] == 1
    process.stdin.close()
    try:
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.stdout.close()


def test_an_interruption_ends_the_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "START", "import time; time.sleep(60)")
    started: list[Worker] = []
    monkeypatch.setattr(workers, "Worker", lambda *a: started.append(Worker(*a)) or started[-1])
    spend = contest.Budget("completions", 8)
    run = contest.trial(contest.Contender("grpo", "grpo"), 0, tmp_path, spend, {}, {})

    running: list[subprocess.Popen[str]] = []

    def interrupt_once_it_runs() -> None:
        while not started[0].process:
            time.sleep(0.01)
        running.append(started[0].process)
        os.kill(os.getpid(), signal.SIGINT)

    def told(trial, event):
        if "begin" in event:
            threading.Thread(target=interrupt_once_it_runs, daemon=True).start()

    with pytest.raises(KeyboardInterrupt):
        run_all([run], 1, 1, tmp_path / "log", told)
    (process,) = running
    assert process.wait(5) == -signal.SIGKILL


# ── budgets ──────────────────────────────────────────────────────────────────────────────────────


def test_every_run_may_spend_the_same(tmp_path):
    """A method with twice the answers to a question gets half the iterations."""
    members = {"small": anypo.recipe("grpo", group=4), "large": anypo.recipe("grpo", group=8)}
    found = here(members, tmp_path / "out", budget="64 completions")
    spent = {s.label: (s.spent("completions"), s.spent("iterations")) for s in found.standings}
    assert spent == {"small": (64, 8), "large": (64, 4)}
    assert [f.equal for f in found.facts if f.name == "completions per run"] == [True]
    every = {o.facts["settings"]["eval_every"] for s in found.standings for o in s.outcomes}
    assert every == {1}


@pytest.mark.parametrize(
    ("text", "kind", "unit", "amount"),
    [
        ("", "language", "completions", 480),
        ("", "control", "tokens", 480 * 9),
        ("iterations", "language", "iterations", 10),
        ("5000", "language", "completions", 5000),
        ("5000 tokens", "language", "tokens", 5000),
        ("7iterations", "control", "iterations", 7),
    ],
)
def test_budgets_are_read(text, kind, unit, amount):
    class Any:
        horizon = 9

    Any.kind = kind
    settings = contest.Settings(steps=10, prompts=6)
    found = contest.budget(text, anypo.recipe("grpo"), Any, settings)
    assert (found.unit, found.amount) == (unit, amount)


@pytest.mark.parametrize("text", ["lots", "5 apples", "0 tokens", "tokens", "1.5 tokens"])
def test_what_is_no_budget_is_refused(text):
    with pytest.raises(UsageError, match=r"budget=|how many tokens"):
        contest.budget(text, anypo.recipe("grpo"), task(0), contest.Settings())


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────


def test_finished_runs_are_kept_and_seeds_and_methods_are_added(done, tmp_path):
    out = shutil.copytree(done, tmp_path / "out")
    heard = Heard()
    found = here(["grpo", "rloo"], out, seeds=3, tell=heard)
    assert sorted(heard.of("before")) == ["grpo 0", "grpo 1", "rloo 0", "rloo 1"]
    assert heard.of("begin") == ["grpo 2", "rloo 2"]
    assert found.seeds == [0, 1, 2]
    heard = Heard()
    here(["grpo", "gpg"], out, tell=heard, budget="48")
    assert heard.of("begin") == ["gpg 0", "gpg 1"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"prompts": 3}, "settings.prompts: 2 there, 3 here"),
        ({"budget": "99"}, "budget.amount: 48 there, 99 here"),
        (
            {"methods": {"grpo": anypo.recipe("grpo", group=4), "rloo": "rloo"}},
            "grpo: 'another recipe' there",
        ),
        ({"tune": {"lr": [1e-3]}}, "tuning"),
    ],
)
def test_a_folder_of_another_comparison_is_refused(done, changed, said):
    with pytest.raises(UsageError, match=said) as error:
        here(changed.pop("methods", ["grpo", "rloo"]), done, **changed)
    assert "Choose another --out, or remove that folder" in str(error.value)


def test_a_failed_run_is_shown_and_ends_no_other(tmp_path):
    def broken(seed: int):
        if seed == 1:
            raise OSError("the disk is on fire")
        return task(seed)

    members, heard = ["grpo", "rloo"], Heard()
    found = anypo.compare(members, policy, broken, out=tmp_path / "out", tell=heard, **SMALL)
    assert heard.of("failed") == ["grpo 1", "rloo 1"] and heard.of("done") == ["grpo 0", "rloo 0"]
    for s in found.standings:
        assert s.failed == ((1, "OSError: the disk is on fire"),) and list(s.scores) == [0]
    assert "the disk is on fire" in found.page.read_text()
    again = here(members, tmp_path / "out")  # what failed is tried again
    assert all(not s.failed and len(s.scores) == 2 for s in again.standings)


def test_tuning_is_equal_and_on_seeds_of_its_own(tmp_path):
    """A learning rate of nearly nothing loses against one that learns."""
    heard = Heard()
    values = {"lr": [1e-9, 1e-2], "grpo.clip": [0.2], "rloo.beta": [0.0]}
    found = here(["grpo", "rloo"], tmp_path / "out", tune=values, tune_seeds=1, tell=heard, steps=6)
    assert heard.of("begin").count("grpo 1000") == heard.of("begin").count("rloo 1000") == 2
    assert found.seeds == [0, 1]
    assert len(found.trials) == 4
    for label in ("grpo", "rloo"):
        best = max((t for t in found.trials if t["label"] == label), key=lambda t: t["score"])
        (taken,) = (t for t in found.trials if t["label"] == label and t.get("chosen"))
        assert taken["score"] == best["score"]
        (lr,) = {o.lr for s in found.standings if s.label == label for o in s.outcomes}
        assert lr == taken["tried"]["lr"]


def test_unequal_tuning_is_refused():
    grpo, gspo = contest.contenders(["grpo", "gspo"])
    with pytest.raises(UsageError, match="grpo 2, gspo 1"):
        contest.tuning({"grpo.clip": [0.1, 0.2]}, [grpo, gspo])
    with pytest.raises(UsageError, match=r"gspo has no setting or argument 'clip'.*clip_low"):
        contest.tuning({"clip": [0.1, 0.2]}, [grpo, gspo])
    with pytest.raises(UsageError, match="seed is the comparison's own"):
        contest.tuning({"seed": [1, 2]}, [grpo, gspo])
    both = contest.tuning({"grpo.clip": [0.1, 0.2], "gspo.clip_low": [1, 2]}, [grpo, gspo])
    assert both == {
        "grpo": [{"clip": 0.1}, {"clip": 0.2}],
        "gspo": [{"clip_low": 1}, {"clip_low": 2}],
    }


# ── finished runs ────────────────────────────────────────────────────────────────────────────────


def test_finished_runs_are_compared_as_they_are(done, tmp_path, capsys):
    folders = [str(done / m / f"seed-{s}") for m in ("grpo", "rloo") for s in (0, 1)]
    assert main(["compare", *folders, "--out", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {m["method"]: set(m["scores"]) for m in found["methods"]} == {
        "grpo": {"0", "1"},
        "rloo": {"0", "1"},
    }
    assert (tmp_path / "compare.html").is_file()
    assert main(["compare", str(done), "--out", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["methods"] == found["methods"]


def test_unlike_runs_are_refused_by_name_unless_that_is_meant(done, tmp_path, capsys):
    out = shutil.copytree(done, tmp_path / "runs")
    one, two = out / "grpo" / "seed-0", out / "rloo" / "seed-0"
    facts = json.loads((two / "anypo.json").read_text())
    facts["task"]["horizon"] = 8
    (two / "anypo.json").write_text(json.dumps(facts))
    assert main(["compare", str(one), str(two)]) == 2
    assert "the task differs: horizon is 4 in" in capsys.readouterr().err
    assert main(["compare", str(one), str(two), "--unequal", "--out", str(tmp_path / "x")]) == 0
    assert "Unequal: the task differs: horizon is 4" in capsys.readouterr().out
    facts["task"]["horizon"] = 4
    (two / "anypo.json").write_text(json.dumps(facts))
    rows = (two / "metrics.jsonl").read_text().splitlines()
    (two / "metrics.jsonl").write_text("\n".join(rows[:-1]) + "\n")
    assert main(["compare", str(one), str(two)]) == 2
    assert "the budget differs: a run of rloo took 40 completions" in capsys.readouterr().err
    assert main(["compare", str(one), str(one.with_name("seed-1"))]) == 2
    assert "all these runs are of one method, grpo" in capsys.readouterr().err
    again = shutil.copytree(one, tmp_path / "again")
    assert main(["compare", str(one), str(again), str(done / "rloo" / "seed-0")]) == 2
    assert "grpo is here twice with seed 0" in capsys.readouterr().err


# ── refused before the first run ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("grpo", "at least two methods"),
        ("grpo grpo", "'grpo' takes part twice"),
        ("grpo gpro", "unknown recipe 'gpro'; did you mean"),
        ("grpo spo", "several methods are called 'spo'"),
        ("grpo sft", "sft: all answers count alike"),
        ("grpo:group=1 gspo", "group"),
        ("grpo:none=1 gspo", "grpo has no argument 'none'"),
        ("grpo:clip gspo", "write METHOD:ARGUMENT=VALUE"),
        ("grpo gspo --seeds 1", "at least two"),
        ("grpo gspo --seeds 1,1", "all different"),
        ("grpo gspo --budget tokens", "'200000 tokens'"),
        ("grpo gspo --tune lr", "write NAME=A,B"),
        ("grpo gspo --patience 3", "no option --patience"),
        ("grpo ./nowhere", "./nowhere is no folder"),
        ("grpo gspo --level high", "--level wants a number"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_first_run(words, said, tmp_path, capsys):
    out = tmp_path / "out"
    code = main(["compare", *TINY[:4], "--out", str(out), *words.split()])
    assert (code, out.exists()) == (2, False)
    assert said in capsys.readouterr().err


def test_methods_may_stand_in_a_file(tmp_path, capsys):
    file = tmp_path / "compare.yaml"
    file.write_text("methods: [grpo, 'grpo:beta=0,group=1']\npolicy: tiny\ntask: first_letter\n")
    assert main(["compare", "--config", str(file), "--out", str(tmp_path / "out")]) == 2
    assert "grpo: a group baseline needs at least 2" in capsys.readouterr().err


def test_methods_with_arguments_get_names_that_say_so(tmp_path, capsys):
    from anypo.cli.compare import _member

    found = _member("grpo:beta=0,recipe.surrogate.dual=3", print)
    assert found.label == "grpo:beta=0,recipe.surrogate.dual=3"
    assert found.recipe == anypo.recipe("grpo", beta=0.0).set("surrogate.dual", 3.0)
    assert found.given == {"beta": "0.0", "recipe.surrogate.dual": "3.0"}
    assert "does not act here" in capsys.readouterr().out
    trial = contest.trial(found, 3, tmp_path, contest.Budget("completions", 640), {}, {"lora": 0})
    assert trial.words[:6] == "train grpo --beta 0.0 --recipe.surrogate.dual 3.0".split()
    assert Path(trial.out).name == "seed-3" and "max_completions" in trial.settings
