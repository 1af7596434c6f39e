"""The report page: the right numbers, bounded in size, and hostile text that stays text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import anypo.recipes
from anypo.backends.parquet import write_rows
from anypo.core import discover
from anypo.core.dump import dump
from anypo.core.errors import UsageError
from anypo.report import charts
from anypo.report import completions as recorded
from anypo.report import run as runs
from anypo.report.completions import common, spread
from anypo.report.report import SCRIPTS, learning_curve, write_report
from anypo.report.run import load, recipe_rows
from anypo.report.text import script_json, visible

LINKS = ("src", "href", "xlink:href")
HOSTILE = [
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=alert(1)>",
    "<!--<script>",
    "\x1b[2J\x07 \u202egpj.exe \ud800",
    "[bold]8[/bold] {{ 7 * 7 }} {% raw %}",
]
HEAD, TAIL = "system: be brief\nuser: ", "\nReply with the number only.\nassistant:"
METHODS = discover.methods(anypo.recipes)


def make(out: Path, steps: int = 12, completions: list[str] | None = None) -> Path:
    """A run's folder, as train leaves it."""
    out.mkdir(exist_ok=True)
    facts = {
        "method": "grpo",
        "recipe": dump(METHODS["ppo"]()),
        "policy": {"name": "tiny<b>"},
        "task": {"name": "sums"},
        "settings": {"steps": steps, "seed": 7},
        "versions": {"torch": "2.0"},
        "hardware": {"threads": 2},
        "command": "anypo train <i>grpo</i>",
        "given": {"beta": "0"},
    }
    (out / "anypo.json").write_text(json.dumps(facts))
    rows = [
        {
            "step": k,
            "reward": k / steps,
            "entropy": 2.0 - k / steps,
            "frac_reward_zero_std": 1 - k / steps,
            "ratio/max": 1.0,
            "ratio/min": 1.0,
            "step_time": 10.0,
            "num_tokens": 100 * k,
            **({"held_out/correct": 30, "held_out/total": 60} if k == 6 else {}),
        }
        for k in range(1, steps + 1)
    ]
    (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    before = {"held_out/correct": 0, "held_out/total": 60, "seen/correct": 3, "seen/total": 100}
    after = {"held_out/correct": 52, "held_out/total": 60, "seen/correct": 97, "seen/total": 100}
    (out / "before.json").write_text(json.dumps(before))
    (out / "scores.json").write_text(json.dumps({"before": before, "after": after}))
    for k in range(1, steps + 1) if completions else ():
        table = [
            {
                "step": k,
                "prompt": f"{HEAD}{i} + {k}?{TAIL}",
                "completion": text.encode("utf-8", "replace").decode(),
                "score": 1.0,
                "reward": 1.0,
                "advantage": float("nan") if i == 0 else 0.5,
                "group": i // 2,
            }
            for i, text in enumerate(completions or ())
        ]
        write_rows(out / "completions" / f"step_{k:05d}.parquet", table)
    return out


class Page(HTMLParser):
    """Elements, their attributes, and the text of scripts and of the rest."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Note the element."""
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        """Note the text."""
        if self.elements and self.elements[-1][0] in ("script", "style"):
            if self.elements[-1][0] == "script":
                self.scripts[-1] += data
            return
        self.words.append(data)

    def handle_endtag(self, tag):
        """What follows an element is text again."""
        self.elements.append((f"/{tag}", {}))

    @property
    def text(self) -> str:
        """The visible text."""
        return " ".join(" ".join(self.words).split())

    @property
    def data(self) -> dict:
        """What the page embeds."""
        return json.loads(self.scripts[0])


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Page:
    """The page of a run with hostile completions."""
    out = make(tmp_path_factory.mktemp("run"), completions=HOSTILE)
    return Page(write_report(out).read_text("utf-8"))


def test_hostile_text_makes_no_element_and_no_script(page):
    tags = [tag for tag, _ in page.elements if not tag.startswith("/")]
    assert tags.count("script") == 2
    assert "img" not in tags
    assert not [a for _, attributes in page.elements for a in attributes if a.startswith("on")]
    here = Path(runs.__file__).parent
    assert page.scripts[1] == "\n".join((here / n).read_text("utf-8") for n in SCRIPTS)


def test_hostile_text_is_there_to_be_read(page):
    column = page.data["columns"].index("completion")
    shown = [row["cells"][column] for row in page.data["steps"][0]["rows"]]
    assert shown[:3] == HOSTILE[:3]
    assert shown[3] == "\\x1b[2J\\x07 \\u202egpj.exe ?"
    assert shown[4] == HOSTILE[4]
    assert "tiny<b>" in page.text
    assert "anypo train <i>grpo</i>" in page.text
    assert HOSTILE[0] in page.text  # among the answers of the first and the last iteration


def test_the_page_loads_nothing_and_runs_only_its_own_script(page):
    policy = next(a["content"] for t, a in page.elements if t == "meta" and "http-equiv" in a)
    digest = base64.b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    links = [(t, k, a[k]) for t, a in page.elements for k in LINKS if a.get(k)]
    papers = [link for link in links if not str(link[2]).startswith("#")]
    assert {link[:2] for link in papers} == {("a", "href")}  # followed by a click, never loaded
    assert {re.sub(r"[\d.]+$", "", str(link[2])) for link in papers} == {"https://arxiv.org/abs/"}
    assert all(a.get("rel") for t, a in page.elements if t == "a" and "arxiv" in str(a["href"]))
    assert ".innerHTML =" not in page.scripts[1]
    assert not [t for t, a in page.elements if t == "script" and "src" in a]


def test_what_prompts_share_is_kept_once(page):
    assert (page.data["head"], page.data["tail"]) == ("system: be brief\n", TAIL)
    column = page.data["columns"].index("prompt")
    assert page.data["steps"][2]["rows"][1]["cells"][column] == "user: 1 + 3?"


def test_columns_that_say_nothing_new_are_left_out(page):
    assert page.data["columns"] == ["prompt", "completion", "reward", "advantage", "group"]
    assert page.data["steps"][0]["rows"][0]["cells"][3] is None  # NaN


def test_scores_stand_with_their_intervals(page):
    assert "87 % 52 of 60 76 to 93 %" in page.text
    assert "0 % 0 of 60 0 to 6 %" in page.text
    assert "97 % 97 of 100 92 to 99 %" in page.text


def test_the_recipe_and_the_setup_stand_there(page):
    for words in ("C advantage Chain", "C advantage.first.lam 0.95", "E surrogate.dual inf"):
        assert words in page.text
    assert "C advantage how good each step was" in page.text
    assert "δ_n = r_n + γ·V(s_{n+1}) − V(s_n)" in page.text  # a piece's formula
    assert "arXiv 2402.03300" in page.text
    assert "Field Method This run" in page.text  # the recipe is PPO's, the name GRPO's
    assert "seed 7" in page.text
    assert "2.0 minutes of training" in page.text


def test_a_metric_that_never_changes_is_a_sentence_and_no_chart(page):
    assert "The same in every iteration: Importance ratio 1; Seconds 10." in page.text
    assert "Importance ratio 1 / 1" not in page.text
    assert "Groups with signal" in page.text


def test_curves_use_the_colours_of_the_page(tmp_path):
    drawn, _ = charts.drawn(load(make(tmp_path / "run")))
    titles = {c.title: c for c in drawn}
    assert list(titles) == [
        *("Held-out accuracy", "Reward", "Entropy", "Groups with signal", "Tokens or steps")
    ]
    assert titles["Reward"].last == "1"
    assert titles["Held-out accuracy"].last == "87\u202f%"
    for chart in drawn:
        assert "var(--series)" in chart.svg
        colours = set(re.findall(r"#[0-9a-fA-F]{6}\b", chart.svg))
        assert colours <= {"#000000"}  # marker outlines that inherit
        assert "<script" not in chart.svg


def test_the_accuracy_curve_has_its_interval():
    axes = Figure().subplots()
    points = load_points()
    charts.accuracy(axes, points, "#112233")
    np.testing.assert_allclose(axes.lines[0].get_xdata(), [0, 6, 12])
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [0, 50, 100 * 52 / 60])
    edges = axes.collections[0].get_paths()[0].vertices
    band = sorted(y for x, y in edges if x == 12)
    assert (round(band[0], 1), round(band[-1], 1)) == (75.8, 93.1)


