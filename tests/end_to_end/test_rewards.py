"""Rewards through whole runs: curves, a reward that changed, and what the page about them shows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import anypo
from anypo.backends.load_reward import load_reward, parse
from anypo.cli import main
from anypo.core.errors import UsageError

PAGE = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text("utf-8")
SETTINGS = {"policy": "tiny", "task": "vowels", "prompts": 2, "eval_every": 0, "eval_size": 2}
GOOD = "def good(completions): return [float('a' in c) for c in completions]\n"


def test_a_run_draws_a_curve_for_each_part_and_records_what_it_said(tmp_path, capsys, monkeypatch):
    """By the command line, from YAML, with a range and an argument."""
    monkeypatch.chdir(tmp_path)
    Path("good.py").write_text(GOOD)
    Path("run.yaml").write_text(
        "reward:\n  - good.py:good = 2\n"
        "  - {reward: repetition, n: 1, name: again, weight: 0.5, low: -1, high: 0}\n"
    )
    words = "train rloo --policy tiny --task vowels --steps 2 --prompts 2 --eval-size 2"
    assert main([*words.split(), "--config", "run.yaml", "--out", "run"]) == 0
    rows = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    for row in rows:
        total = 2 * row["rewards/good/mean"] + 0.5 * row["rewards/again/mean"]
        assert row["reward"] == pytest.approx(total, abs=1e-6)
    import pyarrow.parquet

    table = pyarrow.parquet.read_table("run/completions/step_00001.parquet").to_pylist()
    assert table and all(
        row["rewards/good"] == float("a" in row["completion"])
        and row["score"]
        == pytest.approx(2 * row["rewards/good"] + 0.5 * row["rewards/again"], abs=1e-6)
        for row in table
    )
    capsys.readouterr()
    assert main(["evaluate", "run", "--n", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


def test_a_run_whose_reward_changed_does_not_go_on(tmp_path):
    """Its sentence names the reward and the cure; put back as it was, the run goes on."""
    file, out = tmp_path / "good.py", tmp_path / "run"
    file.write_text(GOOD)

    def train(steps: int, reward=f"{file}:good=1,repetition=0.1"):
        return anypo.train("rloo", reward=reward, steps=steps, out=out, **SETTINGS)

    train(1)
    file.write_text(GOOD.replace("'a'", "'b'"))
    words = r"the reward 'good' was changed since .*run was begun \(SHA-256 \w{12} there, \w{12} "
    with pytest.raises(UsageError, match=words + "here.*put the reward back as it was"):
        train(2)
    file.write_text(GOOD)
    with pytest.raises(UsageError, match=r"task.reward.repetition.weight: 0.1 there, 0.2 here"):
        train(2, f"{file}:good=1,repetition=0.2")
    assert len(train(2).metrics) == 2


def test_a_value_outside_its_range_ends_the_run_and_names_it(tmp_path):
    def wild(completions):
        return [7.0] * len(completions)

    with pytest.raises(UsageError, match="wild returned 7 for completion 1, outside"):
        part = anypo.Part(wild, high=1.0)
        anypo.train("rloo", reward=part, steps=1, out=tmp_path / "run", **SETTINGS)


@pytest.mark.parametrize(
    "code", re.findall(r"^```python\n(import anypo\n.*?)^```$", PAGE, re.M | re.S)
)
def test_the_examples_of_the_page_run(code, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_files_of_the_page_score(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in re.findall(r'^```\w+ title="(\S+)"\n(.*?)^```$', PAGE, re.M | re.S):
        Path(name).write_text(text)
    row = {"prompt": "2+2?", "answer": "4"}
    named = [text.strip('"') for text in re.findall(r'--reward ("[^"]+"|\w+\.py:\w+)', PAGE)]
    assert len(named) == 3
    for text in named:
        reward = load_reward(text)
        reward.check(row)
        assert len(reward(["2+2?"], [" 4\n"], [row])) == 1
    assert reward(["q"], ["so\nbecause of that"], [row])[0].facts["steps"] == [0.0, 1.0]
    (first, second, third) = parse(yaml.safe_load(Path("run.yaml").read_text())["reward"])
    assert (first.weight, second.options, third.options) == (1.0, {"target": 40}, {"n": 4})
    judge = load_reward("judge:taste.yaml").sources[0]
    assert [c.weight for c in judge.criteria] == [3.0, 1.0] and judge.terms.reference == "answer"
