"""Given answers as tokens: what is trained, after exactly what a sampler would have seen."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import anypo
from anypo.backends.language_net import Exact
from anypo.backends.load_task import load_task
from anypo.backends.local import Local
from anypo.backends.parquet import write_rows
from anypo.backends.transformers import HFPolicy
from anypo.core.errors import UsageError
from anypo.core.recipe import Recipe
from anypo.engine.collect import collect, credit
from anypo.engine.problem import Problem
from anypo.engine.settings import Settings
from anypo.engine.state import State
from anypo.policies.policy import Transcript
from anypo.rollout.dataset import fitted, shown

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe kind<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""A system message where there is none, and a line break behind every turn."""

LLAMA = (
    "{{ bos_token }}{% if tools %}{{ '[T]' + tools[0]['name'] + '[/T]' }}{% endif %}"
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}{{ message['content'] + '<eot>' }}"
    "{% else %}{{ '[' + message['role'] + ']' + message['content'] + '[/]' }}{% endif %}"
    "{% endfor %}"
)
"""Begins with the token that the tokenizer adds as well; the answer follows without a header."""

MARKED = CHATML.replace(
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}",
    "{{'<|im_start|>' + message['role'] + '\n'}}{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] }}{% endgeneration %}{% else %}"
    "{{ message['content'] }}{% endif %}{{ '<|im_end|>\n' }}",
)
"""The same text, with what the assistant says marked, but for the end token."""

THINKS = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}"
    "{% if m['role'] == 'assistant' and not loop.last %}{{ m['content'].split('~')[-1] }}"
    "{% else %}{{ m['content'] }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""Leaves out what was thought, up to ~, in all but the last message."""

OPENS = THINKS.replace("{{ '<|im_start|>assistant\n' }}", "{{ '<|im_start|>assistant\n~' }}")
"""A sampler begins within a thought; an answer without one does not."""

SPECIAL = ["<pad>", "<s>", "<eos>", "<eot>", "<|im_start|>", "<|im_end|>", "\n\n", "ab"]
CHARACTERS = [chr(c) for c in range(32, 127)] + ["\n"]


def tokenizer(template: str = "", bos: bool = False) -> PreTrainedTokenizerFast:
    """A token for a character, "\\n\\n" and "ab"; with `bos`, texts begin with <s>."""
    pieces = [*SPECIAL, *CHARACTERS]
    merges = [("\n", "\n"), ("a", "b")]
    inner = Tokenizer(models.BPE({t: k for k, t in enumerate(pieces)}, merges))
    inner.pre_tokenizer = pre_tokenizers.Split("[^\x00]+", "isolated")
    inner.decoder = decoders.Fuse()
    if bos:
        inner.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 1)])
    made = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="<eos>", pad_token="<pad>"
    )
    made.add_special_tokens({"additional_special_tokens": SPECIAL[3:6]})
    made.chat_template = template or None
    return made


