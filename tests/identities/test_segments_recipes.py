"""Methods that give the parts of an answer a credit of their own: lists, blocks, steps, forks."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import anypo
from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.neutral import Mean, Return
from anypo.engine.collect import credit, shape
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.advantage.spots import Excess
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.reward.place import Place
from anypo.pieces.sampling.split import Split
from anypo.pieces.sampling.tree import Tree
from tests.identities.evaluate import evaluate, same, scene
from tests.identities.small import close, last, steps


def parted(parts: list[list[int]], groups: list[int] | None = None, **given: Any) -> Batch:
    """Answers of one group whose segments have these lengths."""
    batch = steps([sum(p) for p in parts], groups, **given)
    stage = torch.tensor([k for p in parts for k, n in enumerate(p) for _ in range(n)])
    segment = [i for i, p in enumerate(parts) for k, n in enumerate(p) for _ in range(n)]
    whole = torch.tensor(segment) * 100 + stage
    if "reward" not in batch:
        batch = batch.with_({"reward": torch.zeros(len(batch)).double()})
    return replace(batch, ids={**batch.ids, "stage": stage, "segment": whole})


def credited(name: str, batch: Batch, **arguments: Any) -> Batch:
    """The batch with the rewards and advantages of a recipe."""
    recipe = anypo.recipe(name, **arguments)
    return credit(recipe, shape(recipe, recipe.sampling.mark(batch)))


def advantages(name: str, batch: Batch, **arguments: Any) -> Tensor:
    """The advantages of a recipe."""
    return credited(name, batch, **arguments)["advantage"]


# ── Rank-GRPO ────────────────────────────────────────────────────────────────────────────────────


def test_hits_are_discounted_and_summed_from_their_item_on():
    batch = parted([[1, 2, 1], [1, 1, 1]], table={"hits": [[0, 1, 1], [0, 0, 0]]})
    reward = credited("rank_grpo", batch)["reward"]
    second, third = 1 / math.log2(3), 1 / 2
    close(reward, [0, 0, second, third, 0, 0, 0])
    close(Return()(batch.with_({"reward": reward}))[:4], [second + third] * 3 + [third])


def test_items_compete_with_the_same_place_of_other_lists():
    hits = [[1, 0, 1], [0, 0, 1], [1, 1]]
    batch = parted([[1, 2, 1], [2, 1, 1], [1, 1]], table={"hits": hits})
    got = advantages("rank_grpo", batch, credit="item", eps=0.0)
    a, b = 1 / math.sqrt(3), 2 / math.sqrt(3)
    close(got, [a, -a, -a, 0, -b, -b, -a, 0, a, b])
    early = parted([[1, 2, 1], [2, 1, 1], [1, 1]], table={"hits": [[0, 0, 1], *hits[1:]]})
    before, after = advantages("rank_grpo", batch), advantages("rank_grpo", early)
    first = batch.id("stage") == 0
    assert (before != after)[first].all() and torch.equal(before[~first], after[~first])


def test_a_list_of_one_item_is_gspo_with_a_broadcast_and_grpos_advantage():
    """One item is the whole answer: one ratio, one outcome."""
    batch = scene(table={"hits": [[1], [0], [0], [1]]})
    traj = batch.id("traj")
    batch = replace(batch, ids={**batch.ids, "segment": traj, "stage": torch.zeros_like(traj)})
    wide = {"clip_low": 0.5, "clip_high": 0.6}
    ranked = anypo.recipe("rank_grpo", group=2, beta=0.0, **wide)
    gspo = anypo.recipe("gspo", group=2, **wide)
    scaled = gspo.but(advantage=Baseline("traj", "group", scale="std", eps=1e-4))
    same(ranked, scaled, batch)
    assert ranked.ratio == Ratio("segment", mean=True)


def test_every_item_has_one_ratio():
    logp = torch.tensor([0.1, -0.3, 0.7, 0.2], dtype=torch.float64)
    batch = parted([[2, 1], [1]], logp=logp, logp_old=[0.0] * 4)
    close(anypo.recipe("rank_grpo").ratio(batch), [-0.1, -0.1, 0.7, 0.2])


def test_what_follows_the_last_item_has_no_credit():
    texts = [["a", "\n", "b", "\n", "c", "\n", "d", ""], ["e", "\n", "f"]]
    table = {"texts": texts, "hits": [[1, 0], [0, 1]]}
    batch = steps([8, 3], table=table, reward=last([8, 3], [1, 1]), lot=[0.0] * 11)
    found = credited("rank_grpo", batch, items=2)
    assert found.id("stage").tolist() == [0, 1, 2, 2, 0, 1]
    assert found["advantage"][2:4].tolist() == [0, 0]
    assert found["score"].tolist() == [0, 0, 0, 1, 0, 1]  # also of the tokens that are left out


# ── blocks ───────────────────────────────────────────────────────────────────────────────────────


def blocks(second: list[float], stratum: list[Any], first: list[float] | None = None) -> Batch:
    """Four answers of two blocks, of one and two tokens."""
    first = first or [1, 1, 0, 0]
    table = {"parts": list(map(list, zip(first, second, strict=True))), "stratum": stratum}
    return parted([[1, 2]] * 4, table=table)


def test_a_later_block_is_compared_with_those_that_began_alike():
    batch = blocks([0.9, 0.7, 0.2, 0.4], [1, 1, 0, 0])
    got = advantages("blockwise_advantage", batch)
    close(got[1::3], [0.1, -0.1, -0.1, 0.1])
    close(got[2::3], [0.1, -0.1, -0.1, 0.1])
    close(got[::3], [0.5, 0.5, -0.5, -0.5])
    alike = advantages("blockwise_advantage", blocks([0.9, 0.7, 0.2, 0.4], [3] * 4))
    close(alike[1::3], [0.35, 0.15, -0.35, -0.15])
    alone = advantages("blockwise_advantage", blocks([0.9, 0.7, 0.2, 0.4], [0, 1, 2, 2]))
    close(alone[1::3], [0, 0, -0.1, 0.1])


def test_a_stratum_may_differ_from_block_to_block():
    listed = blocks([0.9, 0.7, 0.2, 0.4], [["a"], ["b"], ["a"], ["b"]])
    close(advantages("blockwise_advantage", listed)[1::3], [0.35, 0.15, -0.35, -0.15])
    ids = Split(stratum="stratum").mark(listed).id("stratum")
    assert ids[::3].tolist() == [0, 0, 0, 0] and len(set(ids[1::3].tolist())) == 2


def test_blocks_do_not_see_each_other():
    one = advantages("blockwise_advantage", blocks([0.9, 0.7, 0.2, 0.4], [1, 1, 0, 0]))
    two = advantages("blockwise_advantage", blocks([5.0, -3.0, 0.2, 7.0], [1, 0, 1, 0]))
    assert torch.equal(one[::3], two[::3]) and not torch.equal(one[1::3], two[1::3])


def test_a_block_is_averaged_over_its_own_length_and_blocks_are_summed():
    weight = anypo.recipe("blockwise_advantage").aggregate(parted([[1, 2], [4]]))
    close(weight, [1 / 2, 1 / 4, 1 / 4, *[1 / 8] * 4])


def test_one_block_in_one_stratum_is_the_centred_outcome_and_the_mean_of_grpo():
    batch = scene(table={"parts": [[1], [0], [0], [1]], "stratum": [0] * 4})
    traj = batch.id("traj")
    batch = replace(batch, ids={**batch.ids, "segment": traj, "stage": torch.zeros_like(traj)})
    blocked = anypo.recipe("blockwise_advantage", group=2)
    plain = anypo.recipe("grpo", group=2, beta=0).but(advantage=Baseline("traj", "group"))
    same(blocked, plain, blocked.sampling.mark(batch))


# ── SwAP ─────────────────────────────────────────────────────────────────────────────────────────


def long_and_short(importance: list[Any], rewards: tuple[float, float] = (1, 1)) -> Batch:
    """Two answers, of which the first (2 + 4 tokens against 2) is too long by a half."""
    parts = [[2, 4], [2]]
    reward = torch.tensor(last([6, 2], list(rewards))).double()
    batch = parted(parts, table={"importance": importance}, reward=reward)
    return batch.with_({"score": reward})


@pytest.mark.parametrize("importance", [[0.3, 0.3], [1.0, -2.0], None, [0.7]])
def test_the_whole_excess_is_shared_out(importance):
    batch = long_and_short([importance, [0.1]])
    q = Excess()(batch)
    assert float(q[0] + q[2]) == pytest.approx(0.5)
    given = [*(importance or []), 0.0, 0.0]
    ratio = math.exp(given[1] - given[0])
    close(q, [0.5 * ratio / (1 + ratio)] * 2 + [0.5 / (1 + ratio)] * 4 + [0] * 2)


def test_what_mattered_more_is_charged_less():
    before, after = (Excess()(long_and_short([[s, 0.0], [0.0]])) for s in (0.0, 1.0))
    assert after[0] < before[0] and after[2] > before[2]
    sharp = Excess(tau=0.01)(long_and_short([[1.0, 0.0], [0.0]]))
    close(sharp, [0, 0, *[0.5] * 4, 0, 0])


def test_without_excess_swap_is_grpo():
    """Wrong answers have none, and equal lengths have none."""
    wrong = long_and_short([[0.3, 1.0], [0.1]], (0, 1))
    close(advantages("swap", wrong), advantages("grpo", wrong).tolist())
    charged = advantages("swap", long_and_short([[0.3, 1.0], [0.1]]), weight=2.0)
    assert charged[0] < 0 < charged[6] and charged[2] != charged[0]
    q = Excess()(long_and_short([[0.3, 1.0], [0.1]]))[[0, 2, 6]]
    close(charged[[0, 2, 6]], (-2 * (q - q.mean()) / (q.std() + 1e-6)).tolist())


# ── T-SPMO ───────────────────────────────────────────────────────────────────────────────────────


def written(rows: list[list[int]], rewards: list[float], groups: list[int] | None = None) -> Batch:
    """Answers of these tokens, behind a prompt of one."""
    lengths = [len(row) for row in rows]
    batch = steps(lengths, groups, reward=last(lengths, rewards))
    place = torch.cat([torch.arange(1, n + 1) for n in lengths])
    tokens = [torch.tensor([9, *row]) for row in rows]
    return replace(batch, ids={**batch.ids, "position": place}, inputs={"tokens": tokens})


def test_only_forks_have_credit():
    close(advantages("t_spmo", written([[3, 1], [3, 2]], [1, 0])), [0, 0.5, 0, -0.5])
    fork = written([[3, 1, 5], [3, 2, 5], [3, 1, 6], [3]], [1, 0, 0, 1])
    close(advantages("t_spmo", fork), [0, 1 / 6, 0.5, 0, -1 / 3, 0, 0, 1 / 6, -0.5, 0])
    equal = written([[3, 1, 5], [3, 2, 5], [4]], [0.1, 0.1, 0.1])
    assert not advantages("t_spmo", equal).any()


def test_prompts_do_not_share_a_tree_and_answers_share_what_begins_alike():
    batch = Tree().mark(written([[3, 1], [3, 2], [3, 1]], [1, 0, 1], [0, 0, 1]))
    node, edge = batch.id("node").tolist(), batch.id("edge").tolist()
    assert node[0] == node[2] != node[4] and node[1] == node[3] != node[5]
    assert edge[0] == edge[2] != edge[4] and len(set(edge)) == 5
    close(Mean("step", "edge", "batch")(batch), [x / 5 for x in (0.5, 1, 0.5, 1, 1, 1)])
    assert Tree().mark(batch) is batch


def test_a_shared_transition_counts_once():
    """Four transitions; the fork's two count 1/4 each, however many answers took them."""
    batch = written([[3, 1], [3, 1], [3, 2]], [1, 1, 0])
    recipe = anypo.recipe("t_spmo")
    logp = torch.full((6,), -0.5, dtype=torch.float64)
    batch = recipe.sampling.mark(batch).with_({"logp": logp, "logp_old": logp})
    _, grads = evaluate(recipe, batch)
    close(grads["logp"], [0, -1 / 18, 0, -1 / 18, 0, 2 / 9])


