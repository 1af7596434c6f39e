"""A comparison read from runs: scores, costs, words that claim no more, and a page that is safe."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from anypo.core.errors import UsageError
from anypo.report.compare import as_dict, write_comparison
from anypo.report.comparison import Comparison, caveats, compared, headline, sentences, standing
from anypo.report.outcomes import Outcome, finished, outcome
from tests.report.runs import facts

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>\x1b[2J"


def run(
    out: Path,
    seed: int = 0,
    ends: float | None = 0.5,
    steps: int = 10,
    sampled: int = 64,
    method: str = "grpo",
    **rest,
) -> Path:
    """A finished run whose held-out accuracy rises from 0.1 to `ends`, measured every second."""
    out.mkdir(parents=True)
    settings = {"settings": {"steps": steps, "seed": seed, "prompts": 8}}
    (out / "anypo.json").write_text(json.dumps(facts(method=method, **settings, **rest)))
    rows = []
    for k in range(1, steps + 1):
        row = {"step": k, "sampled": sampled, "updates": 2, "step_time": 0.5}
        row |= {"reward": k / steps, "num_tokens": 100 * k}
        if k % 2 == 0 and k < steps and ends is not None:
            row["held_out/accuracy"] = 0.1 + (ends - 0.1) * k / steps
        rows.append(row)
    (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    scores = {"before": {"held_out/accuracy": 0.1}, "after": {"held_out/accuracy": ends}}
    (out / "scores.json").write_text(json.dumps(scores if ends is not None else {"after": {}}))
    (out / "report.html").write_text("<html>")
    return out


def made(tmp_path: Path, scores: dict[str, list[float]], **kept) -> Comparison:
    """A comparison of methods with these scores, one per seed; `failed` are label → reasons."""
    failed = kept.pop("failed", {})
    standings = []
    for label, values in scores.items():
        folders = [tmp_path / re.sub(r"\W", "_", label) / f"seed-{k}" for k in range(len(values))]
        ended = [run(f, k, x, method=label) for k, (f, x) in enumerate(zip(folders, values))]
        outcomes = [outcome(f, label=label) for f in ended]
        standings.append(standing(label, outcomes, "held_out/accuracy", failed.get(label, ())))
    return compared(
        standings,
        "held_out/accuracy",
        "completions",
        640,
        kept.pop("level", None),
        out=tmp_path,
        **kept,
    )


# ── what a run came to ───────────────────────────────────────────────────────────────────────────


def test_a_run_is_scored_by_what_was_measured_after_it(tmp_path):
    found = outcome(run(tmp_path / "a", 3, ends=0.6))
    assert (found.label, found.seed, found.score) == ("grpo", 3, 0.6)
    assert found.spent == {
        "completions": 640,
        "tokens": 1000,
        "iterations": 10,
        "updates": 20,
        "seconds": 5.0,
    }
    assert [x for _, x in found.points] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert found.at([0, 64, 640], "completions") == pytest.approx([0.1, 0.15, 0.6])


def test_the_cost_of_a_level_is_what_was_spent_when_it_was_first_there(tmp_path):
    found = outcome(run(tmp_path / "a", ends=0.6))
    reached = found.reached(0.35, 1)
    assert reached is not None
    assert (reached["completions"], reached["iterations"], reached["tokens"]) == (384, 6, 600)
    assert found.reached(0.61, 1) is None
    assert found.reached(0.1, -1) == dict.fromkeys(found.spent, 0.0)


def test_what_every_iteration_has_is_scored_by_its_last_tenth(tmp_path):
    found = outcome(run(tmp_path / "a", steps=40), "reward")
    assert found.score == pytest.approx(np.mean([37, 38, 39, 40]) / 40)
    assert found.points[0][1] == 1 / 40 and found.points[-1][1] == pytest.approx(39.5 / 40)


def test_unfinished_runs_and_unknown_metrics_are_refused(tmp_path):
    out = run(tmp_path / "a")
    with pytest.raises(UsageError, match=r"measured no 'held_out/f1': .*held_out/accuracy"):
        outcome(out, "held_out/f1")
    (out / "scores.json").write_text("{")
    assert not finished(out)
    with pytest.raises(UsageError, match="not finished"):
        outcome(out)


# ── words ────────────────────────────────────────────────────────────────────────────────────────

LOW, HIGH = [0.5, 0.52, 0.48, 0.55, 0.5], [0.6, 0.6, 0.59, 0.66, 0.6]


def test_a_clear_lead_is_called_with_its_interval(tmp_path):
    found = made(tmp_path, {"grpo": LOW, "gspo": HIGH})
    assert found.winner == "gspo"
    assert headline(found) == "gspo is ahead of grpo"
    assert sentences(found) == ["gspo is ahead of grpo by 10 points (8.5 to 11.5)."]
    assert found.standings[0].typical.value == pytest.approx(0.6)  # best first


def test_no_winner_is_called_where_the_interval_holds_0(tmp_path):
    found = made(tmp_path, {"grpo": LOW, "gspo": [0.6, 0.4, 0.7, 0.5, 0.55]})
    assert (found.winner, headline(found)) == ("", "No winner")
    (said,) = sentences(found)
    assert re.fullmatch(
        r"No winner between gspo and grpo: the difference is 4 points \(−12\.4 to 20\.4\)\. "
        r"About \d+ more seeds would be needed to see a difference of this size\.",
        said,
    )


def test_no_lead_is_ever_called_against_its_interval(tmp_path):
    """Over many random comparisons: words, winner and intervals agree."""
    rng, template = np.random.default_rng(0), outcome(run(tmp_path / "a"))
    for _ in range(60):
        standings = []
        for label, level in zip("abc", rng.uniform(0.3, 0.7, 3)):
            scores = np.clip(rng.normal(level, 0.1, 5), 0, 1)
            runs = [
                Outcome(label, k, template.out, float(x), template.points, template.spent, {})
                for k, x in enumerate(scores)
            ]
            standings.append(standing(label, runs, "held_out/accuracy"))
        found = compared(standings, "held_out/accuracy", "completions", 640, out=tmp_path)
        for pair, said in zip(found.pairs, sentences(found), strict=True):
            clear = pair.difference.low > 0 or pair.difference.high < 0
            assert ("is ahead of" in said) == clear == (not said.startswith("No winner"))
        if found.winner:
            others = [p for p in found.pairs if found.winner in (p.first, p.second)]
            assert len(others) == 2 and {p.ahead for p in others} == {found.winner}


def test_a_method_whose_runs_failed_is_not_called_ahead(tmp_path):
    failed = {"gspo": [(4, "out of memory")]}
    found = made(tmp_path, {"grpo": LOW, "gspo": HIGH[:4]}, failed=failed)
    assert found.pairs[0].ahead == "gspo" and found.winner == ""
    assert "1 of its runs failed and are left out" in sentences(found)[0]
    assert any("Runs failed (1 of 5 of gspo)" in text for text in caveats(found))


def test_equal_scores_and_equal_gaps_say_that_there_is_no_spread(tmp_path):
    same = made(tmp_path / "a", {"x": LOW, "y": LOW})
    assert sentences(same) == [
        "No winner between x and y: they scored the same on each of 5 seeds."
    ]
    apart = made(tmp_path / "b", {"x": [0.5, 0.6], "y": [0.25, 0.35]})
    assert "25 points on each of 2 seeds, which leaves no spread" in sentences(apart)[0]
    assert "With 2 seeds, typical scores are means" in caveats(apart)[0]


def test_of_many_pairs_only_the_leads_are_spelt_out(tmp_path):
    found = made(tmp_path, {"a": LOW, "b": HIGH, "c": LOW[::-1], "d": [0.1, 0.9, 0.3, 0.7, 0.5]})
    leads = [p for p in found.pairs if p.ahead]
    assert 0 < len(leads) < 6
    *spelt, rest = sentences(found)
    assert len(spelt) == len(leads) and all("is ahead of" in text for text in spelt)
    assert rest == f"No winner in the other {6 - len(leads)} pairs, which the table tells apart."


def test_the_cost_of_a_level_is_the_median_over_seeds(tmp_path):
    found = made(tmp_path, {"x": [0.3, 0.9, 0.9], "y": [0.2, 0.3, 0.9]}, level=0.5)
    x, y = (next(s for s in found.standings if s.label == label) for label in "xy")
    assert (x.reached["completions"], x.reachers) == (384, 2)
    assert (y.reached["completions"], y.reachers) == (math.inf, 1)
    assert made(tmp_path / "b", {"x": [0.3, 0.9], "y": [0.2, 0.3]}).level == 0.35  # half way to 0.6


def test_what_was_equal_is_told_from_what_was_not(tmp_path):
    one = [outcome(run(tmp_path / "a", label_seed), label="a") for label_seed in (0,)]
    two = [outcome(run(tmp_path / "b", 0, sampled=128, method="b"), label="b")]
    both = [standing("a", one, "held_out/accuracy"), standing("b", two, "held_out/accuracy")]
    found = compared(both, "held_out/accuracy", "completions", 1280, out=tmp_path)
    equal = {f.name: f.values[0] for f in found.facts if f.equal}
    assert equal["task"] == "sums" and equal["prompts per iteration"] == "8"
    other = {f.name: f.values for f in found.facts if not f.equal}
    assert other["completions per run"] == ("640", "1\u202f280")
    assert "completions per iteration" in other
    assert "a 640, b 1\u202f280" in caveats(found)[-2]


# ── the page ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def comparison(tmp_path_factory) -> Comparison:
    """Three methods, one of them with a hostile name and a failed run."""
    scores = {"grpo": LOW, "gspo": HIGH, HOSTILE: [0.3, 0.35, 0.2]}
    kept = {"failed": {HOSTILE: [(3, HOSTILE)]}, "command": f"anypo compare {HOSTILE}"}
    found = made(tmp_path_factory.mktemp("compare"), scores, **kept)
    write_comparison(found)
    return found


def test_the_page_says_what_the_numbers_say(visit, comparison):
    for scheme in ("light", "dark"):
        tab = visit(comparison.page.as_uri(), scheme=scheme)
        assert tab.page.title() != "owned"
        assert tab.texts("#verdict h2") == ["gspo is ahead of every other method"]
        assert tab.texts("#verdict li.ahead")[0] == sentences(comparison)[0]
        assert tab.texts("#scores tbody b") == ["60\u202f%", "51\u202f%", "28\u202f%"]
        assert len(tab.texts("#scores .seed")) == 13
        assert tab.page.locator("#curves svg").count() == 2
        assert tab.asked == [comparison.page.as_uri()]
        wide = tab.run("document.documentElement.scrollWidth <= innerWidth")
        assert wide
    assert visit(comparison.page.as_uri(), width=420).run(
        "document.documentElement.scrollWidth <= innerWidth"
    )


def test_every_run_links_to_its_report_beside_the_page(visit, comparison):
    tab = visit(comparison.page.as_uri())
    links = tab.run("[...document.querySelectorAll('#runs a')].map(a => a.getAttribute('href'))")
    assert len(links) == 13 and "grpo/seed-0/report.html" in links
    assert all((comparison.out / link).is_file() for link in links)
    assert tab.texts("#runs .why")[0].endswith("\\x1b[2J")


def test_colours_follow_names_and_the_theme(visit, comparison):
    """The dot of a method, its curve and its key have one colour, another in each theme."""
    seen = set()
    for scheme in ("light", "dark"):
        tab = visit(comparison.page.as_uri(), scheme=scheme)
        of = "(found, what) => getComputedStyle(found)[what]"
        dot = tab.page.locator("#scores .dot").first.evaluate(of, "backgroundColor")
        lines = tab.page.locator("#curves svg path").evaluate_all(
            "found => found.map(p => getComputedStyle(p).stroke)"
        )
        assert dot in lines
        seen.add(dot)
    assert len(seen) == 2


def test_hostile_names_stay_text(comparison):
    page = comparison.page.read_text("utf-8")
    assert "<img src=x" not in page and "\x1b" not in page
    assert page.count("<script") == 2  # the data, and the page's own
    assert re.search(r'http-equiv="Content-Security-Policy" content="default-src \S+none', page)
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)


def test_the_numbers_for_a_script_are_json(comparison):
    found = json.loads(json.dumps(as_dict(comparison), allow_nan=False))
    assert found["winner"] == "gspo"
    assert [m["method"] for m in found["methods"]][:2] == ["gspo", "grpo"]
    assert found["methods"][0]["scores"] == {str(k): x for k, x in enumerate(HIGH)}
    assert found["methods"][2]["failed"] == {"3": HOSTILE}
    assert found["budget"] == {"unit": "completions", "amount": 640}
    assert {p["first"] + p["second"] for p in found["pairs"]} >= {"gspogrpo"}


def test_curves_without_measurements_and_single_seeds_are_drawn(tmp_path):
    returns = [run(tmp_path / f"{x}{k}", k, None, method=x) for x in "ab" for k in (0, 1)]
    groups = {x: [outcome(f, "reward") for f in returns if f.name[0] == x] for x in "ab"}
    standings = [standing(x, g[: 2 if x == "a" else 1], "reward") for x, g in groups.items()]
    found = compared(standings, "reward", "iterations", 10, out=tmp_path)
    assert "<svg" in write_comparison(found).read_text("utf-8")
    assert as_dict(found)["methods"][1]["interquartile_mean"]["low"] is None
