"""Calls of Stable-Baselines3 as recipes and options of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from anypo.core.neutral import Adam
from anypo.pieces.advantage.gae import GAE, Whiten
from anypo.recipes.policy_gradient import ppo
from anypo.recipes.value import a2c
from anypo.translate.pieces import whole
from anypo.translate.plan import Plan


def plan(trainer: str, values: Mapping[str, Any], given: Mapping[str, Any], **run: int) -> Plan:
    """The plan of a call of PPO or A2C; `values` has SB3's defaults, `given` the file's keys."""
    streams, length = whole(values, "n_envs"), whole(values, "n_steps")
    made = (ppo_plan if trainer == "ppo" else a2c_plan)(values, streams * length)
    made.options |= {"prompts": streams, "horizon": length}
    rate = values["learning_rate"]
    if isinstance(rate, (int, float)):
        made.options["lr"] = float(rate)
    else:
        made.say("learning_rate", "a schedule: --lr, or schedules in Python", "unread")
    if isinstance(given.get("env"), str):
        made.options["task"] = given["env"]
    if isinstance(given.get("seed"), int):
        made.options["seed"] = given["seed"]
    if isinstance(total := given.get("total_timesteps"), (int, float)):
        made.options["steps"] = math.ceil(total / (streams * length))
    return made


def ppo_plan(values: Mapping[str, Any], steps: int) -> Plan:
    """PPO; SB3's value loss has no half."""
    part = whole(values, "batch_size", 64)
    bound = values.get("clip_range_vf")
    clip = values["clip_range"]
    hints = {
        "clip_low": min(_number(clip, 0.2), 1.0),
        "clip_high": _number(clip, 0.2),
        "value_coef": 2 * _number(values["vf_coef"], 0.5),
        "value_clip": math.inf if bound is None else _number(bound, 0.2),
        "entropy_coef": _number(values["ent_coef"], 0.0),
        "gamma": _number(values["gamma"], 0.99),
        "lam": _number(values["gae_lambda"], 0.95),
        "epochs": whole(values, "n_epochs", 10),
        "minibatches": max(1, math.ceil(steps / part)),
    }
    update = Adam(hints["epochs"], hints["minibatches"], _number(values["max_grad_norm"], 0.5))
    made = Plan(ppo(**hints).but(update=_small(update)), ("ppo",), hints)
    if steps % part:
        made.say("batch_size", "no whole number of minibatches: they are made nearly equal here")
    if not isinstance(clip, (int, float)):
        made.say("clip_range", "a schedule: surrogate.low and surrogate.high in Python", "unread")
    if values["normalize_advantage"] is False:
        made.change(advantage=GAE(hints["gamma"], hints["lam"]))
    return made


def a2c_plan(values: Mapping[str, Any], steps: int) -> Plan:
    """A2C."""
    hints = {
        "gamma": _number(values["gamma"], 0.99),
        "lam": _number(values["gae_lambda"], 1.0),
        "value_coef": _number(values["vf_coef"], 0.5),
        "entropy_coef": _number(values["ent_coef"], 0.0),
        "max_grad_norm": _number(values["max_grad_norm"], 0.5),
    }
    made = Plan(a2c(**hints), ("a2c",), hints)
    if values["use_rms_prop"] is not True:
        made.recipe = made.recipe.but(update=_small(Adam(max_grad_norm=hints["max_grad_norm"])))
    if values["normalize_advantage"] is True:
        made.change(advantage=GAE(hints["gamma"], hints["lam"]) >> Whiten())
    return made


def _small(update: Adam) -> Adam:
    """With the eps that SB3 gives Adam."""
    return Adam(update.epochs, update.minibatches_per_epoch, update.max_grad_norm, eps=1e-5)


def _number(value: Any, default: float) -> float:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if plain else default
