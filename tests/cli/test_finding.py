"""Finding a method: filters, numbers, ambiguous words, the page of source, citations."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

import anypo
from anypo import api
from anypo.cli import main, methods, summary
from anypo.cli.inline import sources
from anypo.cli.recipes import status
from anypo.core.errors import UsageError
from anypo.core.method import method
from anypo.core.papers import papers
from anypo.core.recipe import Recipe
from anypo.pieces.surrogate.clip import Clip
from tests.cli.test_commands import said

NAMES = [i.name for i in api.methods()]
WORDS = (
    "SPO GCPO S-GRPO GTPO DPPO DGPO IGPO APO DPO SDPO SPG BPO PAPO MAPO LAPO GPO HAPO TPO CPO"
).split()


# ── ambiguous words ──────────────────────────────────────────────────────────────────────────────


def test_an_ambiguous_word_lists_the_candidates(capsys):
    code, out, err = said(capsys, "show", "spo")
    assert (code, out) == (2, "")
    head, *lines = err.splitlines()
    assert head == "error: several methods are called 'spo'; say which by its slug:"
    assert {line.split()[0] for line in lines} == {
        "spo-simple",
        "spo-single-stream",
        "spo-selfplay",
    }
    here = {i.slug for i in api.methods()}
    for line in lines:
        assert line.endswith("(not here yet)") == (line.split()[0] not in here)


@pytest.mark.parametrize("word", ["s-grpo", "S_GRPO", "SGRPO"])
@pytest.mark.parametrize("command", ["show", "cite", "train"])
def test_any_spelling_and_any_command_gives_the_same_list(capsys, word, command):
    code, _, err = said(capsys, command, word)
    assert code == 2
    slugs = [line.split()[0] for line in err.splitlines()[1:]]
    assert sorted(slugs) == ["s-grpo-serial", "s-grpo-stable", "s-grpo-subset"]


def test_a_name_wins_over_an_ambiguous_word_and_says_so(capsys):
    assert api.find("DPO").info.name == "dpo"
    _, out, _ = said(capsys, "show", "dpo")
    note = next(line for line in out.splitlines() if "also called DPO:" in line)
    slugs = note.partition("DPO: ")[2].replace(" (not here yet)", "").strip().split(", ")
    assert sorted(slugs) == ["dpo-decentralized", "dpo-discovered"]
    _, out, _ = said(capsys, "show", "gspo")
    assert "also called" not in out
    _, out, _ = said(capsys, "show", "dpo", "--json")
    assert json.loads(out)["also_called"].keys() == {"DPO"}


@pytest.mark.parametrize("word", WORDS)
def test_the_words_of_the_literature_are_known(word):
    rivals = api.namesakes(word)
    assert len(rivals) >= 2
    if word.lower().replace("-", "_") not in NAMES:
        with pytest.raises(UsageError, match=r"several methods(.|\n)*" + rivals[-1].slug):
            api.find(word)


def test_the_table_of_words_is_well_formed():
    head, *rows = [r.split("\t") for r in api.ACRONYMS.read_text("utf-8").splitlines()]
    assert head == ["word", "slug", "line"]
    assert all(len(r) == 3 and all(r) and len(r[2]) <= 90 for r in rows)
    assert len({(w, s) for w, s, _ in rows}) == len(rows)
    assert min(Counter(w for w, _, _ in rows).values()) >= 2


def fake(name: str, *aliases: str):
    """A method of the real kind, under another name."""

    def build() -> Recipe:
        """Some method."""
        return Recipe()

    build.__name__ = name
    return method(paper="1", title=name, aliases=aliases)(build)


def only(monkeypatch, *found) -> None:
    """Let these be the methods that are discovered."""
    known = {m.info.name: m for m in found}
    monkeypatch.setattr(api.names.discover, "methods", lambda package: known)


def test_an_exact_name_wins_over_an_alias_of_another_method(monkeypatch):
    only(monkeypatch, fake("a_method", "zpo"), fake("zpo"))
    assert api.find("zpo").info.name == "zpo"
    assert api.find("a-method").info.name == "a_method"


def test_an_alias_of_two_methods_lists_both(monkeypatch):
    only(monkeypatch, fake("one", "zpo"), fake("two", "zpo"))
    with pytest.raises(UsageError, match=r"several methods are called 'zpo'(.|\n)*one(.|\n)*two"):
        api.find("zpo")


def test_an_ambiguous_word_is_no_alias_but_the_slug_of_a_candidate_is(monkeypatch):
    only(monkeypatch, fake("simple", "spo", "kl-cov"))
    with pytest.raises(UsageError, match="several methods"):
        api.find("spo")
    assert api.find("kl_cov").info.name == "simple"


def test_candidates_that_are_here_come_first_and_unmarked(monkeypatch):
    only(monkeypatch, fake("spo_selfplay"))
    assert api.namesakes("spo")[0].slug == "spo-selfplay"
    assert [n.here for n in api.namesakes("spo")] == [True, False, False]
    assert api.find("spo-selfplay").info.name == "spo_selfplay"


@pytest.mark.parametrize("name", NAMES)
def test_every_method_is_found_by_all_of_its_names(name):
    info = api.find(name).info
    assert api.find(info.slug).info.name == name
    assert api.find(name.upper()).info.name == name
    for alias in info.aliases:
        assert api.find(alias).info.name == name


# ── methods ──────────────────────────────────────────────────────────────────────────────────────


def listed(capsys, *words: str) -> dict[str, dict]:
    """What `anypo methods --json` prints, by name."""
    code, out, err = said(capsys, "methods", "--json", *words)
    assert code == 0, err
    return {e["name"]: e for e in json.loads(out)}


def test_verified_and_unverified_part_the_list(capsys):
    right, rest = listed(capsys, "--verified"), listed(capsys, "--unverified")
    assert right.keys() | rest.keys() == set(NAMES)
    assert right.keys() & rest.keys() == set()
    assert {"grpo", "ppo", "dpo"} <= right.keys()
    assert "reinforce" in rest
    assert {e["verified"] for e in right.values()} == {True}


def test_kinds_are_filtered(capsys):
    infos = {i.name: i for i in anypo.methods()}
    for kind in ("recipe", "system", "sketch"):
        found = listed(capsys, "--kind", kind)
        assert found.keys() == {n for n, i in infos.items() if i.kind == kind}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--verified --unverified", "no method is both"),
        ("--kind method", "there is no kind 'method'"),
        ("--summary --axis D", "--summary counts all methods"),
    ],
)
def test_filters_that_make_no_sense_are_refused(capsys, words, sentence):
    code, _, err = said(capsys, "methods", *words.split())
    assert code == 2
    assert sentence in err


ENTRY = {"name": "x", "kind": "recipe", "verified": True, "axes": {}, "further": []}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({}, "verified"),
        ({"verified": False}, "unverified"),
        ({"kind": "system"}, "system, verified"),
        ({"kind": "sketch"}, "sketch"),
    ],
)
def test_a_status_is_a_word(change, word):
    assert status({**ENTRY, **change}) == word


def test_sketches_stand_outside_every_count():
    entries = [ENTRY, {**ENTRY, "name": "y", "kind": "sketch"}]
    assert methods.counted(entries) == "1 method, 1 verified; 1 sketch not counted"
    sketch = SimpleNamespace(name="y", kind="sketch", build=lambda: Recipe(surrogate=Clip()))
    found = summary.summary(entries, [sketch])
    assert (found["recipes"], found["verified"], found["sketches"]) == (1, 1, ["y"])
    assert "Clip" in found["used_by_none"]


def recipe_of(*surrogates):
    """Methods that are made of these surrogates."""
    return [
        SimpleNamespace(name=f"m{i}", kind="recipe", build=lambda s=s: Recipe(surrogate=s))
        for i, s in enumerate(surrogates)
    ]


def test_a_piece_of_one_recipe_is_named():
    found = summary.summary([], recipe_of(Clip(), Recipe().surrogate, Recipe().surrogate))
    assert found["used_by_one"]["Clip"] == "m0"
    assert "Reinforce" not in found["used_by_one"]
    assert "Clip" not in summary.summary([], recipe_of(Clip(), Clip()))["used_by_one"]


def test_an_escape_hatch_is_counted_by_looking():
    @dataclass
    class Free:
        loss: object

    def build():
        return SimpleNamespace(stages=[SimpleNamespace(objectives=[Free(len)])])

    assert summary.escapes(build())  # pyright: ignore[reportArgumentType]
    assert not summary.escapes(Recipe())


def test_the_summary_counts_what_is_there(capsys):
    _, out, _ = said(capsys, "methods", "--summary", "--json")
    found = json.loads(out)
    real = [i for i in anypo.methods() if i.kind != "sketch"]
    assert found["recipes"] == len(real)
    assert found["escape_hatches"] == []
    assert {"Clip", "KL", "Off", "Adam"} <= set(summary.all_pieces())
    assert {"Chain", "Plus", "Surrogate"} & set(summary.all_pieces()) == set()
    assert found["pieces"] == len(summary.all_pieces())
    _, out, _ = said(capsys, "methods", "--summary")
    for name, by in found["used_by_one"].items():
        assert f"{name} ({by})" in " ".join(out.split())


# ── one page of source ───────────────────────────────────────────────────────────────────────────


def test_inline_gives_the_recipe_its_pieces_and_what_they_call(capsys):
    code, out, _ = said(capsys, "show", "gspo", "--inline")
    assert code == 0
    for line in (
        "── anypo/recipes/group_relative.py: gspo",
        "    return grpo(group, beta=0).but(",
        "── anypo/recipes/group_relative.py: grpo",
        "── anypo/pieces/surrogate/clip.py: Clip",
        '        return clipped(ratio, batch["advantage"], 1 - self.low, 1 + self.high, self.dual)',
        "── anypo/pieces/surrogate/clip.py: clipped",
    ):
        assert line in [text.rstrip() for text in out.splitlines()]
    for noise in ("__post_init__", "pyright:", "raise UsageError", "class Adam", "def needs"):
        assert noise not in out
    assert out.index(": Clip\n") < out.index(": clipped\n") < out.index(": Mean\n")


def test_inline_has_the_pieces_of_the_recipe_as_it_is_given(capsys):
    _, out, _ = said(capsys, "show", "grpo", "--inline", "--json")
    with_kl = json.loads(out)["sources"]
    assert "anypo/pieces/regularizer/kl.py: KL" in with_kl
    assert any(place.startswith("anypo/math/kl.py: ") for place in with_kl)
    _, out, _ = said(capsys, "show", "grpo", "--inline", "--json", "--beta", "0")
    assert "anypo/pieces/regularizer/kl.py: KL" not in json.loads(out)["sources"]


@pytest.mark.parametrize("name", NAMES)
def test_every_method_is_shown_inline_compared_and_cited(capsys, name):
    info = api.find(name).info
    found = sources(info, info.build())
    for place, text in found.items():
        compile(text, place, "exec")
    assert next(iter(found)).endswith(f": {name}")
    for words in (["show", name, "--inline"], ["diff", "grpo", name], ["cite", name]):
        assert said(capsys, *words)[0] == 0


# ── diff and cite ────────────────────────────────────────────────────────────────────────────────


def test_diff_ends_with_a_small_table_of_weights(capsys):
    _, out, _ = said(capsys, "diff", "grpo", "dr_grpo")
    lines = [line.split() for line in out.splitlines()]
    long = next(line for line in lines if line[:4] == ["right", "answers,", "long", "trajectories"])
    short = next(line for line in lines if line[:3] == ["right", "answers,", "short"])
    grpo, dr_grpo = (float(x) for x in long[-2:])
    assert dr_grpo > grpo > 0  # a long answer counts less per step where its length divides
    assert float(short[-2]) > grpo


def test_cite_has_an_entry_for_every_paper_and_what_was_used(capsys):
    code, out, _ = said(capsys, "cite", "ppo")
    assert code == 0
    assert out.count("@misc{1707.06347,") == out.count("@misc{1912.09729,") == 1
    assert "  eprint = {1707.06347},\n" in out
    assert "  note = {dual clip}\n" in out
    assert f"% Used: ppo of anypo {anypo.__version__}" in out
    assert "%   Clip: PPO, 1707.06347; dual clip, 1912.09729" in out
    _, out, _ = said(capsys, "cite", "reinforce", "--json")
    found = json.loads(out)
    assert found["papers"]["10.1007/BF00992696"] == "REINFORCE"
    assert "Return" in found["pieces"]
    _, out, _ = said(capsys, "cite", "reinforce")
    assert "  doi = {10.1007/BF00992696},\n" in out
    assert out.startswith("@misc{10.1007-BF00992696,\n")


@pytest.mark.parametrize(
    ("paper", "doc", "found"),
    [
        ("1707.06347", "One. Reference: 1707.06347; dual clip 1912.09729.", ["", "dual clip"]),
        ("2402.1", "Reference: DeepSeekMath, 2402.03300; and 10.1007/x.y.", ["", "DeepSeekMath"]),
        ("2402.03300", "Learning rate 0.0001, 2048 tokens, 12.34567 of 20480.", [""]),
    ],
)
def test_papers_are_found_with_what_they_are_called(paper, doc, found):
    named = papers(paper, doc)
    assert [*named.values()][: len(found)] == found
    assert next(iter(named)) == paper


def test_help_of_the_new_options(capsys):
    for words in (["methods", "--help"], ["show", "--help"], ["cite", "--help"]):
        assert main(words) == 0
    out = capsys.readouterr().out
    for option in ("--summary", "--unverified", "--kind", "--inline"):
        assert option in out
