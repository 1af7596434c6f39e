"""Rollouts of language policies: ids, rewards and inputs of each sampled token."""

from __future__ import annotations

from typing import Any

import torch

from anypo.core.batch import Batch
from anypo.core.request import Request
from anypo.core.rng import key
from anypo.core.score import Score
from anypo.policies.policy import Completion
from anypo.rollout.language import _hinted, correct, greedy, rollout


class Scripted:
    """A policy whose answer says which prompt it saw, which key, and how many tokens it took."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths, self.calls = lengths, []

    def generate(
        self, prompts: Any, samples: int, horizon: int, *, keys: Any, temperature: float = 1.0
    ) -> list[Completion]:
        self.calls.append((list(prompts), samples, horizon, list(keys), temperature))
        out = []
        for k in range(len(prompts) * samples):
            n = self.lengths[k % len(self.lengths)]
            p = k // samples
            out.append(
                Completion(
                    prompt=p,
                    prompt_ids=torch.arange(p + 2),
                    token_ids=100 * k + torch.arange(n),
                    logp=-torch.arange(n).float() - k,
                    finished=n < horizon,
                    text=f"{prompts[p]}/{k}",
                    prompt_text=f"<{prompts[p]}>",
                )
            )
        return out


class Task:
    train = [{"prompt": p, "answer": p.upper()} for p in "abcd"]
    train[2] = {**train[2], "extra": 1}

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def order(self, position: int, seed: int) -> int:
        return (position * 3 + seed) % 4

    def score(self, prompts: Any, completions: Any, rows: Any, completion_ids: Any) -> list[float]:
        self.seen.append((list(prompts), list(completions), list(rows), list(completion_ids)))
        return [float("nan") if text.endswith("/3") else len(text) + 0.5 for text in completions]

    def exact(self, completion: str, row: dict[str, Any]) -> bool:
        return completion == row["answer"]


def example() -> tuple[Batch, Scripted, Task]:
    policy, task = Scripted([2, 5, 1]), Task()
    request = Request(prompts=2, samples=2, horizon=5, start=1, temperature=0.6, seed=1, version=7)
    return rollout(request, policy, task), policy, task  # type: ignore[arg-type]


def test_prompts_come_in_the_tasks_order_from_the_cursor_and_each_sample_has_its_own_key() -> None:
    _, policy, _ = example()
    prompts, samples, horizon, keys, temperature = policy.calls[0]
    assert (prompts, samples, horizon, temperature) == (["a", "d"], 2, 5, 0.6)
    assert keys == [key(1, "sample", 7, place, g) for place in (1, 2) for g in (0, 1)]
    assert len(set(keys)) == 4


def test_a_step_is_a_token_with_the_ids_of_its_completion() -> None:
    batch, _, _ = example()
    assert batch.ids["seq"].tolist() == [0, 0, 1, 1, 1, 1, 1, 2, 3, 3]
    assert batch.ids["traj"].tolist() == batch.ids["seq"].tolist()
    assert batch.ids["group"].tolist() == [0] * 7 + [1] * 3
    assert batch.ids["prompt"].tolist() == [0] * 7 + [3] * 3
    assert batch.ids["version"].tolist() == [7] * 10
    assert batch.ids["position"].tolist() == [2, 3, 2, 3, 4, 5, 6, 3, 3, 4]
    assert batch["logp_mu"].tolist() == [0, -1, -1, -2, -3, -4, -5, -2, -3, -4]
    tokens = [
        int(batch.inputs["tokens"][s][p])
        for s, p in zip(batch.ids["seq"].tolist(), batch.ids["position"].tolist(), strict=True)
    ]
    assert tokens == [0, 1, 100, 101, 102, 103, 104, 200, 300, 301]
    assert batch.inputs["prompt_length"] == [2, 2, 3, 3]


def test_the_score_lies_on_the_last_step_and_an_unscorable_one_is_nan() -> None:
    batch, _, task = example()
    last = batch.last("traj")
    assert batch["reward"][~last].tolist() == [0.0] * 6
    assert batch["reward"][last][:3].tolist() == [3.5, 3.5, 3.5]
    assert batch["reward"][last][3].isnan()
    prompts, completions, rows, ids = task.seen[0]
    assert prompts == ["a", "a", "d", "d"]
    assert completions == ["a/0", "a/1", "d/2", "d/3"]
    assert [row["answer"] for row in rows] == ["A", "A", "D", "D"]
    assert ids == [[0, 1], [100, 101, 102, 103, 104], [200], [300, 301]]


def test_the_table_tells_of_ends_texts_and_the_columns_that_all_rows_share() -> None:
    batch, _, task = example()
    table = batch.table("traj")
    assert table["terminated"].tolist() == [True, False, True, True]
    assert table["truncated"].tolist() == [False, True, False, False]
    assert table["completion"] == ["a/0", "a/1", "d/2", "d/3"]
    assert table["prompt_text"] == ["<a>", "<a>", "<d>", "<d>"]
    assert table["answer"] == ["A", "A", "D", "D"]
    assert table["row"] == [task.train[0]] * 2 + [task.train[3]] * 2
    request = Request(prompts=4, samples=1, horizon=5)
    mixed = rollout(request, Scripted([1]), task)  # type: ignore[arg-type]
    assert mixed.ids["prompt"].tolist() == [0, 3, 2, 1]
    assert "extra" not in mixed.table("traj")


def test_a_completion_without_a_token_is_left_out() -> None:
    task = Task()
    request = Request(prompts=2, samples=2, horizon=5, seed=1, start=1)
    batch = rollout(request, Scripted([0, 2, 0]), task)  # type: ignore[arg-type]
    assert batch.ids["seq"].tolist() == [0, 0]
    assert batch.ids["group"].tolist() == [0, 0]
    assert batch.table("traj")["completion"] == ["a/1"]
    none = rollout(request, Scripted([0]), task)  # type: ignore[arg-type]
    assert len(none) == 0


def test_an_evaluation_is_greedy_and_asks_the_task_what_is_exact() -> None:
    policy: Any = Scripted([2])
    rows = [{"prompt": "a", "answer": "a/0"}, {"prompt": "b", "answer": "b/0"}]
    task: Any = Task()
    assert correct(policy, task, rows, 6) == [True, False]
    prompts, samples, horizon, _, temperature = policy.calls[0]
    assert (prompts, samples, horizon, temperature) == (["a", "b"], 1, 6, 0.0)
    assert [c.text for c in greedy(policy, rows, 6)] == ["a/0", "b/1"]


def test_facts_texts_and_hints_travel_with_their_trajectory():
    class Telling(Task):
        def score(self, prompts, completions, rows, completion_ids):
            scores = super().score(prompts, completions, rows, completion_ids)
            return [Score(s, {"place": k}) for k, s in enumerate(scores)]

    class Speaking(Scripted):
        def decode(self, ids):
            return f"t{int(ids)}"

    policy, task = Speaking([2, 1]), Telling()
    request = Request(prompts=2, samples=1, horizon=5, texts=True, hints={0: " (short)"})
    batch = rollout(request, policy, task)
    picks = [task.order(k, 0) for k in range(2)]
    words = [task.train[k]["prompt"] + (" (short)" if k == 0 else "") for k in picks]
    assert policy.calls[0][0] == words and any("short" in w for w in words)
    table = batch.table("traj")
    assert table["place"] == [0, 1]
    assert table["texts"] == [["t0", "t1"], ["t100"]]
    assert task.seen[0][0] == [task.train[k]["prompt"] for k in picks]  # judged without the hint


def test_a_hint_ends_the_last_message_of_a_chat():
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    assert _hinted(chat, "!")[-1]["content"] == "u!" and chat[-1]["content"] == "u"
    assert _hinted("u", "") == "u"


def test_another_stream_has_other_keys():
    policy = Scripted([1])
    for stream in ("sample", "probe greedy"):
        rollout(Request(prompts=1, samples=2, horizon=3, stream=stream), policy, Task())
    assert not set(policy.calls[0][3]) & set(policy.calls[1][3])
