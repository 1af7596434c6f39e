"""Rewards of length that depend on whether an answer is right."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from anypo.backends.math_verify import MathReward
from anypo.core.errors import UsageError
from anypo.tasks.reward import fingerprint
from anypo.tasks.task import Prompt, Row


class CosineReward:
    """A right answer earns more when short, a wrong one loses less when long: half a cosine.

    `r(n) = end + ½·(begin − end)·(1 + cos(π·n/L))` for n < L tokens, `exceed` from L on.

    Parameters
    ----------
    limit : L in tokens.
    right : begin and end for right answers (default 2 and 1).
    wrong : begin and end for wrong ones (default −10 and 0).
    exceed : of an answer of L tokens or more (default −10).
    timeout : seconds for the comparison of one answer.

    Right is what math-verify says of the row's `ground_truth`, `solution` or `answer`; an answer
    that it cannot judge is not scorable. Reference: 2502.03373, whose defaults these are.
    """

    name, label, required = "the reward cosine", "cosine", False

    def __init__(
        self,
        limit: int,
        right: Sequence[float] = (2.0, 1.0),
        wrong: Sequence[float] = (-10.0, 0.0),
        exceed: float = -10.0,
        timeout: float = 5.0,
    ) -> None:
        if limit < 1 or len(right) != 2 or len(wrong) != 2:
            raise UsageError("cosine needs limit, at least 1, and pairs (begin, end) of rewards")
        self.limit, self.right, self.wrong, self.exceed = limit, right, wrong, exceed
        self.judge = MathReward(timeout)

    @property
    def version(self) -> str:
        """A hash of the settings."""
        said = {"right": list(self.right), "wrong": list(self.wrong), "exceed": self.exceed}
        return fingerprint("cosine 1", {**said, "limit": self.limit})

    def check(self, columns: Iterable[str]) -> None:
        """The answer must be there."""
        self.judge.check(columns)

    def __call__(
        self,
        prompts: Sequence[Prompt],
        completions: Sequence[str],
        rows: Sequence[Row],
        completion_ids: Sequence[Sequence[int]] | None = None,
    ) -> list[float]:
        """One reward for each completion."""
        if completion_ids is None:
            raise UsageError("cosine counts tokens, which this call does not give: name it second")
        judged = self.judge(prompts, completions, rows)
        return [self._one(x, len(ids)) for x, ids in zip(judged, completion_ids)]

    def _one(self, judged: float, n: int) -> float:
        if math.isnan(judged):
            return math.nan
        if n >= self.limit:
            return self.exceed
        begin, end = self.right if judged >= 1 else self.wrong
        return end + 0.5 * (begin - end) * (1 + math.cos(math.pi * n / self.limit))
