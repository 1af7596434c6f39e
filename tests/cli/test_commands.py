"""Commands that look: what they print, with which exit code, and that hostile text stays text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from anypo import __version__
from anypo.cli import main
from anypo.pieces.surrogate.clip import Clip

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "vectors"


def said(capsys, *words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command line."""
    code = main(list(words))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_help_names_every_command(capsys, words):
    code, out, _ = said(capsys, *words)
    assert code == 0
    for name in ("train", "evaluate", "methods", "show", "diff", "cite", "verify", "report"):
        assert f"\n  {name} " in out


def test_version(capsys):
    assert said(capsys, "--version") == (0, f"anypo {__version__}\n", "")


def test_help_of_a_method_lists_its_own_arguments(capsys):
    code, out, _ = said(capsys, "train", "gspo", "--help")
    assert code == 0
    assert "--clip-high FLOAT" in out
    assert "--save-every" in out
    code, out, _ = said(capsys, "train", "--help")
    assert code == 0
    assert "--clip-high" not in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("trian", "unknown command 'trian'; did you mean train, translate?"),
        ("show gpso", "unknown recipe 'gpso'; did you mean"),
        ("show", "anypo show needs METHOD"),
        (
            "show gspo --clip-lwo 1",
            "anypo show gspo has no option --clip-lwo; did you mean --clip-low",
        ),
        ("diff grpo", "anypo diff needs RIGHT"),
        ("methods --axis Z", "there is no axis 'Z' (axes: A reward"),
        ("methods --piece Clipp", "no method has the piece 'Clipp'; did you mean Clip"),
        ("verify absent.json", "absent.json does not exist"),
        ("report absent", "absent holds no run"),
        ("methods --jsn", "--jsn needs a value"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(capsys, words, sentence):
    code, out, err = said(capsys, *words.split())
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {sentence}")
    assert err.count("\n") == 1


def test_terminal_escapes_in_an_error_are_written_out(capsys):
    _, _, err = said(capsys, "show", "\x1b]0;owned\x07gr\u202epo")
    assert "\x1b" not in err
    assert "\x07" not in err
    assert "\u202e" not in err
    assert "gr" in err


def test_methods_as_a_table_and_as_json(capsys):
    _, out, _ = said(capsys, "methods")
    row = next(line for line in out.splitlines() if line.split()[:1] == ["ppo"])
    assert row.split() == ["ppo", "PPO", "1707.06347", "any", "--CDEFG-I", "verified"]
    _, out, _ = said(capsys, "methods", "--json")
    entries = {e["name"]: e for e in json.loads(out)}
    assert entries["reinforce"]["axes"] == {}
    assert entries["rloo"]["axes"] == {
        "reward": ["KLReward"],
        "sampling": ["Groups"],
        "advantage": ["Baseline"],
    }
    assert entries["dapo"]["axes"]["sampling"] == ["SamplingChain", "Groups", "Refill"]


@pytest.mark.parametrize(
    ("words", "some", "none"),
    [
        ("--axis A", {"dapo"}, {"grpo", "reinforce"}),
        ("--axis update", {"ppo", "flow_grpo"}, {"grpo"}),
        ("--piece kl", {"grpo", "rpg", "flow_grpo"}, {"dapo", "rloo"}),
        ("--domain generator", {"flow_grpo"}, {"grpo", "ppo"}),
        ("--domain language --piece Clip --axis F", {"grpo"}, {"gspo", "rloo", "ppo"}),
    ],
)
def test_methods_are_filtered(capsys, words, some, none):
    _, out, _ = said(capsys, "methods", "--json", *words.split())
    names = {e["name"] for e in json.loads(out)}
    assert some <= names
    assert none & names == set()


def test_show_prints_the_resolved_recipe(capsys):
    code, out, _ = said(capsys, "show", "gspo", "--clip-low", "0.001", "--recipe.ratio.cap", "10")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert code == 0
    assert "E surrogate.low 0.001" in lines
    assert "E surrogate.high 0.0004" in lines
    assert "D ratio.cap 10.0" in lines
    assert "live columns logp" in lines
    assert "frozen columns logp_old" in lines
    assert "coupling one term sees its traj" in lines
    clip = lines.index("E Clip PPO's pessimistic minimum of the raw and the clipped term.")
    assert lines[clip + 1].startswith("min(r·A, clip(r, 1−low, 1+high)·A); with dual = c")
    assert "papers 2507.18071" in lines
    assert "kind recipe, domain language" in lines
    assert "evidence gspo.json, 3 cases, error ≤ 1e-9" in lines


def test_show_as_json_is_the_recipe_that_train_would_use(capsys):
    _, out, _ = said(capsys, "show", "ppo-clip", "--json", "--value-clip", "inf")
    facts = json.loads(out)
    assert facts["name"] == "ppo"
    assert facts["recipe"]["regularize"][0]["clip"] == {"float": "inf"}
    assert facts["needs"]["heads"] == {"value": 1}
    assert facts["needs"]["frozen"] == ["logp_old", "value", "value_next"]


def test_diff_shows_fields_and_pushes(capsys):
    _, out, _ = said(capsys, "diff", "gspo", "dr-grpo", "--json")
    found = json.loads(out)
    fields = {f["field"]: (f["axis"], f["gspo"], f["dr_grpo"]) for f in found["fields"]}
    assert fields["ratio.level"] == ("D", "'traj'", "'step'")
    assert fields["surrogate.low"] == ("E", "0.0003", "0.2")
    assert fields["aggregate.length"] == ("G", "'actual'", "'horizon'")
    assert "update.epochs" not in fields
    pushes = {g["steps"]: (g["gspo"], g["dr_grpo"]) for g in found["gradient"]}
    assert pushes["right answers, ratio above 1.2"][1] == 0.0  # clipped in Dr. GRPO
    assert pushes["right answers, ratio above 1.2"][0] > 0.1  # GSPO clips whole answers
    _, out, _ = said(capsys, "diff", "grpo", "group_norm")
    assert out == "grpo and grpo are the same recipe\n"


def test_verify_is_green_on_a_right_file_and_red_on_a_wrong_one(capsys, tmp_path):
    code, out, _ = said(capsys, "verify", str(VECTORS / "grpo.loss.json"))
    assert code == 0
    assert "3 ok" in out
    content = json.loads((VECTORS / "grpo.loss.json").read_text())
    content["cases"][1]["expected"]["loss"] *= -1
    (tmp_path / "wrong.json").write_text(json.dumps(content))
    code, out, _ = said(capsys, "verify", str(tmp_path))
    assert code == 1
    assert "2 ok, 1 FAILED" in out
    row = next(line for line in out.splitlines() if "wrong.json 1" in line)
    assert "FAILED" in row
    assert "largest in loss" in row


def test_a_flipped_sign_in_a_piece_turns_verify_red(capsys, monkeypatch):
    right = Clip.__call__
    monkeypatch.setattr(Clip, "__call__", lambda self, batch: -right(self, batch))
    code, out, _ = said(capsys, "verify", "--json", str(VECTORS / "gspo.json"))
    found = json.loads(out)
    assert code == 1
    assert found["counts"]["FAILED"] == 3
    assert found["failed"] is True


def test_an_unknown_method_fails_only_when_strict(capsys, tmp_path):
    content = json.loads((VECTORS / "grpo.json").read_text())
    (tmp_path / "new.json").write_text(json.dumps({**content, "method": "no-such-method"}))
    code, out, _ = said(capsys, "verify", str(tmp_path / "new.json"))
    assert code == 0
    assert "not covered" in out
    code, _, _ = said(capsys, "verify", "--strict", str(tmp_path / "new.json"))
    assert code == 1


def test_names_in_a_vector_file_cannot_drive_the_terminal(capsys, tmp_path):
    content = json.loads((VECTORS / "grpo.json").read_text())
    hostile = "[bold red]x[/] \x1b[2J :smile:"
    (tmp_path / "a.json").write_text(json.dumps({**content, "method": hostile}))
    _, out, _ = said(capsys, "verify", str(tmp_path / "a.json"))
    assert "[bold red]x[/] \\x1b[2J :smile:" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(28, "No space left on device"), "no space left on the disk: free some, then run"),
        (
            PermissionError(13, "Permission denied", "runs\x1b"),
            "runs\\x1b cannot be used: Permission",
        ),
        (ModuleNotFoundError("No module", name="rich.table"), "rich.table is not installed: pip"),
    ],
)
def test_what_the_machine_lacks_is_one_sentence(capsys, monkeypatch, error, sentence):
    def fail(words):
        raise error

    monkeypatch.setattr("anypo.cli.methods.run", fail)
    code, _, err = said(capsys, "methods")
    assert code == 2
    assert err.startswith(f"error: {sentence}")


@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), ModuleNotFoundError("x", name="anypo.x")]
)
def test_a_defect_keeps_its_traceback(monkeypatch, error):
    def fail(words):
        raise error

    monkeypatch.setattr("anypo.cli.methods.run", fail)
    with pytest.raises(type(error)):
        main(["methods"])


def test_a_terminal_that_speaks_ascii_gets_all_the_same():
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "ascii"}
    words = [sys.executable, "-m", "anypo", "show", "grpo"]
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "min(r\\xb7A" in done.stdout


def test_a_reader_who_stops_early_is_no_error():
    words = [sys.executable, "-m", "anypo", "show", "grpo"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 0