def policy(
    template: str = "", ends: tuple[int, ...] = (2, 3, 5), bos: bool = False, context: int = 256
) -> HFPolicy:
    """A float64 Llama of two layers over those tokens."""
    config = LlamaConfig(
        vocab_size=len(SPECIAL) + len(CHARACTERS),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        eos_token_id=list(ends),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        causal = LlamaForCausalLM(config)
    causal.generation_config.eos_token_id = list(ends)
    return HFPolicy(causal, tokenizer(template, bos), name="small", precision="float64")


def message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


USER, MORE = message("user", "Hi?"), message("user", "And?")
YES, NO = message("assistant", "Yes"), message("assistant", "No")


def spoken(given: Transcript, model: HFPolicy) -> list[str]:
    """The trained text of every turn, special tokens and all."""
    return [
        model.tokenizer.decode(
            given.sequences[int(given.seq[given.turn == k][0])][
                given.position[given.turn == k]
            ].tolist()
        )
        for k in range(int(given.turn.max()) + 1)
    ]


def before(given: Transcript, turn: int) -> list[int]:
    """The tokens before a turn."""
    first = given.turn == turn
    return given.sequences[int(given.seq[first][0])][: int(given.position[first][0])].tolist()


# ── boundaries ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("template", [CHATML, MARKED], ids=["by prefixes", "by marks"])
def test_every_turn_of_the_assistant_is_trained_up_to_its_end_token(template):
    model = policy(template)
    given = model.encode([USER], [YES, MORE, NO])
    assert spoken(given, model) == ["Yes<|im_end|>", "No<|im_end|>"]
    assert len(given.sequences) == 1, "one input, with a gap where the user speaks"
    assert before(given, 0) == model.prompt_ids([USER]).tolist()
    assert before(given, 1) == model.prompt_ids([USER, YES, MORE]).tolist()
    assert model.tokenizer.decode(given.sequences[0].tolist()) == (
        "<|im_start|>system\nBe kind<|im_end|>\n<|im_start|>user\nHi?<|im_end|>\n"
        "<|im_start|>assistant\nYes<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n"
        "<|im_start|>assistant\nNo<|im_end|>"
    )


def test_marks_and_prefixes_train_the_same_tokens():
    one, two = (policy(t).encode([USER], [YES, MORE, NO]) for t in (CHATML, MARKED))
    for a, b in zip(one.sequences, two.sequences, strict=True):
        assert torch.equal(a, b)
    for name in ("seq", "position", "turn"):
        assert torch.equal(getattr(one, name), getattr(two, name))


def test_a_system_message_is_context_and_so_are_answers_in_the_prompt():
    model = policy(CHATML)
    system = message("system", "Short")
    given = model.encode([system, USER, YES, MORE], [NO])
    assert spoken(given, model) == ["No<|im_end|>"]
    assert before(given, 0) == model.prompt_ids([system, USER, YES, MORE]).tolist()
    assert "Be kind" not in model.tokenizer.decode(before(given, 0))


def test_text_is_one_message_where_there_is_a_template():
    model = policy(CHATML)
    plain, chatted = model.encode("Hi?", "Yes"), model.encode([USER], [YES])
    assert torch.equal(plain.sequences[0], chatted.sequences[0])
    assert spoken(plain, model) == ["Yes<|im_end|>"]


def test_what_begins_a_text_is_there_once():
    """The template writes <s>, and so does the tokenizer, and so may the data."""
    model = policy(LLAMA, bos=True)
    given = model.encode([USER], [YES, MORE, NO])
    assert spoken(given, model) == ["Yes<eot>", "No<eot>"]
    assert given.sequences[0].tolist().count(1) == 1 == model.prompt_ids([USER]).tolist().count(1)
    bare = policy("", bos=True)
    for text in ("Hi?", "<s>Hi?"):
        assert bare.prompt_ids(text).tolist().count(1) == 1
        assert bare.encode(text, "Yes").sequences[0].tolist().count(1) == 1
        assert bare.encode(None, text).sequences[0].tolist()[:2] == [1, 8 + ord("H") - 32]
    assert policy("").prompt_ids("Hi?").tolist().count(1) == 0


def test_the_end_is_what_the_template_writes_and_not_the_tokenizers():
    assert policy(CHATML).encode("a", "b").sequences[0][-1] == 5
    assert policy(LLAMA).encode("a", "b").sequences[0][-1] == 3
    assert policy("").encode("a", "b").sequences[0][-1] == 2
    assert policy("", ends=(3, 5)).encode("a", "b").sequences[0][-1] == 3, "<eos> ends nothing"


def test_a_template_without_an_end_gets_one_behind_the_last_turn_alone():
    model = policy(CHATML, ends=(2,))
    given = model.encode([USER], [YES, MORE, NO])
    assert spoken(given, model) == ["Yes<|im_end|>\n", "No<|im_end|>\n<eos>"]
    open_ended = model.encode([USER], [YES, MORE])
    assert spoken(open_ended, model) == ["Yes<|im_end|>\n"], "the user has the last word"


def test_an_end_that_is_written_in_the_data_is_not_doubled():
    model = policy("")
    assert spoken(model.encode("a", "b<eos>"), model) == ["b<eos>"]
    assert spoken(model.encode(None, "ba<eot>"), model) == ["a<eot>"]
    assert spoken(policy(CHATML).encode("a", ""), model) == ["<|im_end|>"]


def test_a_token_that_reaches_across_is_cut_where_a_sampler_begins():
    """The header ends with a line break, and the answer begins with one: they are one token."""
    model = policy(CHATML)
    given = model.encode([USER], [message("assistant", "\nab")])
    assert before(given, 0) == model.prompt_ids([USER]).tolist()
    assert given.sequences[0][given.position].tolist() == [8 + 95, 7, 5]
    bare = policy("")
    given = bare.encode("xa", "b")
    assert before(given, 0) == bare.prompt_ids("xa").tolist() == [8 + ord(c) - 32 for c in "xa"]
    assert spoken(given, bare) == ["b<eos>"]
    assert bare.encode("x", "ab").sequences[0].tolist() == [8 + ord("x") - 32, 7, 2]


def test_an_answer_is_cut_as_it_stands_behind_the_prompt():
    """Alone, its first letter would begin a text, which this kind of tokenizer marks by a blank."""
    model = policy("")
    inner = model.tokenizer.backend_tokenizer
    inner.pre_tokenizer = pre_tokenizers.Metaspace(replacement=" ", prepend_scheme="first")
    assert model.tokenizer.tokenize("Yes") == [" ", "Y", "e", "s"]
    assert spoken(model.encode("Hi?", "Yes"), model) == ["Yes<eos>"]


def test_history_that_is_rewritten_is_read_as_it_was_when_a_turn_was_said():
    """Two inputs: the first turn with its thought, the second after the first without it."""
    model = policy(THINKS)
    thought = message("assistant", "hm~Yes")
    given = model.encode([USER], [thought, MORE, NO])
    assert spoken(given, model) == ["hm~Yes<|im_end|>", "No<|im_end|>"]
    assert given.seq.unique().tolist() == [0, 1]
    assert before(given, 1) == model.prompt_ids([USER, thought, MORE]).tolist()
    assert "hm" not in model.tokenizer.decode(given.sequences[1].tolist())


def test_a_template_that_opens_otherwise_than_it_answers_is_refused_with_the_cure():
    with pytest.raises(UsageError, match=r"writes 'Y.*sampler would see '~'.*{% generation %}"):
        policy(OPENS).encode([USER], [YES])
    assert policy(OPENS).encode([USER], [message("assistant", "~Yes")]).turn.tolist()


def test_a_conversation_that_the_template_refuses_is_named():
    strict = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(UsageError, match=r"refuses a conversation \(roles must .*begins with 'Hi"):
        policy(strict).encode([USER], [YES])
    silent = MARKED.replace("{{ message['content'] }}{% endgen", "{% endgen")
    with pytest.raises(UsageError, match="marks nothing of the assistant's message 'Yes'"):
        policy(silent).encode([USER], [YES])


def test_tools_are_shown_to_the_template():
    model = policy(LLAMA)
    given = model.encode([USER], [YES], [{"name": "add"}])
    assert model.tokenizer.decode(before(given, 0)) == "<s>[T]add[/T][user]Hi?[/]"
    assert spoken(given, model) == ["Yes<eot>"]


def test_a_text_is_all_said_but_for_what_nothing_predicts():
    model, begun = policy(""), policy("", bos=True)
    assert spoken(model.encode(None, "xyz"), model) == ["yz<eos>"]
    assert spoken(begun.encode(None, "xyz"), begun) == ["xyz<eos>"]
    assert spoken(policy(CHATML).encode(None, "xyz"), model) == ["yz<eos>"], "no template for texts"


def test_a_chat_without_a_template_is_its_contents_line_by_line():
    model = policy("")
    given = model.encode([USER], [YES, MORE, NO])
    assert spoken(given, model) == ["Yes<eos>", "No<eos>"]
    assert before(given, 1) == model.prompt_ids("Hi?\nYes\nAnd?").tolist()


SMOLLM2 = Path(os.environ.get("ANYPO_CACHE", "~/.cache/anypo")).expanduser() / "smollm2-135m"


@pytest.mark.skipif(not SMOLLM2.is_dir(), reason="the published tokenizer is not on this machine")
def test_the_published_tokenizer_of_smollm2_is_cut_exactly():
    from transformers import AutoTokenizer

    from anypo.backends import language_encode

    published = AutoTokenizer.from_pretrained(SMOLLM2)
    end = frozenset({published.eos_token_id})
    answer = message("assistant", "\n  Sure:\n\n1. one\n")
    given = language_encode.encode(published, end, [USER], [answer, MORE, YES])
    whole = published.decode(given.sequences[0][given.position[given.turn == 0]].tolist())
    assert whole == answer["content"] + "<|im_end|>"
    for turn, history in ((0, [USER]), (1, [USER, answer, MORE])):
        ids = published.apply_chat_template(history, add_generation_prompt=True, return_dict=False)
        seen = published.decode(before(given, turn))
        assert seen == published.decode(ids)
    assert before(given, 0) == language_encode.asked(published, end, [USER])


# ── the loss ────────────────────────────────────────────────────────────────────────────────────

ROWS = [
    {"prompt": [USER], "completion": [message("assistant", "Yes, ab"), MORE, NO]},
    {"prompt": [message("system", "S"), message("user", "why")], "completion": [YES]},
    {"prompt": [message("user", "x")], "completion": [NO, USER, YES, MORE, NO]},
]


class Rows:
    """Demonstrations in the order of the file."""

    kind, name, horizon = "demonstration", "rows", 1
    train = ROWS
    held_out = ROWS[1:]

    def order(self, position: int, seed: int) -> int:
        return position % len(self.train)


def gradient(model: HFPolicy, recipe: Recipe, budget: int = 8192) -> tuple[Tensor, dict[str, Any]]:
    """The gradient of one update batch of all rows, and its metrics."""
    settings = Settings(prompts=3, token_budget=budget)
    state, backend = State.start(recipe, model, settings), Local(Rows())
    batch, _ = collect(recipe, backend, state)
    model.module.zero_grad()
    facts = Problem(recipe.objectives[0], credit(recipe, batch), state, backend).accumulate()
    return flat_gradient(model), facts


def labelled(model: HFPolicy) -> tuple[Tensor, Tensor, Tensor]:
    """What a trainer of transformers would be given: padded ids, attention, labels."""
    given = [model.encode(row["prompt"], row["completion"]) for row in ROWS]
    assert all(len(g.sequences) == 1 for g in given)
    longest = max(g.length for g in given)
    ids = torch.zeros(len(given), longest, dtype=torch.long)
    labels, there = torch.full_like(ids, -100), torch.zeros_like(ids)
    for k, g in enumerate(given):
        ids[k, : g.length], there[k, : g.length] = g.sequences[0], 1
        labels[k, g.position] = g.sequences[0][g.position]
    return ids, there, labels


def flat_gradient(model: HFPolicy) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.module.parameters()])


def entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the next tokens, a mean over those with a label, in float64."""
    return torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100
    )


def test_the_gradient_is_that_of_transformers_own_loss():
    """Its loss is in float32 whatever the weights are in; the same on its logits in float64."""
    model = policy(CHATML)
    found, facts = gradient(model, anypo.recipe("sft"))
    ids, there, labels = labelled(model)
    for exact, slack in ((False, 1e-6), (True, 1e-10)):
        model.module.zero_grad()
        with Exact():
            out = model.module(input_ids=ids, attention_mask=there, labels=labels)
        loss = entropy(out.logits, labels) if exact else out.loss
        loss.backward()
        wanted = flat_gradient(model)
        assert facts["loss"] == pytest.approx(loss.item(), rel=slack)
        torch.testing.assert_close(found, wanted, rtol=slack, atol=slack * 1e-1)
    assert facts["nll"] == pytest.approx(facts["loss"], rel=1e-10)
    assert wanted.abs().max() > 1e-3


def test_a_mean_per_answer_is_that_of_the_rows_losses():
    model = policy(CHATML)
    found, facts = gradient(model, anypo.recipe("sft", mean="answer"))
    ids, there, labels = labelled(model)
    model.module.zero_grad()
    with Exact():
        logits = model.module(input_ids=ids, attention_mask=there).logits
    losses = [entropy(logits[k : k + 1], labels[k : k + 1]) for k in range(len(ids))]
    loss = torch.stack(losses).mean()
    loss.backward()
    assert facts["loss"] == pytest.approx(loss.item(), rel=1e-10)
    torch.testing.assert_close(found, flat_gradient(model), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("template", [CHATML, THINKS, ""])
def test_no_split_and_no_packing_changes_the_gradient(template):
    whole, facts = gradient(policy(template), anypo.recipe("sft"))
    for budget in (1, 60):
        split, other = gradient(policy(template), anypo.recipe("sft"), budget)
        torch.testing.assert_close(split, whole, rtol=1e-9, atol=1e-13)
        assert other["loss"] == pytest.approx(facts["loss"], rel=1e-12)
    alone = policy(template)
    alone.net.packs = False
    split, _ = gradient(alone, anypo.recipe("sft"))
    torch.testing.assert_close(split, whole, rtol=1e-9, atol=1e-13)


def test_psft_is_sft_before_it_moves_on_a_real_network():
    model = policy(CHATML)
    sft, _ = gradient(model, anypo.recipe("sft"))
    free = anypo.recipe("psft", clip_low=1.0, clip_high=math.inf, minibatches=1)
    torch.testing.assert_close(gradient(model, free)[0], sft, rtol=1e-10, atol=1e-14)


# ── batches, limits, scores ─────────────────────────────────────────────────────────────────────


def test_a_batch_has_turns_and_what_was_said():
    model = policy(THINKS)
    rows = [{"prompt": [USER], "completion": [message("assistant", "hm~Yes"), MORE, NO]}, ROWS[1]]
    batch = shown(model, Rows(), rows, [7, 9], version=3)
    assert batch.count("traj") == 2 and batch.count("turn") == 3 == batch.count("seq")
    assert batch.id("prompt").unique().tolist() == [7, 9]
    assert batch.table("traj")["completion"] == ["hm~Yes\nNo", "Yes"]
    assert batch.table("traj")["truncated"].tolist() == [False, False]
    assert batch["reward"].sum() == 2 and bool((batch["reward"][batch.last("traj")] == 1).all())
    assert [len(t) for t in batch.inputs["tokens"]] == [
        1 + int(batch.id("position")[batch.id("seq") == k].max()) for k in range(3)
    ]
    joined = batch + batch
    assert joined.count("turn") == 6


def demonstrations(folder: Path, rows: list[dict[str, Any]], kind: str) -> Path:
    path = folder / f"shown.{kind}"
    if kind == "parquet":
        write_rows(path, rows)
    else:
        path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


CHAT = [message("system", "S"), USER, YES, MORE, NO]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"prompt": "Hi?", "completion": "Yes"}, ["Yes<|im_end|>"]),
        ({"prompt": [USER], "completion": [YES]}, ["Yes<|im_end|>"]),
        ({"messages": CHAT}, ["Yes<|im_end|>", "No<|im_end|>"]),
        ({"text": "Hi? Yes"}, ["i? Yes<eos>"]),
    ],
)
def test_files_of_every_kind_are_trained_on(row, says, kind, tmp_path):
    rows = [row, {**row, "note": "another"}]
    task = load_task(dataset=demonstrations(tmp_path, rows, kind))
    model = policy(CHATML)
    first = task.train[0]
    assert task.kind == "demonstration"
    assert spoken(model.encode(first["prompt"], first["completion"]), model) == says


def long_rows(folder: Path) -> Path:
    rows = [{"prompt": f"q{k}", "completion": "y" * n} for k, n in enumerate((2, 3, 40, 50, 4))]
    return demonstrations(folder, rows, "jsonl")


def test_rows_that_are_too_long_are_left_out_and_counted(tmp_path):
    task = load_task(dataset=long_rows(tmp_path), held_out=0, max_length=20)
    made, notes = fitted(task, policy(""))
    assert [len(row["completion"]) for row in made.train] == [2, 3, 4]
    assert notes == [
        "2 of 5 rows are left out, above 20 tokens (too_long=cut keeps their beginnings)"
    ]
    assert (made.settings()["rows_dropped"], made.settings()["rows_cut"]) == (2, 0)
    assert fitted(load_task(dataset=long_rows(tmp_path)), policy(""))[1] == []
    short = policy("", context=45)
    _, notes = fitted(load_task(dataset=long_rows(tmp_path)), short)
    assert notes[0].startswith("1 of 5 rows are left out, above 45 tokens")


def test_rows_that_are_too_long_are_cut_and_counted(tmp_path):
    task = load_task(dataset=long_rows(tmp_path), held_out=0, max_length=20, too_long="cut")
    model = policy("")
    made, notes = fitted(task, model)
    assert notes == ["2 of 5 rows are cut to their first 20 tokens"]
    batch = shown(model, made, made.train, range(5))
    assert sorted(len(t) for t in batch.inputs["tokens"]) == [5, 6, 7, 20, 20]
    cut = batch.table("traj")["truncated"]
    assert cut.tolist() == [len(row["completion"]) > 18 for row in made.train]
    ends = [int(t[-1]) for t in batch.inputs["tokens"]]
    assert [e == 2 for e in ends] == [not c for c in cut.tolist()], "a cut answer does not end"


def test_a_turn_beyond_the_limit_goes_and_the_ones_before_it_stay():
    given = policy(CHATML).encode([USER], [YES, MORE, NO])
    ends = [int(given.position[given.turn == k][-1]) for k in (0, 1)]
    kept = given.cut(ends[1] - 5)
    assert kept is not None and kept.turn.unique().tolist() == [0]
    assert given.cut(3) is None
    thinking = policy(THINKS).encode([USER], [message("assistant", "h" * 30 + "~Yes"), MORE, NO])
    kept = thinking.cut(int(thinking.position[thinking.turn == 0][0]))
    assert kept is None or kept.seq.unique().tolist() == [0]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_length": 2}, "all rows of shown have more than 2 tokens: raise max_length, or"),
        ({"max_length": 300}, "max_length=300 is above the context of small, 256 tokens: lower it"),
        ({"max_length": -1}, "max_length=-1 is no number of tokens"),
        ({"too_long": "split"}, "too_long='split': it must be drop or cut"),
    ],
)
def test_limits_that_leave_nothing_are_refused(options, says, tmp_path):
    with pytest.raises(UsageError, match=says):
        fitted(load_task(dataset=long_rows(tmp_path), **options), policy(""))


def test_a_limit_on_answers_that_are_sampled_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"those of .* are sampled: give horizon"):
        load_task(dataset=long_rows(tmp_path), reward=lambda completions: [0.0], max_length=9)


def test_the_scores_of_demonstrations_are_those_of_the_whole_model():
    model = policy(CHATML)
    state = State.start(anypo.recipe("sft"), model, Settings(token_budget=40))
    found = Local(Rows()).evaluate(state, seen=True)
    ids, there, labels = labelled(model)
    with torch.no_grad(), Exact():
        out = model.module(input_ids=ids, attention_mask=there, labels=labels)
    told = labels[:, 1:] != -100
    right = (out.logits[:, :-1].argmax(-1) == labels[:, 1:])[told].double().mean()
    nll = entropy(out.logits, labels).item()
    assert found["seen/nll"] == pytest.approx(nll, rel=1e-10)
    assert found["seen/perplexity"] == pytest.approx(math.exp(nll), rel=1e-10)
    assert found["seen/mean_token_accuracy"] == pytest.approx(float(right))
    assert (found["seen/tokens"], found["seen/rows"]) == (int(told.sum()), 3)
    assert found["held_out/rows"] == 2
