"""A*-PO, APA, Reg-GRPO, FlowRL: what they fit, where they are at rest, what they reduce to."""

from __future__ import annotations

import math

import pytest
import torch

import anypo
from anypo.core.errors import UsageError
from anypo.core.neutral import Mean
from anypo.engine.collect import credit
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.sampling.probe import soft_mean
from anypo.pieces.surrogate.regression import Regression
from tests.identities.evaluate import evaluate, same, scene
from tests.identities.small import close, steps


def test_a_star_at_the_reference_is_reinforce_with_a_fixed_baseline():
    """logp = ref: the gradient is −2 β2 (R − V*)/B on every token."""
    batch = steps([2, 1], [0, 1], reward=[0, 1, 0], v_star=[0.25, 0.25, 0.5], logp=[-1] * 3).with_(
        {"ref.base": torch.full((3,), -1.0, dtype=torch.float64)}
    )
    loss, grads = evaluate(anypo.recipe("a_star_po", beta2=0.1), batch)
    close(grads["logp"], [-0.1 * 0.75, -0.1 * 0.75, 0.1 * 0.5])
    assert loss == pytest.approx((0.75**2 + 0.5**2) / 2)


def test_a_star_rests_where_the_log_ratio_is_the_advantage():
    """β2·D = R − V* with D the sum over the answer, however large: no cap lies in between."""
    batch = steps([2], reward=[0, 1], v_star=[0.5, 0.5], logp=[199, 299])
    batch = batch.with_({"ref.base": torch.tensor([-1.0, -1.0]).double()})
    loss, grads = evaluate(anypo.recipe("a_star_po", beta2=1e-3), batch)
    assert loss == pytest.approx(0)
    close(grads["logp"], [0, 0])
    _, grads = evaluate(anypo.recipe("a_star_po", beta2=2e-3), batch)
    close(grads["logp"], [2 * 2e-3 * 0.5] * 2)


@pytest.mark.parametrize(
    ("rewards", "tau", "value"),
    [
        ([1.0, 0.0], 0.5, 0.5 * math.log((math.e**2 + 1) / 2)),
        ([1.0, 1.0], 0.5, 1.0),
        ([0.0, 0.0], 0.5, 0.0),
        ([1.0, 0.0, 0.0, 0.0], math.inf, 0.25),
        ([1.0, 0.0], 1e-4, 1.0 - 1e-4 * math.log(2)),
    ],
)
def test_the_optimal_value_of_reference_answers(rewards, tau, value):
    assert soft_mean(rewards, tau) == pytest.approx(value)
    probe = anypo.recipe("a_star_po", beta1=tau).sampling.probes[0]
    assert (probe.policy, probe.temperature, probe.tau) == ("base", 1.0, tau)


def test_apa_rests_at_the_scaled_advantage_and_starts_as_a_policy_gradient():
    """At r = 1 the gradient is −2·A/λ per token over their number; at log r = A/λ it is 0."""
    recipe = anypo.recipe("apa", adv_coef=10.0)
    batch = steps([2, 1], advantage=[0.5, -1, 2], logp=[-1, -2, -3], logp_old=[-1, -2, -3])
    more = {"value": torch.ones(3).double(), "return": torch.ones(3).double()}
    loss, grads = evaluate(recipe, batch.with_(more))
    close(grads["logp"], [-2 * 10 * a / 3 for a in (0.5, -1, 2)])
    assert loss == pytest.approx((25 + 100 + 400) / 3)
    fitted = batch.with_({**more, "logp": batch["logp_old"] + 10 * batch["advantage"]})
    close(evaluate(recipe, fitted)[1]["logp"], [0, 0, 0])


def test_apas_other_form_weighs_by_the_exponential_of_the_advantage():
    """`−exp(A/2)·logp`: bad tokens are imitated too, only less; the critic's target stays raw."""
    recipe = anypo.recipe("apa", form="log", kl_coef=0)
    batch = steps([1, 1], reward=[2.0, -1.0], logp=[-1, -1], value=[0, 0], value_next=[0, 0])
    batch = credit(recipe, batch)
    whitened = 1.5 / (math.sqrt(4.5) + 1e-8)
    close(batch["advantage"], [math.exp(whitened / 2), math.exp(-whitened / 2)])
    close(batch["return"], [2.0, -1.0])
    _, grads = evaluate(recipe, batch)
    close(grads["logp"], [-math.exp(whitened / 2) / 2, -math.exp(-whitened / 2) / 2])


def test_apas_critic_is_half_the_squared_error_without_a_clip():
    batch = steps([2], advantage=[0, 0], logp=[-1, -1], logp_old=[-1, -1], value=[3, 0])
    batch = batch.with_({"return": torch.tensor([0.0, 1.0]).double()})
    loss, grads = evaluate(anypo.recipe("apa"), batch)
    close(grads["value"], [1.5, -0.5])
    assert loss == pytest.approx((4.5 + 0.5) / 2)


def test_one_answer_regressed_on_its_tokens_is_apa():
    """A*-PO's regression with a token's log-ratio to the old policy is APA's."""
    token = anypo.recipe("a_star_po", beta2=1.0).but(
        ratio=Ratio("step"), surrogate=Regression(), aggregate=Mean("step", "batch")
    )
    batch = scene().with_({"advantage": torch.linspace(-1, 1, 8).double()})
    batch = batch.with_({"value": torch.zeros(8).double(), "return": torch.zeros(8).double()})
    same(anypo.recipe("apa", adv_coef=1.0), token, batch)


PERFECT = {"logp": [-1, -1, -1], "logp_old": [-3, -1, 1]}
"""Log-ratios 2, 0, −2: standardised 1, 0, −1, as the outcomes 5, 4, 3 are."""


