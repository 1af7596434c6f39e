"""verl's configuration as a recipe and options of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from anypo.core.neutral import Adam, Groups, Reinforce, Return
from anypo.core.piece import Advantage, LogRatio, Off, Regularizer, Reward, Sampling, Surrogate
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.advantage.gae import GAE, Whiten
from anypo.pieces.advantage.versus import Versus
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.regularizer.covariance import TopCovariance
from anypo.pieces.regularizer.entropy import Entropy
from anypo.pieces.regularizer.kl import KL
from anypo.pieces.regularizer.value import ValueLoss
from anypo.pieces.reward.kl import KLReward
from anypo.pieces.reward.overlong import Overlong
from anypo.pieces.sampling.probe import Probe
from anypo.pieces.sampling.refill import Refill
from anypo.pieces.surrogate.clip import Clip
from anypo.pieces.surrogate.covariance import CovarianceClip
from anypo.pieces.surrogate.trust import Trust
from anypo.recipes.clipping import gmpo
from anypo.translate.pieces import FORMS, clip, divergence, mean, schedule, whole
from anypo.translate.plan import Plan

METHODS = (
    "grpo ppo dapo gspo dr_grpo cispo gmpo clip_cov kl_cov dppo_divergence reinforce_pp remax rloo"
).split()
"""What is tried to express a configuration, the likeliest first."""

LOSS = "actor.policy_loss."
"""Where the surrogate's own numbers are."""

UNREAD = {
    "gspo": "clip_ratio_c",
    "cispo": "clip_ratio_c",
    "geo_mean": "clip_ratio_c loss_agg_mode",
    "gpg": "clip_ratio_low clip_ratio_high clip_ratio_c",
    "clip_cov": "clip_ratio_c",
    "kl_cov": "clip_ratio_low clip_ratio_high clip_ratio_c",
}
"""Loss → keys that are without effect on it."""

ROUNDS = 10
"""Most requests for one batch where verl has no limit."""


def plan(values: Mapping[str, Any], given: Mapping[str, Any], **run: int) -> Plan:
    """The plan of a configuration: credit and loss are chosen apart, as verl does.

    Parameters: `values` (all keys, with verl's defaults), `given` (those in the file), `run` (the
    `rows` of the data set; 0 = not known).
    """
    made = Plan(Recipe(), tuple(METHODS))
    group = whole(values, "rollout.n")
    mode = str(values["actor.policy_loss.loss_mode"])
    estimator = str(values["algorithm.adv_estimator"])
    ratio, surrogate = _loss(mode, values)
    if mode in UNREAD:
        for key in UNREAD[mode].split():
            made.say(f"actor.{key}", f"the loss {mode} does not read it, there and here", "idle")
    aggregate = mean(str(values["actor.loss_agg_mode"]), _factor(values))
    aggregate = gmpo().aggregate if mode == "geo_mean" else aggregate
    made.recipe = Recipe(
        reward=_shaping(values, given),
        sampling=_sampling(values, group, estimator),
        advantage=_credit(estimator, values, made),
        ratio=ratio,
        surrogate=surrogate,
        regularize=_penalties(mode, estimator, values),
        aggregate=aggregate,
        update=_update(values, made),
    )
    if coef := float(values["actor.entropy_coeff"] or 0):
        made.change(regularize=(*made.recipe.regularize, Entropy(coef)))
    made.hints = _hints(values, group, made.recipe)
    _options(made, values, given, run.get("rows", 0))
    name = str(values["actor.optim.lr_scheduler_type"]).lower()
    end = float(given.get("actor.optim.min_lr_ratio") or 0)
    if falls := schedule(name, made.options.get("steps", 0), end):
        made.change(schedules=falls)
    return made


def _credit(estimator: str, values: Mapping[str, Any], made: Plan) -> Advantage:
    gamma = float(values["algorithm.gamma"])
    if estimator == "gae":
        return GAE(gamma, float(values["algorithm.lam"])) >> Whiten(under_root=True)
    made.say("algorithm.lam", "of GAE", "idle")
    if estimator.startswith("rloo"):
        return Baseline(leave_one_out=True)
    if estimator.startswith("reinforce_plus_plus"):
        plain = not estimator.endswith("baseline")
        return (Return(gamma) if plain else Baseline()) >> Whiten(under_root=True)
    if estimator == "remax":
        return Versus("greedy")
    if estimator == "gpg":
        return Baseline()
    scaled = values["algorithm.norm_adv_by_std_in_grpo"] is True
    return Baseline("traj", "group", scale="std" if scaled else "off")


