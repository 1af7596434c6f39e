"""The machinery finds planted errors, lets right code live, and its record is in order."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.mutation import report
from tests.mutation.mutants import KINDS, Mutant, mutants, sources

ROOT = Path(__file__).parents[2]
PIECES = "src/anypo/pieces/"
FLIPS = [
    (PIECES + "surrogate/clip.py", "minimum(ratio * advantage", "minimum(-ratio * advantage"),
    (PIECES + "surrogate/regression.py", "x = self.beta * batch", "x = -self.beta * batch"),
    (PIECES + "regularizer/kl.py", "penalty = self.beta", "penalty = -self.beta"),
    (PIECES + "regularizer/value.py", "return self.coef * 0.5", "return -self.coef * 0.5"),
    (PIECES + "advantage/baseline.py", "centred = value - _centre", "centred = value + _centre"),
    (PIECES + "advantage/gae.py", "self.gamma * ahead - value", "self.gamma * ahead + value"),
    (PIECES + "ratio/ratio.py", 'batch["logp"] - batch[self.to]', 'batch["logp"] + batch[self.to]'),
    ("src/anypo/core/neutral.py", 'return batch["advantage"] *', 'return -batch["advantage"] *'),
    ("src/anypo/math/kl.py", "torch.expm1(-d) + d", "torch.expm1(-d) - d"),
    ("src/anypo/math/segments.py", "y + decay * ahead", "y - decay * ahead"),
]
SAME = (PIECES + "surrogate/clip.py", "(ratio * advantage,", "(advantage * ratio,")


def test_ten_flipped_signs_die_of_the_vectors_and_an_equal_product_lives(tmp_path):
    planted = [dict(zip(("file", "before", "after"), each)) for each in [*FLIPS, SAME]]
    (tmp_path / "planted.json").write_text(json.dumps(planted))
    words = ["-m", "tests.mutation", "--plant", str(tmp_path / "planted.json"), "--tests"]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    killers = [killer for killer, _ in json.loads(done.stdout)]
    assert killers == ["vectors"] * len(FLIPS) + [""]


SOURCE = '''
"""Words - with + operators."""


class P(Piece):
    """More - words."""

    low: float = 0.5

    def __post_init__(self):
        require(self.low >= 0, self, "low", "0 - 1")

    def __call__(self, batch) -> Tensor:
        if batch.size > 3:
            raise ValueError(1 + 1)
        return batch.mean(-batch["a"].clamp(0.25), within="group") / self.low
'''

EDITS = {
    ("constant", "low: float = 1.0"),
    ("sign", "return -(batch.mean(-batch['a'].clamp(0.25), within='group') / self.low)"),
    ("sign", "return batch.mean(batch['a'].clamp(0.25), within='group') / self.low"),
    ("denominator", "return batch.mean(-batch['a'].clamp(0.25), within='group') * self.low"),
    ("denominator", "return batch.sum(-batch['a'].clamp(0.25), within='group') / self.low"),
    ("key", "return batch.mean(-batch['a'].clamp(0.25), within='batch') / self.low"),
    ("bound", "return batch.mean(-batch['a'], within='group') / self.low"),
    ("constant", "return batch.mean(-batch['a'].clamp(1.25), within='group') / self.low"),
}


def test_the_edits_of_a_small_piece(tmp_path):
    (tmp_path / "p.py").write_text(SOURCE)
    found = mutants(tmp_path / "p.py", tmp_path)
    assert {(m.kind, m.mutated) for m in found} == EDITS
    assert len({m.source for m in found}) == len(found) == len(EDITS)
    assert [m.default for m in found] == [True] + [False] * 7


def test_every_source_of_the_question_is_mutated():
    found = {f.relative_to(ROOT).as_posix() for f in sources(ROOT / "src" / "anypo")}
    assert {f for f, _, _ in FLIPS} <= found


def test_reasons_are_kept_from_run_to_run_and_what_may_not_survive_is_named():
    one, two, three = (
        Mutant("f.py", "g", "x + 1", f"x - {n}", "sign", n, (n, n), str(n)) for n in range(3)
    )
    before = {"survivors": [report.entry(one, report.EQUIVALENT + "x is 0.")]}
    verdicts = [("", ""), ("vectors", "a.json"), ("", "")]
    found = report.merged([one, two, three], verdicts, before)
    assert (found["mutants"], found["vectors"], found["survived"]) == (3, 1, 2)
    assert [s["reason"] for s in found["survivors"]] == ["Equivalent: x is 0.", ""]
    assert [s["line"] for s in report.open_ones(found["survivors"])] == [2]


def test_the_last_full_run_is_in_order_and_is_what_the_page_shows():
    found = report.load()
    assert found["mutants"] >= 200
    assert found["mutants"] == sum(found[k] for k in ("vectors", "identities", "survived"))
    assert found["survived"] == len(found["survivors"])
    assert {s["kind"] for s in found["survivors"]} <= set(KINDS)
    assert report.open_ones(found["survivors"]) == []
    assert (ROOT / "docs" / "mutation.md").read_text("utf-8") == report.page(found)
