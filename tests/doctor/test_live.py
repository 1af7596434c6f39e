"""Warnings while a run goes: each once, and never the end of a run."""

from __future__ import annotations

from typing import Any

import pytest

import anypo
from anypo.doctor import Live, diagnose
from anypo.doctor import live as module
from tests.doctor.test_checks import FACTS, TABLE, record


def heard(rows: Any, facts: Any = FACTS, **options: Any) -> tuple[list[str], Live]:
    """What is said along some rows."""
    said: list[str] = []
    live = Live(said.append, **options)
    live.on_start(dict(facts))
    for row in rows:
        assert live.on_iteration(row) is None
    return said, live


def test_a_warning_is_said_once_and_when_two_looks_agree():
    rows = TABLE["ratio_tails"][0].rows
    said, live = heard(rows[:10])
    assert said == []
    for row in rows[10:]:
        live.on_iteration(row)
        assert len(said) == (row["step"] >= 15)
    (text,) = said
    assert text.startswith("doctor: Importance ratios have long tails (iterations ")
    assert "Try: --" in text
    assert "\n" not in text
    assert set(live.said) == {"ratio_tails"}


def test_a_healthy_run_hears_nothing():
    assert heard(record().rows)[0] == []


def test_notes_are_not_said():
    wrong = TABLE["never_clipped"][0]
    assert [f.kind for f in diagnose(wrong)] == ["never_clipped"]
    assert heard(wrong.rows)[0] == []


def test_what_follows_from_something_said_is_not_said():
    wrong = TABLE["lr_too_large"][0]
    assert len(diagnose(wrong)) > 1
    assert set(heard(wrong.rows)[1].said) == {"lr_too_large"}


def test_memory_is_bounded_and_the_start_is_kept(monkeypatch):
    rows = [{**record().rows[i % 40], "step": i + 1} for i in range(500)]
    sizes, real = [], module.examine

    def watched(x: Any) -> Any:
        sizes.append((len(x.rows), x.rows[0]["step"], x.rows[-1]["step"]))
        return real(x)

    monkeypatch.setattr(module, "examine", watched)
    heard(rows)
    assert len(sizes) == 100
    assert max(n for n, *_ in sizes) == module.FIRST + module.RECENT
    assert {first for _, first, _ in sizes} == {1}
    assert [last for *_, last in sizes] == list(range(5, 501, 5))


def test_a_failing_check_ends_no_run(monkeypatch):
    def broken(x: Any) -> Any:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(module, "examine", broken)
    said, _ = heard(record().rows)
    assert said == ["doctor: a check failed (ZeroDivisionError: oh)"]


def test_a_run_that_goes_on_knows_how_it_began(tmp_path):
    import json

    wrong = TABLE["stale_sampler"][0]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in wrong.rows[:30]))
    facts = {**FACTS, "out": str(tmp_path)}
    assert set(heard(wrong.rows[20:], facts)[1].said) == {"stale_sampler"}
    assert set(heard(wrong.rows[20:])[1].said) == {"mismatch"}


@pytest.mark.parametrize(("lr", "kinds"), [(1e-9, {"lr_too_small"}), (0.0, set())])
def test_it_listens_to_a_real_run(tmp_path, lr, kinds):
    said: list[str] = []
    live = Live(said.append)
    options: dict[str, Any] = {"steps": 20, "prompts": 4, "eval_size": 5, "record_every": 0}
    run = anypo.train("grpo", "tiny", "vowels", out=tmp_path, lr=lr, callbacks=[live], **options)
    assert set(live.said) == kinds
    assert len(said) == len(kinds)
    assert len(run.metrics) == 20
