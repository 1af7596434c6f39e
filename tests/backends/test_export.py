"""An export is what other software loads: the same logits, as transformers and peft have it."""

from __future__ import annotations

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

import anypo
from anypo.backends import hub
from anypo.backends.export import MARK, origin
from anypo.cli import main
from anypo.core.errors import UsageError

TEXTS = ["abc", "a longer text, 1 + 2 = 3", "d"]


def logits(model: Any, tokenizer: Any) -> torch.Tensor:
    """Of some texts, one after the other."""
    model.eval()
    with torch.no_grad():
        rows = [model(**tokenizer(text, return_tensors="pt")).logits[0] for text in TEXTS]
    return torch.cat(rows)


def own_logits(folder: Path) -> torch.Tensor:
    """Of the policy that anypo itself loads."""
    policy = anypo.load_policy(folder)
    return logits(policy.module, policy.tokenizer)


def opened(folder: Path, **options: Any) -> tuple[Any, Any]:
    """Model and tokenizer as anybody loads them."""
    model = AutoModelForCausalLM.from_pretrained(folder, **options)
    return model, AutoTokenizer.from_pretrained(folder)


# ── whole models ─────────────────────────────────────────────────────────────────────────────────


def test_transformers_loads_a_model_with_the_same_logits(trained, tmp_path):
    folder = anypo.export(trained, tmp_path / "out")
    model, tokenizer = opened(folder)
    assert model.dtype == torch.float32
    assert torch.allclose(logits(model, tokenizer), own_logits(trained), atol=1e-5)
    kept = load_file(trained / "checkpoint-14" / "model.safetensors")
    written = load_file(folder / "model.safetensors")
    assert kept.keys() == written.keys()
    assert all(torch.equal(kept[name], written[name]) for name in kept)
    assert GenerationConfig.from_pretrained(folder).eos_token_id == 0
    first = logits(*opened(anypo.export(trained, tmp_path / "early", checkpoint=7)))
    assert not torch.allclose(first, logits(model, tokenizer))
    again = anypo.load_policy(folder)
    assert again.generate_text("abc", temperature=0) == anypo.generate(
        trained, "abc", temperature=0
    )


def test_nothing_but_weights_and_text_is_written(trained, tmp_path):
    folder = anypo.export(trained, tmp_path / "out")
    names = {p.name for p in folder.iterdir()}
    assert names == {
        *("config.json", "generation_config.json", "model.safetensors", "tokenizer.json"),
        *("tokenizer_config.json", "README.md", "learning_curve.png", MARK),
    }
    text = "".join(p.read_text("utf-8") for p in folder.iterdir() if p.suffix in (".json", ".md"))
    assert str(tmp_path) not in text
    assert str(trained.parent) not in text, "the author's folders are nobody's business"
    facts = json.loads((trained / "anypo.json").read_text())
    assert json.loads((folder / MARK).read_text()) == facts["recipe"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_weights_may_be_rounded(trained, tmp_path, dtype):
    folder = anypo.export(trained, tmp_path / "out", dtype=dtype)
    kind = getattr(torch, dtype)
    assert {x.dtype for x in load_file(folder / "model.safetensors").values()} == {kind}
    assert json.loads((folder / "config.json").read_text())["dtype"] == dtype
    model, tokenizer = opened(folder, dtype=torch.float32)
    own = own_logits(trained)
    gap = (logits(model, tokenizer) - own).abs().max()
    assert 0 < gap < 0.05 * own.abs().max()


def test_a_chat_template_comes_along(trained, tmp_path):
    run = tmp_path / "run"
    policy = anypo.load_policy(trained)
    policy.tokenizer.chat_template = "{% for m in messages %}<{{ m.content }}>{% endfor %}"
    policy.save(run / "checkpoint-1")
    facts = json.loads((trained / "anypo.json").read_text())
    (run / "anypo.json").write_text(json.dumps(facts))
    folder = anypo.export(run)
    assert folder == run / "export"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    chat = [{"role": "user", "content": "hi"}]
    assert tokenizer.apply_chat_template(chat, tokenize=False) == "<hi>"
    assert "apply_chat_template" in (folder / "README.md").read_text("utf-8")


# ── adapters ─────────────────────────────────────────────────────────────────────────────────────


def test_peft_loads_an_adapter_on_the_base_that_it_names(adapted, tmp_path):
    folder = anypo.export(adapted, tmp_path / "out")
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(folder / "base")
    assert config["revision"] is None
    base, tokenizer = opened(Path(config["base_model_name_or_path"]))
    plain = logits(base, tokenizer)
    model = PeftModel.from_pretrained(base, folder)
    own = own_logits(adapted)
    assert torch.allclose(logits(model, tokenizer), own, atol=1e-5)
    assert not torch.allclose(plain, own, atol=1e-3), "the adapter does something"
    assert torch.allclose(logits(*opened(folder)), own, atol=1e-5), "transformers knows adapters"
    size = sum(x.numel() for x in load_file(folder / "adapter_model.safetensors").values())
    assert f"A LoRA adapter of {size:,} parameters" in (folder / "README.md").read_text("utf-8")


def test_a_merged_adapter_is_the_same_model(adapted, tmp_path):
    folder = anypo.export(adapted, tmp_path / "out", merge=True)
    assert not (folder / "adapter_config.json").exists()
    model, tokenizer = opened(folder)
    own = own_logits(adapted)
    torch.testing.assert_close(logits(model, tokenizer), own, rtol=1e-4, atol=1e-4)
    base = logits(*opened(anypo.export(adapted, tmp_path / "kept") / "base"))
    assert float((base - own).abs().max()) > 100 * float(
        (logits(model, tokenizer) - own).abs().max()
    )


def test_the_base_may_be_called_otherwise(adapted, tmp_path):
    folder = anypo.export(adapted, tmp_path / "out", base="somebody/base")
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "somebody/base"
    assert not (folder / "base").exists()
    assert "'somebody/base'" in (folder / "README.md").read_text("utf-8")


def test_an_adapter_on_a_run_names_its_checkpoint(trained, tmp_path):
    settings = {"steps": 1, "prompts": 4, "eval_every": 0, "out": tmp_path / "second"}
    anypo.train("grpo", str(trained), "first_letter", lora=2, **settings)
    folder = anypo.export(tmp_path / "second")
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str((trained / "checkpoint-14").resolve())
    assert torch.allclose(logits(*opened(folder)), own_logits(tmp_path / "second"), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("owner/model", "owner/model"), ("tiny", ""), ("runs/x/y", ""), ("a/b](javascript:x", "")],
)
def test_only_a_hub_id_is_an_origin(name, expected):
    assert origin(name) == (expected, False)


