"""The adapter to lm-eval against the harness's own model of transformers, and real tasks."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from anypo.backends import lm_eval
from anypo.backends.lm_eval import AnypoLM
from anypo.cli import main
from anypo.core.errors import UsageError
from tests.backends.language import make

PAIRS = [
    ("abc", "aaaa"),
    ("abc", "ab"),
    ("abc ", "d"),
    ("", "abcd"),
    ("x" * 700, "tail"),
    ("a question? ", "an answer, and a longer one"),
]
TEXTS = ["a short text", "", ", ".join(map(str, range(300)))]  # the harness errs on repetitions


def asked(kind: str, *arguments: Any) -> list[Instance]:
    """Requests as the harness makes them."""
    return [Instance(kind, {}, args, i) for i, args in enumerate(arguments)]  # pyright: ignore


@pytest.fixture(scope="module", params=["tiny", "qwen3", "mistral, window of 5"])
def both(request, tmp_path_factory):
    """A policy in the harness, and the harness's own model of what the policy saved."""
    policy, folder = make(request.param), tmp_path_factory.mktemp("saved")
    policy.save(folder)
    options = {"batch_size": 3, "max_length": policy.net.context, "dtype": "float32"}
    return AnypoLM(policy), HFLM(pretrained=str(folder), device="cpu", **options)


def test_likelihoods_are_those_of_the_harness(both):
    ours, theirs = both
    pairs = asked("loglikelihood", *PAIRS)
    mine, other = ours.loglikelihood(pairs), theirs.loglikelihood(pairs)
    assert [greedy for _, greedy in mine] == [greedy for _, greedy in other]
    for (a, _), (b, _) in zip(mine, other):
        assert a == pytest.approx(b, rel=1e-4, abs=1e-4)
    assert len({round(a, 3) for a, _ in mine}) == len(PAIRS)


def test_the_likeliest_continuation_is_called_so(both):
    ours, theirs = both
    (text,) = ours.generate_until(asked("generate_until", ("abc", {"max_gen_toks": 3})))
    assert text
    pairs = asked(
        "loglikelihood", ("abc", text), ("abc", text[:-1] + ("!" if text[-1] != "!" else "?"))
    )
    assert [greedy for _, greedy in ours.loglikelihood(pairs)] == [True, False]
    assert [greedy for _, greedy in theirs.loglikelihood(pairs)] == [True, False]


def test_rolling_likelihoods_are_those_of_the_harness(both):
    ours, theirs = both
    texts = asked("loglikelihood_rolling", *((t,) for t in TEXTS if t))
    mine, other = ours.loglikelihood_rolling(texts), theirs.loglikelihood_rolling(texts)
    assert mine == pytest.approx(other, rel=1e-4)
    assert ours.loglikelihood_rolling(asked("loglikelihood_rolling", ("",))) == [0.0]


def test_greedy_answers_are_those_of_the_harness(both):
    ours, theirs = both
    options = {"until": ["q", "\n"], "max_gen_toks": 12, "do_sample": False}
    requests = asked(
        "generate_until",
        *(("abc", options), ("a longer question", options), ("x" * 700, options)),
        ("abc", {"until": [], "max_gen_toks": 2, "temperature": 0.0}),
    )
    mine = ours.generate_until(requests)
    assert mine == theirs.generate_until(requests)
    assert all("q" not in text for text in mine[:3])
    assert len(mine[3]) <= 2


def test_sampled_answers_have_their_own_streams():
    ours = AnypoLM(make("tiny"), seed=1)
    options = {"max_gen_toks": 8, "do_sample": True, "temperature": 1.0, "top_p": 1.0}
    requests = asked("generate_until", *[("abc", options)] * 4)
    mine = ours.generate_until(requests)
    assert len(set(mine)) > 1
    assert AnypoLM(make("tiny"), seed=1).generate_until(requests) == mine
    assert AnypoLM(make("tiny"), seed=2).generate_until(requests) != mine
    with pytest.raises(UsageError, match=r"the task samples with top_p=0\.5"):
        ours.generate_until(asked("generate_until", ("abc", {"do_sample": True, "top_p": 0.5})))
    greedy = asked("generate_until", ("abc", {"do_sample": False, "top_p": 0.5}))
    assert ours.generate_until(greedy) == ours.generate_until(asked("generate_until", ("abc", {})))


def test_a_policy_without_text_is_refused():
    with pytest.raises(UsageError, match="flow writes none"):
        AnypoLM(SimpleNamespace(kind="generator", name="flow"))  # pyright: ignore


def test_chats_go_through_the_policys_template():
    policy = make("tiny")
    with pytest.raises(UsageError, match="has no chat template"):
        AnypoLM(policy).apply_chat_template([{"role": "user", "content": "hi"}])
    policy.tokenizer.chat_template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    ours = AnypoLM(policy)
    shown = ours.apply_chat_template([{"role": "user", "content": "hi"}])
    assert shown == "user: hi\nassistant: "
    assert ours.chat_template(True) == policy.tokenizer.chat_template


# ── tasks ────────────────────────────────────────────────────────────────────────────────────────

