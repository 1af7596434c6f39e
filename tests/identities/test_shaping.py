"""Rewards of length, rarity and judges: numbers by hand, reductions to other methods, refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

import anypo
from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.neutral import Groups
from anypo.core.request import Request
from anypo.engine.collect import credit, shape
from anypo.engine.dry import iterations
from anypo.pieces.aggregate.subset import Subset
from anypo.pieces.reward.span import Near, Shorter
from anypo.pieces.sampling.condense import Condense
from anypo.pieces.sampling.hint import Hint
from tests.identities.evaluate import same, scene
from tests.identities.small import close, last, steps


def outcomes(name: str, batch: Batch, stage: int = 0, **arguments: Any) -> Tensor:
    """Shaped rewards of the trajectories in a stage of a recipe."""
    recipe = anypo.recipe(name, **arguments)
    return shape(recipe.at(iterations(recipe)[stage]), batch).at("traj")["reward"]


def advantages(name: str, batch: Batch, stage: int = 0, **arguments: Any) -> Tensor:
    """Advantages of the steps in a stage of a recipe."""
    recipe = anypo.recipe(name, **arguments)
    resolved = recipe.at(iterations(recipe)[stage])
    return credit(resolved, shape(resolved, batch))["advantage"]


def answers(lengths: list[int], rewards: list[float], **given: Any) -> Batch:
    """Answers of one group, with a budget of 100 tokens."""
    table = {"horizon": torch.full((len(lengths),), 100), **given.pop("table", {})}
    return steps(lengths, reward=last(lengths, rewards), table=table, **given)


# ── FAPO ─────────────────────────────────────────────────────────────────────────────────────────

PLAIN = {"overlong": 0.0}


def test_a_flawed_answer_is_pushed_up_while_few_are_right_and_down_later():
    few = answers([1] * 4, [1, 0, 0, 1], table={"flawed": [False, False, None, True]})
    most = answers([1] * 4, [1, 1, 0, 1], table={"flawed": [False, False, True, True]})
    close(outcomes("fapo", few, **PLAIN), [1, -1, -1, 0])
    close(outcomes("fapo", most, **PLAIN), [1, 1, -1, 0])
    assert advantages("fapo", few, **PLAIN)[3] > 0 > advantages("fapo", most, **PLAIN)[3]
    spread = math.sqrt((0.75**2 * 2 + 1.25**2 + 0.25**2) / 3) + 1e-6
    close(advantages("fapo", most, **PLAIN), [x / spread for x in (0.75, 0.75, -1.25, -0.25)])


def test_fapo_without_penalty_is_the_method_without_a_judge_and_all_flawed_says_nothing():
    outcome = last([2, 3, 1, 2], [1, -1, -1, 1])
    batch = scene(table={"flawed": [True] * 4}, reward=outcome)
    plain = anypo.recipe("fapo", penalty=0.0, **PLAIN)
    same(plain, anypo.recipe("dapo", overlong=0.0), batch)
    assert not advantages("fapo", answers([1, 2], [1, 1], table={"flawed": [1, 1]})).any()


def test_fapo_charges_the_last_half_of_the_budget():
    batch = answers([25, 75, 100], [1, 1, 1], table={"flawed": [0, 0, 1]})
    close(outcomes("fapo", batch), [1, 0.5, -1])
    close(outcomes("fapo", batch, penalty=0.3, overlong=0.25), [1, 1, -0.3])


# ── LAPO ─────────────────────────────────────────────────────────────────────────────────────────


def lengthy(lengths: list[float], rewards: list[float], target: float = math.nan) -> Batch:
    """One-step answers that count as longer ones."""
    batch = answers([1] * len(lengths), rewards, length=lengths)
    return batch.with_({"length_target": torch.full((len(batch),), target, dtype=torch.float64)})


def test_lapo_pays_for_the_middle_of_right_lengths():
    """Right lengths 100 … 500: the range is 220 … 380; 200 and 400 are 20 off, the ends 120."""
    batch = lengthy([100, 200, 300, 400, 500, 300], [1, 1, 1, 1, 1, 0])
    close(outcomes("lapo", batch), [1, 1.56, 1.7, 1.56, 1, 0])
    close(outcomes("lapo", batch, fall=240.0, range_weight=1.0), [1.5, 23 / 12, 2, 23 / 12, 1.5, 0])


def test_lapo_pays_nothing_for_a_range_of_one_length_and_nothing_to_wrong_answers():
    close(outcomes("lapo", lengthy([7, 9], [1, 0])), [1, 0])
    close(outcomes("lapo", lengthy([7, 9], [0, 0])), [0, 0])
    close(outcomes("lapo", lengthy([7, 9], [0, 0], 7.0), stage=1), [0, 0])


def test_lapo_then_pays_for_the_length_that_was_asked_for():
    near = [1 + 0.8 * math.exp(-0.5), 1.8, 1 + 0.8 * math.exp(-2.0)]
    close(outcomes("lapo", lengthy([180, 300, 540], [1, 1, 1], 300.0), stage=1), near)
    # of a prompt that was never solved it is the group's median
    close(outcomes("lapo", lengthy([180, 300, 540], [1, 1, 1]), stage=1), near)


def test_lapo_keeps_medians_and_lowers_them_later():
    first, second = Near(), Near(0.8, 50, 50, slope=0, sigma=120)
    assert first.init() == second.init() == {"length_target": {}}
    ones = [1] * 5
    batch = steps(ones, [0, 0, 0, 1, 2], reward=ones, length=[10, 20, 99, 5, 8])
    batch = batch.with_({"score": torch.tensor([1.0, 1.0, 0.0, 0.0, 1.0])})
    start = {"length_target": {"0": 12.0, "2": 9.0, "7": 3.0}}
    medians = {"0": 15.0, "2": 8.0, "7": 3.0}
    assert first.observe(batch, start) == {"length_target": medians}
    assert second.observe(batch, start) == {"length_target": {**medians, "0": 12.0}}
    assert first.observe(batch.with_({"score": torch.zeros(5)}), start) == start


def test_lapo_says_the_length_in_the_prompt_once_it_is_known():
    stage = anypo.recipe("lapo").stages[1]
    wanted = Request(prompts=2, state={"length_target": {"3": 41.6}}, hints={1: "?"})
    request = stage.sampling.request(Batch.empty(), wanted, 0)
    assert request is not None and request.samples == 8
    assert request.hints == {1: "?", 3: " Answer in about 42 tokens."}
    assert stage.sampling.request(Batch.empty(), wanted, 1) is None
    with pytest.raises(UsageError, match="no piece of the recipe keeps this state"):
        anypo.recipe("grpo").but(sampling=Groups(8) >> Hint("other")).check()


# ── LC-R1 ────────────────────────────────────────────────────────────────────────────────────────

THOUGHT = ("think_end", "think_length", "valid_length")


def thoughts(*rows: tuple[int | None, int, int]) -> dict[str, Any]:
    """End, length and needed length of the thought of each answer."""
    return dict(zip(THOUGHT, map(list, zip(*rows, strict=True)), strict=True))


def test_lc_r1_by_hand():
    table = thoughts((None, 0, 0), (None, 0, 0))
    batch = answers([4, 2], [1, 1], table=table)
    close(outcomes("lc_r1", batch), [2 - 4 / 4.0001, 2 - 2 / 4.0001])
    half = 1 / 4.0001
    close(advantages("lc_r1", batch), [-half] * 4 + [half] * 2)
    wrong = answers([4, 6], [1, 0], table=table)
    close(outcomes("lc_r1", wrong), [2 - 4 / 4.0001, 1 - 6 / 4.0001])
    close(outcomes("lc_r1", answers([4, 6], [0, 0.5], table=table)), [0, 0.5])


def test_lc_r1_without_coefficients_is_grpo_without_the_deviation():
    batch = scene(table=thoughts((1, 1, 1), (0, 0, 0), (0, 0, 0), (1, 1, 0)))
    plain = anypo.recipe("lc_r1", len_coef=0.0, comp_coef=0.0)
    grpo = anypo.recipe("grpo")
    same(plain, grpo.but(advantage=replace(grpo.advantage, scale="off")), batch)


def test_lc_r1_pays_one_token_for_a_thought_that_was_short_enough():
    """Needed 1 of 2 tokens; never there; a wrong answer; no end of thought."""
    table = thoughts((2, 2, 1), (1, 1, 0), (2, 2, 1), (None, 0, 0))
    batch = answers([4, 3, 3, 2], [1, 1, 0, 1], table=table)
    gain = advantages("lc_r1", batch, len_coef=0.0, comp_coef=2.0) - advantages(
        "lc_r1", batch, len_coef=0.0, comp_coef=0.0
    )
    saved = 2 * (1 - 1 / 2.0001)
    close(gain, [0, 0, saved, 0, 0, -2, 0, 0, 0, 0, 0, 0])


def test_right_answers_end_their_thought_when_the_answer_is_there():
    """Tokens 10 11 | 0 1 2 3 4: the thought ends at 3 and could have ended after 1."""
    batch = answers([5, 5], [1, 0], table=thoughts((3, 3, 1), (3, 3, 1)))
    rows = [torch.tensor([10, 11, *range(5)]), torch.tensor([12, 13, *range(5)])]
    place = torch.arange(5).repeat(2) + 2
    batch = replace(batch, ids={**batch.ids, "position": place}, inputs={"tokens": rows})
    once = Condense().mark(batch)
    twice = Condense().mark(once)
    for cut in (once, twice):
        assert [r.tolist() for r in cut.inputs["tokens"]] == [[10, 11, 0, 3, 4], rows[1].tolist()]
        assert cut.id("position").tolist() == [2, 3, 4, 2, 3, 4, 5, 6]
        assert cut.table("traj")["think_end"] == [1, 3]
        assert cut["reward"].tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    never = replace(batch, tables={"traj": thoughts((3, 3, 0), (3, 3, 1))})
    assert len(Condense().mark(never)) == len(batch)
    assert len(Condense(least=0.0).mark(batch)) == len(once)
    # the length reward then counts what remains: 3 tokens are all that the longest one has
    close(shape(anypo.recipe("lc_r1"), once).at("traj")["reward"], [2 - 3 / 3.0001, 1 - 5 / 3.0001])


# ── unlikeliness ─────────────────────────────────────────────────────────────────────────────────


def test_the_likelier_a_right_answer_the_less_it_earns():
    lengths, likely = [2, 1, 1, 3], [-1.0, -3.0, -2.0, -0.5]
    logp = [x for n, s in zip(lengths, likely, strict=True) for x in [s] * n]
    batch = answers(lengths, [1, 1, 1, 1], logp_old=logp)
    close(outcomes("unlikeliness_reward", batch), [0.875, 1, 0.9375, 0.8125])
    squeezed = batch.with_({"logp_old": batch["logp_old"].exp()})
    again = outcomes("unlikeliness_reward", squeezed)
    close(again, outcomes("unlikeliness_reward", batch).tolist())
    wrong = answers(lengths, [0, 1, 0, -1], logp_old=logp)
    close(outcomes("unlikeliness_reward", wrong, beta_rank=1.0), [0, 1, 0, -0.25])
    pairs = answers([1] * 4, [1] * 4, groups=[0, 0, 1, 1], logp_old=[-2, -1, -4, -3])
    close(outcomes("unlikeliness_reward", pairs), [1, 0.875, 1, 0.875])
    tied = answers([1, 1], [1, 1], logp_old=[-1, -1])
    assert not advantages("unlikeliness_reward", tied).any()


def test_without_a_penalty_unlikeliness_is_grpo():
    rare = anypo.recipe("unlikeliness_reward", group=2, beta_rank=0.0, epochs=1)
    same(rare, anypo.recipe("grpo", group=2, beta=0.1), scene())
    assert anypo.recipe("unlikeliness_reward").update.epochs == 2


# ── ConciseR ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("weight", [0.1, 3.0])
def test_only_groups_of_right_answers_are_asked_to_be_brief(weight):
    pair, trio = answers([10, 20], [1, 1]), answers([10, 10, 40], [1, 1, 1])
    brief = advantages("concise_r", pair, 1, weight=weight)
    torch.testing.assert_close(
        brief[[0, 10]], torch.tensor([0.5**0.5, -(0.5**0.5)]).double(), rtol=1e-3, atol=0
    )
    three = advantages("concise_r", trio, 1, weight=weight)[[0, 10, 20]]
    want = torch.tensor([0.57735, 0.57735, -1.154701]).double()
    torch.testing.assert_close(three, want, rtol=1e-3, atol=0)
    mixed = answers([10, 20], [1, 0])
    close(outcomes("concise_r", mixed, 1, weight=weight), [1, 0])
    close(outcomes("concise_r", pair, 1, weight=weight), [1 + 0.9 * weight, 1 + 0.8 * weight])
    assert not advantages("concise_r", pair, 0, weight=weight).any()
    assert not advantages("concise_r", answers([9, 9], [1, 1]), 1, weight=weight).any()


def test_conciser_filters_groups_only_while_it_learns_to_solve():
    solved = answers([1, 2], [1, 1])
    first, second = anypo.recipe("concise_r").stages
    assert len(first.sampling.keep(solved)) == 0
    assert len(second.sampling.keep(solved)) == 3
    dapo = anypo.recipe("dapo", overlong=0.0)
    same(first.but(regularize=()), dapo, scene())


# ── GCPO ─────────────────────────────────────────────────────────────────────────────────────────

FLAT = {"length": 0.0}


@pytest.mark.parametrize(
    ("rewards", "does", "sign"),
    [
        ([1, 1, 1, 0, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0, 0, 0], 1),
        ([1, 1, 1, 0, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1], -1),
        ([1, 0, 1, 0, 1, 0, 1, 0], [1, 1, 1, 1, 0, 0, 0, 0], 0),
        ([1, 0, 1, 0, 1, 0, 1, 0], [1] * 8, 0),
        ([1, 0, 1, 0, 1, 0, 1, 0], [0] * 8, 0),
    ],
)
def test_a_construction_is_worth_what_it_does_for_its_group(rewards, does, sign):
    batch = answers([1] * 8, rewards, table={"construction": does})
    got = outcomes("gcpo_geometry", batch, **FLAT)
    close(got, [r + 0.5 * sign * x for r, x in zip(rewards, does, strict=True)])
    if not sign:
        plain = advantages("grpo", batch)
        close(advantages("gcpo_geometry", batch, **FLAT), plain.tolist())


def test_gcpo_needs_a_gap_and_pays_for_length():
    """11 of 20 against 10 of 20 is within the band; 3 of 4 against 2 of 4 is not."""
    rewards = [*[1] * 11, *[0] * 9, *[1] * 10, *[0] * 10]
    near = answers([1] * 40, rewards, table={"construction": [1] * 20 + [0] * 20})
    close(outcomes("gcpo_geometry", near, **FLAT), rewards)
    batch = answers([50, 25], [1, 0], table={"construction": [0, 1]})
    close(outcomes("gcpo_geometry", batch, length=0.4), [0.8, -0.8])
    with pytest.raises(UsageError, match="length must be"):
        anypo.recipe("gcpo_geometry", length=-0.1)


# ── S-GRPO ───────────────────────────────────────────────────────────────────────────────────────


def test_all_tokens_are_grpo():
    for unbiased in (False, True):
        whole = anypo.recipe("s_grpo_subset", group=2, share=1.0, unbiased=unbiased)
        same(whole, anypo.recipe("grpo", group=2), scene())


def test_kept_tokens_stand_for_their_answer():
    batch = steps([4, 2, 1], lot=[0.9, 0.3, 0.5, 0.1, 0.9, 0.9, 0.9])
    close(Subset(0.4, 0)(batch), [0, 2, 0, 2, 0, 0, 0])
    close(Subset(0.4, 1)(batch), [4 / 3, 4 / 3, 0, 4 / 3, 2, 0, 1])
    close(Subset(0.4, 1, unbiased=True)(batch), [1, 2.5, 0, 2.5, 1, 0, 1])


@pytest.mark.parametrize("first", [0, 1])
def test_weights_over_probabilities_are_unbiased(first):
    """The mean over all subsets, each as likely as it is, weighs every token once."""
    share, batch = 0.3, steps([3, 2])
    total = torch.zeros(5, dtype=torch.float64)
    for kept in product((True, False), repeat=5):
        lot = torch.tensor([0.0 if k else 0.9 for k in kept], dtype=torch.float64)
        chance = math.prod(share if k else 1 - share for k in kept)
        total += chance * Subset(share, first, unbiased=True)(batch.with_({"lot": lot}))
    close(total, [1.0] * 5)


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("fapo", {"penalty": -0.1}, "penalty must be at least 0"),
        ("lapo", {"fall": 0.0}, "sigma must be 0 with a slope"),
        ("lapo", {"spread": -1.0}, "sigma must be"),
        ("lapo", {"switch": 0}, "at least 1"),
        ("lc_r1", {"comp_coef": -1.0}, "coef must be at least 0"),
        ("unlikeliness_reward", {"beta_rank": 1.1}, "beta_rank must be between 0 and 1"),
        ("concise_r", {"weight": -1.0}, "weight must be at least 0"),
        ("gcpo_geometry", {"construction": math.inf}, "weight must be at least 0 and finite"),
        ("s_grpo_subset", {"share": 0.0}, "share must be above 0"),
        ("s_grpo_subset", {"first": -1}, "first must be at least 0"),
    ],
)
def test_bad_arguments_are_refused_by_name(name, arguments, said):
    with pytest.raises(UsageError, match=said) as caught:
        anypo.recipe(name, **arguments)
    assert str(caught.value).startswith(f"{name}: ")


def test_rewards_say_what_they_miss():
    with pytest.raises(UsageError, match="Shorter needs a budget"):
        Shorter(than="horizon")(steps([1, 1], reward=[1, 1]))
    with pytest.raises(UsageError, match="'flawed' of every trajectory"):
        outcomes("fapo", answers([1], [1]))
