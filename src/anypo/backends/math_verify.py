"""Mathematical equality of answers, judged by the math-verify library in a killable process."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from anypo.core.errors import UsageError
from anypo.tasks.reward_call import ground_truth
from anypo.tasks.task import Prompt, Row
from anypo.tasks.worker import Worker, WorkerDied, WorkerLate

MEMORY = 4 << 30  # bytes; "9**9**9" would otherwise ask the machine for all it has


def math_score(completion: str, answer: str, timeout: float = 5.0) -> float:
    """1 if the completion's last expression equals the answer, 0 if not, NaN for no such answer.

    The comparison runs in a process that is kept for the next one. A completion on which it takes
    more than `timeout` seconds, or crashes, is wrong (0): its process is killed and started anew.
    A completion that is the answer letter for letter is right. An answer in which math-verify
    finds no mathematics makes every other completion not scorable (NaN).

    Parameters
    ----------
    completion : text; LaTeX, a boxed expression or a plain number is found in it.
    answer : the expression alone, or text that has it in `$…$` or `\\boxed{…}`.
    timeout : seconds; 5 is math-verify's own.
    """
    try:
        return float(_worker().call("grade", completion, answer, seconds=timeout))
    except (WorkerLate, WorkerDied):
        return 0.0


@cache
def _worker() -> Worker:
    return Worker(__name__, memory=MEMORY, preload=("math_verify",))


def wanted(row: Row) -> Any:
    """The right answer of a row, from the first of the columns that may hold it; else None."""
    found = (ground_truth(row), row.get("solution"), row.get("answer"))
    return next((x for x in found if x is not None), None)


class MathReward:
    """A `Scorer` that compares completions with each row's answer, mathematically.

    That is its `ground_truth` (verl's layout, or a plain column), else its `solution` or `answer`.
    `timeout`: seconds for one comparison.
    """

    name, label, required, version = "math-verify", "accuracy", False, "math-verify"

    def __init__(self, timeout: float = 5.0) -> None:
        self.timeout = timeout

    def __call__(
        self,
        prompts: Sequence[Prompt],
        completions: Sequence[str],
        rows: Sequence[Row],
        completion_ids: Sequence[Sequence[int]] | None = None,
    ) -> list[float]:
        """One of 1, 0 and NaN for each completion."""
        answers = [str(wanted(row)) for row in rows]
        return [math_score(c, a, self.timeout) for c, a in zip(completions, answers)]

    def check(self, columns: Iterable[str]) -> None:
        """Raise when no column can hold the answer."""
        if not {"reward_model", "ground_truth", "solution", "answer"} & {*columns}:
            raise UsageError(
                "accuracy compares with a column ground_truth, solution or answer, and the dataset "
                f"has none (columns: {', '.join(sorted(columns)) or 'none'}): add one"
            )

    def answer(self, completion: str) -> str:
        """The completion's last expression, written as the library writes it; else all its text."""
        try:
            return str(_worker().call("read", completion, seconds=self.timeout))
        except (WorkerLate, WorkerDied):
            return completion.strip()


# ── what the child process runs ──────────────────────────────────────────────────────────────────


def grade(completion: str, answer: str) -> float:
    """`math_score` without a time-out: the library's own is a signal, and the parent kills."""
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns of the absent time-out
    if answer.strip() and completion.strip() == answer.strip():
        return 1.0
    bare = not any(mark in answer for mark in ("$", "\\boxed", "\\(", "\\["))
    gold = parse(f"\\boxed{{{answer}}}" if bare else answer, parsing_timeout=0)
    if all(isinstance(expression, str) for expression in gold):
        return math.nan
    try:
        return float(verify(gold, parse(completion, parsing_timeout=0), timeout_seconds=0))
    except Exception:  # a completion on which the library gives up is no right answer
        return 0.0


def read(completion: str) -> str:
    """The expression that `grade` finds, so that equal ones read alike; else the whole text.

    Of `x = …` the right side counts, as when it is graded; 0.5 and 1/2 are one number.
    """
    from math_verify import parse

    logging.getLogger("math_verify").setLevel(logging.ERROR)
    found = parse(completion, parsing_timeout=0)
    if not found:
        return completion.strip()
    said = found[0]
    if getattr(said, "is_Equality", False) and said.lhs.is_Symbol:
        said = said.rhs
    try:
        return str(said.nsimplify() if getattr(said, "is_number", False) else said)
    except Exception:  # what cannot be simplified still has a name
        return str(said)