WORDS = ["abc", "bca", "cab", "dab", "aaa", "bbb"]


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """Three tasks of the harness over a file on this machine."""
    folder = tmp_path_factory.mktemp("tasks")
    choices = ["aaaa", "bbbb", "cccc", "dddd"]
    rows = [{"question": w, "choices": choices, "label": "abcd".index(w[0])} for w in WORDS]
    (folder / "words.jsonl").write_text("\n".join(map(json.dumps, rows)))
    common = {
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(folder / "words.jsonl")}},
        "test_split": "test",
        "target_delimiter": "",
    }
    choice = {
        "task": "word_choice",
        "output_type": "multiple_choice",
        "doc_to_text": "{{question}}",
        "doc_to_target": "label",
        "doc_to_choice": "choices",
        "metric_list": [{"metric": "acc"}],
    }
    answer = {
        "task": "word_answer",
        "output_type": "generate_until",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{choices[label]}}",
        "generation_kwargs": {"until": ["\n"], "max_gen_toks": 4, "do_sample": False},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }
    for task in (choice, answer):
        (folder / f"{task['task']}.yaml").write_text(json.dumps({**common, **task}))
    return folder


def test_tasks_run_from_the_command_line(tasks, trained, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    words = ["evaluate", str(trained), "--lm-eval", "word_choice,word_answer"]
    assert main([*words, "--lm-eval-include", str(tasks), "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["lm_eval"]
    assert sorted((m["task"], m["name"], m["questions"]) for m in found) == [
        ("word_answer", "exact_match", 6),
        ("word_choice", "acc", 6),
    ]
    policy = lm_eval_policy(trained)
    greedy = policy.generate(WORDS, 1, 4, keys=[0] * 6, temperature=0)
    right = sum(c.text == w[0] * 4 for c, w in zip(greedy, WORDS))
    by_name = {m["name"]: m for m in found}
    assert by_name["exact_match"]["value"] == pytest.approx(right / 6)
    best = [max("abcd", key=lambda c, w=w: likelihood(policy, w, c * 4)) for w in WORDS]
    assert by_name["acc"]["value"] == pytest.approx(sum(b == w[0] for b, w in zip(best, WORDS)) / 6)
    assert by_name["acc"]["stderr"] > 0
    assert main([*words, "--lm-eval-include", str(tasks), "--n", "2"]) == 0
    shown = capsys.readouterr().out
    assert "word_choice" in shown
    assert "± " in shown


def lm_eval_policy(run):
    """The policy of a run."""
    from anypo.backends.policies import load_policy

    return load_policy(str(run))


def likelihood(policy, prompt: str, text: str) -> float:
    """Log-probability of a text after a prompt, by the whole model, token by token."""
    ids = policy.tokenizer(prompt + text)["input_ids"]
    logits = policy.net.causal(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    logp = torch.log_softmax(logits, -1)
    start = len(policy.tokenizer(prompt)["input_ids"])
    return sum(float(logp[i - 1, ids[i]].detach()) for i in range(start, len(ids)))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--lm-eval word_choice --k 4", "--k does not act on tasks of lm-eval"),
        ("--lm-eval ,", "name the tasks of lm-eval"),
        ("--lm-eval-chat", "name the tasks of lm-eval"),
        ("--lm-eval word_choice --lm-eval-chat", "has no chat template"),
    ],
)
def test_what_a_user_can_mend_is_one_sentence(tasks, trained, capsys, words, sentence):
    include = ["--lm-eval-include", str(tasks)]
    assert main(["evaluate", str(trained), *words.split(), *include]) == 2
    assert sentence in capsys.readouterr().err.splitlines()[-1]


def test_an_unknown_task_is_named_with_the_nearest(tasks, monkeypatch):
    listed = []

    class Few(lm_eval.TaskManager):
        """Listing the harness's thousands of tasks takes ten seconds; those of the folder do."""

        def __init__(self, include_path=None, include_defaults=True):
            listed.append(include_defaults)
            super().__init__(include_path=str(tasks), include_defaults=False)

    monkeypatch.setattr(lm_eval, "TaskManager", Few)
    with pytest.raises(UsageError, match="no task 'word_choise'; did you mean word_choice"):
        lm_eval._manager(["word_choise"], str(tasks))
    assert listed == [False, True]
    lm_eval._manager(["word_choice"], str(tasks))
    lm_eval._manager(["word_answer"], "")
    assert listed[2:] == [False, True]
    with pytest.raises(UsageError, match="is no folder"):
        lm_eval._manager(["word_choice"], str(tasks / "nowhere"))


def test_without_the_library_its_extra_is_named(monkeypatch, capsys):
    import anypo.api

    monkeypatch.setitem(anypo.api.harness.__globals__, "find_spec", lambda name: None)
    assert main("evaluate tiny --lm-eval x".split()) == 2
    assert "pip install 'anypo[lm-eval]'" in capsys.readouterr().err


def test_lots_keep_their_budget(monkeypatch):
    monkeypatch.setattr(lm_eval, "TOKENS", 10)
    assert lm_eval._lots([2, 0, 1, 3], [4, 7, 6, 30]) == [[2, 0], [1], [3]]
