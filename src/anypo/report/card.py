"""The model card of an export: what was trained, how, on what, how well, and how to use it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anypo.core
import anypo.pieces
import anypo.recipes
from anypo.core import discover
from anypo.core.dump import load as load_recipe
from anypo.core.dump import rows as flat
from anypo.core.errors import UsageError
from anypo.core.explain import explained, used
from anypo.core.papers import entry, link, papers
from anypo.core.recipe import Recipe
from anypo.report import charts
from anypo.report.markdown import block, code, marked, plain, table
from anypo.report.repeat import command
from anypo.report.run import Point, RunData, share
from anypo.report.text import visible

CURVE = "learning_curve.png"
MEANT = {"preference": "pairs whose preferred answer scores higher"}
"""Kind of a task → what an accuracy of it counts; of all others exact greedy answers."""

SIDES = {"seen": "questions seen in training", "held_out": "questions held out"}
LIBRARY = {"model": "transformers", "adapter": "peft", "small": "anypo"}


@dataclass(frozen=True)
class Export:
    """What a card says of the files beside it.

    `step` is the iteration of the checkpoint; `layout`, `dtype`, `base`, `chat`, `parameters` are
    those of the export; `origin` is the hub id that training began with, if it has one, and
    `dequantised` whether its weights were; `name` is how the model is called.
    """

    name: str
    step: int
    layout: str
    dtype: str
    base: str = ""
    chat: bool = False
    parameters: int = 0
    origin: str = ""
    dequantised: bool = False
    license: str = ""
    repo: str = ""

    @property
    def place(self) -> str:
        """What a reader writes to load it."""
        return self.repo or "path/to/this/folder"


def write_card(run: RunData, export: Export, folder: Path) -> Path:
    """Write `README.md`, and the learning curve where there is one; returns the card's path."""
    curve = bool(run.series("reward"))
    if curve:
        charts.learning_curve(run, folder / CURVE, visible(export.name).replace("$", r"\$"))
    path = folder / "README.md"
    path.write_text(card(run, export, curve), "utf-8")
    return path


def card(run: RunData, export: Export, curve: bool) -> str:
    """The card as text."""
    method = discover.methods(anypo.recipes).get(str(run.facts.get("method")))
    info = method.info if method else None
    parts = [
        f"# {plain(export.name)}",
        _summary(run, export, info),
        "## Results",
        results(run, export),
        *([f"![Learning curve]({CURVE})"] if curve else []),
        "## How to load it",
        loading(export),
        "## Method",
        *_method(run, info),
        "## Data and task",
        facts_table(run.facts.get("task")),
        "## How to repeat it",
        _repeat(run),
        "## Limits",
        "\n".join(f"- {text}" for text in limits(run, export)),
        "## Citation",
        block("\n".join(_entries(info)), "bibtex") if info else "The recipe has no method's name.",
    ]
    return head(run, export, info) + "\n" + "\n\n".join(parts) + "\n"


# ── front matter ─────────────────────────────────────────────────────────────────────────────────


def head(run: RunData, export: Export, info: Any) -> str:
    """The YAML of the card: tags, base, license, and what was measured."""
    from anypo.backends.hub import front_matter

    text = export.layout != "small"
    slug = info.slug if info else "recipe"
    kind = {"control": "reinforcement-learning", "generator": "unconditional-image-generation"}
    tags = ["anypo", slug, "text-generation" if text else kind.get(run.kind, run.kind)]
    facts = {
        "model_name": _short(export.name),
        "license": _short(export.license),
        "library_name": LIBRARY[export.layout],
        "pipeline_tag": "text-generation" if text else "",
        "base_model": export.origin,
        "base_model_relation": ("adapter" if export.layout == "adapter" else "finetune")
        if export.origin
        else "",
        "tags": [*tags, _called(run, "task")],
    }
    return front_matter(facts, _measured(run, export))


def _measured(run: RunData, export: Export) -> list[dict[str, Any]]:
    """What `model-index` holds; the interval is part of a metric's name, it has no field."""
    task = {"dataset_name": _called(run, "task"), "dataset_type": _called(run, "task")}
    found = []
    row = _row(run, export.step)
    for side, point in at(run, export.step).items():
        many = row[f"{side}/total"]
        said = f"{100 * point.low:.1f} to {100 * point.high:.1f}, {many} questions"
        found.append(
            {
                **task,
                "task_type": "text-generation",
                "dataset_split": side,
                "metric_type": "accuracy",
                "metric_name": f"{_counted(run)}, % (95 % interval {said})",
                "metric_value": round(100 * point.value, 2),
            }
        )
    return found


