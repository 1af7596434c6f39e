"""The model card: its front matter, its numbers, its code, and what it must not let through."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import markdown
import pytest
import yaml
from huggingface_hub import ModelCard

import anypo
from anypo.core.papers import entry
from anypo.engine.metrics import interval
from anypo.report.card import Export, at, card, head, limits, loading, results, write_card
from anypo.report.run import RunData, load

EXPORT = Export("name", 14, "model", "float32", parameters=7)


@pytest.fixture
def run(trained) -> RunData:
    """What the folder of a finished run holds."""
    return load(trained, completions=False)


def front(text: str) -> dict[str, Any]:
    """The YAML between the lines of dashes."""
    return yaml.safe_load(re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)[1])


def test_the_front_matter_is_the_hubs(trained, tmp_path):
    folder = anypo.export(trained, tmp_path / "out", license="mit")
    found = ModelCard.load(folder / "README.md").data
    assert found.license == "mit"
    assert found.library_name == "transformers"
    assert {"anypo", "grpo", "first_letter"} <= set(found.tags)
    assert found.base_model is None
    scores = json.loads((trained / "scores.json").read_text())["after"]
    by_side = {r.dataset_split: r for r in found.eval_results}
    for side in ("seen", "held_out"):
        right, total = scores[f"{side}/correct"], scores[f"{side}/total"]
        assert by_side[side].metric_value == pytest.approx(100 * right / total, abs=0.01)
        low, high = (100 * x for x in interval(right, total))
        said = f"(95 % interval {low:.1f} to {high:.1f}, {total} questions)"
        assert said in by_side[side].metric_name


def test_the_card_holds_everything_that_a_reader_asks(trained, tmp_path):
    text = (anypo.export(trained, tmp_path / "out") / "README.md").read_text("utf-8")
    facts = json.loads((trained / "anypo.json").read_text())
    before = json.loads((trained / "scores.json").read_text())["before"]
    for part in (
        "[2402.03300](https://arxiv.org/abs/2402.03300)",
        "`A_i = (r_i − μ_g)/(σ_g + eps)`",
        "| E | `Clip` | ",
        f"({before['held_out/correct']} of {before['held_out/total']}; ",
        "![Learning curve](learning_curve.png)",
        "anypo train grpo --policy tiny --task first_letter --beta 0.04",
        "Seed `3`",
        f"| `torch` | `{facts['versions']['torch']}` |",
        "AutoModelForCausalLM.from_pretrained('path/to/this/folder')",
        entry("2402.03300", "GRPO"),
        "| `held_out` | `21` |",
        "One run with one seed (3)",
        "Measured on 21 held-out questions",
    ):
        assert part in text or part.replace(" --beta 0.04", "") in text, part
    assert (tmp_path / "out" / "learning_curve.png").read_bytes()[:4] == b"\x89PNG"


def test_another_checkpoint_has_its_own_numbers(run):
    early = replace(EXPORT, step=7)
    row = next(r for r in run.rows if r["step"] == 7)
    assert at(run, 7)["held_out"].value == row["held_out/correct"] / row["held_out/total"]
    assert list(at(run, 7)) == ["held_out"], "seen questions are measured at the end alone"
    assert f"({row['held_out/correct']} of " in results(run, early)
    assert at(run, 3) == {}
    assert "model-index" not in head(run, replace(EXPORT, step=3), None)
    assert "No accuracy with an interval" in " ".join(limits(run, replace(EXPORT, step=3)))
    assert "accuracy" not in results(run, replace(EXPORT, step=3))


def test_limits_fit_what_is_exported(run):
    said = lambda **facts: " ".join(limits(run, replace(EXPORT, **facts)))  # noqa: E731
    assert "quantised to 4 bits" in said(dequantised=True)
    assert "quantised" not in said()
    assert "rounding to bfloat16" in said(dtype="bfloat16")
    assert "rounding" not in said()
    assert "no others" in said(layout="adapter", base="a/b")
    assert "No licence" in said()
    assert "licence" not in said(license="mit")


def test_the_base_is_named_where_it_has_a_name(run):
    data = front(head(run, replace(EXPORT, origin="a/b"), None))
    assert (data["base_model"], data["base_model_relation"]) == ("a/b", "finetune")
    data = front(head(run, replace(EXPORT, origin="a/b", layout="adapter"), None))
    assert (data["library_name"], data["base_model_relation"]) == ("peft", "adapter")


@pytest.mark.parametrize("layout", ["model", "adapter", "small"])
@pytest.mark.parametrize("chat", [True, False])
def test_the_code_is_python(layout, chat):
    text = loading(replace(EXPORT, layout=layout, base="a'b", chat=chat))
    (code,) = re.findall(r"```python\n(.*?)\n```", text, re.DOTALL)
    compile(code, "card", "exec")
    assert ("apply_chat_template" in code) == (chat and layout != "small")
    assert ("PeftModel" in code) == (layout == "adapter")


def test_a_recipe_without_a_method_is_still_described(run):
    run.facts["method"] = "recipe"
    text = card(run, EXPORT, curve=False)
    assert "a recipe of its own" in text
    assert "| E | `Clip` |" in text
    run.facts["recipe"] = {"piece": "Unknown"}
    assert "anypo_recipe.json" in card(run, EXPORT, curve=False)


HOSTILE = (
    "x\n---\nlicense: evil\n`<script>alert(1)</script>` | [a](javascript:b) $\\frac$ \x1b[31m\ud800"
)


def test_names_of_users_and_models_stay_text(run, tmp_path):
    for group in ("policy", "task"):
        run.facts[group]["name"] = HOSTILE
    run.facts["command"] = f"anypo train grpo --task '{HOSTILE}'"
    run.facts["versions"][HOSTILE] = HOSTILE
    export = replace(EXPORT, name=HOSTILE, license=HOSTILE)
    text = write_card(run, export, tmp_path).read_text("utf-8")
    data = front(text)
    assert data["tags"][-1] == data["model-index"][0]["results"][0]["dataset"]["name"]
    assert "evil" in data["license"] and data["license"] != "evil"
    assert "\x1b" not in text
    body = text.split("\n---\n", 1)[1]
    shown = markdown.markdown(body, extensions=["tables", "fenced_code"])
    assert "<script" not in shown.replace("&lt;script", "")
    assert "javascript:b" in shown
    assert not re.search(r'href="javascript', shown)
    assert set(re.findall(r"</?([a-z0-9]+)", shown)) <= {
        *("h1", "h2", "p", "code", "pre", "strong", "ul", "li", "a", "img", "br"),
        *("table", "thead", "tbody", "tr", "th", "td", "details", "summary"),
    }
    assert "evil" not in [line.partition(": ")[2] for line in text.splitlines()[:60]]


def test_rewards_stand_in_where_there_is_no_accuracy():
    rows = [{"step": 1, "reward": 0.5}, {"step": 2, "reward": 0.75}, {"step": 3, "reward": 0.9}]
    run = RunData(Path(), {"task": {"kind": "control"}}, rows, {})
    assert "| mean reward | 0.5 | 0.75 |" in results(run, replace(EXPORT, step=2, layout="small"))
    assert "Nothing was measured" in results(RunData(Path(), {}, [], {}), EXPORT)


def test_pairs_are_no_answers(run):
    run.facts["task"]["kind"] = "preference"
    name = front(head(run, EXPORT, None))["model-index"][0]["results"][0]["metrics"][0]["name"]
    assert name.startswith("pairs whose preferred answer scores higher, %")
    assert "Pairs whose preferred answer scores higher, with 95 %" in results(run, EXPORT)
    assert "21 held-out pairs" in " ".join(limits(run, EXPORT))


def test_of_given_answers_the_likelihood_counts(tmp_path):
    rows = [{"step": k, "reward": 1.0, "nll": 3.0 / k} for k in (1, 2, 3)]
    run = RunData(tmp_path, {"task": {"kind": "demonstration"}}, rows, {})
    text = results(run, replace(EXPORT, step=2))
    assert "| negative log-likelihood per token | 3 | 1.5 |" in text
    assert "reward" not in text
    write_card(run, replace(EXPORT, step=3), tmp_path)
    assert (tmp_path / "learning_curve.png").stat().st_size > 10_000
