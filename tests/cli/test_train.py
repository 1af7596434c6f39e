"""`anypo train` and `evaluate`: what they record, print and refuse."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from anypo.cli import main, results
from anypo.cli.progress import Progress, clock, sparkline
from anypo.cli.results import accuracy, accuracy_rows, ends
from anypo.cli.screen import console

ROOT = Path(__file__).parents[2]
TINY = "--policy tiny --task first_letter --prompts 4 --eval-size 10".split()

SAFE = ("--policy tiny", "--task first_letter", "--steps 0")


def said(capsys, *words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command line."""
    code = main(list(words))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A short run with arguments of the method and an override of its recipe."""
    out = tmp_path_factory.mktemp("run") / "run"
    words = "train grpo --group 4 --beta 0.01 --recipe.surrogate.dual 3 --recipe.update.epochs 2"
    assert (
        main([*words.split(), *TINY, "--steps", "3", "--eval-every", "2", "--out", str(out)]) == 0
    )
    return out


def test_a_run_records_its_arguments_and_its_resolved_recipe(finished):
    facts = json.loads((finished / "anypo.json").read_text())
    assert facts["method"] == "grpo"
    assert facts["given"] == {
        "group": "4",
        "beta": "0.01",
        "recipe.surrogate.dual": "3",
        "recipe.update.epochs": "2",
    }
    assert facts["recipe"]["sampling"]["size"] == 4
    assert facts["recipe"]["surrogate"]["dual"] == 3.0
    assert facts["recipe"]["regularize"][0]["beta"] == 0.01
    assert facts["settings"]["prompts"] == 4
    assert len((finished / "metrics.jsonl").read_text().splitlines()) == 3
    assert (finished / "report.html").stat().st_size > 10_000


def test_the_same_command_goes_on_and_prints_the_same_scores(finished, capsys):
    words = "train grpo --group 4 --beta 0.01 --recipe.surrogate.dual 3 --recipe.update.epochs 2"
    rest = [*TINY, "--eval-every", "2", "--out", str(finished)]
    code, out, err = said(capsys, *words.split(), *rest, "--steps", "4", "--json")
    found = json.loads(out)
    assert code == 0
    assert "going on from checkpoint-3" in err
    assert "   4/4  reward" in err
    assert "   3/4  reward" not in err
    assert found["steps"] == 4
    assert found["out"] == str(finished)
    assert found["scores"] == json.loads((finished / "scores.json").read_text())
    code, out, _ = said(capsys, *words.split(), *rest, "--steps", "4")
    after = found["scores"]["after"]
    right = f"({after['held_out/correct']} of {after['held_out/total']};"
    row = next(line for line in out.splitlines() if "questions held out" in line)
    assert code == 0
    assert right in row
    assert "4 iterations" in out
    assert str(finished / "report.html") in out


def test_a_folder_of_another_run_is_refused_and_left_alone(finished, capsys):
    before = {f.name: f.stat().st_mtime_ns for f in finished.iterdir()}
    words = ["train", "grpo", "--group", "8", *TINY, "--eval-every", "2", "--out", str(finished)]
    code, _, err = said(capsys, *words)
    assert code == 2
    assert "error: " in err
    assert "holds another run (recipe." in err
    assert "Choose another --out" in err
    assert {f.name: f.stat().st_mtime_ns for f in finished.iterdir()} == before


def test_evaluate_takes_a_run_a_policy_and_json(finished, capsys):
    rest = ["--task", "first_letter", "--n", "10", "--json"]
    code, out, _ = said(capsys, "evaluate", str(finished), *rest)
    scores = json.loads((finished / "scores.json").read_text())["after"]
    assert code == 0
    assert json.loads(out)["held_out"]["correct"] == scores["held_out/correct"]
    assert json.loads(out)["seen"]["total"] == scores["seen/total"]
    before = json.loads((finished / "before.json").read_text())
    _, out, _ = said(capsys, "evaluate", "--policy", "tiny", *rest)
    assert json.loads(out)["held_out"]["correct"] == before["held_out/correct"]
    _, out, _ = said(capsys, "evaluate", "tiny", *rest[:-1])
    assert f"({before['held_out/correct']} of {before['held_out/total']};" in out


def test_without_a_recipe_the_run_has_no_reference_and_says_so(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = said(capsys, "train", *TINY, "--steps", "1")
    facts = json.loads((tmp_path / "runs" / "grpo-tiny-first_letter" / "anypo.json").read_text())
    assert code == 0
    assert "no recipe named: grpo with beta=0" in err
    assert facts["recipe"]["regularize"] == []
    assert facts["given"] == {"beta": "0"}


def test_options_come_from_yaml(tmp_path, capsys):
    file = tmp_path / "run.yaml"
    file.write_text(
        "recipe: rloo\nbeta: 0\nsteps: 2\nprompts: 2\npolicy: tiny\ntask: first_letter\n"
        f"eval-size: 2\ntask.held_out: 5\nout: {tmp_path / 'run'}\n"
    )
    code, out, _ = said(capsys, "train", "--config", str(file), "--steps", "1", "--json")
    facts = json.loads((tmp_path / "run" / "anypo.json").read_text())
    assert code == 0
    assert json.loads(out)["steps"] == 1
    assert (facts["method"], facts["task"]["held_out"]) == ("rloo", 5)


def test_a_control_task_shows_its_reward(tmp_path, capsys):
    words = "train ppo --task CartPole-v1 --epochs 1 --steps 2 --prompts 2 --horizon 30"
    code, out, _ = said(capsys, *words.split(), "--out", str(tmp_path / "run"))
    rows = [json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    row = next(line.split() for line in out.splitlines() if line.split()[:1] == ["reward"])
    assert code == 0
    assert row == ["reward", *(f"{r['reward']:.3f}" for r in rows)]
    assert "accuracy" not in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("gpso", "unknown recipe 'gpso'; did you mean"),
        ("grpo --policy tinny", "tinny"),
        (
            "grpo --policy tiny --task frist_letter",
            "there is no task 'frist_letter'; did you mean first_",
        ),
        (
            "grpo --policy tiny --task first_letter --task.held_outt 3",
            "no parameter 'held_outt'; did you",
        ),
        ("grpo --policy tiny --dataset absent.jsonl --reward r.py:f", "absent.jsonl"),
        ("reinforce --clip 0.2", "anypo train reinforce has no option --clip"),
        ("reinforce --clip 0.2", "(reinforce's own: --group)"),
        ("grpo --stpes 3", "anypo train grpo has no option --stpes; did you mean --steps"),
        ("grpo --steps -1", "steps must be at least 0"),
        ("grpo --save-every never", "write 20 (iterations) or 300s (time)"),
        ("grpo --group 1", "a group baseline needs at least 2 trajectories"),
        ("cispo --clip-low 5", "--clip-low 5 has no effect on cispo"),
        ("reinforce --recipe.surrogate.low 0.1", "--recipe.surrogate.low 0.1 has no effect"),
        ("dr-grpo --recipe.advantage.eps 0.1", "--recipe.advantage.eps 0.1 has no effect"),
        ("ppo --policy tiny --task eight_gaussians", "is of kind generator"),
    ],
)
def test_what_a_user_can_mend_is_one_sentence(tmp_path, capsys, monkeypatch, words, sentence):
    monkeypatch.chdir(tmp_path)
    safe = [w for w in SAFE if w.split()[0] not in words]  # should it run after all, then briefly
    code, out, err = said(capsys, "train", *words.split(), *" ".join(safe).split())
    last = err.splitlines()[-1]
    assert (code, out) == (2, "")
    assert last.startswith("error: ")
    assert sentence in last
    assert not any(tmp_path.iterdir())


def test_an_option_that_repeats_its_default_is_no_error(tmp_path, capsys):
    words = "train grpo --beta 0 --clip 0.2 --recipe.surrogate.low 0.2 --steps 0".split()
    code, _, err = said(capsys, *words, *TINY, "--out", str(tmp_path / "run"))
    assert code == 0
    assert "note" not in err


def test_a_clip_that_cannot_act_is_remarked_upon(tmp_path, capsys):
    words = ["train", "grpo", "--beta", "0", "--clip", "0.1", "--steps", "0", *TINY]
    code, _, err = said(capsys, *words, "--out", str(tmp_path / "one"))
    assert code == 0
    assert "note: --clip 0.1 does not act here" in err
    _, _, err = said(capsys, *words, "--recipe.update.epochs", "2", "--out", str(tmp_path / "two"))
    assert "does not act" not in err


def test_an_interrupted_run_says_how_to_go_on(tmp_path):
    words = [sys.executable, "-m", "anypo", "train", "grpo", "--beta", "0", *TINY]
    words += ["--steps", "5000", "--eval-every", "0", "--record-every", "0", "--out", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        metrics = tmp_path / "metrics.jsonl"
        while time.monotonic() < deadline and not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "interrupted; run the same command to go on"
    assert "Traceback" not in err


# ── what is shown while a run trains ─────────────────────────────────────────────────────────────


def test_a_plain_line_has_the_numbers_of_its_iteration():
    stream = io.StringIO()
    shown = Progress(console(stream), "grpo", 10)
    row = {"step": 1, "reward": 0.25, "entropy": 1.5, "approx_kl": 0.01, "step_time": 2.0}
    row |= {"completions/mean_length": 4.25, "num_tokens": 600}
    shown.on_iteration(row)
    row |= {"step": 2, "kl": 0.5, "held_out/accuracy": 0.875, "num_tokens": 1000}
    shown.on_iteration(row)
    first, second = (" ".join(line.split()) for line in stream.getvalue().splitlines())
    assert first == "1/10 reward 0.250 entropy 1.500 KL 0.0100 length 4.2 tokens/s 300 left 0:18"
    assert second.startswith("2/10 reward 0.250 held out 88 % entropy 1.500 KL 0.5000")
    assert "tokens/s 200" in second


def test_a_run_on_demonstrations_shows_likelihoods_in_place_of_rewards():
    shown = Progress(console(io.StringIO()), "sft", 10)
    row = {"step": 1, "reward": 1.0, "reward_std": 0.0, "nll": 1.25, "held_out/nll": 2.5}
    facts = shown.facts({**row, "step_time": 1.0})
    assert (facts["nll"], facts["held out"], facts.get("reward")) == ("1.250", "2.500", None)
    assert shown.curve == [1.25]
    pairs = shown.facts({**row, "reward": 0.5, "reward_std": 0.5, "step": 2, "step_time": 1.0})
    assert "nll" not in pairs and pairs["reward"] == "0.500"


def test_a_resumed_run_guesses_no_speed():
    shown = Progress(console(io.StringIO()), "grpo", 10)
    row = {"step": 5, "reward": 0.0, "step_time": 1.0, "num_tokens": 900}
    assert "tokens/s" not in shown.facts(row)
    assert shown.facts({**row, "step": 6, "num_tokens": 1000})["tokens/s"] == "100"


def test_hostile_notices_are_written_out():
    stream = io.StringIO()
    Progress(console(stream), "grpo", 1).notice("[red]x[/] \x1b]0;owned\x07 \u202e")
    assert stream.getvalue() == "[red]x[/] \\x1b]0;owned\\x07 \\u202e\n"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (65, "1:05"), (7384, "2:03:04")]
)
def test_clock(seconds, text):
    assert clock(seconds) == text


def test_sparkline_is_the_shape_of_the_values():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 0, 7, 7], 2) == "▁█"
    assert sparkline([3.0], 8) == "▁"


def test_accuracy_has_its_wilson_interval():
    # 52 of 60: (p + z²/2n ± z·√(p(1−p)/n + z²/4n²)) / (1 + z²/n) = 0.8446 ± 0.0863
    assert accuracy({"seen/correct": 52, "seen/total": 60}, "seen") == "87 % (52 of 60; 76 to 93)"


def test_ends_are_the_first_and_the_last_known_values():
    rows = [{"reward": 1.0}, {"reward": None}, {"reward": 3.0, "rollout/ep_rew_mean": 2.0}]
    assert ends(rows) == {"reward": (1.0, 3.0), "rollout/ep_rew_mean": (2.0, 2.0)}


def test_given_answers_are_not_said_to_be_sampled():
    rows = [{"reward": 0.5, "nll": 3.0, "accuracy": 0.4}, {"reward": 0.5, "nll": 2.0}]
    assert ends(rows) == {"accuracy": (0.4, 0.4), "nll": (3.0, 2.0)}
    after = {"held_out/correct": 3, "held_out/total": 4}
    shown = accuracy_rows({"before": after, "after": after}, results.PAIRS)
    assert [row[0] for row in shown] == ["pairs held out"]
    sampled = [{"reward": 0.5, "nll": 3.0, "entropy": 1.0}]  # imitation beside sampling
    assert ends(sampled) == {"reward": (0.5, 0.5)}
