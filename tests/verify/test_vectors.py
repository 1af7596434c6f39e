"""Every vector file in use agrees with the recipe that training uses, and a flipped sign shows."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import anypo
from anypo.api import recipe
from anypo.core.errors import UsageError
from anypo.verify.verify import files, verify

VECTORS = Path(__file__).parents[1] / "vectors"
FILES = sorted(f.stem for f in VECTORS.glob("*.json"))
BENT = ("loss", "advantages", "advantages_raw", "rewards", "token_rewards", "kept", "full")
"""Results of which one is made wrong, the first that a file has."""


@pytest.mark.parametrize("name", FILES)
def test_vectors_agree(name):
    rows = verify(VECTORS / f"{name}.json", recipe)
    assert len(rows) >= 3
    for row in rows:
        assert row.status == "ok", row
        assert row.error <= row.tolerance <= 1e-6


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_number_in_a_file_is_found(name, tmp_path):
    data = json.loads((VECTORS / f"{name}.json").read_text())
    case = data["cases"][0]["expected"]
    key = next((k for k in BENT if k in case), next(iter(case)))

    def bent(x):
        return [bent(v) for v in x] if isinstance(x, list) else x + 1e-5

    case[key] = bent(case[key])
    path = tmp_path / "bent.json"
    path.write_text(json.dumps(data))
    assert verify(path, recipe)[0].status == "FAILED"


def test_unknown_methods_kinds_and_inputs_are_not_covered(tmp_path):
    data = json.loads((VECTORS / "gspo.json").read_text())
    for change in ({"method": "nobody"}, {"kind": "simulator"}):
        path = tmp_path / "x.json"
        path.write_text(json.dumps({**data, **change}))
        assert {r.status for r in verify(path, recipe)} == {"not covered"}
    data["cases"][0]["inputs"]["temperature_of_clip"] = 3.0
    path.write_text(json.dumps(data))
    rows = verify(path, recipe)
    assert (rows[0].status, rows[1].status) == ("not covered", "ok")
    assert "temperature_of_clip" in rows[0].note


def test_bad_files_are_named(tmp_path):
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(UsageError, match="no vector file"):
        verify(tmp_path / "bad.json", recipe)
    with pytest.raises(UsageError, match="does not exist"):
        files([tmp_path / "absent"])


FLIPS = {
    "surrogate/clip.py": ("torch.minimum(ratio * advantage", "torch.minimum(-ratio * advantage"),
    "regularizer/kl.py": ("penalty = self.beta", "penalty = -self.beta"),
    "advantage/baseline.py": ("centred = value - _centre", "centred = value + _centre"),
    "ratio/ratio.py": ('batch["logp"] - batch[self.to]', 'batch["logp"] + batch[self.to]'),
    "surrogate/regression.py": ("- self.eta * batch", "+ self.eta * batch"),
    "regularizer/value.py": ("return self.coef * 0.5", "return -self.coef * 0.5"),
}


@pytest.mark.parametrize("file", FLIPS)
def test_a_flipped_sign_in_a_piece_turns_verify_red(file, tmp_path):
    source = Path(anypo.__file__).parent
    shutil.copytree(source, tmp_path / "anypo", ignore=shutil.ignore_patterns("__pycache__"))
    target = tmp_path / "anypo" / "pieces" / file
    before, after = FLIPS[file]
    assert before in target.read_text()
    target.write_text(target.read_text().replace(before, after))
    script = (
        "import sys; from pathlib import Path; from anypo.api import recipe;"
        "from anypo.verify.verify import files, verify;"
        "rows = [r for f in files([Path(sys.argv[1])]) for r in verify(f, recipe)];"
        "sys.exit(any(r.status == 'FAILED' for r in rows))"
    )
    command = [sys.executable, "-c", script, str(VECTORS)]
    done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path), "PATH": ""}, cwd=tmp_path)
    assert done.returncode == 1
