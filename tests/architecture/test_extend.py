"""The worked example of docs/extend.md works: one function, one vector file, nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
COMMAND = "import sys; from anypo.cli import main; sys.exit(main())"


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A copy of the package in which a reader did what the page says."""
    top = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "src", top / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (top / "tests" / "vectors").mkdir(parents=True)
    text = (ROOT / "docs" / "extend.md").read_text("utf-8")
    for name, block in BLOCK.findall(text):
        old = (top / name).read_text("utf-8") if name.endswith(".py") else ""
        (top / name).write_text(f"{old}\n\n{block}" if old else block, "utf-8")
    return top


def anypo(clone: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command line of the copy."""
    env = {**os.environ, "PYTHONPATH": str(clone / "src")}
    words = (sys.executable, "-c", COMMAND, *words)
    return subprocess.run(words, cwd=clone, env=env, capture_output=True, text=True)


def test_the_page_touches_one_function_and_one_vector_file():
    names = [name for name, _ in BLOCK.findall((ROOT / "docs" / "extend.md").read_text("utf-8"))]
    assert names == ["src/anypo/recipes/group_relative.py", "tests/vectors/median-po.json"]


def test_the_new_method_is_known_by_both_spellings(clone):
    for name in ("median-po", "median_po"):
        done = anypo(clone, "show", name)
        assert done.returncode == 0, done.stderr
        assert "invented for docs/extend.md" in done.stdout


def test_the_numbers_of_the_page_agree(clone):
    done = anypo(clone, "verify", "--strict", "tests/vectors/median-po.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "median" in done.stdout


@pytest.mark.parametrize("wrong", ["std", "off"])
def test_another_scale_than_the_pages_does_not_agree(clone, wrong):
    file = clone / "src" / "anypo" / "recipes" / "group_relative.py"
    right = file.read_text("utf-8")
    file.write_text(right.replace('scale="batch"', f'scale="{wrong}"'), "utf-8")
    done = anypo(clone, "verify", "--strict", "tests/vectors/median-po.json")
    file.write_text(right, "utf-8")
    assert done.returncode != 0
    assert "median" in done.stdout + done.stderr


def test_a_flipped_sign_in_the_numbers_does_not_agree(clone):
    file = clone / "tests" / "vectors" / "median-po.json"
    content = json.loads(file.read_text())
    rows = content["cases"][0]["expected"]["advantages"]
    content["cases"][0]["expected"]["advantages"] = [[-x for x in row] for row in rows]
    (clone / "flipped.json").write_text(json.dumps(content))
    done = anypo(clone, "verify", "--strict", "flipped.json")
    assert done.returncode != 0
    assert "median" in done.stdout + done.stderr
