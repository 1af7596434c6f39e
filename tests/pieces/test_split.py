"""Parts of answers, hints and shortened thoughts on a real policy, from prompt to credit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import anypo
from anypo.backends.local import Local
from anypo.backends.policies import load_policy
from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.neutral import Groups
from anypo.core.recipe import Recipe
from anypo.core.request import Request
from anypo.core.score import Score
from anypo.engine.collect import collect, credit
from anypo.engine.columns import add_frozen
from anypo.engine.settings import Settings
from anypo.engine.state import State
from anypo.pieces.reward.place import Place
from anypo.pieces.sampling.refill import Refill
from anypo.pieces.sampling.split import Split, stages
from anypo.tasks.task import Problems, each
from tests.learning.words import task as words

HORIZON = 12
TASK = words(binary=True)
POLICY = load_policy("tiny", task=TASK)


def report(completion: str, row: Any) -> Score:
    """Every answer is right; its thought ends with its sixth token and could after its second."""
    parts = [float(len(part)) for part in completion.split("a")]
    ends = {"think_end": 5, "think_length": 5, "valid_length": 2}
    return Score(1.0, {"parts": parts, **(ends if len(completion) > 6 else {})})


EASY = Problems("easy", TASK.train, TASK.held_out, each(report), HORIZON)


def run(recipe: Recipe, task: Any = EASY, known: dict[str, Any] | None = None) -> Batch:
    """What an iteration of a recipe collects for three prompts."""
    state = State.start(recipe, POLICY, Settings(prompts=3, horizon=HORIZON, seed=4))
    state.pieces |= known or {}
    return collect(recipe.at(0), Local(task), state)[0]


def texts(batch: Batch) -> list[list[str]]:
    """The text of every step, answer by answer, read from the network's input."""
    found: list[list[str]] = [[] for _ in range(batch.count("traj"))]
    columns = [batch.id(k).tolist() for k in ("traj", "seq", "position")]
    for traj, seq, position in zip(*columns, strict=True):
        token = batch.inputs["tokens"][seq][position]
        found[traj].append(POLICY.decode(token[None]))
    return found


def test_texts_of_tokens_are_the_answer():
    batch = run(Recipe(sampling=Groups(4) >> Split("a")))
    table = batch.table("traj")
    assert ["".join(x) for x in table["texts"]] == table["completion"]
    assert table["texts"] == texts(batch)


def test_segments_end_with_the_marker_and_are_rewarded_there():
    batch = run(Recipe(reward=(Place("parts"),), sampling=Groups(4) >> Split("a")))
    assert batch.count("segment") > batch.count("traj") == 12
    words = texts(batch)
    for traj in range(12):
        mine = batch.take_units("traj", [traj])
        stage, reward = mine.id("stage").tolist(), mine["reward"].tolist()
        pieces = ["".join(t for t, k in zip(words[traj], stage) if k == s) for s in range(9)]
        answer = batch.table("traj")["completion"][traj]
        want = [*(part + "a" for part in answer.split("a")[:-1]), answer.split("a")[-1]]
        assert [p for p in pieces if p] == [w for w in want if w]
        lengths = [float(len(part)) for part in answer.split("a")]
        ends = mine.last("segment").tolist()
        assert [r for r, end in zip(reward, ends) if end] == lengths[: sum(ends)]
        assert not any(r for r, end in zip(reward, ends) if not end)


def test_bare_segments_hold_no_marker_and_no_end():
    whole = run(Recipe(sampling=Groups(4) >> Split("a")))
    bare = run(Recipe(sampling=Groups(4) >> Split("a", bare=True)))
    kept = [[t for t in row if t not in ("a", "")] for row in texts(whole)]
    assert texts(bare) == [row for row in kept if row]
    assert any("a" in row for row in texts(whole))
    assert bare.sum(bare["score"], "traj").tolist() == [1.0] * len(bare)


def test_segments_survive_several_requests():
    """No group differs at first, so that later answers join those that have segments."""
    batch = run(Recipe(sampling=Groups(4) >> Split("a") >> Refill(8)), TASK)
    assert batch.count("group") > 1 and "segment" in batch.ids