def load_points() -> list[runs.Point]:
    """Accuracy before, within and after a run of twelve iterations."""
    shares = ((0, 0, 60), (6, 30, 60), (12, 52, 60))
    found = [runs.share({"x/correct": c, "x/total": n}, "x", k) for k, c, n in shares]
    return [p for p in found if p]


def test_accuracy_begins_before_training_and_ends_after_it(tmp_path):
    run = load(make(tmp_path / "run"))
    assert run.accuracy("held_out") == load_points()
    assert [p.step for p in run.accuracy("seen")] == [0, 12]


def test_an_unfinished_run_has_a_page(tmp_path):
    out = make(tmp_path / "run")
    (out / "scores.json").unlink()
    (out / "metrics.jsonl").write_text('{"step": 1, "reward": 0.5}\n{"step": 2, "rew')
    shown = Page(write_report(out).read_text("utf-8")).text
    assert "1 of 12 iterations" in shown
    assert "made while the run went on" in shown
    measured = {"step": 2, "held_out/correct": 30, "held_out/total": 60}
    (out / "metrics.jsonl").write_text(json.dumps(measured))
    shown = Page(write_report(out).read_text("utf-8")).text
    assert "iteration 2 50 % 30 of 60 38 to 62 %" in shown
    (out / "metrics.jsonl").unlink()
    assert "0 of 12 iterations" in Page(write_report(out).read_text("utf-8")).text


