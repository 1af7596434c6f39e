"""Who may import what: layers, heavy libraries, nothing that runs code, and a light start."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "anypo"
BIN = Path(sys.executable).parent

CORE = {"anypo", "torch", "numpy", "safetensors"}
"""What the core depends on; everything else is an extra."""

ROOMS = {
    "report": {"jinja2", "markupsafe", "matplotlib", "scipy"},
    "cli": {"rich", "tyro", "yaml"},
    "translate": {"yaml"},
}
"""Libraries that one room may use beyond the core; `backends` may use any."""

CODE_RUNNERS = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
"""Modules whose files run code when they are read."""


def imported(source: str) -> set[str]:
    """Top-level names of everything that a file imports, at any depth of its functions."""
    nodes = list(ast.walk(ast.parse(source)))
    plain = {a.name for n in nodes if isinstance(n, ast.Import) for a in n.names}
    origin = {n.module or "anypo" for n in nodes if isinstance(n, ast.ImportFrom) and not n.level}
    return {name.split(".")[0] for name in plain | origin}


def foreign(room: str, source: str) -> set[str]:
    """Libraries that a file of a room may not import."""
    if room == "backends":
        return set()
    return imported(source) - CORE - ROOMS.get(room, set()) - sys.stdlib_module_names


def code_runners(source: str) -> set[str]:
    """Ways to read a file that would run code in it."""
    calls = [n.func for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call)]
    names = {ast.unparse(c) for c in calls} & {"torch.load", "torch.save", "eval", "exec"}
    options = {
        k.arg
        for n in ast.walk(ast.parse(source))
        if isinstance(n, ast.Call)
        for k in n.keywords
        if k.arg in ("allow_pickle", "trust_remote_code") and ast.unparse(k.value) != "False"
    }
    return imported(source) & CODE_RUNNERS | names | options


def lint_imports(folder: Path, config: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """import-linter on the package in `folder`, with the contracts of `config`."""
    return subprocess.run(
        [str(BIN / "lint-imports"), "--no-cache", "--no-logo", *options, str(config)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )


def loaded(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after running some code."""
    tail = "\nimport json, sys\nprint(json.dumps([*sys.modules]), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code + tail],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return {name.split(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}


def command(*words: str) -> str:
    """Code that runs the command line as the console script does."""
    return (
        f"import sys\nsys.argv = {['anypo', *words]!r}\nfrom anypo.cli import main\n"
        "try:\n    code = main()\nexcept SystemExit as stop:\n    code = stop.code\n"
        "assert not code, code"
    )


# ── layers ───────────────────────────────────────────────────────────────────────────────────────


