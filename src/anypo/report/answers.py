"""What the model said before and after: answers to the same prompts, as they were sampled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anypo.report.completions import Step, framed

MOST_PROMPTS, MOST_ANSWERS, MOST_CHARACTERS, MOST_LINES = 4, 3, 400, 10
"""Prompts side by side, answers of each side, characters and lines of a text."""

ENOUGH = 2
"""Answers to each prompt where no prompt recurs."""

Row = dict[str, Any]


def side_by_side(steps: Mapping[int, Step]) -> dict[str, Any]:
    """Prompts with their first and their last answers; `recur`: whether prompts came back.

    Prompts are those whose first and last appearance lie farthest apart, by half of what was
    recorded at least; answers are the first ones recorded: nobody picked the good ones. Where no
    prompt recurs so, the first prompts of the first and of the last iteration stand side by side.
    """
    known = [s for s in steps.values() if s.rows]
    if not known:
        return {}
    seen: dict[str, list[int]] = {}
    for step in known:
        for row in step.rows:
            seen.setdefault(_prompt(row), []).append(step.step)
    frame, half = framed(seen), (known[-1].step - known[0].step) / 2
    apart = sorted(seen, key=lambda prompt: seen[prompt][0] - seen[prompt][-1])
    pairs = [(p, seen[p][0], seen[p][-1]) for p in apart if seen[p][-1] - seen[p][0] >= half > 0]
    if pairs:
        chosen = [_pair(steps, frame, *pair) for pair in pairs[:MOST_PROMPTS]]
        return {"recur": True, "pairs": chosen}
    ends = [known[0]] if len(known) == 1 else [known[0], known[-1]]
    return {"recur": False, "ends": [_examples(step, frame) for step in ends]}


def _prompt(row: Row) -> str:
    return str(row.get("prompt", ""))


def _pair(
    steps: Mapping[int, Step], frame: tuple[str, str], prompt: str, first: int, last: int
) -> Row:
    sides = [{"step": step, "answers": _answers(steps[step], prompt)} for step in (first, last)]
    return {"prompt": clipped(bare(prompt, frame)), "sides": sides}


def _answers(step: Step, prompt: str) -> list[Row]:
    rows = [row for row in step.rows if _prompt(row) == prompt]
    return [_answer(row) for row in rows[:MOST_ANSWERS]]


def _answer(row: Row) -> Row:
    score = row.get("score", row.get("reward"))
    known = score if isinstance(score, (int, float)) else None
    return {"text": clipped(str(row.get("completion") or "")), "score": known}


def _examples(step: Step, frame: tuple[str, str]) -> Row:
    prompts = list(dict.fromkeys(map(_prompt, step.rows)))[:MOST_ANSWERS]
    pairs = [(clipped(bare(p, frame)), _answers(step, p)[:ENOUGH]) for p in prompts]
    return {"step": step.step, "pairs": [{"prompt": p, "answers": a} for p, a in pairs]}


def clipped(text: str) -> str:
    """A text cut to a size for reading."""
    short = "\n".join(text[:MOST_CHARACTERS].split("\n")[:MOST_LINES])
    return short if short == text else short + " …"


def bare(prompt: str, frame: tuple[str, str]) -> str:
    """A prompt without what all prompts begin and end with."""
    return prompt[len(frame[0]) : len(prompt) - len(frame[1])]


def examples(steps: Mapping[int, Step], most: int = 6) -> tuple[list[str], str, str]:
    """Different prompts as the model read them, without what all begin and end with; that too."""
    prompts = list(dict.fromkeys(_prompt(row) for s in steps.values() for row in s.rows))
    frame = framed(prompts)
    return [clipped(bare(p, frame)) for p in prompts[:most]], *frame