def test_dequantised_weights_are_named_by_their_place_and_said_to_be_so(monkeypatch, tmp_path):
    from anypo.backends import export, smollm2

    monkeypatch.setenv("ANYPO_CACHE", str(tmp_path))
    assert origin("smollm2-135m") == (smollm2.HUB_ID, False)
    folder = tmp_path / "smollm2-135m"
    folder.mkdir()
    monkeypatch.setattr(smollm2, "folder", lambda: folder)
    for source, place in (("PyPI, dequantised from 4-bit", str(folder)), ("hub", smollm2.HUB_ID)):
        (folder / "source.json").write_text(json.dumps({"source": source}))
        assert origin("smollm2-135m")[1] == (place == str(folder))
        assert export._found("smollm2-135m") == place


# ── small policies ───────────────────────────────────────────────────────────────────────────────


def test_a_controller_is_kept_as_it_is(tmp_path):
    settings = {"steps": 1, "prompts": 2, "horizon": 20, "out": tmp_path / "run"}
    anypo.train("ppo", task="CartPole-v1", **settings)
    folder = anypo.export(tmp_path / "run", tmp_path / "out")
    mine, theirs = anypo.load_policy(folder), anypo.load_policy(tmp_path / "run")
    for a, b in zip(mine.module.parameters(), theirs.module.parameters()):
        assert torch.equal(a, b)
    assert "anypo.load_policy" in (folder / "README.md").read_text("utf-8")
    with pytest.raises(UsageError, match="kept as it is, in float32"):
        anypo.export(tmp_path / "run", tmp_path / "out", dtype="bfloat16")
    assert anypo.load_policy(folder).name == "categorical", "what was there is left alone"