def _loss(mode: str, values: Mapping[str, Any]) -> tuple[LogRatio, Surrogate]:
    low, high = float(values["actor.clip_ratio_low"]), float(values["actor.clip_ratio_high"])
    dual, step = float(values["actor.clip_ratio_c"]), Ratio("step")
    if mode == "gspo":
        return Ratio("traj", mean=True), clip(low, high)
    if mode == "cispo":
        return step, Reinforce(low, high)
    if mode == "geo_mean":
        like = gmpo(log_clip_low=low, log_clip_high=high)
        return like.ratio, like.surrogate
    if mode == "gpg":
        return Off(), Reinforce()
    if mode == "clip_cov":
        numbers = [float(values[f"{LOSS}clip_cov_{k}"]) for k in ("ratio", "lb", "ub")]
        return step, CovarianceClip(low, high, *numbers)
    if mode == "kl_cov":
        return step, Clip(1.0, math.inf)
    if mode in ("dppo_tv", "dppo_kl"):
        kind = "binary_tv" if mode == "dppo_tv" else "binary_kl"
        capped = Reinforce(math.inf, dual - 1)
        return step, capped * Trust(kind, low, high, "logp_old")  # pyright: ignore
    return step, clip(low, high, dual)


def _penalties(mode: str, estimator: str, values: Mapping[str, Any]) -> tuple[Regularizer, ...]:
    found: tuple[Regularizer, ...] = ()
    if mode == "kl_cov":
        coef, share = float(values[f"{LOSS}ppo_kl_coef"]), float(values[f"{LOSS}kl_cov_ratio"])
        found = (KL("old", coef, form="abs") * TopCovariance(share),)
    if values["actor.use_kl_loss"] is True:
        form = str(values["actor.kl_loss_type"])
        found += divergence(float(values["actor.kl_loss_coef"]), form)
    critic = (ValueLoss(0.5, float(values["critic.cliprange_value"])),)
    return critic + found if estimator == "gae" else found