def test_reg_grpo_rests_at_the_order_and_not_at_the_step_length():
    for factor in (1.0, 0.5, 3.0):
        old = [-1 + factor * (x + 1) for x in PERFECT["logp_old"]]
        batch = steps([1, 1, 1], reward=[5, 4, 3], logp=PERFECT["logp"], logp_old=old)
        loss, grads = evaluate(anypo.recipe("reg_grpo", group=3, eps=1e-9), batch)
        assert loss == pytest.approx(0, abs=1e-16)
        torch.testing.assert_close(grads["logp"], torch.zeros(3).double(), rtol=0, atol=1e-8)
    batch = steps([1, 1, 1], reward=[3, 4, 5], **PERFECT)
    assert evaluate(anypo.recipe("reg_grpo", group=3), batch)[0] == pytest.approx(8 / 3, rel=1e-3)


def test_reg_grpos_plain_form_starts_in_grpos_direction():
    """(ρ/η − A)² at ratio 1: −2·A/η per token, each answer with weight 1/B."""
    batch = scene()
    batch = batch.with_({"logp": batch["logp_old"]})
    _, grads = evaluate(anypo.recipe("reg_grpo", group=2, eta=0.5, eps=1e-12), batch)
    a = 0.5 / math.sqrt(0.5)
    wanted = [-4 * a / 4] * 2 + [4 * a / 4] * 3 + [4 * a / 4] + [-4 * a / 4] * 2
    torch.testing.assert_close(grads["logp"], torch.tensor(wanted, dtype=torch.float64))


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_reg_grpo_pushes_no_uniform_group_before_it_moved(eta):
    batch = steps([1, 2], reward=[1, 0, 1], logp=[-1] * 3, logp_old=[-1] * 3)
    loss, grads = evaluate(anypo.recipe("reg_grpo", group=3, eta=eta), batch)
    assert loss == 0
    close(grads["logp"], [0, 0, 0])


def flow(log_z: float, outcomes: list[float], moved: float = 0.0):
    """Two answers whose mean log-ratios to the reference are 1 and −1; `moved` since the update."""
    reward = [0, outcomes[0], outcomes[1]]
    batch = steps([2, 1], reward=reward, logp=[0, 0, -2], log_z=[log_z, 7, log_z])
    old = batch["logp"] - torch.tensor([moved / 2, moved / 2, moved]).double()
    return batch.with_({"ref.base": torch.tensor([-1.0, -1.0, -1.0]).double(), "logp_old": old})


def test_flow_balance_is_a_regression_on_the_reward_with_a_learned_constant():
    """δ = log Z ± 1 − β·A; ∂/∂log Z = 2δ/B at the prompt's end alone, ∂/∂logp = 2δ/(B·n)."""
    recipe = anypo.recipe("flowrl", group=2, beta=3.0)
    a = 0.5 / (math.sqrt(0.5) + 1e-6)
    loss, grads = evaluate(recipe, flow(0.25, [1, 0]))
    d1, d2 = 0.25 + 1 - 3 * a, 0.25 - 1 + 3 * a
    assert loss == pytest.approx((d1**2 + d2**2) / 2)
    close(grads["log_z"], [d1, 0, d2])
    close(grads["logp"], [d1 / 2, d1 / 2, d2])


def test_flow_balance_rests_at_the_reference_without_rewards():
    batch = flow(0.0, [1, 1]).with_({"ref.base": torch.tensor([0.0, 0.0, -2.0]).double()})
    loss, grads = evaluate(anypo.recipe("flowrl", group=2), batch)
    assert loss == 0
    close(grads["log_z"], [0, 0, 0])


@pytest.mark.parametrize(("moved", "weight"), [(0.0, 1.0), (1.0, math.e), (5.0, 10.0)])
def test_flow_balance_weighs_whole_answers_up_to_a_cap(moved, weight):
    """The weight is exp of the *summed* log-ratio, detached."""
    recipe = anypo.recipe("flowrl", group=2)
    plain, moved_loss = (evaluate(recipe, flow(0.5, [1, 0], m)) for m in (0.0, moved))
    assert moved_loss[0] == pytest.approx(weight * plain[0])
    torch.testing.assert_close(moved_loss[1]["logp"], weight * plain[1]["logp"])


def test_flow_balance_without_a_cap_and_with_a_floor():
    plain = evaluate(anypo.recipe("flowrl", group=2), flow(0.5, [1, 0]))[0]
    free = anypo.recipe("flowrl", group=2, weight_cap=math.inf)
    assert evaluate(free, flow(0.5, [1, 0], 5.0))[0] == pytest.approx(math.e**5 * plain)
    floor = anypo.recipe("flowrl", group=2, weight_low=0.8, weight_cap=1.2)
    assert evaluate(floor, flow(0.5, [1, 0], -5.0))[0] == pytest.approx(0.8 * plain)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("a_star_po", {"beta1": 0.0}),
        ("a_star_po", {"beta2": 0.0}),
        ("a_star_po", {"samples": 0}),
        ("apa", {"adv_coef": -1.0}),
        ("apa", {"value_coef": 0.0}),
        ("reg_grpo", {"group": 1}),
        ("reg_grpo", {"eps": 0.0}),
        ("reg_grpo", {"eta": -1.0}),
        ("flowrl", {"beta": 0.0}),
        ("flowrl", {"weight_low": 2.0, "weight_cap": 1.0}),
        ("flowrl", {"weight_cap": 0.0}),
        ("flowrl", {"group": 1}),
    ],
)
def test_bad_arguments_are_refused(name, arguments):
    with pytest.raises(UsageError, match=f"^{name}: "):
        anypo.recipe(name, **arguments)