@pytest.mark.parametrize(
    ("tokens", "marker", "want"),
    [
        (["a", "\n", "b", "\n"], "\n", [(0, False), (0, True), (1, False), (1, True)]),
        (["a\nb", "c", ""], "\n", [(0, False), (1, False), (1, True)]),
        (
            ["a", "\n", "b", "\n", ""],
            "\n",
            [(0, False), (0, True), (1, False), (1, True), (1, True)],
        ),
        ([""], "\n", [(0, True)]),
        (["x", "\n", "\n", "y"], "\n\n", [(0, False), (0, True), (0, True), (1, False)]),
        (["<a", "ns", "> 4", "2"], "<ans>", [(0, True), (0, True), (0, False), (1, False)]),
        (["\n\n", "b"], "\n", [(0, True), (2, False)]),
        ([], "\n", []),
    ],
)
def test_a_segment_ends_with_the_token_in_which_the_marker_ends(tokens, marker, want):
    assert stages(tokens, marker) == want


def test_late_segments_share_the_last_number():
    table = {"texts": [["a", ";", "b", ";", "c", ";", "d"]]}
    ids = {"traj": torch.zeros(7).long()}
    batch = Split(";", most=2).mark(Batch({"reward": torch.ones(7)}, ids, {"traj": table}))
    assert batch.id("stage").tolist() == [0, 0, 1, 1, 1, 1, 1]
    assert batch.id("segment").tolist() == [0, 0, 1, 1, 1, 1, 1]
    with pytest.raises(UsageError, match="before a piece that drops steps"):
        Split(";").mark(Batch({}, {"traj": torch.zeros(3).long()}, {"traj": table}))


def test_a_hint_reaches_the_prompt_and_no_judge():
    stage = anypo.recipe("lapo", group=2).stages[1]
    plain = run(stage)
    prompts = plain.id("prompt")[plain.last("traj")].tolist()
    known = {str(prompts[0]): 7.0}
    hinted = run(stage, known={"length_target": known})
    hint = " Answer in about 7 tokens."
    for table, batch in ((plain.table("traj"), plain), (hinted.table("traj"), hinted)):
        for k, prompt in enumerate(prompts):
            told = batch is hinted and str(prompt) in known
            question = table["row"][k]["prompt"]
            assert question == TASK.train[prompt]["prompt"]
            read = batch.inputs["tokens"][k][: batch.inputs["prompt_length"][k]]
            assert POLICY.decode(read) == question + (hint if told else "")
    assert hinted["length_target"].isnan().sum() > 0
    assert set(hinted["length_target"].nan_to_num(0).tolist()) == {0.0, 7.0}


def test_thoughts_are_cut_in_the_network_too():
    recipe = anypo.recipe("lc_r1", group=4, beta=0.0)
    whole, cut = run(recipe.but(sampling=Groups(4))), run(recipe)
    before, after = texts(whole), texts(cut)
    long = [len(text) > 6 for text in whole.table("traj")["completion"]]
    assert any(long)
    for k, row in enumerate(before):
        assert after[k] == ([*row[:2], *row[5:]] if long[k] else row)
        shorter = len(whole.inputs["tokens"][k]) - len(cut.inputs["tokens"][k])
        assert shorter == (3 if long[k] else 0)
    state = State.start(recipe, POLICY, Settings())
    scored = add_frozen(cut, frozenset({"logp_old"}), state, Local(EASY))
    early = cut.id("position") - torch.tensor(cut.inputs["prompt_length"])[cut.id("seq")] < 2
    gap = (scored["logp_old"] - cut["logp_mu"]).abs()
    assert float(gap[early].max()) < 1e-4 < float(gap[~early].max())
    wrong = credit(recipe, cut.with_({"score": 0 * cut["score"]}))
    bonus = credit(recipe, cut)["advantage"] - wrong["advantage"]
    place = cut.size("step", "traj") - cut.scan(torch.ones(len(cut)).double(), 1.0)
    assert int((bonus != 0).sum()) == sum(long) and set(place[bonus != 0].tolist()) == {2.0}
    assert bonus[bonus != 0].tolist() == pytest.approx([1 - 2 / 5.0001] * sum(long))


def test_answers_are_a_tree_of_what_they_begin_with():
    batch = run(anypo.recipe("t_spmo", group=4))
    groups = batch.id("group")[batch.last("traj")].tolist()
    answers = [(g, tuple(row)) for g, row in zip(groups, texts(batch), strict=True)]
    beginnings = {(g, row[: k + 1]) for g, row in answers for k in range(len(row))}
    parents = {(g, row[:k]) for g, row in answers for k in range(len(row))}
    assert batch.count("edge") == len(beginnings) and batch.count("node") == len(parents)


def test_split_needs_a_policy_that_writes():
    plain = replace(run(Recipe(sampling=Groups(2))), tables={"traj": {}})
    with pytest.raises(UsageError, match="needs a language policy"):
        Split().mark(plain)
    request = (Groups(2) >> Split()).request(Batch.empty(), Request(prompts=1), 0)
    assert request is not None and request.texts and request.samples == 2
