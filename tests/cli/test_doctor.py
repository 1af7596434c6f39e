"""`anypo doctor`: the page, the JSON, the exit code, and that hostile text stays text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anypo.backends.parquet import write_rows
from anypo.cli import main
from anypo.doctor import CHECKS, Record
from tests.doctor.test_checks import STUCK, TABLE, record, same


def written(out: Path, x: Record) -> str:
    """A run's folder with the content of a record."""
    (out / "anypo.json").write_text(json.dumps(x.facts))
    (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in x.rows))
    (out / "scores.json").write_text(json.dumps(x.scores))
    for step, rows in x.completions.items():
        write_rows(out / "completions" / f"step_{step:05d}.parquet", rows)
    return str(out)


def said(capsys: Any, *words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command line."""
    code = main(["doctor", *words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_a_healthy_run_has_exit_code_0(capsys, tmp_path):
    code, out, _ = said(capsys, written(tmp_path, record()))
    assert code == 0
    assert f"Nothing wrong in {len(CHECKS)} checks." in out
    assert "40 of 40 iterations, reward 0.164 → 0.631" in out
    assert "held out 8 % → 67 %" in out
    assert "Not checked" not in out


def test_a_broken_run_has_exit_code_1_and_says_all_of_it(capsys, tmp_path):
    code, out, _ = said(capsys, written(tmp_path, TABLE["lr_too_large"][0]))
    flat = " ".join(out.split())
    assert code == 1
    assert "serious: The learning rate is too large lr_too_large, iterations 1 to 40" in flat
    assert "weights by 25 % of their size at a learning rate of 0.001" in flat
    assert "try --lr 0.0001 (it is 0.001) or --recipe.update.epochs 1 (it is 2)" in flat
    assert "weights/moved: 0.25 to 0.25, last 0.25" in flat
    assert "when weights move by 20 % of their size" in flat
    assert "source ours, measured in benchmarks/doctor.py" in flat
    assert "Likely to follow from that Nothing was learned:" in flat
    assert "(see: The learning rate is too large)" in flat
    assert flat.endswith("give it another --out.")


def test_a_note_is_no_alarm(capsys, tmp_path):
    code, out, _ = said(capsys, written(tmp_path, TABLE["never_clipped"][0]))
    assert code == 0
    assert "note: The clip never acts" in out
    assert "Nothing wrong" in out


def test_json_is_for_scripts(capsys, tmp_path):
    code, out, _ = said(capsys, written(tmp_path, TABLE["mismatch"][0]), "--json")
    found = json.loads(out)
    assert code == 1
    assert (found["healthy"], found["iterations"], found["checked"]) == (False, 40, len(CHECKS))
    (one,) = found["findings"]
    assert one["kind"] == "mismatch"
    assert set(one) >= {"severity", "title", "evidence", "threshold", "source", "advice", "metric"}
    assert one["iterations"] == [1, 40]
    code, out, _ = said(capsys, written(tmp_path, record()), "--json")
    assert (code, json.loads(out)["findings"], json.loads(out)["unchecked"]) == (0, [], [])


def test_what_was_not_checked_is_listed_with_what_it_needs(capsys, tmp_path):
    rows = [{k: v for k, v in r.items() if k != "kl"} for r in record().rows]
    x = record()
    code, out, _ = said(capsys, written(tmp_path, Record(x.facts, rows, x.scores)))
    flat = " ".join(out.split())
    assert code == 0
    assert "kl_runaway: needs kl" in flat
    assert "mode_collapse: needs completions" in flat


def test_a_run_without_an_iteration_is_no_error(capsys, tmp_path):
    (tmp_path / "anypo.json").write_text('{"method": "grpo"}')
    code, out, _ = said(capsys, str(tmp_path))
    assert code == 0
    assert "no finished iteration yet" in out


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(None, "holds no run"), ("{", "is damaged: it is no JSON"), ("[]", "it holds no mapping")],
)
def test_a_folder_without_a_run_is_one_sentence(capsys, tmp_path, content, sentence):
    if content:
        (tmp_path / "anypo.json").write_text(content)
    code, out, err = said(capsys, str(tmp_path))
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_hostile_text_reaches_no_terminal(capsys, tmp_path):
    def hostile(row: dict[str, Any]) -> None:
        same(row)
        row["completion"] = "\x1b]0;owned\x07[bold red]\u202e same" + "x" * 100_000

    x = record(change=hostile, facts={"method": "\x1b[31mgrpo\x07"}, **STUCK)
    for words in ((), ("--json",)):
        code, out, _ = said(capsys, written(tmp_path, x), *words)
        assert code == 1
        assert not set(out) & set("\x1b\x07\u202e")
        assert "owned" in out
        assert "[bold red]" in out
        assert len(out) < 20_000
