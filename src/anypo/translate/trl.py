"""TRL's configurations as recipes and options of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from anypo.core.neutral import Adam, Groups, Mean, Reinforce
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.advantage.gae import Whiten
from anypo.pieces.aggregate.gate import Gate
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.regularizer.entropy import Entropy
from anypo.pieces.reward.bound import Bound
from anypo.recipes.imitation import sft
from anypo.recipes.policy_gradient import rloo
from anypo.recipes.preference import dpo, ipo, sppo
from anypo.translate.pieces import clip, divergence, mean, schedule, whole
from anypo.translate.plan import Plan

MEANS = {
    "grpo": "seq-mean-token-mean",
    "sapo": "seq-mean-token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
    "luspo": "seq-mean-token-sum",
}
"""`loss_type` → its mean; of all others token-mean."""

SCALES = {"group": "std", "true": "std", "batch": "batch", "none": "off", "false": "off"}
EPS = 1e-4
"""What TRL adds to a standard deviation."""


def plan(trainer: str, values: Mapping[str, Any], given: Mapping[str, Any], **run: int) -> Plan:
    """The plan of a configuration.

    Parameters: `values` (all keys, with TRL's defaults), `given` (those in the file), `run`
    (`devices`, and the `rows` of the data set; 0 = not known).
    """
    made = PLANS[trainer](values)
    made.recipe = made.recipe.but(update=_update(values, _visits(trainer, values, made)))
    _sizes(trainer, made, values, given, run.get("devices", 1), run.get("rows", 0))
    _run(made, values, given)
    falls = schedule(str(values["lr_scheduler_type"]).lower(), made.options.get("steps", 0))
    if falls:
        made.recipe = made.recipe.but(schedules=falls)
    return made


# ── recipes ──────────────────────────────────────────────────────────────────────────────────────


def grpo_plan(values: Mapping[str, Any]) -> Plan:
    """GRPO and what its loss types make of it."""
    loss, beta = str(values["loss_type"]), float(values["beta"])
    made = Plan(Recipe(), ("grpo", "gspo", "dr_grpo", "cispo"))
    sequence = values["importance_sampling_level"] == "sequence"
    low = float(values["epsilon"])
    high = float(low if values.get("epsilon_high") is None else values["epsilon_high"])
    surrogate = clip(low, high, values.get("delta"))
    if values.get("delta") is not None and float(values["delta"]) < 1 + high:
        made.say("delta", "below 1 + epsilon_high it cuts rising ratios too, which dual does not")
    if loss == "cispo":
        surrogate = Reinforce(10.0, max(0.0, high - 1))
        if high < 1:
            text = (
                f"the cap on the ratio is absolute: {high:g} cuts every weight to it, which scales "
                "the gradient and nothing else; 1 + 0.2 was meant, perhaps, or the 5.0 of ScaleRL"
            )
            made.say("epsilon_high" if "epsilon_high" in values else "loss_type", text)
    scale = SCALES.get(str(values["scale_rewards"]).lower(), "std")
    eps = 1e-6 if scale == "off" else EPS
    weighted = bool(values["use_bias_correction_kl"])
    if beta and weighted and sequence:
        text = "the KL is times the token's ratio here, and times the completion's there"
        made.say("use_bias_correction_kl", text)
    if not beta:
        made.say("use_bias_correction_kl", "no KL", "idle")
    made.recipe = Recipe(
        sampling=Groups(whole(values, "num_generations", 8)),
        advantage=Baseline("traj", "group", scale=scale, eps=eps),  # pyright: ignore
        ratio=Ratio("traj", mean=True) if sequence else Ratio("step"),
        surrogate=surrogate,
        regularize=divergence(beta, weighted=weighted),
        aggregate=mean(MEANS.get(loss, "token-mean")),
    )
    made.hints = {
        "group": whole(values, "num_generations", 8),
        "clip": low,
        "clip_low": low,
        "clip_high": getattr(surrogate, "high", high),
        "beta": beta,
        "eps": eps,
    }
    _entropies(made, values)
    return made


def _entropies(made: Plan, values: Mapping[str, Any]) -> None:
    coef, share = float(values["entropy_coef"] or 0), float(values["top_entropy_quantile"])
    if coef:
        made.change(regularize=(*made.recipe.regularize, Entropy(coef)))
    if share < 1:
        made.change(aggregate=made.recipe.aggregate * Gate(1 - share, 0.0))


def rloo_plan(values: Mapping[str, Any]) -> Plan:
    """RLOO: without a second update on a batch there is no ratio, and it is REINFORCE."""
    group, beta = whole(values, "num_generations", 2), float(values["beta"])
    made = Plan(rloo(group, beta), ("rloo",), {"group": group, "beta": beta})
    low = float(values["epsilon"])
    high = float(low if values.get("epsilon_high") is None else values["epsilon_high"])
    if _visits("rloo", values, made) != (1, 1):
        whole_answers = Mean("step", "traj", "batch")
        made.change(ratio=Ratio("traj"), surrogate=clip(low, high), aggregate=whole_answers)
        text = "a clipped ratio of whole completions: said in Python, below"
        made.say("epsilon", text)
        made.say("num_iterations", "with more than one update the loss has a ratio, see below")
    else:
        made.say("epsilon", "the only update of a batch has a ratio of 1", "idle")
        made.say("epsilon_high", "the only update of a batch has a ratio of 1", "idle")
    if values["normalize_advantages"] is True:
        made.change(advantage=made.recipe.advantage >> Whiten(over="traj", eps=EPS))
    bounds = values.get("reward_clip_range")
    if isinstance(bounds, (list, tuple)) and len(bounds) == 2:
        made.change(reward=(Bound(float(max(map(abs, bounds)))), *made.recipe.reward))
        if bounds[0] != -bounds[1]:
            made.say("reward_clip_range", "the bound is symmetric here", "none")
    return made


def dpo_plan(values: Mapping[str, Any]) -> Plan:
    """DPO, IPO or SPPO, by the loss."""
    losses = values["loss_type"]
    losses = list(losses) if isinstance(losses, (list, tuple)) else [losses]
    beta, loss = float(values["beta"]), str(losses[0])
    recipes: dict[str, tuple[str, Recipe, dict[str, Any]]] = {
        "ipo": ("ipo", ipo(beta, mean=True), {"beta": beta, "mean": True}),
        "sppo_hard": ("sppo", sppo(beta, rounds=1), {"beta": beta, "rounds": 1}),
    }
    name, recipe, hints = recipes.get(loss, ("dpo", dpo(beta), {"beta": beta}))
    made = Plan(recipe, (name,), hints)
    if len(losses) > 1:
        text = f"the first loss alone: {loss}; an imitation beside DPO is rpo-regularized here"
        made.say("loss_type", text, "none")
    return made


def sft_plan(values: Mapping[str, Any]) -> Plan:
    """Supervised fine-tuning."""
    return Plan(sft(), ("sft",))


PLANS = {"grpo": grpo_plan, "rloo": rloo_plan, "dpo": dpo_plan, "sft": sft_plan}


# ── updates, sizes, the run ──────────────────────────────────────────────────────────────────────


def _per_generation(values: Mapping[str, Any]) -> int:
    """Micro-batches of one generation, on every device."""
    micro = whole(values, "per_device_train_batch_size", 8)
    accumulated = whole(values, "gradient_accumulation_steps")
    if values.get("generation_batch_size") is not None:
        return max(1, whole(values, "generation_batch_size") // micro)
    return whole(values, "steps_per_generation", accumulated)


def _visits(trainer: str, values: Mapping[str, Any], made: Plan) -> tuple[int, int]:
    """Epochs, and optimizer steps in each."""
    if trainer not in ("grpo", "rloo"):
        return 1, 1
    accumulated = whole(values, "gradient_accumulation_steps")
    steps = _per_generation(values)
    if steps < accumulated and accumulated % steps == 0:
        text = "an optimizer step sees several generations there, of the same weights: one here"
        made.say("steps_per_generation", text, "same")
    elif steps % accumulated:
        text = "no whole number of optimizer steps of a generation: rounded down"
        made.say("steps_per_generation", text)
    return whole(values, "num_iterations"), max(1, steps // accumulated)


def _update(values: Mapping[str, Any], visits: tuple[int, int]) -> Adam:
    return Adam(
        epochs=visits[0],
        minibatches_per_epoch=visits[1],
        max_grad_norm=float(values["max_grad_norm"]),
        beta1=float(values["adam_beta1"]),
        beta2=float(values["adam_beta2"]),
        eps=float(values["adam_epsilon"]),
        weight_decay=float(values["weight_decay"]),
    )


def _sizes(
    trainer: str,
    made: Plan,
    values: Mapping[str, Any],
    given: Mapping[str, Any],
    devices: int,
    rows: int,
) -> None:
    """Prompts of an iteration, and iterations."""
    micro = whole(values, "per_device_train_batch_size", 8)
    accumulated = whole(values, "gradient_accumulation_steps")
    generation = max(_per_generation(values), accumulated)
    group = made.recipe.sampling.group if trainer in ("grpo", "rloo") else 1
    parts = generation if trainer in ("grpo", "rloo") else accumulated
    answers = micro * devices * parts
    if given.get("generation_batch_size") is not None:
        answers = max(whole(values, "generation_batch_size"), micro * devices * accumulated)
    prompts = max(1, answers // group)
    if answers % group:
        text = f"{answers} completions are no whole number of groups of {group}: rounded down"
        made.say("per_device_train_batch_size", text)
    made.options["prompts"] = prompts
    update = made.recipe.update
    visits = update.visits
    if isinstance(most := values.get("max_steps"), int) and most > 0:
        made.options["steps"] = math.ceil(most / visits)
        made.say("num_train_epochs", "max_steps goes before it", "idle")
    elif rows:
        made.options["steps"] = math.ceil(float(values["num_train_epochs"]) * rows / prompts)
    else:
        text = "--steps: the number of rows is not known here; give it with --rows"
        made.say("num_train_epochs", text, "unread")


def _run(made: Plan, values: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Options that are no part of a recipe."""
    visits = made.recipe.update.visits
    made.options["lr"] = float(values["learning_rate"])
    if "max_completion_length" in values:
        made.options["horizon"] = whole(values, "max_completion_length", 512)
    for key, option in PLAIN.items():
        if given.get(key) is not None:
            made.options[option] = given[key]
    for key, option in ITERATIONS.items():
        if isinstance(x := given.get(key), (int, float)) and x >= 1:
            made.options[option] = max(1, round(x / visits))
    if given.get("bf16") is True:
        made.options["precision"] = "bfloat16"
    elif given.get("bf16") is False:
        made.options["precision"] = "float32"
    _adapter(made, values, given)


PLAIN = {
    "model": "policy",
    "model_name_or_path": "policy",
    "seed": "seed",
    "temperature": "temperature",
    "output_dir": "out",
}
ITERATIONS = {"save_steps": "save_every", "eval_steps": "eval_every"}
"""Keys in optimizer steps → options in iterations."""


def _adapter(made: Plan, values: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    rank = given.get("peft_config.r")
    if rank is None and given.get("use_peft") is True:
        rank = values.get("lora_r")
    if rank is None and any(k.startswith("peft_config.") for k in given):
        rank = 8  # peft's own
    if isinstance(rank, int):
        made.options["lora"] = rank
    elif given.get("lora_r") is not None:
        made.say("lora_r", "without use_peft there is no adapter", "idle")