def _shaping(values: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[Reward, ...]:
    found: tuple[Reward, ...] = ()
    for prefix in ("reward.reward_kwargs.overlong_buffer_cfg", "reward_model.overlong_buffer"):
        if given.get(f"{prefix}.enable") is True:
            buffer = float(given.get(f"{prefix}.len") or 0) or 0.2
            found = (Overlong(buffer, factor=float(given.get(f"{prefix}.penalty_factor") or 1)),)
    if values["algorithm.use_kl_in_reward"] is True:
        form = str(values["algorithm.kl_penalty"])
        coef = float(values["algorithm.kl_ctrl.kl_coef"])
        found += (KLReward(coef, FORMS.get(form, form)),) if coef else ()
    return found


def _sampling(values: Mapping[str, Any], group: int, estimator: str) -> Sampling:
    sampling: Any = Groups(group)
    if estimator == "remax":
        sampling = sampling >> Probe("greedy")
    if values["algorithm.filter_groups.enable"] is True:
        rounds = int(values["algorithm.filter_groups.max_num_gen_batches"] or 0)
        sampling = sampling >> Refill(rounds if rounds > 0 else ROUNDS)
    return sampling


def _factor(values: Mapping[str, Any]) -> int:
    return int(values.get("actor.loss_scale_factor") or 0)


def _update(values: Mapping[str, Any], made: Plan) -> Adam:
    whole_batch = whole(values, "data.train_batch_size", 1024)
    part = whole(values, "actor.ppo_mini_batch_size", 256)
    if whole_batch % part:
        text = "no whole number of minibatches: they are made nearly equal here"
        made.say("actor.ppo_mini_batch_size", text)
    betas = values.get("actor.optim.betas")
    first, second = betas if isinstance(betas, list) and len(betas) == 2 else (0.9, 0.999)
    return Adam(
        epochs=whole(values, "actor.ppo_epochs"),
        minibatches_per_epoch=max(1, -(-whole_batch // part)),
        max_grad_norm=float(values["actor.grad_clip"]),
        beta1=float(first),
        beta2=float(second),
        weight_decay=float(values["actor.optim.weight_decay"]),
    )


def _hints(values: Mapping[str, Any], group: int, recipe: Recipe) -> dict[str, Any]:
    low, high = float(values["actor.clip_ratio_low"]), float(values["actor.clip_ratio_high"])
    dual, surrogate = float(values["actor.clip_ratio_c"]), recipe.surrogate
    update = recipe.update
    hints = {"clip_low": low, "clip_high": high, "log_clip_low": low, "log_clip_high": high}
    hints |= {"low": low, "high": high, "ratio_cap": dual, "trust": "logp_old", "overlong": 0.0}
    hints |= {"group": group, "clip": low, "dual_clip": dual, "divergence": "binary_kl"}
    hints |= {"entropy_coef": float(values["actor.entropy_coeff"] or 0)}
    hints |= {"beta": 0.0, "gamma": float(values["algorithm.gamma"])}
    hints |= {"lam": float(values["algorithm.lam"]), "epochs": update.epochs}  # pyright: ignore
    hints |= {"minibatches": update.minibatches_per_epoch}  # pyright: ignore
    hints |= {"value_clip": float(values["critic.cliprange_value"])}
    hints |= {
        k: getattr(surrogate, k) for k in ("cov_ratio", "cov_lb", "cov_ub") if hasattr(surrogate, k)
    }
    if values["actor.use_kl_loss"] is True:
        hints["beta"] = float(values["actor.kl_loss_coef"])
    if values["algorithm.use_kl_in_reward"] is True:
        hints["beta"] = float(values["algorithm.kl_ctrl.kl_coef"])
    if values["algorithm.filter_groups.enable"] is True:
        rounds = int(values["algorithm.filter_groups.max_num_gen_batches"] or 0)
        hints["rounds"] = rounds or ROUNDS
    shaped = [p for p in recipe.reward if isinstance(p, Overlong)]
    if shaped:
        hints["overlong"] = shaped[0].buffer
    if str(values["algorithm.adv_estimator"]).endswith("baseline"):
        hints["variant"] = "baseline"
    if str(values["actor.policy_loss.loss_mode"]) == "kl_cov":
        hints |= {"cov_ratio": float(values[f"{LOSS}kl_cov_ratio"])}
        hints |= {"kl_coef": float(values[f"{LOSS}ppo_kl_coef"])}
    return hints


PLAIN = {
    "model.path": "policy",
    "data.train_files": "dataset",
    "data.seed": "seed",
    "data.val_max_samples": "eval_size",
    "trainer.default_local_dir": "out",
    "rollout.temperature": "temperature",
}


def _options(made: Plan, values: Mapping[str, Any], given: Mapping[str, Any], rows: int) -> None:
    made.options["lr"] = float(values["actor.optim.lr"])
    made.options["prompts"] = prompts = whole(values, "data.train_batch_size", 1024)
    horizon = given.get("data.max_response_length", given.get("rollout.response_length", 512))
    made.options["horizon"] = int(horizon)
    for key, option in PLAIN.items():
        value = given.get(key)
        if isinstance(value, list):
            made.say(key, "one file: join them", "none")
            value = value[0] if len(value) == 1 else None
        if value is not None and not (option == "eval_size" and int(value) < 0):
            made.options[option] = value
    if isinstance(most := values.get("trainer.total_training_steps"), int) and most > 0:
        made.options["steps"] = most
        made.say("trainer.total_epochs", "total_training_steps goes before it", "idle")
    elif rows:
        made.options["steps"] = math.ceil(float(values["trainer.total_epochs"]) * rows / prompts)
    else:
        text = "--steps: the number of rows is not known here; give it with --rows"
        made.say("trainer.total_epochs", text, "unread")
    for key, option in (("trainer.save_freq", "save_every"), ("trainer.test_freq", "eval_every")):
        if isinstance(every := given.get(key), int) and every > 0:
            made.options[option] = every
    if isinstance(test := given.get("trainer.test_freq"), int) and test <= 0:
        made.options["eval_every"] = 0
    rank = given.get("model.lora_rank") or given.get("model.lora.rank")
    if isinstance(rank, int) and rank > 0:
        made.options["lora"] = rank
    _judge(made, given)


def _judge(made: Plan, given: Mapping[str, Any]) -> None:
    for prefix in ("reward.custom_reward_function", "custom_reward_function"):
        if file := given.get(f"{prefix}.path"):
            made.options["reward"] = f"{file}:{given.get(f'{prefix}.name') or 'compute_score'}"
