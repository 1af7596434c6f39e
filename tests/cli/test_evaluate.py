"""`anypo evaluate`: what it prints of samples, pairs, episodes and points, and what it refuses."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from anypo.api import Scores
from anypo.api.scores import Side
from anypo.backends.parquet import read_rows
from anypo.cli import main
from anypo.cli.evaluate import Bar
from anypo.cli.scores import plain, print_pairs, print_scores, shown
from anypo.cli.screen import console
from anypo.engine.measure import Measure


def said(capsys, *words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command line."""
    code = main(["evaluate", *words])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_a_run_is_sampled_saved_and_compared(trained, tmp_path, capsys):
    file = tmp_path / "questions.parquet"
    words = [str(trained), "--k", "2", "--n", "12", "--against", "tiny", "--save", str(file)]
    code, out, err = said(capsys, *words, "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert list(found) == ["seen", "held_out", "against", "ahead"]
    first, second = found["held_out"], found["against"]["held_out"]
    ahead = found["ahead"]["held_out"]
    gap = first["measures"]["mean@2"]["value"] - second["measures"]["mean@2"]["value"]
    assert ahead["mean@2"]["difference"] == pytest.approx(gap)
    assert gap > 0, "the trained one is better than it was"
    assert first["total"] == second["total"] == ahead["greedy"]["count"] == 12
    rows = read_rows(file)
    assert len(rows) == 24
    right = sum(row["greedy"] for row in rows if row["side"] == "held_out")
    assert right == first["correct"]
    code, out, _ = said(capsys, *words)
    assert code == 0
    assert "pass@2" in out
    assert "checkpoint-14 against tiny" in out
    assert "2 samples for each question, temperature 1, seed 3" in out


def test_other_kinds_have_their_own_words(capsys):
    code, out, _ = said(capsys, "--task", "CartPole-v1", "--n", "3")
    assert code == 0
    assert "Return of an episode" in out
    assert "greedy" in out and "sampled" in out
    code, out, _ = said(capsys, "--task", "eight_gaussians", "--n", "8", "--json")
    found = json.loads(out)["points"]
    assert found["total"] == 8
    assert "accuracy" not in found


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("tiny --k 4 --samples 2", "k=4 wants at least that many samples"),
        ("tiny --temperature 0.5", "temperature acts on samples"),
        ("tiny --save x.csv", "name a file that ends in .parquet"),
        ("flow", "'flow' is of kind generator"),
        ("tiny --kk 4", "has no option --kk"),
    ],
)
def test_what_a_user_can_mend_is_one_sentence(capsys, words, sentence):
    code, out, err = said(capsys, *words.split(), "--task", "first_letter")
    assert (code, out) == (2, "")
    assert sentence in err.splitlines()[-1]


# ── tables ───────────────────────────────────────────────────────────────────────────────────────


def scores(values: list[float], **settings) -> Scores:
    """Scores of questions, by hand."""
    rows = [{"prompt": str(i), "greedy": v, "pass@2": v / 2} for i, v in enumerate(values)]
    measures = {"greedy": Measure(0.5, 0.4, 0.6, 4), "pass@2": Measure(0.254, 0.104, 0.5, 4)}
    facts = {"kind": "language", "policy": "one", "samples": 2, "temperature": 1, "seed": 0}
    return Scores({"seen": Side(measures, rows)}, {**facts, **settings})


def printed(show, *held: Scores) -> str:
    """What is printed, with single spaces."""
    stream = io.StringIO()
    show(console(stream), *held)
    return "\n".join(" ".join(line.split()) for line in stream.getvalue().splitlines())


def test_a_share_is_a_percentage_with_its_interval():
    text = printed(print_scores, scores([1, 1, 0, 0]))
    assert "greedy 50 % (2 of 4; 15 to 85)" in text
    assert "pass@2 25 % (10 to 50)" in text


def test_returns_are_numbers_and_an_unknown_interval_is_left_out():
    held = Scores(
        {
            "episodes": Side(
                {"greedy": Measure(-12.345, -20, -5, 3), "nll": Measure(1, *[float("nan")] * 2, 3)}
            )
        },
        {"kind": "control", "samples": 0},
    )
    assert shown(held, "episodes", "greedy") == "-12.35 (-20 to -5)"
    assert shown(held, "episodes", "nll") == "1"
    assert shown(held, "seen", "greedy") == ""
    assert plain([held])["episodes"]["measures"]["nll"] == {
        "value": 1,
        "low": None,
        "high": None,
        "count": 3,
    }


def test_nobody_is_called_better_where_the_interval_holds_zero():
    same = printed(print_pairs, scores([1, 0, 1, 0]), scores([0, 1, 1, 0], policy="two"))
    assert "one against two" in same
    assert "no difference shown" in same
    assert "better" not in same.replace("better : worse", "")
    ahead = printed(print_pairs, scores([1] * 9 + [0]), scores([0] * 9 + [0], policy="two"))
    assert "+90 points" in ahead
    assert "9 : 0" in ahead
    assert "first is better" in ahead
    behind = printed(print_pairs, scores([0] * 10), scores([1] * 9 + [0], policy="two"))
    assert "second is better" in behind


def test_a_bar_shows_where_someone_looks_and_only_there():
    stream = io.StringIO()
    with Bar(console(stream)) as bar:
        bar.tell("seen", 1, 2)
    assert stream.getvalue() == ""
    screen = Console(file=stream, force_terminal=True, _environ={"TERM": "xterm"})
    with Bar(screen) as bar:
        bar.tell("seen, [2] samples each", 1, 2)
        bar.progress.refresh()
    assert "seen, [2] samples each" in stream.getvalue()
    assert "1/2" in stream.getvalue()
