"""Answers as text: from a policy, from a folder, from the command line."""

from __future__ import annotations

import io
import json

import pytest
import torch

import anypo
from anypo.cli import main
from anypo.core.errors import UsageError

PROMPTS = ["abc", "dab"]


def test_every_prompt_has_its_answers(trained):
    policy = anypo.load_policy(trained)
    texts = policy.generate_text(PROMPTS, n=4, max_tokens=3, seed=1)
    assert [len(own) for own in texts] == [4, 4]
    assert all(len(text) <= 3 for own in texts for text in own)
    assert len({text for own in texts for text in own}) > 2
    assert policy.generate_text(PROMPTS, n=4, max_tokens=3, seed=1) == texts
    assert policy.generate_text(PROMPTS, n=4, max_tokens=3, seed=2) != texts
    assert anypo.generate(trained, PROMPTS, 4, max_tokens=3, seed=1) == texts
    assert policy.generate_text(PROMPTS[:1], n=4, max_tokens=3, seed=1) == texts[:1]


def test_greedy_is_what_the_model_finds_likeliest(trained):
    policy = anypo.load_policy(trained)
    ((text,),) = policy.generate_text("abc", temperature=0, max_tokens=4)
    ids = policy.tokenizer("abc")["input_ids"]
    with torch.no_grad():
        for _ in range(4):
            best = int(policy.net.causal(input_ids=torch.tensor([ids])).logits[0, -1].argmax())
            if best in policy.ends:
                break
            ids = [*ids, best]
    assert text == policy.decode(torch.tensor(ids[3:]))


def test_a_chat_is_one_prompt_and_chats_are_several(trained):
    policy = anypo.load_policy(trained)
    chat = [{"role": "user", "content": "abc"}, {"role": "user", "content": "b"}]
    (one,) = policy.generate_text(chat, n=2, max_tokens=2)
    assert policy.generate_text([chat], n=2, max_tokens=2) == [one]
    assert policy.generate_text("abc\nb", n=2, max_tokens=2) == [one], "the contents, line by line"
    assert len(policy.generate_text([chat, chat], max_tokens=2)) == 2
    assert policy.generate_text([]) == []


def test_keys_are_optional(trained):
    policy = anypo.load_policy(trained)
    drawn = policy.generate(PROMPTS, 2, 3, seed=5)
    assert [c.prompt for c in drawn] == [0, 0, 1, 1]
    assert [c.text for c in policy.generate(PROMPTS, 2, 3, seed=5)] == [c.text for c in drawn]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n": 0}, "n must be at least 1"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"temperature": -1}, "temperature must be at least 0"),
    ],
)
def test_what_makes_no_answer_is_refused(trained, options, sentence):
    with pytest.raises(UsageError, match=sentence):
        anypo.generate(trained, "abc", **options)


def test_a_controller_writes_no_text(tmp_path):
    from anypo.policies.categorical import CategoricalPolicy

    CategoricalPolicy(4, 2).save(tmp_path)
    with pytest.raises(UsageError, match="is of kind control and writes no text"):
        anypo.generate(tmp_path, "abc")


# ── the command line ─────────────────────────────────────────────────────────────────────────────


def said(capsys, *words: str) -> str:
    """What a command line prints."""
    code = main(["generate", *words])
    out = capsys.readouterr()
    assert (code, out.err) == (0, "")
    return out.out


def test_the_command_line_says_the_same(trained, capsys):
    words = [str(trained), *PROMPTS, "--n", "2", "--max-tokens", "3", "--seed", "1"]
    texts = anypo.generate(trained, PROMPTS, 2, max_tokens=3, seed=1)
    found = json.loads(said(capsys, *words, "--json"))["answers"]
    assert found == [{"prompt": p, "texts": t} for p, t in zip(PROMPTS, texts)]
    lines = said(capsys, *words).split("\n")
    assert lines[0] == "abc"
    assert "dab" in lines
    alone = said(capsys, str(trained), "abc", "--max-tokens", "3", "--temperature", "0")
    assert alone.count("\n") == 1


def test_prompts_keep_their_lines_and_may_be_piped_in(trained, capsys, monkeypatch):
    two = json.loads(said(capsys, str(trained), "a\nb", "--max-tokens", "1", "--json"))["answers"]
    assert [row["prompt"] for row in two] == ["a\nb"]
    monkeypatch.setattr("sys.stdin", io.StringIO("ab\n\ncd\n"))
    rows = json.loads(said(capsys, str(trained), "-", "--max-tokens", "1", "--json"))["answers"]
    assert [row["prompt"] for row in rows] == ["ab", "cd"]


def test_an_answer_cannot_command_a_terminal(trained, capsys, monkeypatch):
    hostile = "\x1b]0;owned\x07[red]x[/] \u202e\ud800"
    monkeypatch.setattr("anypo.api.generate", lambda *a, **k: [[hostile]])
    shown = said(capsys, str(trained), "abc")
    assert "\x1b" not in shown and "\u202e" not in shown
    assert "\\x1b]0;owned\\x07[red]x[/]" in shown


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("", "needs POLICY"),
        ("tiny", "needs PROMPTS"),
        ("tinny abc", "unknown policy 'tinny'; did you mean tiny"),
        ("flow abc", "'flow' is made for a task"),
    ],
)
def test_what_a_user_can_mend_is_one_sentence(capsys, words, sentence):
    assert main(["generate", *words.split()]) == 2
    assert sentence in capsys.readouterr().err
