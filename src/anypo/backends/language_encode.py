"""Given texts as tokens: what is to be said, after exactly what a sampler would have seen."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from anypo.core.errors import UsageError
from anypo.policies.policy import Transcript

Message = Mapping[str, Any]
Tools = Sequence[Mapping[str, Any]]

MARK = re.compile(r"\{%-?\s*generation\s*-?%\}")
"""What a chat template writes before the part that the assistant says."""


def chat(words: str | Sequence[Message], role: str) -> list[Message]:
    """A text as one message of a role; a chat as it is."""
    return [{"role": role, "content": words}] if isinstance(words, str) else list(words)


def said(words: str | Sequence[Message]) -> str:
    """What a text or a chat says: the string, or the contents of the messages, line by line."""
    if isinstance(words, str):
        return words
    return "\n".join(message.get("content") or "" for message in words)


def opened(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a text that begins a sequence; what the tokenizer begins with comes once."""
    ids = list(tokenizer(text)["input_ids"])
    bos = tokenizer.bos_token_id
    return ids[1:] if bos is not None and ids[:2] == [bos, bos] else ids


def asked(tokenizer: Any, ends: frozenset[int], prompt: str | Sequence[Message]) -> list[int]:
    """Token ids of what a sampler sees: the prompt, with the header of the answer in a template."""
    if tokenizer.chat_template:
        shown = _rendered(tokenizer, chat(prompt, "user"), (), header=True)
        return _ids(tokenizer, shown) or [min(ends)]
    return opened(tokenizer, said(prompt)) or [min(ends)]


def encode(
    tokenizer: Any,
    ends: frozenset[int],
    prompt: str | Sequence[Message] | None,
    answer: str | Sequence[Message],
    tools: Tools = (),
) -> Transcript:
    """The tokens of an answer to a prompt, and those before it.

    In a chat every message of the assistant in `answer` is a turn, and those in `prompt` are not
    trained. The network reads before a turn what `asked` gives for the messages before it; turns
    share a sequence where one's tokens begin the next one's, which is so unless the template
    writes history otherwise than it was said. A turn is what the template makes of the message,
    up to its last end token; where the template has `{% generation %}`, what stands in it, and an
    end token right behind it. Where it writes no end token, the last turn gets one.

    Parameters
    ----------
    tokenizer : of transformers.
    ends : end tokens of the model.
    prompt : text, a chat, or None: then `answer` is a text that is all to be said, but for its
        first token, which nothing predicts (and which a tokenizer may add by itself).
    answer : text, or a chat with messages of the assistant.
    tools : descriptions, for the template.

    Raises `UsageError` for a template that refuses the chat, or that writes another text before an
    answer than a sampler sees.
    """
    end = tokenizer.eos_token_id if tokenizer.eos_token_id in ends else min(ends)
    if prompt is None:
        tokens = _ended(opened(tokenizer, said(answer)), ends, end)
        return _transcript([(tokens, list(range(1, len(tokens))))])
    if not tokenizer.chat_template and isinstance(prompt, str) and isinstance(answer, str):
        before, after = _continued(tokenizer, ends, prompt, answer)
        return _transcript([_joined(before, _ended(after, ends, end))])
    first = chat(prompt, "user")
    messages = [*first, *chat(answer, "assistant")]
    mine = [k for k in range(len(first), len(messages)) if messages[k]["role"] == "assistant"]
    turns = [_turn(tokenizer, ends, messages[: k + 1], tools) for k in mine]
    tokens, places = turns[-1]
    if mine[-1] == len(messages) - 1 and tokens[places[-1]] not in ends:
        turns[-1] = [*tokens, end], [*places, len(tokens)]
    return _transcript(turns)


Turn = tuple[list[int], list[int]]
"""Tokens up to the last that is said, and the places of those that are."""


def _joined(before: list[int], after: list[int]) -> Turn:
    return before + after, list(range(len(before), len(before) + len(after)))


def _ended(ids: list[int], ends: frozenset[int], end: int) -> list[int]:
    return ids if ids and ids[-1] in ends else [*ids, end]