def _counted(run: RunData) -> str:
    return MEANT.get(run.kind, "greedy exact answers")


def _called(run: RunData, what: str) -> str:
    facts = run.facts.get(what)
    return _short(facts.get("name", what) if isinstance(facts, Mapping) else what)


def _short(value: Any) -> str:
    """One line of at most 100 characters: the YAML ends at the first line of dashes."""
    return " ".join(visible(value).split())[:100]


def at(run: RunData, step: int) -> dict[str, Point]:
    """Side → accuracy as it was measured at an iteration; empty where it was not."""
    found = {side: share(_row(run, step), side, step) for side in SIDES}
    return {side: point for side, point in found.items() if point}


def _row(run: RunData, step: int) -> dict[str, Any]:
    row = run.scores.get("after", {}) if step == run.last else {}
    return row or next((r for r in run.rows if r["step"] == step), {})


# ── body ─────────────────────────────────────────────────────────────────────────────────────────


def _summary(run: RunData, export: Export, info: Any) -> str:
    what = {"adapter": "A LoRA adapter", "model": "A language model", "small": "A policy"}
    size = f" of {export.parameters:,} parameters" if export.parameters else ""
    began = f"[{plain(export.origin)}](https://huggingface.co/{export.origin})"
    start = began if export.origin else code(_called(run, "policy"))
    iterations = f"{export.step} iteration{'s' * (export.step != 1)}"
    how = f"{plain(info.title)} ({code(info.name)})" if info else "a recipe of its own"
    return (
        f"{what[export.layout]}{size}, trained from {start} on {code(_called(run, 'task'))} by "
        f"{how} with anypo, {iterations}; weights "
        f"in {export.dtype}, safetensors."
    )


def results(run: RunData, export: Export) -> str:
    """Accuracy before and after with intervals, or rewards at both ends."""
    after = at(run, export.step)
    if after:
        then, now = run.scores.get("before", {}), _row(run, export.step)
        rows = [(SIDES[side], _share(then, side), _share(now, side)) for side in after]
        said = f"{_counted(run).capitalize()}, with 95 % Wilson intervals."
        return f"{said}\n\n{table(('', 'before training', 'this checkpoint'), rows)}"
    names = {
        "rollout/ep_rew_mean": "mean return of an episode",
        "reward": "mean reward",
        "nll": "negative log-likelihood per token",
    }
    if run.given:
        names = {"nll": names["nll"]}
    known = {text: run.series(name) for name, text in names.items()}
    rows = [
        (text, f"{s[0][1]:.4g}", f"{_until(s, export.step):.4g}") for text, s in known.items() if s
    ]
    if not rows:
        return "Nothing was measured at this checkpoint."
    said = "As sampled in training, so without an interval: `anypo evaluate` gives one."
    return f"{said}\n\n{table(('', 'first iteration', f'iteration {export.step}'), rows)}"


def _until(series: Sequence[tuple[int, float]], step: int) -> float:
    return [value for k, value in series if k <= step][-1]


def _share(row: Mapping[str, Any], side: str) -> str:
    point = share(row, side)
    if point is None:
        return "–"
    count = f"{row[f'{side}/correct']} of {row[f'{side}/total']}"
    return f"{100 * point.value:.1f} % ({count}; {100 * point.low:.1f} to {100 * point.high:.1f})"


def loading(export: Export) -> str:
    """Code that loads the folder, and a server's command line."""
    place = repr(export.place)
    tokenizer = f"tokenizer = AutoTokenizer.from_pretrained({place})"
    if export.layout == "small":
        return block(f"import anypo\n\npolicy = anypo.load_policy({place})", "python")
    ask = (
        'messages = [{"role": "user", "content": "…"}]\n'
        "inputs = tokenizer.apply_chat_template(\n"
        '    messages, add_generation_prompt=True, return_tensors="pt", return_dict=True\n)'
        if export.chat
        else 'inputs = tokenizer("…", return_tensors="pt")'
    )
    say = "answer = model.generate(**inputs, max_new_tokens=64, do_sample=False)"
    if export.layout == "model":
        lines = [
            "from transformers import AutoModelForCausalLM, AutoTokenizer\n",
            f"model = AutoModelForCausalLM.from_pretrained({place})",
            *(tokenizer, ask, say),
        ]
        serve = f"vllm serve {export.place}"
    else:
        lines = [
            "from peft import PeftModel",
            "from transformers import AutoModelForCausalLM, AutoTokenizer\n",
            f"base = AutoModelForCausalLM.from_pretrained({export.base!r})",
            f"model = PeftModel.from_pretrained(base, {place})",
            *(tokenizer, ask, say),
        ]
        serve = f"vllm serve {export.base} --enable-lora --lora-modules tuned={export.place}"
    return f"{block(chr(10).join(lines), 'python')}\n\n{block(serve, 'sh')}"


