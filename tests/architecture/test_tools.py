"""ruff and pyright find nothing in the tree, and find what they are meant to find elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
DOC = '"""A file."""\n\n'


def run(tool: str, *words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """A tool of the environment, run at the top of the repository."""
    return subprocess.run(
        [str(BIN / tool), *words],
        cwd=ROOT,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        input=text,
        capture_output=True,
        text=True,
    )


def codes(name: str, text: str) -> set[str]:
    """What ruff finds in a text that would lie under that name."""
    words = ("check", "--no-cache", "--output-format", "json", "--stdin-filename", name, "-")
    return {each["code"] for each in json.loads(run("ruff", *words, text=text).stdout)}


def test_ruff_finds_nothing():
    done = run("ruff", "check", "--no-cache", ".")
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("src/anypo/core/x.py", "x = 1\n", "D100"),
        ("src/anypo/core/x.py", DOC + "class A:\n    x = 1\n", "D101"),
        ("src/anypo/core/x.py", DOC + "def f():\n    return 1\n", "D103"),
        (
            "src/anypo/engine/x.py",
            DOC + "import torch.distributed as dist\n\nprint(dist)\n",
            "TID251",
        ),
        ("src/anypo/engine/x.py", DOC + "from torch import load\n\nprint(load)\n", "TID251"),
        ("src/anypo/core/x.py", DOC + "x = '" + "a" * 100 + "'\n", "E501"),
        ("src/anypo/core/x.py", DOC + "import os\n", "F401"),
        ("tests/x.py", "import os\n", "F401"),
    ],
)
def test_ruff_bites(name, text, code):
    assert codes(name, text) == {code}


def test_ranks_are_known_in_backends():
    text = DOC + "import torch.distributed as dist\n\nprint(dist)\n"
    assert codes("src/anypo/backends/x.py", text) == set()


def test_pyright_finds_nothing():
    done = run("pyright")
    assert done.returncode == 0, done.stdout[-4000:]


def test_pyright_bites(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def f(x: int) -> str:\n    return x\n")
    done = run("pyright", str(wrong))
    assert done.returncode == 1
    assert "reportReturnType" in done.stdout


def test_pyright_reads_the_rooms_that_must_be_clean():
    seen = json.loads(run("pyright", "--outputjson").stdout)["summary"]["filesAnalyzed"]
    rooms = ("math", "core", "pieces", "recipes")
    assert seen == sum(len([*(ROOT / "src/anypo" / r).rglob("*.py")]) for r in rooms)


def test_the_documentation_builds_without_a_warning(tmp_path):
    done = run("mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "extend" / "index.html").exists()
