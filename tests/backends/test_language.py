"""Language policies: what is scored is what was sampled, however sequences are laid out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import MambaConfig, MambaForCausalLM

from anypo.backends import tiny
from anypo.backends.language_load import load_policy
from anypo.backends.language_pack import pack
from anypo.backends.language_sample import invert
from anypo.backends.language_score import CHUNK, Readout, score
from anypo.backends.transformers import HFPolicy
from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from tests.backends.language import CONFIGS, PROMPTS, make, plain, roll

NAMES = ["tiny", *CONFIGS]
ALL = frozenset({"logp", "entropy", "value", "value_next"})
CLOSE = {"float32": 1e-5, "float64": 1e-10}


def head_of(policy: HFPolicy) -> torch.nn.ModuleDict:
    head: Any = policy.head(1)
    with torch.no_grad():
        head.weight.copy_(torch.linspace(-0.2, 0.2, head.weight.numel())[None])
    return torch.nn.ModuleDict({"value": head})


def logp_of(policy: HFPolicy, batch: Batch) -> Tensor:
    with torch.no_grad():
        return policy.columns(batch, frozenset({"logp"}), {})["logp"]


def weights_of(policy: HFPolicy) -> list[Tensor]:
    return [p.detach().clone() for p in policy.module.parameters()]


# ── sampler and trainer score the same distribution ─────────────────────────────────────────────


@pytest.mark.parametrize("name", NAMES)
def test_what_was_sampled_is_what_is_scored_whatever_the_padding(name: str) -> None:
    policy = make(name)
    batch = roll(policy, temperature=0.7)
    lengths = {len(policy.prompt_ids(prompt)) for prompt in PROMPTS}
    assert len(lengths) > 3, "the prompts must need padding"
    assert batch["logp_mu"].min() < -2, "the distribution must not be flat"
    assert torch.allclose(logp_of(policy, batch), batch["logp_mu"], atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("precision", CLOSE)
def test_columns_and_gradients_are_those_of_each_sequence_alone(name: str, precision: str) -> None:
    policy = make(name, precision)
    batch = roll(policy, temperature=0.8)
    heads = head_of(policy)
    trained = [*policy.module.parameters(), *heads.parameters()]
    got, want = policy.columns(batch, ALL, heads), plain(policy, batch, heads)
    totals = []
    for columns in (got, want):
        slopes = torch.linspace(-1, 1, len(batch)).double()
        totals.append(sum((slopes.roll(k) * columns[c]).mean() for k, c in enumerate(sorted(ALL))))
    for column in ALL:
        assert str(got[column].dtype) == f"torch.{precision}"
        assert torch.allclose(got[column], want[column], atol=CLOSE[precision], rtol=0), column
    grads = [torch.autograd.grad(t, trained, allow_unused=True) for t in totals]
    for a, b in zip(*grads, strict=True):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            scale = max(1.0, float(b.abs().max()))
            assert torch.allclose(a, b, atol=CLOSE[precision] * scale, rtol=0)


def test_any_split_gives_the_same_gradient() -> None:
    policy = make("tiny", "float64")
    batch = roll(policy)
    slopes = torch.linspace(-1, 1, len(batch)).double()
    whole, parts = [], []
    for cuts, grads in (([None], whole), ([1, 0, 2], parts)):
        policy.module.zero_grad()
        for cut in cuts:
            steps = torch.arange(len(batch))
            steps = steps if cut is None else steps[batch.id("traj") % 3 == cut]
            part = batch.take(steps)
            logp = policy.columns(part, frozenset({"logp"}), {})["logp"]
            (slopes[steps] * logp).sum().backward()
        grads += [p.grad.clone() for p in policy.module.parameters() if p.grad is not None]
    assert len(whole) == len(list(policy.module.parameters()))
    for a, b in zip(whole, parts, strict=True):
        assert torch.allclose(a, b, atol=1e-10, rtol=1e-10)


def test_steps_may_be_any_subset_in_any_order() -> None:
    policy = make("tiny")
    batch = roll(policy)
    steps = torch.randperm(len(batch), generator=torch.Generator().manual_seed(0))[::3]
    assert torch.allclose(
        logp_of(policy, batch.take(steps)), logp_of(policy, batch)[steps], atol=1e-5
    )


def test_temperature_divides_the_scored_logits() -> None:
    readout = Readout(torch.eye(3), scale=1.0)
    hidden, row = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0])
    logp, entropy = score(readout, hidden, row, torch.tensor([0]), temperature=0.5)
    assert logp.item() == pytest.approx(-0.142932, abs=1e-6)
    p = torch.softmax(torch.tensor([4.0, 2.0, 0.0]), 0)
    assert entropy.item() == pytest.approx(float(-(p * p.log()).sum()), abs=1e-6)


@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_scores_of_more_states_than_a_chunk_have_their_exact_gradient(softcap: float) -> None:
    g = torch.Generator().manual_seed(0)
    count = 5 * CHUNK + 3
    hidden = torch.randn(count, 4, generator=g, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(7, 4, generator=g, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(7, generator=g, dtype=torch.float64, requires_grad=True)
    row = torch.arange(count).repeat_interleave(torch.arange(count) % 3)
    token = torch.randint(7, (len(row),), generator=g)
    slope = torch.randn(len(row), generator=g, dtype=torch.float64)
    leaves = (hidden, weight, bias)
    logp, entropy = score(Readout(weight, bias, 1.5, softcap), hidden, row, token, 0.7)
    got = torch.autograd.grad((slope * logp + slope.flip(0) * entropy).sum(), leaves)
    logits = 1.5 * (hidden @ weight.t() + bias)
    logits = softcap * torch.tanh(logits / softcap) if softcap else logits
    table = torch.log_softmax(logits / 0.7, -1)[row]
    own = table.gather(1, token[:, None])[:, 0]
    spread = -(table.exp() * table).sum(-1)
    want = torch.autograd.grad((slope * own + slope.flip(0) * spread).sum(), leaves)
    assert torch.allclose(logp, own, atol=1e-12) and torch.allclose(entropy, spread, atol=1e-12)
    for a, b in zip(got, want, strict=True):
        assert torch.allclose(a, b, atol=1e-10)


# ── what is shared is encoded once ──────────────────────────────────────────────────────────────


def test_a_token_is_encoded_once_for_all_that_share_it() -> None:
    sequences = [[1, 2, 3, 4, 5], [1, 2, 9], [1, 2, 3, 4, 6], [1, 2, 3, 4, 5], [8, 2]]
    packed = pack(sequences, reach=1e9, dtype=torch.float32)
    prefixes = {tuple(s[:n]) for s in sequences for n in range(1, len(s) + 1)}
    assert len(packed.tokens) == len(prefixes)
    offset = 0
    for mask in packed.rows:
        for i, j in (mask == 0).nonzero().tolist():
            a, b = offset + i, offset + j
            owners = [s.tolist() for s in packed.slots if a in s and b in s]
            assert any(s.index(b) <= s.index(a) for s in owners), "a token sees only its own past"
        offset += len(mask)
    for sequence, slots in zip(sequences, packed.slots, strict=True):
        assert packed.tokens[slots].tolist() == sequence
        assert packed.positions[slots].tolist() == list(range(len(sequence)))


def test_a_row_ends_where_sharing_no_longer_pays() -> None:
    sequences = [[1, 2, *range(10, 20)], [1, 2, *range(30, 40)]]
    assert len(pack(sequences, 100, torch.float32).rows) == 1
    assert [len(m) for m in pack(sequences, 10, torch.float32).rows] == [12, 12]


def test_a_prompt_is_read_once_for_its_group_and_what_prompts_share_once_for_all() -> None:
    policy = make("tiny")
    seen: list[int] = []
    policy.net.decoder.embed_tokens.register_forward_hook(
        lambda module, args, out: seen.append(args[0].numel())
    )
    prompts = ["the same beginning, A", "the same beginning, B"]
    policy.generate(prompts, 8, 1, keys=range(16))
    assert sum(seen) == len("the same beginning, ") + 2
    seen.clear()
    whole = roll(policy, samples=6)
    batch = whole.take(whole.id("group") == 2)
    seen.clear()
    logp_of(policy, batch)
    tokens, prompt = [t.tolist() for t in batch.inputs["tokens"]], len(PROMPTS[2])
    prefixes = {tuple(t[:n]) for t in tokens for n in range(prompt + 1, len(t))}
    assert len(tokens) == 6 and sum(seen) == prompt + len(prefixes)


def test_costs_share_a_prompt_among_its_sequences() -> None:
    tokens = [torch.arange(10), torch.arange(10), torch.tensor([*range(7), 50]), torch.arange(5)]
    batch = Batch(
        ids={"seq": torch.arange(4)}, inputs={"tokens": tokens, "prompt_length": [7, 7, 7, 2]}
    )
    assert make("tiny").costs(batch) == [3 + 3, 3 + 3, 1 + 3, 3 + 2]


# ── sampling ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["tiny", "gpt2", "mistral, window of 5"])
def test_a_sample_depends_on_its_key_alone(name: str) -> None:
    policy = make(name)
    keys = [11, 12, 13, 14, 15, 16]
    among = policy.generate(PROMPTS[:3], 2, 9, keys=keys)
    alone = [policy.generate([PROMPTS[k // 2]], 1, 9, keys=[key])[0] for k, key in enumerate(keys)]
    for a, b in zip(among, alone, strict=True):
        assert a.token_ids.tolist() == b.token_ids.tolist()
        assert torch.allclose(a.logp, b.logp, atol=1e-4)
    other = policy.generate(PROMPTS[:3], 2, 9, keys=[k + 100 for k in keys])
    assert [c.text for c in among] != [c.text for c in other]
    equal = policy.generate(PROMPTS[:1], 2, 9, keys=[5, 5])
    assert equal[0].text == equal[1].text


def test_a_shorter_horizon_gives_the_beginning_of_the_same_sample() -> None:
    policy = make("tiny")
    long = policy.generate(PROMPTS, 1, 9, keys=range(5))
    short = policy.generate(PROMPTS, 1, 4, keys=range(5))
    assert [c.token_ids[:4].tolist() for c in long] == [c.token_ids.tolist() for c in short]


def test_tokens_are_drawn_from_the_distribution_that_is_recorded() -> None:
    logits = torch.randn(1, 97, generator=torch.Generator().manual_seed(3)) * 2
    logits[0, 5], logits[0, 96] = -torch.inf, -torch.inf
    count = 100_000
    uniform = (torch.arange(count).double() + 0.5) / count
    token, logp = invert(logits, torch.zeros(count, dtype=torch.long), uniform, 0.7)
    p = torch.softmax(logits[0].double() / 0.7, -1)
    share = torch.bincount(token, minlength=97).double() / count
    assert torch.allclose(share, p, atol=2 / count)
    assert torch.allclose(logp.double().exp(), p[token], atol=1e-6)
    top = torch.tensor([1 - 2**-53], dtype=torch.float64)
    last, _ = invert(logits, torch.zeros(1, dtype=torch.long), top, 1.0)
    assert last.item() == 95, "rounding must not lead to a token without a chance"


def test_temperature_0_takes_the_largest_logit_of_the_whole_model() -> None:
    policy = make("llama, untied")
    model: Any = policy.module
    for completion, prompt in zip(
        policy.generate(PROMPTS, 1, 9, keys=[0] * 5, temperature=0.0), PROMPTS, strict=True
    ):
        ids = policy.prompt_ids(prompt).tolist()
        for token in completion.token_ids.tolist():
            assert token == int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax())
            ids.append(token)
        assert completion.logp.tolist() == [0.0] * len(completion.token_ids)


def test_a_generation_config_does_not_truncate() -> None:
    policy, other = make("tiny"), make("tiny")
    model: Any = other.module
    model.generation_config.top_k, model.generation_config.top_p = 1, 0.1
    model.generation_config.temperature, model.generation_config.do_sample = 0.1, True
    a, b = (p.generate(PROMPTS, 2, 9, keys=range(10)) for p in (policy, other))
    assert [c.text for c in a] == [c.text for c in b]
    assert len({c.text for c in a}) > 5


def test_every_end_token_of_the_generation_config_ends() -> None:
    causal: Any = tiny.model()
    free = HFPolicy(causal, tiny.tokenizer(), name="tiny", precision="float32")
    drawn = free.generate(["hello"], 20, 30, keys=range(20))
    common = torch.cat([c.token_ids for c in drawn]).bincount(minlength=97)
    causal.generation_config.eos_token_id = [0, int(common[1:].argmax()) + 1]
    policy = HFPolicy(causal, tiny.tokenizer(), name="tiny", precision="float32")
    ends = set(causal.generation_config.eos_token_id)
    again = policy.generate(["hello"], 20, 30, keys=range(20))
    assert {int(c.token_ids[-1]) for c in again if c.finished} == ends
    for before, after in zip(drawn, again, strict=True):
        ids = before.token_ids.tolist()
        first = next((k for k, t in enumerate(ids) if t in ends), 29)
        assert after.token_ids.tolist() == ids[: first + 1], "the end token is kept, nothing after"
        assert after.finished == (ids[first] in ends)
        assert after.text == policy.decode(after.token_ids[: len(after.token_ids) - after.finished])


def test_a_prompt_beyond_the_context_is_refused_and_a_full_context_ends() -> None:
    policy = make("gpt2")
    completion = policy.generate(["y" * 60], 1, 9, keys=[1])[0]
    assert len(completion.token_ids) <= 4
    assert completion.finished or len(completion.token_ids) == 4
    with pytest.raises(UsageError, match=r"64 tokens.*context of gpt2 is 64: shorten it"):
        policy.generate(["short", "y" * 64], 1, 9, keys=[1, 2])


def test_a_chat_template_makes_a_string_one_user_message() -> None:
    policy = make("tiny")
    assert policy.decode(policy.prompt_ids("Hi?")) == "Hi?"
    policy.tokenizer.chat_template = (
        "{% for m in messages %}[{{ m.role }}|{{ m.content }}]{% endfor %}"
        "{% if add_generation_prompt %}[assistant|{% endif %}"
    )
    assert policy.decode(policy.prompt_ids("Hi?")) == "[user|Hi?][assistant|"
    chat = [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hi?"}]
    assert policy.decode(policy.prompt_ids(chat)) == "[system|Be brief][user|Hi?][assistant|"
    made = policy.generate([chat], 1, 2, keys=[0])[0]
    assert made.prompt_text == "Be brief\nHi?"
    given = policy.encode("Hi?", "Yes")
    assert policy.decode(given.sequences[0]) == "[user|Hi?][assistant|Yes]"
    assert given.sequences[0][given.position].tolist() == [*policy.tokenizer("Yes]").input_ids, 0]


# ── precision ───────────────────────────────────────────────────────────────────────────────────


def test_bfloat16_multiplies_copies_and_moves_float32_masters() -> None:
    policy = make("tiny", "bfloat16")
    batch = roll(policy)
    exact = logp_of(make("tiny"), batch)
    rounded = policy.columns(batch, frozenset({"logp"}), {})["logp"]
    drift = (rounded - exact).abs().max()
    assert 1e-3 < drift < 0.5, "bfloat16 must be in use, and near"
    rounded.mean().backward()
    before = weights_of(policy)
    torch.optim.AdamW(policy.module.parameters(), lr=2e-5, weight_decay=0.0).step()
    moved = low = count = 0
    for old, new in zip(before, policy.module.parameters(), strict=True):
        assert new.dtype == torch.float32 and new.grad is not None
        assert new.grad.dtype == torch.float32
        touched = new.grad != 0
        moved += int((old != new)[touched].sum())
        low += int((old.bfloat16() != new.bfloat16())[touched].sum())
        count += int(touched.sum())
    assert moved / count > 0.99
    assert low / count < 0.2, "in bfloat16 such a step would be lost"


@pytest.mark.parametrize("fused", [True, False])
def test_scores_and_samples_come_from_the_updated_weights(fused: bool) -> None:
    policy, exact = make("tiny", "bfloat16"), make("tiny")
    old = roll(policy)
    policy.columns(old, frozenset({"logp"}), {})["logp"].sum().backward()
    linears = [p for name, p in policy.module.named_parameters() if "proj" in name]
    torch.optim.AdamW(linears, lr=0.05, fused=fused).step()
    exact.module.load_state_dict(policy.module.state_dict())
    assert (logp_of(exact, old) - old["logp_mu"]).abs().mean() > 0.3
    assert (logp_of(policy, old) - logp_of(exact, old)).abs().mean() < 0.05
    policy.publish()
    new = roll(policy)
    assert (new["logp_mu"] - logp_of(exact, new)).abs().mean() < 0.05
    with torch.no_grad():
        linears[0].add_(1.0)
    policy.publish()
    new = roll(policy)
    exact.module.load_state_dict(policy.module.state_dict())
    assert (new["logp_mu"] - logp_of(exact, new)).abs().mean() < 0.05


def test_bfloat16_gradients_are_near_the_exact_ones() -> None:
    grads = []
    for precision in ("float64", "bfloat16"):
        policy = make("llama, untied", precision)
        if not grads:
            batch = roll(policy)
        logp = policy.columns(batch, frozenset({"logp"}), {})["logp"]
        (torch.linspace(-1, 1, len(batch)) * logp).sum().backward()
        flat = [p.grad.flatten().double() for p in policy.module.parameters() if p.grad is not None]
        grads.append(torch.cat(flat))
    assert torch.cosine_similarity(*grads, dim=0) > 0.99
    assert float(grads[1].norm() / grads[0].norm()) == pytest.approx(1, abs=0.05)


def test_an_unknown_precision_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="did you mean bfloat16"):
        load_policy("tiny", precision="bfloat")


# ── references ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_using_a_snapshot_scores_with_it_and_leaves_the_weights(precision: str) -> None:
    policy = make("tiny", precision)
    batch = roll(policy)
    old, kept = logp_of(policy, batch), policy.snapshot()
    with torch.no_grad():
        for p in policy.module.parameters():
            p.mul_(1.1)
    new = logp_of(policy, batch)
    assert (new - old).abs().max() > 0.1
    graph = policy.columns(batch, frozenset({"logp"}), {})["logp"]
    policy.publish()
    drawn = roll(policy)["logp_mu"]
    with policy.using(kept):
        assert torch.equal(logp_of(policy, batch), old)
        assert torch.equal(roll(policy)["logp_mu"], batch["logp_mu"])
    assert torch.equal(roll(policy)["logp_mu"], drawn)
    assert torch.equal(logp_of(policy, batch), new)
    graph.sum().backward()
    assert all(p.grad is not None for p in policy.module.parameters())


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_adapter_is_what_is_trained_and_can_be_switched_off(precision: str) -> None:
    policy, base = (
        load_policy("tiny", lora=4, precision=precision),
        load_policy("tiny", precision=precision),
    )
    batch = roll(policy)
    names = [name for name, p in policy.module.named_parameters() if p.requires_grad]
    assert names and all("lora_" in name for name in names)
    frozen = [p.clone() for p in policy.module.parameters() if not p.requires_grad]
    policy.columns(batch, frozenset({"logp"}), {})["logp"].sum().backward()
    torch.optim.AdamW([p for p in policy.module.parameters() if p.requires_grad], lr=0.1).step()
    assert (logp_of(policy, batch) - logp_of(base, batch)).abs().max() > 0.1
    for a, b in zip(
        frozen, (p for p in policy.module.parameters() if not p.requires_grad), strict=True
    ):
        assert torch.equal(a, b)
    with policy.using(None):
        assert torch.allclose(logp_of(policy, batch), logp_of(base, batch), atol=1e-6)
    trained = policy.snapshot()
    assert set(trained) == set(names)
    with torch.no_grad():
        for p in policy.module.parameters():
            if p.requires_grad:
                p.zero_()
    assert torch.allclose(logp_of(policy, batch), logp_of(base, batch), atol=1e-6)
    with policy.using(trained):
        assert (logp_of(policy, batch) - logp_of(base, batch)).abs().max() > 0.1
    with pytest.raises(UsageError, match="adapter"), base.using(None):
        pass


# ── files ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("lora", [0, 2])
@pytest.mark.parametrize("name", ["tiny", "llama, untied"])
def test_saved_and_loaded_in_place_bit_for_bit(tmp_path: Path, name: str, lora: int) -> None:
    policy, other = make(name, lora=lora, seed=1), make(name, lora=lora, seed=2)
    with torch.no_grad():
        for p in policy.module.parameters():
            if p.requires_grad:
                p.add_(0.01)
    policy.save(tmp_path)
    places = [p.data_ptr() for p in other.module.parameters()]
    other.load(tmp_path)
    assert places == [p.data_ptr() for p in other.module.parameters()]
    for a, b in zip(policy.module.parameters(), other.module.parameters(), strict=True):
        assert torch.equal(a, b)
    files = {path.name for path in tmp_path.iterdir()}
    wanted = (
        {"adapter_model.safetensors", "adapter_config.json"}
        if lora
        else {"model.safetensors", "config.json", "generation_config.json"}
    )
    assert wanted | {"tokenizer.json"} <= files
    assert not {path.suffix for path in tmp_path.iterdir()} & {".bin", ".pt", ".pth", ".pkl"}


@pytest.mark.parametrize("lora", [0, 2])
def test_a_saved_folder_is_a_policy(tmp_path: Path, lora: int) -> None:
    policy = load_policy("tiny", lora=lora, seed=3)
    with torch.no_grad():
        for p in policy.module.parameters():
            if p.requires_grad:
                p.add_(0.05)
    policy.save(tmp_path)
    again = load_policy(str(tmp_path), precision="float32")
    assert (again.lora, again.lr) == (policy.lora, policy.lr)
    batch = roll(policy)
    assert torch.equal(logp_of(again, batch), logp_of(policy, batch))
    texts = [[c.text for c in p.generate(PROMPTS, 1, 5, keys=range(5))] for p in (policy, again)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("lora", [0, 2])
def test_a_truncated_or_foreign_checkpoint_is_refused_and_changes_nothing(
    tmp_path: Path, lora: int
) -> None:
    policy = load_policy("tiny", lora=lora)
    before = weights_of(policy)
    policy.save(tmp_path)
    file = tmp_path / ("adapter_model.safetensors" if lora else "model.safetensors")
    whole = file.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:5], b""):
        file.write_bytes(damaged)
        with pytest.raises(UsageError, match="truncated or no safetensors"):
            policy.load(tmp_path)
    if not lora:
        with pytest.raises(UsageError, match="cannot be loaded"):
            load_policy(str(tmp_path))
    (make("qwen3", lora=3) if lora else make("qwen3")).save(tmp_path)
    with pytest.raises(UsageError, match="weights of another model"):
        policy.load(tmp_path)
    file.unlink()
    with pytest.raises(UsageError, match="complete checkpoint"):
        policy.load(tmp_path)
    for a, b in zip(before, policy.module.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_folder_whose_weights_lack_a_tensor_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    load_policy("tiny").save(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors.pop("model.norm.weight")
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(UsageError, match=r"do not fit its config: model\.norm\.weight"):
        load_policy(str(tmp_path))


# ── names ───────────────────────────────────────────────────────────────────────────────────────


def test_unknown_policies_are_refused_with_a_cure(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean smollm2-135m"):
        load_policy("smollm-135m")
    with pytest.raises(UsageError, match=r"config\.json"):
        load_policy(str(tmp_path))
    with pytest.raises(UsageError, match="does not answer for it"):
        load_policy("nobody/nothing")


def test_an_architecture_that_hides_its_past_is_refused() -> None:
    causal = MambaForCausalLM(MambaConfig(vocab_size=97, hidden_size=16, num_hidden_layers=1))
    with pytest.raises(UsageError, match="another architecture"):
        HFPolicy(causal, tiny.tokenizer(), name="mamba", precision="float32")


def test_packing_is_in_use_where_the_attention_allows_it() -> None:
    packs = {name: make(name).net.packs for name in NAMES}
    assert packs == {name: name != "mistral, window of 5" for name in NAMES}


def test_a_head_begins_at_zero_and_the_seed_makes_the_weights() -> None:
    policy = make("tiny")
    batch = roll(policy)
    heads = {"value": policy.head(1)}
    assert not policy.columns(batch, frozenset({"value"}), heads)["value"].any()
    one, same, other = (load_policy("tiny", seed=seed) for seed in (1, 1, 2))
    assert all(map(torch.equal, weights_of(one), weights_of(same)))
    assert not all(map(torch.equal, weights_of(one), weights_of(other)))


def test_tiny_learns_what_is_rewarded() -> None:
    policy = load_policy("tiny")
    optimizer = torch.optim.AdamW(policy.module.parameters(), lr=policy.lr, weight_decay=0.0)
    shares = []
    for step in range(40):
        drawn = policy.generate(["go"], 16, 8, keys=range(1000 * step, 1000 * step + 16))
        tokens = [torch.cat([c.prompt_ids, c.token_ids]) for c in drawn]
        reward = torch.tensor([c.text.count("a") / 8 for c in drawn])
        lengths = torch.tensor([len(c.token_ids) for c in drawn])
        seq = torch.arange(16).repeat_interleave(lengths)
        position = torch.cat([torch.arange(int(n)) + 2 for n in lengths])
        batch = Batch(
            ids={"seq": seq, "traj": seq, "position": position},
            inputs={"tokens": tokens, "prompt_length": [2] * 16},
        )
        logp = policy.columns(batch, frozenset({"logp"}), {})["logp"]
        advantage = (reward - reward.mean()) / (reward.std() + 1e-4)
        loss = -(advantage[seq] * logp).sum() / 128
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        policy.publish()
        shares.append(float(reward.mean()))
    assert sum(shares[:3]) / 3 < 0.1
    assert sum(shares[-3:]) / 3 > 0.6