def test_a_large_run_is_sampled_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(recorded, "MOST_ITERATIONS", 3)
    monkeypatch.setattr(recorded, "MOST_ROWS", 4)
    monkeypatch.setattr(recorded, "MOST_CHARACTERS", 6)
    out = make(tmp_path / "run", completions=["short", "much longer", "8", "9", "10", "11"])
    made = Page(write_report(out).read_text("utf-8"))
    assert [s["step"] for s in made.data["steps"]] == [1, 7, 12]
    assert [len(s["rows"]) for s in made.data["steps"]] == [4, 4, 4]
    column = made.data["columns"].index("completion")
    rows = made.data["steps"][0]["rows"]
    assert [row["cells"][column] for row in rows] == ["short", "much l…", "8", "9"]
    assert [row.get("cut", {}).get("completion") for row in rows] == [None, 11, None, None]
    sentence = "3 of 12 recorded iterations, the first 4 of 6 completions of each, the first 6 char"
    assert sentence in made.text


def test_a_page_has_a_largest_size(tmp_path, monkeypatch):
    out = make(tmp_path / "run", completions=["x" * 1000] * 20)
    monkeypatch.setattr(recorded, "MOST_IN_ALL", 60_000)
    run = load(out)
    size = sum(len(json.dumps(step.rows)) for step in run.completions.values())
    assert 10_000 < size < 60_000
    assert "of 20 completions of each" in run.left_out


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(UsageError, match="holds no run"):
        write_report(tmp_path)
    (tmp_path / "anypo.json").write_text("{")
    with pytest.raises(UsageError, match="damaged"):
        write_report(tmp_path)


def test_the_learning_curve_is_a_picture(tmp_path):
    out = make(tmp_path / "run")
    png = learning_curve(out, tmp_path / "curve.png")
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    (out / "metrics.jsonl").unlink()
    with pytest.raises(UsageError, match="no finished iteration"):
        learning_curve(out, tmp_path / "other.png")
    assert not (tmp_path / "other.png").exists()


def test_recipe_rows_of_combined_pieces():
    rows = {path: (axis, value) for axis, path, value in recipe_rows(dump(METHODS["dapo"]()))}
    assert rows["sampling.second.rounds"] == ("B", "10")
    assert rows["reward.0"] == ("A", "Overlong")
    assert rows["surrogate.dual"] == ("E", "inf")
    assert rows["aggregate.levels"] == ("G", "step, batch")
    assert rows["regularize"] == ("F", "none")


@pytest.mark.parametrize(
    ("items", "most", "kept"),
    [([1, 2], 3, [1, 2]), ([*range(10)], 4, [0, 3, 6, 9]), ([*range(100)], 2, [0, 99])],
)
def test_spread_keeps_the_ends(items, most, kept):
    assert spread(items, most) == kept


def test_common_and_visible_and_script_json():
    assert common(["abcd", "abd"]) == "ab"
    assert common(["ab", "abc"]) == "ab"
    assert visible("a\tb\n\x00\x9b\u200b\u2066") == "a\tb\n\\x00\\x9b\\u200b\\u2066"
    value = {"a": "</script>&<!--\u2028", "b": None}
    text = script_json(value)
    assert json.loads(text) == value
    assert not set("<>&\u2028") & set(text)
