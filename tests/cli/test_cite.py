"""`anypo cite`: BibTeX that parses, nothing made up, runs as they were resolved."""

from __future__ import annotations

import json
import re

import pytest

import anypo
from anypo.cli import main
from anypo.core.dump import dump
from anypo.core.papers import described, entry, escaped, facts, known, link

KEY = re.compile(r"@misc\{([A-Za-z0-9.-]+),\n")


def parsed(text: str) -> dict[str, dict[str, str]]:
    """Entries of a bibliography, by a strict reading: balanced braces, no field twice."""
    found: dict[str, dict[str, str]] = {}
    at = 0
    while at < len(text):
        if text[at] == "%":  # a comment
            at = text.find("\n", at) + 1 or len(text)
            continue
        head = KEY.match(text, at)
        assert head, text[at : at + 60]
        assert head[1] not in found, head[1]
        at, fields = head.end(), {}
        while not text.startswith("}\n", at):
            name = re.compile(r"  (\w+) = \{").match(text, at)
            assert name, text[at : at + 60]
            start = at = name.end()
            depth = 1
            while depth:
                depth += {"{": 1, "}": -1}.get(text[at], 0)
                at += 1
            assert name[1] not in fields
            fields[name[1]] = text[start : at - 1]
            at += text[at] == ","
            assert text[at] == "\n"
            at += 1
        at += 2
        found[head[1]] = fields
    return found


def said(capsys, *words: str) -> str:
    assert main(["cite", *words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", [i.name for i in anypo.methods()])
def test_every_bibliography_parses_and_names_the_method(capsys, name):
    found = parsed(said(capsys, name))
    assert found["anypo"]["note"] == f"Version {anypo.__version__}"
    info = next(i for i in anypo.methods() if i.name == name)
    paper = re.sub(r"[^A-Za-z0-9.-]", "-", info.paper)
    assert paper in found
    for key, fields in found.items():
        if key not in ("anypo", "10.1007-BF00992696") and re.fullmatch(r"\d{4}\.\d{4,5}", key):
            assert fields["eprint"] == key
            assert fields["url"] == f"https://arxiv.org/abs/{key}"
            assert fields["year"] == f"20{key[:2]}"


def test_authors_and_titles_are_those_of_the_table_and_no_others(capsys):
    found = parsed(said(capsys, "grpo", "ppo", "rloo"))
    sure = {k for k, v in found.items() if "author" in v}
    assert sure == {k for k, v in known().items() if v["author"]} & set(found)
    assert found["2402.03300"]["author"] == "Shao, Zhihong and others"
    assert found["2402.03300"]["title"].startswith("{DeepSeekMath: Pushing")
    assert "author" not in parsed(entry("2511.23310", "x") + "\n")["2511.23310"]


def test_the_table_is_sorted_facts():
    for paper, row in known().items():
        assert link(paper), paper
        assert row["title"]
        assert re.fullmatch(r"\d{4}", row["year"])
        if not paper.startswith("10."):
            assert row["year"] == f"20{paper[:2]}"  # of the preprint
    assert facts("2511.23310") == {"author": "", "title": "", "year": "2025"}
    assert facts("none: ours")["year"] == ""


def test_what_tex_obeys_is_written_out():
    assert escaped("a_b & 50% {x}\n\\y ~ ^") == (
        r"a\_b \& 50\% \textbraceleft{}x\textbraceright{} "
        r"\textbackslash{}y \textasciitilde{} \textasciicircum{}"
    )
    (fields,) = parsed(entry("none: {a}, 5%", "β_1 } {") + "\n").values()
    assert fields["howpublished"] == r"none: \textbraceleft{}a\textbraceright{}, 5\%"
    assert fields["note"] == r"β\_1 \textbraceright{} \textbraceleft{}"


def test_several_methods_share_their_papers(capsys):
    both = json.loads(said(capsys, "gspo", "dapo", "--json"))
    assert both["methods"] == ["gspo", "dapo"]
    assert {"Refill", "Overlong"} <= set(both["pieces"])
    assert both["papers"]["2507.18071"] == "GSPO"
    assert both["papers"]["2503.14476"] == "DAPO"
    assert both["papers"]["1912.09729"] == "dual clip, as in the piece Clip"
    assert said(capsys, "gspo", "dapo", "--format", "json") == json.dumps(both) + "\n"


def test_as_text(capsys):
    out = said(capsys, "gspo", "--format", "text")
    assert out.startswith("Group Sequence Policy Optimization (2025). arXiv:2507.18071. https://")
    assert "Schulman, John; Wolski, Filip;" in out
    assert "Used: gspo of anypo" in out
    assert described("10.1007/BF00992696", "") == (
        "Williams, Ronald J. (1992). Simple Statistical Gradient-Following Algorithms for "
        "Connectionist Reinforcement Learning. 10.1007/BF00992696. "
        "https://doi.org/10.1007/BF00992696"
    )


def test_a_run_is_cited_as_it_was_resolved(capsys, tmp_path):
    recipe = anypo.recipe("gspo", group=4).set("update.epochs", 2)
    given = {"group": "4", "recipe.update.epochs": "2"}
    stored = {"method": "gspo", "recipe": dump(recipe), "given": given}
    (tmp_path / "anypo.json").write_text(json.dumps(stored))
    text = said(capsys, str(tmp_path))
    assert "2507.18071" in parsed(text)
    assert "with group 4, recipe.update.epochs 2" in text
    stored["recipe"]["advantage"] = {"piece": "GAE", "gamma": 1.0, "lam": 0.9}
    (tmp_path / "anypo.json").write_text(json.dumps(stored))
    assert "1506.02438" in parsed(said(capsys, str(tmp_path)))  # the run's pieces, not the method's


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("gpso", "unknown recipe 'gpso'; did you mean"),
        ("", "anypo cite needs METHOD"),
        ("grpo --format xml", "--format wants one of bibtex, text, json, not 'xml'"),
    ],
)
def test_mistakes(capsys, words, sentence):
    assert main(["cite", *words.split()]) == 2
    assert sentence in capsys.readouterr().err
