"""What the model said before and after: answers to the same prompts, as they were sampled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anypo.report.completions import Step, framed

MOST_PROMPTS, MOST_ANSWERS, MOST_CHARACTERS = 4, 3, 600
"""Prompts side by side, answers of each side, and characters of a text."""

Row = dict[str, Any]


def side_by_side(steps: Mapping[int, Step]) -> dict[str, Any]:
    """Prompts with their first and their last answers; `recur`: whether any prompt came back.

    Prompts are those whose first and last appearance lie farthest apart, answers the first ones
    that were recorded: nobody picked the good ones. Where no prompt recurs, the first prompts of
    the first and of the last iteration stand beside each other.
    """
    known = [s for s in steps.values() if s.rows]
    if not known:
        return {}
    seen: dict[str, list[int]] = {}
    for step in known:
        for row in step.rows:
            seen.setdefault(str(row.get("prompt", "")), []).append(step.step)
    apart = sorted(seen, key=lambda prompt: seen[prompt][0] - seen[prompt][-1])
    pairs = [(p, seen[p][0], seen[p][-1]) for p in apart if seen[p][-1] > seen[p][0]]
    if pairs:
        chosen = [_pair(steps, *pair) for pair in pairs[:MOST_PROMPTS]]
        return {"recur": True, "pairs": _bare(chosen)}
    ends = [known[0]] if len(known) == 1 else [known[0], known[-1]]
    return {"recur": False, "ends": [_examples(step) for step in ends]}


def _pair(steps: Mapping[int, Step], prompt: str, first: int, last: int) -> Row:
    sides = [{"step": step, "answers": _answers(steps[step], prompt)} for step in (first, last)]
    return {"prompt": prompt, "sides": sides}


def _answers(step: Step, prompt: str) -> list[Row]:
    rows = [row for row in step.rows if str(row.get("prompt", "")) == prompt]
    return [_answer(row) for row in rows[:MOST_ANSWERS]]


def _answer(row: Row) -> Row:
    text = str(row.get("completion") or "")
    cut = text[:MOST_CHARACTERS] + ("…" if len(text) > MOST_CHARACTERS else "")
    score = row.get("score", row.get("reward"))
    return {"text": cut, "score": score if isinstance(score, (int, float)) else None}


def _examples(step: Step) -> Row:
    prompts = list(dict.fromkeys(str(row.get("prompt", "")) for row in step.rows))
    chosen = [{"prompt": p, "answers": _answers(step, p)} for p in prompts[:MOST_ANSWERS]]
    return {"step": step.step, "pairs": _bare(chosen)}


def _bare(chosen: list[Row]) -> list[Row]:
    """The same with prompts cut to a size for reading."""
    for entry in chosen:
        prompt = entry["prompt"]
        entry["prompt"] = prompt[:MOST_CHARACTERS] + ("…" if len(prompt) > MOST_CHARACTERS else "")
    return chosen


def examples(steps: Mapping[int, Step], most: int = 6) -> tuple[list[str], str, str]:
    """Different prompts as the model read them, without what all begin and end with; that too."""
    prompts = list(
        dict.fromkeys(str(row.get("prompt", "")) for s in steps.values() for row in s.rows)
    )
    if len(prompts) < 2:
        return prompts, "", ""
    head, tail = framed(prompts)
    bare = [p[len(head) : len(p) - len(tail)] for p in prompts[:most]]
    return [p[:MOST_CHARACTERS] for p in bare], head, tail
