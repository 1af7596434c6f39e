"""A comparison on the terminal: lines while it runs, tables that fit, no escape of a name."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from anypo.api import contest
from anypo.cli.board import Board, show, spent
from anypo.cli.screen import console
from anypo.report.comparison import Comparison
from tests.report.test_compare import HIGH, HOSTILE, LOW, made

TRIAL = contest.trial(
    contest.Contender("grpo", "grpo"),
    3,
    contest.Path("out"),
    contest.Budget("completions", 640),
    {},
    {},
)


def printed(c: Comparison, width: int = 0) -> str:
    """What `show` prints: for a script, or on a terminal of a width."""
    file = io.StringIO()
    screen = Console(file=file, width=width, force_terminal=True) if width else console(file)
    show(screen, c)
    return re.sub(r"\x1b\[[\d;]*m", "", file.getvalue())


@pytest.fixture(scope="module")
def comparison(tmp_path_factory) -> Comparison:
    """Two methods, gspo ahead."""
    return made(tmp_path_factory.mktemp("board"), {"grpo": LOW, "gspo": HIGH})


def test_it_begins_with_who_is_ahead_and_ends_with_the_page(comparison):
    lines = [line.strip() for line in printed(comparison).splitlines() if line.strip()]
    assert lines[0] == "gspo is ahead of grpo"
    assert lines[1] == "gspo is ahead of grpo by 10 points (8.5 to 11.5)."
    assert lines[-1] == f"page:       {comparison.page}"
    assert "No method was tuned: each ran at its defaults, or at what it was given." in lines
    assert any(re.match(r"gspo\s.*60.%\s*\(\d+ to 66\)\s+61.%", line) for line in lines)


def test_the_tables_fit_eighty_columns_with_whole_bars(comparison):
    shown = printed(comparison, 80)
    assert max(map(len, shown.splitlines())) <= 80
    bars = re.findall(r"(?m)^  g[rs]po\s+([·━┿●]+)\s", shown)
    assert [len(b) for b in bars] == [24, 24]
    place = bars[0].index("●")
    assert place == int(0.6 * 24) and set(bars[0][:11]) == {"·"}


def test_a_lead_is_marked_and_its_absence_too(comparison):
    pair = comparison.pairs[0]
    assert re.search(
        r"gspo and grpo\s+10 \(8\.5 to 11\.5\)\s+1\.00 .*\s+gspo\s*$", printed(comparison), re.M
    )
    unsure = replace(pair, difference=replace(pair.difference, low=-0.01))
    shown = printed(replace(comparison, pairs=(unsure,)))
    assert re.search(r"gspo and grpo\s+10 \(−1 to 11\.5\)\s+1\.00 .*\s+no winner\s*$", shown, re.M)
    assert shown.strip().startswith("No winner")


def test_names_and_reasons_cannot_steer_the_terminal(tmp_path):
    scores = {"grpo": LOW, HOSTILE: HIGH[:3]}
    shown = printed(made(tmp_path, scores, failed={HOSTILE: [(3, HOSTILE)]}, command=HOSTILE))
    assert "\x1b" not in shown and "\\x1b[2J" in shown
    screen = io.StringIO()
    with Board(console(screen), "") as board:
        board.tell(replace(TRIAL, label=HOSTILE), {"failed": HOSTILE})
    assert "\x1b" not in screen.getvalue() and "failed: " in screen.getvalue()


def test_without_a_terminal_every_finished_run_is_a_line():
    screen = io.StringIO()
    with Board(console(screen), "") as board:
        for event in ({"waiting": True}, {"begin": True}, {"row": {"step": 1, "sampled": 64}}):
            board.tell(TRIAL, event)
        assert screen.getvalue() == ""
        board.tell(TRIAL, {"failed": "out of memory"})
    assert screen.getvalue() == "grpo seed 3 failed: out of memory\n"


def test_on_a_terminal_every_run_has_its_place():
    file = io.StringIO()
    screen = Console(file=file, width=80, force_terminal=True)
    with Board(screen, "") as board:
        for seed in (3, 4, 5):
            board.tell(replace(TRIAL, seed=seed), {"waiting": True})
        board.tell(TRIAL, {"begin": True})
        board.tell(TRIAL, {"row": {"step": 5, "sampled": 64}})
        board.tell(replace(TRIAL, seed=4), {"failed": "no"})
        with screen.capture() as captured:
            screen.print(board.lines())
    text = re.sub(r"\x1b\[[\d;]*m", "", captured.get())
    assert re.search(r"grpo\s+━━━━────\s+failed\s+·", text)
    assert "1 of 3 runs" in text


def test_how_much_of_the_budget_is_spent():
    assert spent(TRIAL, {"step": 5, "sampled": 64}) == 0.5
    tokens = replace(TRIAL, settings={"max_tokens": 1000, "steps": 9})
    assert spent(tokens, {"step": 5, "num_tokens": 250}) == 0.25
    assert spent(replace(TRIAL, settings={"steps": 10}), {"step": 4}) == 0.4
    assert spent(TRIAL, {"step": 50, "sampled": 64}) == 1.0
