"""Generated documentation: complete, up to date, and refused where something is undocumented."""

from __future__ import annotations

import fnmatch
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pages import documented, faithfulness, hooks, methods, reference, text

import anypo
from anypo import api
from anypo.core.errors import UsageError
from anypo.verify import faithfulness as known

ROOT = Path(__file__).parents[2]
PACKAGE = Path(anypo.__file__).parent
NAMES = [i.name for i in anypo.methods()]
STALE = "run `make faithfulness` and commit what it writes"


# ── every public name is documented ──────────────────────────────────────────────────────────────


def test_every_public_name_has_a_docstring():
    assert documented.undocumented(PACKAGE) == []


CLASS = '"""M."""\nclass A:\n    """A."""\n'


def bare(tmp_path: Path, source: str, name: str = "room") -> list[str]:
    """What is undocumented in a package of one module."""
    (tmp_path / "house").mkdir(exist_ok=True)
    (tmp_path / "house" / "__init__.py").write_text('"""House."""')
    (tmp_path / "house" / f"{name}.py").write_text(source)
    return documented.undocumented(tmp_path / "house")


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("x = 1", ["house.room"]),
        ('"""  """', ["house.room"]),
        ('"""M."""\ndef f(): ...', ["house.room.f"]),
        ('"""M."""\nasync def f(): ...', ["house.room.f"]),
        ('"""M."""\nclass A: ...', ["house.room.A"]),
        (CLASS + "    def f(self): ...", ["house.room.A.f"]),
        (
            CLASS + "    def __call__(self): ...",
            ["house.room.A.__call__"],
        ),
        (
            CLASS + "    @property\n    def f(self): ...",
            ["house.room.A.f"],
        ),
        ('"""M."""\ntry:\n    def f(): ...\nexcept OSError: pass', ["house.room.f"]),
        ('"""M."""\nif True:\n    class A: ...', ["house.room.A"]),
        ('"""M."""\ndef _f(): ...\nclass _A:\n    def f(self): ...', []),
        ('"""M."""\ndef f():\n    """F."""\n    def g(): ...', []),
        (CLASS + "    def __init__(self): ...", []),
        (CLASS + "    @f.setter\n    def f(self, x): ...", []),
        ('"""M."""\n@overload\ndef f(): ...\ndef f():\n    """F."""', []),
    ],
)
def test_an_undocumented_name_is_found(tmp_path, source, found):
    assert bare(tmp_path, source) == found


def test_a_private_module_may_say_nothing(tmp_path):
    assert bare(tmp_path, "def f(): ...", name="_room") == []