# ── what is refused ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--merge", "there is no adapter to merge"),
        ("--base a/b", "base says what an adapter belongs to"),
        ("--dtype bfloat", "dtype 'bfloat' is none of .*did you mean bfloat16"),
        ("--checkpoint 9", "keeps no checkpoint 9: there are 7, 14"),
        ("--private", "private acts on push alone"),
        ("--push nobody", "write user/name"),
        ("--push a/b/c", "names no repository"),
    ],
)
def test_what_a_user_can_mend_is_one_sentence(trained, tmp_path, capsys, options, sentence):
    out = tmp_path / "out"
    assert main(["export", str(trained), "--to", str(out), *options.split()]) == 2
    with pytest.raises(UsageError, match=sentence):
        raise UsageError(capsys.readouterr().err.splitlines()[-1])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_other_things_is_left_alone(trained, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(UsageError, match="is not empty and holds no export"):
        anypo.export(trained, tmp_path)
    with pytest.raises(UsageError, match="is no run"):
        anypo.export(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_export_may_be_written_anew(trained, adapted, tmp_path):
    anypo.export(adapted, tmp_path / "out")
    anypo.export(trained, tmp_path / "out")
    assert not (tmp_path / "out" / "adapter_config.json").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_failure_leaves_what_was_there(trained, tmp_path, monkeypatch):
    folder = anypo.export(trained, tmp_path / "out")
    before = (folder / "model.safetensors").read_bytes()
    monkeypatch.setattr("anypo.backends.export._counted", lambda *a: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        anypo.export(trained, tmp_path / "out", checkpoint=7)
    assert (folder / "model.safetensors").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


# ── the hub ──────────────────────────────────────────────────────────────────────────────────────


class FakeHub(BaseHTTPRequestHandler):
    """As much of the hub as an upload of small files speaks to, in a server of its own."""

    status = 200

    def log_message(self, *args: Any) -> None:
        """Say nothing."""

    def _answer(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(self.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self._answer({"id": "user/name", "sha": "0" * 40, "siblings": []})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.path, self.headers.get("Authorization"), body))
        if self.path.endswith("/repos/create"):
            return self._answer({"url": "http://127.0.0.1/user/name"})
        if "/preupload/" in self.path:
            names = [f["path"] for f in json.loads(body)["files"]]
            files = [{"path": n, "uploadMode": "regular", "shouldIgnore": False} for n in names]
            return self._answer({"files": files})
        if "/commit/" in self.path:
            url = "http://127.0.0.1/user/name/commit/0"
            return self._answer({"success": True, "commitOid": "0" * 40, "commitUrl": url})
        return self._answer({})


@pytest.fixture
def server(monkeypatch):
    """A hub on this machine, which the library is pointed to."""
    from huggingface_hub import HfApi, constants

    made = ThreadingHTTPServer(("127.0.0.1", 0), FakeHub)
    made.seen = []
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    place = f"http://127.0.0.1:{made.server_port}"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "HfApi", lambda: HfApi(endpoint=place, token="hf_secret"))
    yield made
    made.shutdown()
    made.server_close()
    monkeypatch.setattr(FakeHub, "status", 200)


def test_an_upload_sends_every_file(trained, tmp_path, server, capsys):
    code = main(["export", str(trained), "--to", str(tmp_path / "out"), "--push", "user/name"])
    assert code == 0, capsys.readouterr().err
    assert "pushed to " in capsys.readouterr().out
    made, *_ = [json.loads(b) for path, _, b in server.seen if path.endswith("/repos/create")]
    assert made["name"] == "name"
    (commit,) = [body for path, _, body in server.seen if "/commit/main" in path]
    lines = [json.loads(line) for line in commit.decode().splitlines()]
    sent = {line["value"]["path"] for line in lines if line["key"] == "file"}
    assert sent == {p.name for p in (tmp_path / "out").iterdir()}
    assert {token for _, token, _ in server.seen} == {"Bearer hf_secret"}
    assert "from_pretrained('user/name')" in (tmp_path / "out" / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("status", "sentence"), [(403, "refuses to write"), (500, "the hub failed")]
)
def test_a_hub_that_refuses_leaves_the_folder(
    trained, tmp_path, server, monkeypatch, status, sentence
):
    monkeypatch.setattr(FakeHub, "status", status)
    with pytest.raises(UsageError, match=f"{sentence}.*is complete: push it later"):
        anypo.export(trained, tmp_path / "out", push="user/name")
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_without_a_network_or_a_token_it_says_so(trained, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="the Hugging Face hub does not answer"):
        anypo.export(trained, tmp_path / "out", push="user/name")
    from huggingface_hub import HfApi, constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "HfApi", lambda: HfApi(endpoint="http://127.0.0.1:9", token="x"))
    with pytest.raises(UsageError, match="the Hugging Face hub does not answer"):
        anypo.export(trained, tmp_path / "out", push="user/name")
    monkeypatch.setattr(hub, "HfApi", lambda: HfApi(endpoint="http://127.0.0.1:9", token=True))
    monkeypatch.setenv("HF_TOKEN_PATH", os.devnull)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", os.devnull)
    with pytest.raises(UsageError, match="hf auth login"):
        anypo.export(trained, tmp_path / "out", push="user/name")


def test_an_adapter_whose_base_nobody_has_is_not_pushed(adapted, tmp_path):
    with pytest.raises(UsageError, match="merge it, or name its base on the hub"):
        anypo.export(adapted, tmp_path / "out", push="user/name")
