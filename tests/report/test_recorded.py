"""Completions cut to a page, answers side by side, curves, the method, and how to repeat a run."""

from __future__ import annotations

import json
import math

import pytest
from markupsafe import escape

import anypo
from anypo.backends.parquet import Table
from anypo.core.dump import dump
from anypo.doctor import examine, read_run
from anypo.report import completions, curves
from anypo.report.answers import clipped, examples, side_by_side
from anypo.report.charts import short
from anypo.report.completions import Step, browsable, colours, framed, read_steps
from anypo.report.curves import thinned, wanted
from anypo.report.findings import findings
from anypo.report.method import described, marked
from anypo.report.repeat import command, recipe_of
from anypo.report.report import write_report
from anypo.report.run import load
from tests.report.runs import completion, make, metrics

# ── completions ──────────────────────────────────────────────────────────────────────────────────


def test_colours_keep_each_gradient_to_a_ten_thousandth_of_the_largest():
    pulls = [0.5, -0.123456, 1e-9, math.nan]
    unit, lengths, steps = colours("abcdef", ["ab", "c", "", "def"], pulls) or []
    assert lengths == [2, 1, 0, 3]
    assert [unit * s for s in steps] == pytest.approx([0.5, -0.123456, 0, 0], abs=0.5 / 9999)


def test_tokens_that_are_not_the_text_are_kept_as_they_are():
    _, marks, _ = colours("é!", ["\ufffd", "\ufffd", "!"], [1.0, 1.0, 1.0]) or []
    assert marks == ["\ufffd", "\ufffd", "!"]
    assert colours("x", None, [1.0]) is None
    assert colours("x", [], []) is None


def test_colours_stop_where_the_text_is_cut(monkeypatch):
    monkeypatch.setattr(completions, "MOST_CHARACTERS", 4)
    _, lengths, steps = colours("abcd…", ["ab", "cdef", "g"], [1.0, -1.0, 1.0]) or []
    assert (lengths, steps) == ([2, 2], [9999, -9999])


def test_the_scale_leaves_the_highest_of_a_hundred_out(tmp_path):
    pulls = [float(k) for k in range(101)]
    row = {"tokens": ["x"] * 101, "gradient": pulls}
    out = make(tmp_path, 1, 1, lambda k, i: completion(k, i, **row))
    limit, pull = completions.scale(Table(out / "completions" / "step_00001.parquet"))
    assert limit == pytest.approx(1 + 0.95 * 99)
    assert pull == 5050


def test_as_many_completions_of_each_iteration_are_coloured(tmp_path, monkeypatch):
    out = make(tmp_path, 4, 10)
    monkeypatch.setattr(completions, "MOST_COLOURED", 4 * 200)
    steps, left_out = read_steps(out)
    counts = {sum(row["colours"] is not None for row in s.rows) for s in steps.values()}
    (shown,) = counts
    assert 2 <= shown <= 6
    assert f"the colours of the first {shown} completions of each" in left_out
    size = sum(completions.size_of(r["colours"]) for s in steps.values() for r in s.rows)
    assert size <= 4 * 200 + 4 * len("null") * 10


def test_what_prompts_have_in_common_ends_at_whole_lines():
    assert framed(["sys\nuser 1\nend", "sys\nuser 2\nend"]) == ("sys\n", "\nend")
    assert framed(["one only\n"]) == ("", "")
    assert framed(["ab", "ac"]) == ("", "")


def test_columns_have_an_order_and_say_something():
    row = completion(1, 1, score=0.25, truncated=True) | {"other": 3}
    shown = browsable({1: Step(1, 1, [completions.cut_row(row, 0)])})
    parts = ["rewards/format", "rewards/right"]
    rest = ["score", "reward", "advantage", "group", "truncated", "other"]
    assert shown["columns"] == ["prompt", "completion", *parts, *rest]


# ── answers ──────────────────────────────────────────────────────────────────────────────────────


def steps_of(*prompts: list[str]) -> dict[int, Step]:
    """An iteration for each list of prompts."""
    return {
        k: Step(k, len(names), [{"prompt": p, "completion": f"{p}{k}", "score": k} for p in names])
        for k, names in enumerate(prompts, 1)
    }


def test_answers_to_prompts_that_recur_stand_side_by_side():
    found = side_by_side(steps_of(["a", "b"], ["c", "b"], ["a", "c", "c"]))
    assert found["recur"]
    assert [pair["prompt"] for pair in found["pairs"]] == [
        "a",
        "b",
        "c",
    ]  # the farthest apart first
    first, last = found["pairs"][0]["sides"]
    assert (first["step"], last["step"]) == (1, 3)
    assert first["answers"] == [{"text": "a1", "score": 1}]
    assert [a["text"] for a in found["pairs"][2]["sides"][1]["answers"]] == ["c3", "c3"]


def test_prompts_that_never_recur_show_the_first_and_the_last_iteration():
    found = side_by_side(steps_of(["a", "b"], ["c"], ["d"]))
    assert not found["recur"]
    assert [end["step"] for end in found["ends"]] == [1, 3]
    assert [p["prompt"] for p in found["ends"][0]["pairs"]] == ["a", "b"]
    assert len(side_by_side(steps_of(["a"]))["ends"]) == 1
    assert side_by_side({}) == {}


def test_examples_are_different_prompts_without_what_they_share():
    shown, head, tail = examples(steps_of(["s\n1\ne", "s\n1\ne", "s\n2\ne"]))
    assert (shown, head, tail) == (["1", "2"], "s\n", "\ne")
    assert examples(steps_of(["only\n"])) == (["only\n"], "", "")
    assert clipped("x" * 401) == "x" * 400 + " …"
    assert clipped("1\n" * 11) == "1\n" * 9 + "1 …"


