"""Rows from files: what is read, and the one clear sentence for what cannot be."""

from __future__ import annotations

import json

import pytest

from anypo.core.errors import UsageError
from anypo.tasks.dataset import check, read_jsonl

CHAT = [{"role": "user", "content": "hi"}]
REPLY = [{"role": "assistant", "content": "ho"}]


def write(tmp_path, content):
    path = tmp_path / "data.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_lines_become_rows(tmp_path):
    text = '\ufeff{"prompt": "é\u2028x", "answer": 1}\r\n{"prompt": "b", "answer": null}\n\n'
    rows = [{"prompt": "é\u2028x", "answer": 1}, {"prompt": "b", "answer": None}]
    assert read_jsonl(write(tmp_path, text)) == rows


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "data.jsonl is empty: it needs one JSON object a line"),
        (b" \n\n", "is empty"),
        (b'{"prompt": "a"}\n{"prompt": "\xff"}', "line 2: byte 13 is not UTF-8: save the file"),
        ('{"prompt": "a"}'.encode("utf-16"), "line 1: byte 1 is not UTF-8"),
        ('{"prompt": "a"}\n{"prompt": }', r"line 2: not JSON \(.*column 12\)"),
        ('{"prompt": "a"}\n\n{"prompt": "b"}', "line 2: blank: each line must be one whole JSON"),
        ('[{"prompt": "a"}]', "line 1: a list, not an object: write one JSON object a line"),
        ('{"prompt": "a"}\n"b"', "line 2: text, not an object"),
    ],
)
def test_a_bad_line_is_named(tmp_path, content, says):
    with pytest.raises(UsageError, match=says):
        read_jsonl(write(tmp_path, content))


def test_an_absent_file_offers_the_nearest(tmp_path):
    write(tmp_path, "{}")
    with pytest.raises(UsageError, match=r"there is no file .*date.jsonl; did you mean data.jsonl"):
        read_jsonl(tmp_path / "date.jsonl")
    with pytest.raises(UsageError, match=r"x\.jsonl: check the path"):
        read_jsonl(tmp_path / "nowhere" / "x.jsonl")


def test_rows_get_every_column():
    rows, kind = check([{"prompt": "a", "x": 1}, {"prompt": "b", "y": 2.5}], "f")
    assert kind == "language"
    assert rows == [{"prompt": "a", "x": 1, "y": None}, {"prompt": "b", "x": None, "y": 2.5}]


def test_chats_lose_the_keys_that_a_table_filled():
    rows, _ = check([{"prompt": [CHAT[0] | {"name": None}]}], "f")
    assert rows == [{"prompt": CHAT}]


@pytest.mark.parametrize("part", ["text", REPLY])
def test_chosen_and_rejected_make_a_preference_task(part):
    row = {"prompt": part, "chosen": part, "rejected": part}
    assert check([row], "f") == ([row], "preference")


@pytest.mark.parametrize("part", ["text", REPLY])
def test_completions_are_demonstrations_unless_something_judges(part):
    row = {"prompt": part, "completion": part}
    assert check([row], "f") == ([row], "demonstration")
    assert check([row], "f", judged=True) == ([row], "language")
    truth = row | {"reward_model": {"ground_truth": "1"}}
    assert check([truth], "f")[1] == "language"
    assert check([row | {"chosen": part, "rejected": part}], "f")[1] == "preference"


def test_a_conversation_is_parted_before_its_first_answer():
    system = [{"role": "system", "content": "be brief"}]
    chat = [*system, *CHAT, *REPLY, *CHAT, *REPLY, *CHAT]
    row = {"prompt": [*system, *CHAT], "completion": [*REPLY, *CHAT, *REPLY, *CHAT], "x": 1}
    assert check([{"messages": chat, "x": 1}], "f") == ([row], "demonstration")
    with_prompt = {"messages": chat, "prompt": "as others name it", "x": 1}
    assert check([with_prompt], "f") == ([row], "demonstration")


def test_a_text_is_a_demonstration_without_a_prompt():
    assert check([{"text": "abc"}], "f") == (
        [{"prompt": None, "completion": "abc"}],
        "demonstration",
    )
    both = {"text": "abc", "prompt": "a"}
    assert check([both], "f") == ([both], "language")


