"""The repository as a whole: it is complete, and tied to no machine."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
MACHINE = re.compile(r"(?<![\w./~<-])/(?:work|farm|root|tmp|home|Users)/[\w.]")
HOST = re.compile(
    r"python" + r"hosted\.org|pypi" + r"\.org|registry\.npm" + r"js|--(extra-)?index-url"
)


def files(ending: str = "") -> list[Path]:
    """Tracked files, and new ones that git does not ignore."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = [ROOT / name for name in names.split("\0") if name.endswith(ending) and name]
    return [f for f in found if f.is_file()]


def texts() -> dict[str, str]:
    """Every file of the repository that is text."""
    kinds = (".png", ".safetensors", ".parquet", ".woff2")
    chosen = [f for f in files() if f.suffix not in kinds and f != Path(__file__)]
    return {str(f.relative_to(ROOT)): f.read_text("utf-8") for f in chosen}


def test_no_file_names_a_place_on_a_machine_or_a_registry():
    found = {n: m[0] for n, t in texts().items() if (m := MACHINE.search(t) or HOST.search(t))}
    assert found == {}


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        ("see /" + "work/main", True),
        ('"/' + 'tmp/x"', True),
        ("/" + "home/ada/runs", True),
        ("runs/tmp/x", False),
        ("https://example.com/work/x", False),
        ("<tmp>/x and a / work", False),
    ],
)
def test_a_place_on_a_machine_is_noticed(text, bad):
    assert bool(MACHINE.search(text)) is bad


def locked() -> dict[str, str]:
    """Name → exact version, from the lock file."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def declared() -> list[Requirement]:
    """Every requirement of the project and its extras, its own name left out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    every = [Requirement(r) for r in [*project["dependencies"], *(r for e in extras for r in e)]]
    return [r for r in every if r.name != "anypo"]


def test_the_lock_file_fixes_every_declared_requirement():
    versions = locked()
    names = {canonicalize_name(r.name) for r in declared()}
    assert names - versions.keys() == set()
    wrong = {str(r) for r in declared() if versions[canonicalize_name(r.name)] not in r.specifier}
    assert wrong == set()
    assert [v for v in versions.values() if not re.fullmatch(r"[0-9][0-9A-Za-z.]*", v)] == []


def test_the_core_depends_on_three_libraries():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {Requirement(r).name for r in project["dependencies"]} == {
        "torch",
        "numpy",
        "safetensors",
    }


def test_every_library_that_the_package_imports_is_declared():
    """A name that no extra brings would work here and fail for a user."""
    spelled = {"pyyaml": "yaml", "huggingface-hub": "huggingface_hub"}
    known = {spelled.get(r.name, r.name.replace("-", "_").lower()) for r in declared()}
    imports = set()
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                imports |= {a.name.split(".")[0] for a in node.names}
            if isinstance(node, ast.ImportFrom) and not node.level:
                imports.add((node.module or "").split(".")[0])
    assert imports - sys.stdlib_module_names - known - {"anypo"} == set()


def bare_folders(top: Path) -> list[str]:
    """Folders with Python files but without `__init__.py`: a wheel would leave them out."""
    folders = {f.parent for f in top.rglob("*.py")}
    return sorted(f.name for f in folders if not (f / "__init__.py").exists())


def test_every_folder_of_the_package_is_a_package():
    assert bare_folders(ROOT / "src" / "anypo") == []


def test_a_folder_that_is_no_package_is_noticed(tmp_path):
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "x.py").touch()
    assert bare_folders(tmp_path) == ["room"]


VECTORS = (
    "grpo grpo.loss rloo dr-grpo dr-grpo.loss dapo dapo.overlong dapo.filter dapo-clip-higher gspo "
    "cispo bapo ppo-clip ppo-value-clip gvpo rebel dpo gae flow-grpo-image"
).split()


def test_the_vectors_in_use_are_here():
    here = {f.stem: json.loads(f.read_text()) for f in (ROOT / "tests" / "vectors").glob("*.json")}
    assert set(VECTORS) <= here.keys()
    for name, content in here.items():
        assert {"method", "kind", "source", "cases"} <= content.keys(), name
        assert content["cases"], name
        assert all(case["inputs"] and case["expected"] for case in content["cases"]), name


def test_the_package_ships_its_types_and_its_licence():
    assert (ROOT / "src" / "anypo" / "py.typed").exists()
    licence = (ROOT / "LICENSE").read_text()
    assert "Apache License" in licence
    assert licence.rstrip().endswith("limitations under the License.")


def test_continuous_integration_runs_the_suite():
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert "make test" in script.read_text()