def _method(run: RunData, info: Any) -> list[str]:
    said = []
    if info:
        title = f"**{plain(info.title)}** ({', '.join(_paper(p) for p in papers(info.paper, ''))})"
        text = info.doc.partition("\n\n")[2].partition("Parameters:")[0]
        said = [title + ". " + marked(info.doc.partition("\n")[0]), marked(text)]
    stored = run.facts.get("recipe") or {}
    try:
        recipe: Any = load_recipe(stored, discover.parts(anypo.core, anypo.pieces))
    except (UsageError, TypeError, KeyError, ValueError):
        recipe = None
    if not isinstance(recipe, Recipe):
        return [*filter(None, said), "The resolved recipe is in `anypo_recipe.json`."]
    pieces = [
        (axis, code(name), "<br>".join(filter(None, (marked(says), marked(formula)))))
        for axis, name, formula, says in explained(recipe)
    ]
    fields = block("\n".join(f"{path} = {value}" for path, value in flat(recipe).items()))
    folded = f"<details><summary>Every field of the recipe</summary>\n\n{fields}\n\n</details>"
    shown = table(("axis", "piece", "what it does"), pieces)
    return [*filter(None, said), shown, folded, _sources(recipe)]


def _sources(recipe: Recipe) -> str:
    known = [f"{code(name)}: {plain(source)}" for name, source in used(recipe).items() if source]
    return f"Sources of the pieces: {'; '.join(known)}." if known else ""


def _paper(paper: str) -> str:
    return f"[{plain(paper)}]({link(paper)})" if link(paper) else plain(paper)


def _entries(info: Any) -> list[str]:
    """BibTeX of the method's own paper, then of those that it names."""
    named = papers(info.paper, info.doc)
    named[info.paper] = info.title
    return [entry(paper, note) for paper, note in named.items()]


def facts_table(facts: Any) -> str:
    """Names and values of a group of facts."""
    if not isinstance(facts, Mapping):
        return "Not recorded."
    return table(("", ""), [(code(k), code(v) or "–") for k, v in facts.items()])


def _repeat(run: RunData) -> str:
    typed = str(run.facts.get("command", ""))
    made = _elsewhere(typed) if typed.startswith("anypo train") else command(run)
    said = block(made, "sh") if made else "The run was started from Python."
    versions, hardware = (run.facts.get(k) for k in ("versions", "hardware"))
    return "\n\n".join(
        [
            said,
            f"Seed {code(run.setting('seed', 0))}. The resolved recipe is in `anypo_recipe.json`. "
            "The same machine, versions and number of threads give the same bits.",
            facts_table({**(versions or {}), **(hardware or {})}),
        ]
    )


def _elsewhere(typed: str) -> str:
    """A command without the folder that its author wrote to."""
    return re.sub(r" --out(=| )\S+", "", typed)


def limits(run: RunData, export: Export) -> list[str]:
    """Sentences that a reader must know before trusting the numbers."""
    said = [f"One run with one seed ({plain(run.setting('seed', 0))}): other seeds differ."]
    if after := at(run, export.step):
        many = _row(run, export.step).get("held_out/total", 0)
        unit = "pairs" if run.kind == "preference" else "questions"
        asked = f"{many} held-out {unit}" if many else f"{unit} that it was trained on"
        said.append(f"Measured on {asked} of one task; nothing is known of any other.")
    if after and export.dtype != "float32":
        said.append(
            f"The numbers are those of the float32 weights, which were not measured again after "
            f"rounding to {export.dtype}."
        )
    if not after:
        said.append("No accuracy with an interval was measured at this checkpoint.")
    if export.dequantised:
        said.append(
            "Training began with weights that had been quantised to 4 bits (GGUF, Q4_1) and "
            "dequantised to float32: they are not those of the published model, and are somewhat "
            "worse."
        )
    if export.layout == "adapter":
        said.append(f"The adapter fits the weights of {code(export.base)} and no others.")
    if export.layout != "small":
        said.append("No test of safety, bias or truthfulness was made.")
        said.append("Critics and other heads that helped in training are not part of this folder.")
    if not export.license:
        said.append("No licence is stated here: that of the model it was trained from applies.")
    return said