def test_an_undocumented_name_stops_the_build_of_the_documentation(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "anypo", ignore=shutil.ignore_patterns("__pycache__"))
    planted = tmp_path / "anypo" / "math" / "kl.py"
    planted.write_text(planted.read_text("utf-8") + "\n\ndef planted():\n    return 1\n", "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "public names without a docstring: anypo.math.kl.planted" in done.stdout + done.stderr
    assert not (tmp_path / "site" / "index.html").exists()


# ── a page for every method, a page for every room ───────────────────────────────────────────────


def test_every_method_has_a_page_and_a_line_in_the_list():
    pages = methods.pages()
    assert pages.keys() == {"methods/index.md", *(methods.path(i) for i in anypo.methods())}
    for info in anypo.methods():
        assert f"[`{info.name}`]({info.slug}.md)" in pages["methods/index.md"]
    assert {i.name for infos in methods.families().values() for i in infos} == set(NAMES)


def test_a_page_has_the_recipe_its_pieces_its_evidence_and_its_source():
    page = methods.page(api.find("gspo").info)
    for part in (
        "# GSPO\n",
        "[2507.18071](https://arxiv.org/abs/2507.18071)",
        "**Deviations:** &#124;log s&#124; is capped at 20",
        "    return grpo(group, beta=0).but(",
        "| E | `Clip` | PPO's pessimistic minimum of the raw and the clipped term.<br>`min(r·A, ",
        "- frozen columns: logp_old",
        "- gspo.json, 3 cases, error ≤ 1e-9",
        '??? note "anypo/pieces/surrogate/clip.py: clipped"\n\n    ```python\n    def clipped(',
        "@misc{2507.18071,",
    ):
        assert part in page.replace("\\_", "_"), part
    assert page.count("one length-normalised ratio per answer") == 1


@pytest.mark.parametrize("name", NAMES)
def test_tables_of_a_page_keep_their_columns(name):
    rows = [line for line in methods.page(api.find(name).info).splitlines() if line[:2] == "| "]
    assert rows
    assert {len(re.sub(r"`[^`]*`", "", row).split("|")) for row in rows} == {5}
    assert all("|" not in code for row in rows for code in re.findall(r"`([^`]*)`", row))


def test_the_reference_names_what_is_public():
    pages = reference.pages(PACKAGE)
    assert "- `find(name)`: The method of a name, slug or alias." in pages["reference/api.md"]
    assert "## anypo.core.batch" in pages["reference/core.md"]
    assert "- `Clip(low, high, dual)`: PPO's pessimistic minimum" in pages["reference/pieces.md"]
    assert "_word" not in pages["reference/api.md"]


@pytest.mark.parametrize(
    ("plain", "markdown"),
    [
        ("A*-PO, x_i [a] `x_i*`", r"A\*-PO, x\_i \[a\] `x_i*`"),
        ("A < 0 | b", "A &lt; 0 &#124; b"),
        ("``a`b``", "``a`b``"),
    ],
)
def test_only_backticks_mean_something(plain, markdown):
    assert text.escaped(plain) == markdown


# ── which method when ────────────────────────────────────────────────────────────────────────────


def recommended() -> set[str]:
    """The names in the first column of the tables of choose.md."""
    lines = (ROOT / "docs" / "choose.md").read_text("utf-8").splitlines()
    cells = [line.split("|")[1] for line in lines if line.startswith("| ")]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_what_is_recommended_exists():
    files = (ROOT / "tests" / "vectors").glob("*.json")
    planned = {json.loads(f.read_text("utf-8"))["method"] for f in files}
    planned |= {row.split("\t")[1] for row in api.ACRONYMS.read_text("utf-8").splitlines()}
    names = recommended()
    assert len(names) > 30
    for name in {n for n in names if n.replace("_", "-") not in planned}:
        try:
            api.find(name)
        except UsageError as error:
            pytest.fail(f"choose.md: {error}")


def test_a_sketch_is_recommended_as_a_sketch():
    page = (ROOT / "docs" / "choose.md").read_text("utf-8")
    sketches = {i.name for i in anypo.methods() if i.kind == "sketch"}
    assert [n for n in recommended() & sketches if f"`{n}` (sketch)" not in page] == []


def test_evidence_names_tests_that_exist():
    page = (ROOT / "docs" / "choose.md").read_text("utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)
    assert len(named) > 10
    for file, test in named:
        assert test in (ROOT / file).read_text("utf-8"), f"{file} has no {test}"


def test_names_become_links_and_what_is_missing_says_so():
    page = "| `dr-grpo`, `spo_selfplay` | `logp` | [`dr_grpo`](x.md) |"
    linked = hooks.linked(page, {"dr_grpo": "methods/dr-grpo.md"}, {"spo-selfplay"})
    shown = "| [`dr-grpo`](methods/dr-grpo.md), `spo_selfplay` (not here yet) | `logp` "
    assert linked == f"{shown}| [`dr_grpo`](x.md) |"


def test_tests_become_footnotes_each_with_one_number():
    page = "| a (`tests/x.py::f`, `tests/y.py::g`) | b (`tests/x.py::f`), see `tests/z.py` |\n"
    text, notes = hooks.noted(page).split("\n\n")
    assert text == "| a[^1], [^2] | b[^1], see `tests/z.py` |"
    assert notes == "[^1]: `tests/x.py::f`\n[^2]: `tests/y.py::g`\n"


# ── faithfulness ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def measured() -> list[known.Proof]:
    """Every reference file, run now."""
    return known.measure(faithfulness.VECTORS, api.find)


def test_the_record_that_the_package_ships_is_up_to_date(measured):
    assert known.stored(measured) == known.STORED.read_text("utf-8"), STALE


def test_the_page_is_up_to_date(measured):
    assert faithfulness.page(measured) == faithfulness.PAGE.read_text("utf-8"), STALE


def test_every_file_is_in_the_record_and_none_fails(measured):
    files = {f.name for f in faithfulness.VECTORS.glob("*.json")}
    assert {p.file for p in measured} == files
    assert [p for p in measured if p.failed] == []
    assert all(p.error <= p.tolerance or not p.within for p in measured)


def proof(**changes) -> known.Proof:
    """A record that agrees."""
    facts = {"method": "grpo", "file": "x.json", "kind": "loss", "ok": 3, "failed": 0}
    facts |= {"uncovered": 0, "error": 1e-9, "tolerance": 1e-8, "source": "by hand"}
    return known.Proof(**{**facts, **changes})


def test_a_method_is_verified_when_something_agrees_and_nothing_fails():
    assert known.agrees([proof()])
    assert known.agrees([proof(), proof(ok=0, uncovered=3)])
    assert not known.agrees([proof(), proof(failed=1)])
    assert not known.agrees([proof(ok=0, uncovered=3)])
    assert not known.agrees([])
    assert (proof().cases, proof(uncovered=1).cases) == ("3", "3 of 4")
    assert (proof().within, proof(ok=0, uncovered=3).within) == ("1e-9", "")


def file(tmp_path: Path, shift: float) -> Path:
    """A reference file whose numbers are off by so much."""
    data = json.loads((ROOT / "tests" / "vectors" / "grpo.json").read_text("utf-8"))
    rows = data["cases"][0]["expected"]["advantages"]
    data["cases"][0]["expected"]["advantages"] = [[x + shift for x in row] for row in rows]
    (tmp_path / "grpo.json").write_text(json.dumps(data))
    return tmp_path


@pytest.mark.parametrize(
    ("shift", "error", "failed"),
    [(0.0, 1e-12, 0), (2e-10, 1e-9, 0), (3e-9, 1e-8, 0), (2e-8, 1e-7, 1), (0.5, 1.0, 1)],
)
def test_errors_are_measured_and_rounded_up(tmp_path, shift, error, failed):
    (found,) = known.measure(file(tmp_path, shift), api.find)
    assert (found.method, found.failed) == ("grpo", failed)
    assert math.isclose(found.error, error)
    page = faithfulness.page([found])
    assert ("**FAILED**" in page) == bool(failed)
    assert f"≤ {known.power(error)}" in page


def test_files_of_no_method_are_told_apart(tmp_path):
    data = json.loads((ROOT / "tests" / "vectors" / "grpo.json").read_text("utf-8"))
    for name in ("nobody", "gae"):
        (tmp_path / f"{name}.json").write_text(json.dumps({**data, "method": name}))
    owners = {p.file: p.method for p in known.measure(tmp_path, api.find)}
    assert owners == {"nobody.json": "", "gae.json": "-"}


@pytest.mark.parametrize(
    ("doc", "said"),
    [
        ("A.\n\nDeviations: one;\n  two. Reference: X.", "one; two."),
        ("A. Deviation: one `x`. Shapes: `[N]`.", "one `x`."),
        ("A. Deviations: one.\n\nMore.", "one."),
        ("A. Deviations: none.", "none."),
        ("The standard deviation: no.", ""),
        ("A. Sketch: known is a, b is ours. Reference: X.", "known is a, b is ours."),
        ("Nothing.", ""),
    ],
)
def test_deviations_are_read_from_the_docstring(doc, said):
    assert known.deviations(doc) == said


@pytest.mark.parametrize("name", [i.name for i in anypo.methods() if i.kind != "sketch"])
def test_every_method_says_whether_it_deviates(name):
    assert known.deviations(api.find(name).info.doc)


def test_survivors_of_mutation_stand_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(faithfulness, "SURVIVORS", tmp_path / "survivors.json")
    assert "No full run is recorded." in faithfulness.page([])
    row = {
        "file": "math/kl.py",
        "line": 3,
        "original": "a | b",
        "mutated": "a & b",
        "reason": "r_1",
    }
    (tmp_path / "survivors.json").write_text(json.dumps({"mutants": 9, "survivors": [row]}))
    page = faithfulness.page([])
    assert "9 wrong lines were tried; 1 of them" in page
    assert page.rstrip().endswith("| `math/kl.py` 3 | `a ∣ b` | `a & b` | r\\_1 |")


# ── what an installed package needs ──────────────────────────────────────────────────────────────


def test_data_files_of_the_package_are_shipped():
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    globs = setup["package-data"]["anypo"]
    files = [f for f in PACKAGE.rglob("*") if f.is_file() and f.suffix not in (".py", ".pyc")]
    names = {f.relative_to(PACKAGE).as_posix() for f in files}
    assert {"acronyms.tsv", "verify/faithfulness.json"} <= names
    shipped = {n for n in names for g in globs if fnmatch.fnmatch(n, g.replace("**/", "*"))}
    assert names - shipped == set()


def test_an_installed_package_lists_what_is_verified(tmp_path):
    """Without the folder of reference files, the record beside the code answers."""
    shutil.copytree(PACKAGE, tmp_path / "anypo", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-m", "anypo", "methods", "--verified", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert "grpo" in {e["name"] for e in json.loads(done.stdout)}, done.stderr
