"""Translated recipes against the other libraries' losses, written here row by row from their form.

Each reference works on one list of answers at a time, without batches, ids or pieces.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import anypo
from anypo.core.batch import Batch
from tests.identities.evaluate import evaluate
from tests.identities.small import last, steps

LENGTHS, GROUPS = (2, 3, 1, 4, 2, 3), (0, 0, 0, 1, 1, 1)
OUTCOMES = (1.0, 0.0, 0.25, 0.0, 1.0, 0.5)
HORIZON = 7


def batch() -> Batch:
    """Two groups of three answers; ratios reach from 1/5 to 5."""
    rng = torch.Generator().manual_seed(5)
    count = sum(LENGTHS)
    old = -2 * torch.rand(count, generator=rng, dtype=torch.float64) - 1.7
    gap = 1.6 * (2 * torch.rand(count, generator=rng, dtype=torch.float64) - 1)
    ref = old + 0.3 * torch.randn(count, generator=rng, dtype=torch.float64)
    columns: dict[str, Any] = {"logp": old + gap, "logp_old": old, "ref.base": ref}
    columns["entropy"] = torch.rand(count, generator=rng, dtype=torch.float64)
    columns |= {"logp_mu": old, "reward": last(LENGTHS, OUTCOMES)}
    return steps(LENGTHS, GROUPS, table={"horizon": [HORIZON] * len(LENGTHS)}, **columns)


def compare(recipe: Any, reference: Any) -> None:
    """Loss and gradient of every log-probability."""
    data = batch()
    recipe = recipe.but(update=anypo.Recipe().update, schedules={})
    loss, grads = evaluate(recipe, data)
    leaf = data["logp"].clone().requires_grad_()
    rows = list(
        zip(leaf.split(LENGTHS), data["logp_old"].split(LENGTHS), data["ref.base"].split(LENGTHS))
    )
    wanted = reference(rows)
    (grad,) = torch.autograd.grad(wanted, leaf)
    assert abs(float(wanted) - loss) < 1e-12
    assert grad.abs().max() > 1e-3
    torch.testing.assert_close(grads["logp"], grad, rtol=1e-10, atol=1e-13)


def advantages(eps: float, scale: str = "group") -> list[float]:
    """Reward less the group's mean, over a deviation with Bessel's correction."""
    r = torch.tensor(OUTCOMES, dtype=torch.float64)
    out = []
    for group in (r[:3], r[3:]):
        width = {"group": group.std(), "batch": r.std(), "none": torch.tensor(1.0 - eps)}[scale]
        out += ((group - group.mean()) / (width + eps)).tolist()
    return out


def trl(rows: list[Any], **c: Any) -> Tensor:
    """TRL's loss of `loss_type`, `epsilon`, `epsilon_high`, `delta`, `beta` and the level."""
    low, high = c.get("epsilon", 0.2), c.get("epsilon_high", c.get("epsilon", 0.2))
    kind, sums = c.get("loss_type", "dapo"), []
    for (logp, old, ref), a in zip(rows, advantages(1e-4, c.get("scale_rewards", "group"))):
        d = logp - old
        if c.get("importance_sampling_level") == "sequence":
            d = d.mean() * torch.ones_like(d)
        r = d.exp()
        if kind == "cispo":
            loss = -r.clamp(max=high).detach() * a * logp
        else:
            free = r if c.get("delta") is None else r.clamp(max=c["delta"])
            loss = -torch.min(free * a, r.clamp(1 - low, 1 + high) * a)
        if beta := c.get("beta", 0.0):
            kl = (ref - logp).exp() - (ref - logp) - 1
            loss = loss + beta * (kl * r if c.get("use_bias_correction_kl", True) else kl)
        sums.append(loss)
    total = sum(LENGTHS)
    if kind == "grpo":
        return sum(s.mean() for s in sums) / len(sums)  # pyright: ignore
    if kind == "luspo":
        return sum(s.sum() for s in sums) / len(sums)  # pyright: ignore
    if kind == "dr_grpo":
        return sum(s.sum() for s in sums) / (len(sums) * HORIZON)  # pyright: ignore
    return sum(s.sum() for s in sums) / total  # pyright: ignore


TRL = [
    {},
    {"loss_type": "grpo", "beta": 0.04, "use_bias_correction_kl": False},
    {"loss_type": "grpo", "beta": 0.04, "scale_rewards": "batch"},
    {"loss_type": "dapo", "epsilon": 0.1, "epsilon_high": 0.4, "delta": 1.6},
    {"loss_type": "dr_grpo", "scale_rewards": "none"},
    {"loss_type": "dr_grpo", "beta": 0.1},
    {"loss_type": "bnpo"},
    {"loss_type": "cispo", "epsilon_high": 2.0},
    {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.05},
    {"loss_type": "dapo", "importance_sampling_level": "sequence", "epsilon": 0.05},
    {"loss_type": "luspo", "importance_sampling_level": "sequence", "delta": 1.5},
]


@pytest.mark.parametrize("config", TRL, ids=str)
def test_losses_of_trl(config):
    found = anypo.from_trl({"num_generations": 3, **config})
    assert not {x.source for x in found.gaps} - {"num_train_epochs = 3.0"}
    compare(found.recipe, lambda rows: trl(rows, **config))
    if "schedules" in found.beyond:
        assert set(found.beyond) == {"schedules"}
    compare(found.nearest, lambda rows: trl(rows, **config))