# ── curves ───────────────────────────────────────────────────────────────────────────────────────


def test_a_long_line_keeps_its_ends_and_its_extremes():
    line = [(k, math.sin(k / 50)) for k in range(20_000)]
    line[7_777] = (7_777, 9.0)
    line[12_345] = (12_345, -9.0)
    kept = thinned(line)
    assert len(kept) <= 1000
    assert {(7_777, 9.0), (12_345, -9.0), line[0], line[-1]} <= {*kept}
    assert kept == sorted(kept)
    assert thinned(line[:1000]) == line[:1000]


def test_each_part_of_a_reward_has_a_curve_up_to_a_number(tmp_path, monkeypatch):
    out = make(tmp_path, 2, 0)
    rows = [
        {**r, "rewards/b/mean": 1.0, "rewards/a/mean": 2.0, "rewards/a/std": 1} for r in metrics(2)
    ]
    (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    charts, more = wanted(load(out, completions=False))
    assert [c.title for c in charts][:3] == ["Reward", "Reward: a", "Reward: b"]
    assert (charts[1].lines[0].metric, more) == ("rewards/a/mean", 0)
    monkeypatch.setattr(curves, "MOST_PARTS", 1)
    assert wanted(load(out, completions=False))[1] == 1


def test_a_run_on_given_answers_has_no_curves_of_what_was_sampled(tmp_path):
    make(tmp_path, 2, 0, task={"name": "x", "kind": "demonstration"})
    titles = {c.title for c in wanted(load(tmp_path))[0]}
    assert "Surprise" in titles
    assert not {"Reward", "Groups with signal", "Staleness"} & titles


@pytest.mark.parametrize(
    ("x", "text"),
    [(0.53749, "0.537"), (15274, "15\u202f274"), (1.43e-6, "1.43e-6"), (2e9, "2e9"), (0, "0")],
)
def test_numbers_have_three_digits(x, text):
    assert short(x) == text


# ── method and repeating ─────────────────────────────────────────────────────────────────────────


def test_every_method_is_described_with_formulas_and_papers(tmp_path):
    make(tmp_path, 1, 0)
    stored = json.loads((tmp_path / "anypo.json").read_text())
    for info in anypo.methods():
        facts = {**stored, "method": info.name, "recipe": dump(info.build())}
        run = load(tmp_path, completions=False)
        run.facts = facts
        found = described(run)
        assert found["info"]["doc"]
        assert found["info"]["papers"][0]["name"]
        assert found["changed"] == []
        assert len([a for a in found["axes"] if a["letter"]]) == 9
        named = [p for a in found["axes"] for p in a["pieces"]]
        assert all(p["says"] for p in named)


def test_what_a_run_changed_of_its_method_is_said(tmp_path):
    recipe = anypo.recipe("grpo").set("surrogate.high", 0.3)
    make(tmp_path, 1, 0, recipe=dump(recipe))
    assert described(load(tmp_path))["changed"] == [("surrogate.high", "0.2", "0.3")]


def test_a_recipe_of_another_version_still_has_its_fields(tmp_path):
    make(tmp_path, 1, 0, recipe={"piece": "Recipe", "surrogate": {"piece": "Gone", "high": 0.3}})
    found = described(load(tmp_path))
    assert found["unknown"]
    assert ("E", "surrogate.high", "0.3") in found["fields"]


def test_marked_text_is_code_and_links_and_nothing_else():
    text = marked("see `a<b` in 2402.03300 or 10.1000/x1, <b>not</b> `open")
    assert "<code>a&lt;b</code>" in text
    assert (
        'href="https://arxiv.org/abs/2402.03300" rel="noreferrer noopener">2402.03300</a>' in text
    )
    assert 'href="https://doi.org/10.1000/x1"' in text
    assert "&lt;b&gt;not&lt;/b&gt; `open" in text


def test_a_run_from_python_gets_the_command_that_does_the_same(tmp_path):
    asked = {"task": "first_letter", "dataset": "", "reward": "", "task_options": {"horizon": 5}}
    settings = {"steps": 30, "seed": 4, "prompts": 16}
    changes = {"command": "anypo", "asked": asked, "settings": settings, "given": {"beta": "0"}}
    make(tmp_path, 1, 0, **changes)
    words = "--policy tiny --task first_letter --task.horizon 5 --beta 0 --steps 30 --seed 4"
    assert command(load(tmp_path)) == f"anypo train grpo {words}"
    make(tmp_path, 1, 0, **{**changes, "method": "recipe"})
    assert recipe_of(load(tmp_path))["made"] == ""


# ── the doctor ───────────────────────────────────────────────────────────────────────────────────


def test_findings_of_the_doctor_stand_on_the_page(tmp_path):
    out = make(tmp_path, 1, 0)
    gap = "sampling/sampling_logp_difference"
    row = {"reward": 0.5, f"{gap}/mean": 0.9, f"{gap}/max": 4.0, "kept": 8, "grad_norm": 1.0}
    rows = [{"step": k, **row} for k in range(1, 31)]
    (out / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    known = examine(read_run(out))
    found = findings(load(out))
    assert known.findings
    assert [f["title"] for f in found["found"]] == [f.title for f in known.findings]
    assert (found["checked"], len(found["unchecked"])) == (known.checked, len(known.unchecked))
    page = write_report(out).read_text("utf-8")
    for finding in known.findings:
        assert str(escape(finding.title)) in page
        assert str(escape(finding.evidence)) in page
        assert all(str(escape(advice)) in page for advice in finding.advice)
    (out / "metrics.jsonl").write_text("")
    assert findings(load(out)) == {}