def _continued(
    tokenizer: Any, ends: frozenset[int], prompt: str | Sequence[Message], answer: str
) -> tuple[list[int], list[int]]:
    """The tokens of a prompt, and of a text behind it, as they are in one text where that agrees.

    Where a token would reach across, the answer is cut by itself: a sampler sees the whole prompt.
    """
    before = asked(tokenizer, ends, prompt)
    whole = opened(tokenizer, said(prompt) + answer)
    agrees = whole[: len(before)] == before
    return before, whole[len(before) :] if agrees else _ids(tokenizer, answer)


def _turn(tokenizer: Any, ends: frozenset[int], messages: list[Message], tools: Tools) -> Turn:
    """The last message, said by the assistant."""
    if not tokenizer.chat_template:
        before, after = asked(tokenizer, ends, messages[:-1]), said(messages[-1:])
        end = tokenizer.eos_token_id if tokenizer.eos_token_id in ends else min(ends)
        return _joined(before, _ended(_ids(tokenizer, after), ends, end))
    if MARK.search(tokenizer.get_chat_template(tools=list(tools) or None)):
        return _marked(tokenizer, ends, messages, tools)
    shown = _rendered(tokenizer, messages[:-1], tools, header=True)
    whole = _rendered(tokenizer, messages, tools)
    if not whole.startswith(shown):
        raise UsageError(_parting(shown, whole))
    before, ids = _ids(tokenizer, shown), _ids(tokenizer, whole)
    if ids[: len(before)] != before:  # a token would reach across
        ids = before + _ids(tokenizer, whole[len(shown) :])
    stops = [p for p in range(len(before), len(ids)) if ids[p] in ends]
    ids = ids[: stops[-1] + 1] if stops else ids
    return ids, list(range(len(before), len(ids)))


def _marked(tokenizer: Any, ends: frozenset[int], messages: list[Message], tools: Tools) -> Turn:
    """The last message by the template's own mark."""
    ids, mask = _rendered(tokenizer, messages, tools, mask=True)
    history = _ids(tokenizer, _rendered(tokenizer, messages[:-1], tools))
    same = [a == b for a, b in zip(history, ids)]
    start = same.index(False) if False in same else len(same)
    places = [p for p in range(start, len(ids)) if mask[p]]
    if not places:
        raise UsageError(
            "the chat template marks nothing of the assistant's message "
            f"{said(messages[-1:])[:40]!r}: put its content between generation and endgeneration"
        )
    if ids[places[-1]] not in ends and ids[places[-1] + 1 :][:1] and ids[places[-1] + 1] in ends:
        places.append(places[-1] + 1)
    return ids[: places[-1] + 1], places


def _transcript(turns: Sequence[Turn]) -> Transcript:
    sequences: list[list[int]] = []
    steps: list[tuple[int, int, int]] = []
    for number, (tokens, places) in enumerate(turns):
        if sequences and tokens[: len(sequences[-1])] == sequences[-1]:
            sequences[-1] = tokens
        else:
            sequences.append(tokens)
        steps += [(len(sequences) - 1, place, number) for place in places]
    seq, position, turn = torch.tensor(steps, dtype=torch.long).unbind(1)
    return Transcript([torch.tensor(s) for s in sequences], seq, position, turn)


def _ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _rendered(
    tokenizer: Any,
    messages: Sequence[Message],
    tools: Tools,
    header: bool = False,
    mask: bool = False,
) -> Any:
    """The chat in the template's words, or its tokens and their marks."""
    options: dict[str, Any] = {"tools": list(tools)} if tools else {}
    if mask:
        options |= {"return_dict": True, "return_assistant_tokens_mask": True}
    try:
        found = tokenizer.apply_chat_template(
            list(messages), tokenize=mask, add_generation_prompt=header, **options
        )
    except Exception as error:
        if not type(error).__module__.startswith("jinja2"):
            raise
        raise UsageError(
            f"the chat template refuses a conversation ({error}; it begins with "
            f"{said(messages)[:40]!r}): change the row, or take another policy"
        ) from None
    return (list(found["input_ids"]), list(found["assistant_masks"])) if mask else found


def _parting(shown: str, whole: str) -> str:
    """Where the template's answer leaves what a sampler sees."""
    n = next((k for k, (a, b) in enumerate(zip(shown, whole)) if a != b), len(whole))
    return (
        f"the chat template writes {whole[n : n + 30]!r} where a sampler would see "
        f"{shown[n : n + 30]!r}, so it does not say where the answer begins: mark the assistant's "
        "part in the template, {% generation %}…{% endgeneration %}, or give rows of plain text "
        "in the column text"
    )