# ── subsets of future rewards ────────────────────────────────────────────────────────────────────

WEIGHTS = {
    "full": [6, 5, 3],
    "greedy": [1, 2, 3],
    "lookahead": [3, 5, 3],
    "segment": [3, 2, 3],
}


@pytest.mark.parametrize("plan", WEIGHTS)
def test_a_step_counts_a_part_of_what_follows(plan):
    batch = parted([[2, 1]], reward=[1, 2, 3])
    close(advantages("future_reward_subset", batch, plan=plan), WEIGHTS[plan])


def test_long_plans_are_full_and_short_ones_greedy():
    batch = parted([[1, 1, 1], [2]], reward=[1, -2, 0.5, 3, 4])
    given = {"gamma": 0.5}
    full = advantages("future_reward_subset", batch, plan="full", **given)
    close(full, [0.125, -1.75, 0.5, 5, 4])
    close(advantages("future_reward_subset", batch, k=3, **given), full.tolist())
    greedy = advantages("future_reward_subset", batch, plan="greedy", **given)
    close(advantages("future_reward_subset", batch, k=1, **given), greedy.tolist())
    close(greedy, batch["reward"].tolist())
    singles = replace(batch, ids={**batch.ids, "segment": torch.arange(5)})
    close(advantages("future_reward_subset", singles, plan="segment", **given), greedy.tolist())
    whole = anypo.recipe("future_reward_subset", group=2, plan="full")
    same(whole, anypo.recipe("reinforce", group=2), scene())


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("rank_grpo", {"items": 0}, "items must be at least 1"),
        ("rank_grpo", {"credit": "rank"}, "must be suffix or item"),
        ("rank_grpo", {"marker": ""}, "marker must be some text"),
        ("blockwise_advantage", {"group": 1}, "at least 2 trajectories"),
        ("swap", {"tau": 0.0}, "tau must be above 0"),
        ("swap", {"weight": -1.0}, "weight must be at least 0"),
        ("t_spmo", {"decay": -1.0}, "decay must be at least 0"),
        ("future_reward_subset", {"k": 0}, "k must be at least 1"),
        ("future_reward_subset", {"plan": "all"}, "must be full, greedy"),
    ],
)
def test_bad_arguments_are_refused_by_name(name, arguments, said):
    with pytest.raises(UsageError, match=said) as caught:
        anypo.recipe(name, **arguments)
    assert str(caught.value).startswith(f"{name}: ")


def test_parts_want_segments_and_forks_want_tokens():
    plain = steps([2], reward=[0, 1], table={"parts": [[1]], "importance": [[1]]})
    with pytest.raises(UsageError, match=r"add Split\(\)"):
        Place()(plain)
    with pytest.raises(UsageError, match=r"add Split\(\)"):
        Excess()(plain)
    with pytest.raises(UsageError, match="language policy"):
        Tree().mark(plain)
    with pytest.raises(UsageError, match="language policy"):
        Split().mark(plain)