def test_the_tree_keeps_the_contracts():
    done = lint_imports(ROOT / "src", ROOT / "pyproject.toml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def house(tmp_path_factory) -> Path:
    """An empty house with the rooms of the real one."""
    top = tmp_path_factory.mktemp("house")
    rooms = (
        "cli api report verify translate doctor backends recipes rollout engine agents tasks "
        "policies pieces pieces/ratio pieces/advantage core math"
    )
    for room in [".", *rooms.split()]:
        folder = top / "anypo" / room
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").write_text('"""A room."""\n')
    return top


def test_an_empty_house_keeps_the_contracts(house):
    done = lint_imports(house, ROOT / "pyproject.toml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("contract", "place", "line"),
    [
        ("layers", "math/x.py", "import anypo.core"),
        ("layers", "core/x.py", "def f():\n    import anypo.pieces.ratio"),
        ("layers", "pieces/ratio/x.py", "import anypo.engine"),
        ("layers", "engine/x.py", "import anypo.recipes"),
        ("layers", "engine/x.py", "import anypo.tasks"),
        ("layers", "verify/x.py", "import anypo.report"),
        ("layers", "tasks/x.py", "import anypo.policies"),
        ("layers", "recipes/x.py", "import anypo.backends"),
        ("layers", "backends/x.py", "import anypo.report"),
        ("layers", "doctor/x.py", "import anypo.report"),
        ("layers", "backends/x.py", "import anypo.doctor"),
        ("layers", "api/x.py", "import anypo.cli"),
        ("layers", "attic/__init__.py", ""),
        ("axes", "pieces/ratio/x.py", "from anypo.pieces import advantage"),
        ("libraries", "policies/x.py", "import transformers"),
        ("libraries", "tasks/x.py", "import reasoning_gym"),
        ("libraries", "engine/x.py", "import pyarrow.parquet"),
        ("libraries", "cli/x.py", "import peft"),
        ("screens", "engine/x.py", "import rich"),
        ("screens", "api/x.py", "from matplotlib import pyplot"),
    ],
)
def test_a_contract_bites(house, contract, place, line):
    planted = house / "anypo" / place
    planted.parent.mkdir(exist_ok=True)
    planted.write_text(line + "\n")
    done = lint_imports(house, ROOT / "pyproject.toml", "--contract", contract)
    planted.unlink()
    if planted.name == "__init__.py":
        planted.parent.rmdir()
    assert done.returncode == 1
    assert "BROKEN" in done.stdout
    assert (place.split("/")[0] if "__init__" in place else "x") in done.stdout


# ── libraries ────────────────────────────────────────────────────────────────────────────────────


def test_libraries_stay_in_their_rooms():
    found = {}
    for file in SOURCE.rglob("*.py"):
        room = file.relative_to(SOURCE).parts[0]
        if strange := foreign(room, file.read_text("utf-8")):
            found[str(file.relative_to(ROOT))] = strange
    assert found == {}


def test_a_library_in_the_wrong_room_is_noticed():
    hidden = "import math, torch.nn\nfrom anypo.core import batch\ndef f():\n    import scipy.stats"
    assert foreign("core", hidden) == {"scipy"}
    assert foreign("backends", hidden) == set()
    assert foreign("engine", "from rich.console import Console") == {"rich"}
    assert foreign("cli", "from rich.console import Console") == set()
    assert foreign("report", "import tyro") == {"tyro"}


def test_nothing_that_is_read_may_run_code():
    found = {}
    for file in SOURCE.rglob("*.py"):
        if bad := code_runners(file.read_text("utf-8")):
            found[str(file.relative_to(ROOT))] = bad
    assert found == {}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("import pickle", "pickle"),
        ("from pickle import loads", "pickle"),
        ("state = torch.load(path)", "torch.load"),
        ("torch.save(state, path)", "torch.save"),
        ("np.load(path, allow_pickle=True)", "allow_pickle"),
        ("AutoModel.from_pretrained(name, trust_remote_code=flag)", "trust_remote_code"),
        ("eval(text)", "eval"),
    ],
)
def test_code_that_runs_code_is_noticed(line, name):
    assert code_runners(line) == {name}


def test_evaluation_of_a_model_is_no_code():
    assert code_runners("model.eval()\nnp.load(path, allow_pickle=False)") == set()


# ── a light start ────────────────────────────────────────────────────────────────────────────────

HEAVY = {"torch", "numpy", "transformers", "pyarrow", "matplotlib", "reasoning_gym"}


def test_importing_the_package_loads_no_heavy_library():
    modules = loaded("import anypo")
    assert "anypo" in modules
    assert modules & HEAVY == set()


def test_help_loads_no_heavy_library():
    modules = loaded(command("--help"))
    assert "anypo" in modules
    assert modules & HEAVY == set()


def test_loaded_modules_are_seen():
    assert {"torch", "numpy"} <= loaded("import torch")


def test_help_takes_less_than_a_second_of_processor_time():
    spent = []
    for _ in range(3):
        before = os.times()
        loaded(command("--help"))
        after = os.times()
        spent.append(after[2] + after[3] - before[2] - before[3])
    assert min(spent) < 1