def verl(rows: list[Any], mode: str, mean: str, **c: Any) -> Tensor:
    """verl's policy loss under one of its means, with GRPO's advantages."""
    low, high, dual = c.get("low", 0.2), c.get("high", 0.2), c.get("dual", 3.0)
    sums = []
    for (logp, old, ref), a in zip(rows, advantages(1e-6)):
        d = logp - old
        if mode == "geo_mean":
            bound = d.clamp(max=high) if a > 0 else d.clamp(min=-low)
            sums.append((-a * bound.mean().exp()).reshape(1))
            continue
        if mode == "gspo":  # a token's gradient, at the value of the answer's ratio
            d = logp - logp.detach() + d.mean().detach()
        r = d.exp()
        loss = torch.max(-a * r, -a * r.clamp(1 - low, 1 + high))
        if mode == "vanilla" and a < 0:
            loss = torch.min(loss, torch.full_like(loss, -a * dual))
        if mode == "cispo":
            loss = -r.clamp(1 - low, 1 + high).detach() * a * logp
        if mode == "gpg":
            loss = -a * logp
        if form := c.get("kl"):
            e = logp - ref
            k2 = e**2 / 2
            k3 = (-e).exp() + e - 1
            loss = (
                loss
                + 0.01 * {"low_var_kl": k3, "mse": k2, "k3+": k2 - k2.detach() + k3.detach()}[form]
            )
        sums.append(loss)
    if mean == "seq-mean-token-mean" or mode == "geo_mean":
        return sum(s.mean() for s in sums) / len(sums)  # pyright: ignore
    if mean == "token-mean":
        return sum(s.sum() for s in sums) / sum(LENGTHS)  # pyright: ignore
    whole = sum(s.sum() for s in sums)
    if mean == "token-sum":
        return whole  # pyright: ignore
    return whole / len(sums) / (c.get("factor", HORIZON) if mean.endswith("norm") else 1)  # pyright: ignore


VERL = [
    ("vanilla", "token-mean", {}),
    ("vanilla", "token-sum", {"low": 0.1, "high": 0.3, "dual": 1.5}),
    ("vanilla", "seq-mean-token-mean", {"kl": "low_var_kl"}),
    ("vanilla", "seq-mean-token-sum", {"kl": "mse"}),
    ("vanilla", "seq-mean-token-sum-norm", {"kl": "k3+"}),
    ("vanilla", "seq-mean-token-sum-norm", {"factor": 11}),
    ("gspo", "seq-mean-token-mean", {"low": 0.02, "high": 0.05}),
    ("gspo", "token-mean", {"low": 0.02, "high": 0.05}),
    ("cispo", "token-mean", {"low": 0.3, "high": 0.5}),
    ("geo_mean", "token-mean", {"low": 0.4, "high": 0.4}),
    ("gpg", "token-mean", {}),
]


@pytest.mark.parametrize(("mode", "mean", "c"), VERL, ids=str)
def test_losses_of_verl(mode, mean, c):
    actor = {"policy_loss.loss_mode": mode, "loss_agg_mode": mean, "use_kl_loss": "kl" in c}
    actor |= {"clip_ratio_low": c.get("low", 0.2), "clip_ratio_high": c.get("high", 0.2)}
    actor |= {"clip_ratio_c": c.get("dual", 3.0), "loss_scale_factor": c.get("factor")}
    actor |= {"kl_loss_coef": 0.01, "kl_loss_type": c.get("kl", "low_var_kl")}
    config = {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.rollout.n": 3}
    config |= {f"actor_rollout_ref.actor.{k}": v for k, v in actor.items()}
    found = anypo.from_verl(config)
    assert found.exact
    compare(found.recipe, lambda rows: verl(rows, mode, mean, **c))


def test_the_loss_of_sb3():
    """Policy, value and entropy terms on a whole buffer as one minibatch."""
    data = batch()
    rng = torch.Generator().manual_seed(8)
    value, ahead, new = (torch.rand(15, generator=rng, dtype=torch.float64) for _ in range(3))
    ahead[torch.tensor(LENGTHS).cumsum(0) - 1] = 0.0
    extra = {"value": value, "value_old": value, "value_next": ahead}
    given = {"gamma": 0.9, "gae_lambda": 0.8, "ent_coef": 0.02, "vf_coef": 0.7, "batch_size": 8}
    recipe = anypo.from_sb3({**given, "n_steps": 4, "n_envs": 2}).recipe
    assert recipe.update.visits == 10
    loss, grads = evaluate(recipe, data.with_({**extra, "value": value}))
    estimates = []
    for r, v, n in zip(*(x.split(LENGTHS) for x in (data["reward"], value, ahead))):
        a, out = 0.0, []
        for t in reversed(range(len(r))):
            a = r[t] + 0.9 * n[t] - v[t] + 0.9 * 0.8 * a
            out.insert(0, a)
        estimates += out
    raw = torch.stack(estimates)
    a = (raw - raw.mean()) / (raw.std() + 1e-8)
    logp, v = data["logp"].clone().requires_grad_(), value.clone().requires_grad_()
    r = (logp - data["logp_old"]).exp()
    policy = -torch.min(r * a, r.clamp(0.8, 1.2) * a).mean()
    target = (raw + value).detach()
    whole = policy + 0.7 * ((target - v) ** 2).mean() - 0.02 * data["entropy"].mean()
    wanted = torch.autograd.grad(whole, [logp, v])
    assert abs(float(whole) - loss) < 1e-12
    torch.testing.assert_close(grads["logp"], wanted[0], rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(grads["value"], wanted[1], rtol=1e-10, atol=1e-13)
    assert not torch.equal(new, value)
