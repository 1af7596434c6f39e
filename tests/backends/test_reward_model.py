"""Reward models: real classifiers of transformers, read, written, and trained from pairs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random

import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
    LlamaForTokenClassification,
)

import anypo
from anypo.backends import tiny
from anypo.backends.language_load import load_policy
from anypo.backends.load_reward import load_reward
from anypo.backends.process_model import ProcessModel, cut
from anypo.backends.reward_model import RewardModel, save_reward_model
from anypo.core.errors import UsageError
from anypo.rollout.dataset import shown
from anypo.tasks.task import Preferences

CHAT = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
SIZES = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}


def saved(folder: Path, kind=LlamaForSequenceClassification, labels=1, chat="", pad=0) -> str:
    """A tiny classifier of random weights over the characters of `tiny`."""
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = chat or None
    config = LlamaConfig(
        vocab_size=len(tiny.CHARACTERS) + 1, num_labels=labels, **{**SIZES, "pad_token_id": pad}
    )
    torch.manual_seed(3)
    model = kind(config)
    torch.nn.init.normal_(model.score.weight)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def alone(folder: str, text: str) -> float:
    """What transformers itself says of a text, without padding."""
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    ids = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        return float(model(input_ids=ids).logits[0, 0])


def ask(source: str, pairs, **options) -> list[float]:
    prompts, completions = zip(*pairs)
    reward = RewardModel(source, **options)
    return reward(prompts, completions, [{}] * len(pairs))


# ── reading one ──────────────────────────────────────────────────────────────────────────────────


def test_the_reward_is_the_classifiers_logit_whatever_else_is_in_the_batch(tmp_path):
    folder = saved(tmp_path)
    pairs = [("ab", "c"), ("a longer prompt ", "and its answer"), ("x", "yz")]
    wanted = [alone(folder, p + c) for p, c in pairs]
    assert len({round(x, 3) for x in wanted}) == 3
    for batch in (1, 2, 16):
        assert ask(folder, pairs, batch=batch) == pytest.approx(wanted, abs=1e-5)
    assert ask(folder, pairs[::-1]) == pytest.approx(wanted[::-1], abs=1e-5)


def test_without_a_padding_token_texts_are_read_one_by_one(tmp_path):
    folder = saved(tmp_path, pad=None)
    pairs = [("ab", "c"), ("abc", "defg")]
    assert ask(folder, pairs) == pytest.approx([alone(folder, p + c) for p, c in pairs], abs=1e-5)


def test_a_conversation_is_written_by_the_models_own_template(tmp_path):
    folder = saved(tmp_path, chat=CHAT)
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    found = ask(folder, [("q", "a"), (chat, "a")])
    wanted = [
        "[user]q<end>\n[assistant]a<end>\n",
        "[system]s<end>\n[user]q<end>\n[assistant]a<end>\n",
    ]
    assert found == pytest.approx([alone(folder, text) for text in wanted], abs=1e-5)


def test_an_encoder_gets_prompt_and_answer_as_a_pair(tmp_path):
    tokenizer = tiny.tokenizer()
    tokenizer.add_special_tokens({"cls_token": "#", "sep_token": "|"})
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in "#|"}
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="# $A |", pair="# $A | $B |", special_tokens=[*ids.items()]
    )
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(tokenizer), num_labels=1, **SIZES)
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    (found,) = ask(str(tmp_path), [("ab", "c")])
    model = BertForSequenceClassification.from_pretrained(tmp_path).eval()
    row = tokenizer("ab", "c", return_tensors="pt")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(row[0]) == list("#ab|c|")
    assert found == pytest.approx(float(model(input_ids=row).logits), abs=1e-5)


def test_what_does_not_fit_is_not_scorable(tmp_path):
    found = ask(saved(tmp_path), [("a" * 60, "bcde"), ("a" * 60, "bcdef")])
    assert math.isfinite(found[0]) and math.isnan(found[1])


def test_a_folder_is_a_reward_by_its_name_alone_and_knows_its_weights(tmp_path):
    folder = saved(tmp_path / "taste")
    reward = load_reward(f"{folder}=2,repetition")
    score = reward(["ab"], ["c"], [{}])[0]
    assert score == pytest.approx(2 * alone(folder, "abc"), abs=1e-5)
    assert reward.names == ("taste", "repetition")
    before = reward.settings()["taste"]["version"]
    assert load_reward(folder).settings()["taste"]["version"] == before
    model = LlamaForSequenceClassification.from_pretrained(folder)
    model.score.weight.data += 1e-3
    model.save_pretrained(folder)
    assert load_reward(folder).settings()["taste"]["version"] != before


def test_what_is_no_reward_model_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be loaded"):
        RewardModel(str(tmp_path))
    policy = load_policy("tiny")
    policy.save(tmp_path / "causal")
    with pytest.raises(UsageError, match=r"its head is missing \(score.weight\)"):
        RewardModel(str(tmp_path / "causal"))
    with pytest.raises(UsageError, match="has 2 outputs, a reward model has 1"):
        RewardModel(saved(tmp_path / "two", labels=2))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "anypo.json").write_text("{}")
    with pytest.raises(UsageError, match="holds a run, but no reward model"):
        load_reward(str(tmp_path / "run"))
    folder = Path(saved(tmp_path / "cut"))
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(UsageError, match="cannot be loaded"):
        RewardModel(str(folder))


# ── writing one ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("chat, lora", [("", 0), (CHAT, 0), ("", 2)], ids=["text", "chat", "lora"])
def test_what_is_written_scores_as_the_head_did(chat, lora, tmp_path):
    """The column of the head at the last step, and a plain pipeline of transformers, agree."""
    policy = load_policy("tiny", lora=lora)
    policy.tokenizer.chat_template = chat or None
    head = policy.head(1)
    torch.manual_seed(1)
    torch.nn.init.normal_(head.weight)
    for name, p in policy.module.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(p, std=0.1)
    pairs = [("ab", "cde", "f\n"), ("ba ", "x", "yz")]
    rows = tuple({"prompt": p, "chosen": c, "rejected": r} for p, c, r in pairs)
    batch = shown(policy, Preferences("pairs", rows, ()), rows, range(2))
    found = policy.columns(batch, frozenset({"reward_model"}), {"reward_model": head})
    wanted = found["reward_model"][batch.last("traj")].tolist()
    save_reward_model(policy, head, tmp_path)
    asked = [(p, answer) for p, *answers in pairs for answer in answers]
    assert len({round(x, 4) for x in wanted}) == 4
    assert ask(str(tmp_path), asked) == pytest.approx(wanted, abs=1e-4)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert type(model) is LlamaForSequenceClassification and model.config.num_labels == 1
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    if chat:
        said = [
            [{"role": "user", "content": p}, {"role": "assistant", "content": a}] for p, a in asked
        ]
        texts = [tokenizer.apply_chat_template(m, tokenize=False) for m in said]
        assert texts[0] == "[user]ab<end>\n[assistant]cde"
    else:
        texts = [p + a + "<end>" for p, a in asked]  # the end token is padding, and not read
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    inputs = {k: inputs[k] for k in ("input_ids", "attention_mask")}
    with torch.no_grad():
        pipeline = model(**inputs).logits[:, 0].tolist()
    assert pipeline == pytest.approx(wanted, abs=1e-4)


# ── training one ─────────────────────────────────────────────────────────────────────────────────


def pairs(path: Path, count: int = 90, margin: bool = False) -> Path:
    """Pairs in which the answer with more of the letter e is preferred."""
    rng = Random(0)

    def answer(n: int) -> str:
        letters = ["e"] * n + [rng.choice("xyzwab") for _ in range(6 - n)]
        rng.shuffle(letters)
        return "".join(letters)

    rows = []
    for i in range(count):
        prompt = "".join(rng.choice("abcd") for _ in range(3)) + str(i)
        row = {"prompt": prompt, "chosen": answer(rng.randint(3, 6))}
        row |= {"rejected": answer(rng.randint(0, 2)), **({"margin": 0.5} if margin else {})}
        rows.append(row)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_from_pairs_to_a_reward_model_to_a_policy_that_it_likes(tmp_path):
    """`bradley_terry` learns the preference, its folder serves as a reward, and grpo raises it."""
    settings = {"policy": "tiny", "eval_every": 0}
    run = anypo.train(
        "bradley_terry",
        dataset=pairs(tmp_path / "pairs.jsonl"),
        steps=12,
        prompts=16,
        out=tmp_path / "rm",
        **settings,
    )
    before, after = run.scores["before"], run.scores["after"]
    assert before["held_out/accuracy"] == 0 and before["held_out/margin"] == 0
    assert after["held_out/total"] == 30 and after["held_out/accuracy"] > 0.9
    assert run.metrics[-1]["accuracy"] > 0.9 and run.metrics[0]["loss"] == pytest.approx(
        math.log(2), abs=1e-6
    )
    assert "ratio/max" not in run.metrics[0]
    reward = load_reward(str(tmp_path / "rm"))
    many, some, none = reward(["ab"] * 3, ["eeeeee", "exexey", "xyzxyz"], [{}] * 3)
    assert many > some > none
    trained = anypo.train(
        "grpo",
        task="vowels",
        reward=str(tmp_path / "rm"),
        steps=12,
        prompts=8,
        eval_size=1,
        out=tmp_path / "go",
        **settings,
    )
    rewards = [row["reward"] for row in trained.metrics]
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.8


def test_a_margin_in_the_data_is_used_and_lora_trains_one_too(tmp_path):
    """With a margin of ½ the loss begins at log(1 + e^½); LoRA's adapter is merged when written."""
    run = anypo.train(
        "bradley_terry",
        policy="tiny",
        lora=2,
        dataset=pairs(tmp_path / "pairs.jsonl", 30, margin=True),
        steps=2,
        prompts=4,
        out=tmp_path / "rm",
        eval_every=1,
    )
    assert run.metrics[0]["loss"] == pytest.approx(math.log1p(math.exp(0.5)), abs=1e-6)
    assert run.metrics[0]["held_out/total"] == 10
    assert len(load_reward(str(tmp_path / "rm"))(["a"], ["b"], [{}])) == 1