@pytest.mark.parametrize("written", ["as a list", "as JSON"])
def test_tools_are_a_list_without_what_a_table_filled(written):
    tools = [{"name": "add", "parameters": {"a": {"type": "number", "enum": None}}}]
    given = json.dumps(tools) if written == "as JSON" else tools
    call = {"role": "assistant", "content": None, "tool_calls": [{"name": "add", "id": None}]}
    rows, _ = check([{"messages": [*CHAT, call], "tools": given}], "f")
    assert rows[0]["tools"] == [{"name": "add", "parameters": {"a": {"type": "number"}}}]
    assert rows[0]["completion"] == [{"role": "assistant", "tool_calls": [{"name": "add"}]}]
    rows, _ = check([{"messages": [*CHAT, *REPLY], "tools": None}], "f")
    assert "tools" not in rows[0]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "f.jsonl has no rows"),
        ([{"messages": CHAT}], "line 1: the messages hold nothing to be answered: it needs"),
        ([{"messages": REPLY}], "line 1: the messages hold nothing to be answered"),
        ([{"messages": [*CHAT, *REPLY]}, {"messages": []}], "line 2: the messages is empty"),
        ([{"messages": "hi"}], "the messages is text: it must be a list of"),
        ([{"prompt": "a", "completion": CHAT}], "line 1: the completion has no message of the ass"),
        ([{"text": " "}], "line 1: the text is empty"),
        ([{"text": CHAT}], "line 1: the text is a list: make it text"),
        ([{"text": "a", "tools": "{"}], "line 1: the tools are no list of descriptions"),
        ([{"text": "a", "tools": [1]}], "line 1: the tools are no list of descriptions"),
        ([{"prompt": "a"}, {}], "f.jsonl, line 2: an empty row: remove it"),
        ([{"prompt": "a"}, {"prompt": None}], "line 2: an empty row"),
        ([{"prompts_": "a"}], r"line 1: no 'prompt' \(columns: prompts_\).*mean prompts_\?"),
        ([{"prompt": "a"}, {"x": 1}], "line 2: no 'prompt'"),
        ([{"prompt": " \n"}], "line 1: the prompt is empty"),
        ([{"prompt": []}], "line 1: the prompt is empty"),
        ([{"prompt": 3}], "line 1: the prompt is a number: it must be text, or a list of"),
        ([{"prompt": ["a"]}], r"the prompt has the message a: each message must be an object"),
        ([{"prompt": [{"role": "user"}]}], "role and content, both text"),
        ([{"prompt": [{"role": "user", "content": [1]}]}], "role and content, both text"),
        ([{"prompt": "a"}, {"prompt": CHAT}], "line 2: 'prompt' is a list, but it is text in line"),
        ([{"prompt": "a", "y": 1}, {"prompt": "b"}, {"prompt": "c", "y": "1"}],
         "line 3: 'y' is text, but it is a number in line 1: make the column one type"),
        ([{"prompt": "a", "y": 1}, {"prompt": "b", "y": True}], "line 2: 'y' is a boolean"),
        ([{"prompt": "a", "completions": 1}], "column 'completions' has a name that rewards get"),
        ([{"prompt": "a", "chosen": "b"}], "line 1: no 'rejected'"),
        ([{"chosen": "b", "rejected": "c"}], "line 1: no 'prompt'"),
        ([{"prompt": "a", "chosen": 1, "rejected": "c"}], "the chosen is a number"),
        ([{"prompt": "a", "completion": "b"}, {"prompt": "a"}], "line 2: no 'completion'"),
        ([{"prompt": "a", "completion": 1}], "the completion is a number"),
    ],
)  # fmt: skip
def test_bad_rows_are_named_with_the_cure(rows, says):
    with pytest.raises(UsageError, match=says):
        check(rows, "f.jsonl", "line")


def test_a_conversation_is_not_what_a_reward_judges():
    with pytest.raises(UsageError, match=r"no 'prompt' .* demonstrations, if no reward function"):
        check([{"messages": [*CHAT, *REPLY]}], "f.jsonl", judged=True)


def test_whole_numbers_and_fractions_are_one_type(tmp_path):
    lines = [json.dumps({"prompt": "a", "y": y}) for y in (1, 2.5, None)]
    rows, _ = check(read_jsonl(write(tmp_path, "\n".join(lines))), "f")
    assert [row["y"] for row in rows] == [1, 2.5, None]