# ── process models ───────────────────────────────────────────────────────────────────────────────


def test_an_answer_is_cut_after_its_markers():
    assert cut("a\nb\n", "\n") == ["a\n", "b\n"]
    assert cut("a\nb", "\n") == ["a\n", "b"]
    assert cut("", "\n") == [] and cut("\n\na", "\n\n") == ["\n\n", "a"]


@pytest.mark.parametrize("labels", [1, 2])
def test_a_token_classifier_is_read_at_the_end_of_each_step(labels, tmp_path):
    folder = saved(tmp_path, LlamaForTokenClassification, labels)
    reward = ProcessModel(folder, reduce="prod")
    score, single = reward(["q ", "r "], ["ab\ncd", "x\n"], [{}, {}])
    model = LlamaForTokenClassification.from_pretrained(folder)
    ids = tiny.tokenizer()("q ab\ncd\n", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0, [4, 7]]
    wanted = logits.softmax(-1)[:, 1] if labels == 2 else logits[:, 0]
    assert score.facts["steps"] == pytest.approx(wanted.tolist(), abs=1e-5)
    assert score == pytest.approx(float(wanted.prod()), abs=1e-5)
    assert len(single.facts["steps"]) == 1


def test_a_sequence_classifier_is_asked_about_each_beginning(tmp_path):
    folder = saved(tmp_path)
    (score,) = ProcessModel(folder)(["q "], ["ab\ncd"], [{}])
    wanted = [alone(folder, "q ab\n"), alone(folder, "q ab\ncd")]
    assert score.facts["steps"] == pytest.approx(wanted, abs=1e-5)
    assert score == min(score.facts["steps"])
    last = load_reward([{"reward": f"process:{folder}", "reduce": "last"}])(
        ["q "], ["ab\ncd"], [{}]
    )
    mean = load_reward([{"reward": f"process:{folder}", "reduce": "mean"}])(
        ["q "], ["ab\ncd"], [{}]
    )
    assert (last[0], mean[0]) == pytest.approx((wanted[1], sum(wanted) / 2), abs=1e-5)


def test_an_answer_without_steps_or_room_is_not_scorable_and_odd_models_are_refused(tmp_path):
    folder = saved(tmp_path / "t", LlamaForTokenClassification, 2)
    found = ProcessModel(folder)(["q", "q"], ["", "a" * 70], [{}, {}])
    assert all(math.isnan(x) for x in found)
    with pytest.raises(UsageError, match="has 3 outputs; a process model has 2 at most"):
        ProcessModel(saved(tmp_path / "u", LlamaForTokenClassification, 3))
    with pytest.raises(UsageError, match="has 2 outputs; a process model has 1"):
        ProcessModel(saved(tmp_path / "v", labels=2))
    for options, words in (({"reduce": "max"}, "one of min"), ({"marker": ""}, "marker is empty")):
        with pytest.raises(UsageError, match=words):
            ProcessModel(folder, **options)
