"""RPG and f-DPG: gradient weights, equal forms, divergences, and the running means."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import anypo
from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.neutral import Mean
from anypo.engine.collect import credit, shape
from anypo.math.divergence import SLOPES, slope
from anypo.pieces.regularizer.derived import Hinge, Tangent
from anypo.pieces.regularizer.kl import KL
from anypo.pieces.reward.kl import KLReward
from tests.identities.evaluate import evaluate, same, scene
from tests.identities.small import close, steps

FORMS = ("fkl", "rkl", "ufkl", "urkl")
WEIGHTS = {
    "fkl": lambda w, a, b: w * a + b,
    "rkl": lambda w, a, b: w * (a - b * (math.log(w) + 1)),
    "ufkl": lambda w, a, b: w * a - b * (w - 1),
    "urkl": lambda w, a, b: w * (a - b * math.log(w)),
}
"""Form → the weight of a step's score in the gradient that is followed, of ratio, A and β."""


def ratios(*ratio: float, **more: Any) -> Batch:
    """One-token answers with these ratios to the old policy, and advantages 1, −1, 1, ….."""
    count = len(ratio)
    logp = torch.tensor(ratio, dtype=torch.float64).log() - 1
    batch = steps([1] * count, logp=logp, logp_old=[-1.0] * count)
    sign = torch.tensor([(-1.0) ** k for k in range(count)], dtype=torch.float64)
    return batch.with_({"advantage": sign, **more})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["rpg", "rpg_reinforce"])
def test_the_gradient_weighs_a_step_by_its_form(name, form):
    batch = ratios(1.0, 1.0, 0.5, 1.7)
    _, grads = evaluate(anypo.recipe(name, form=form, beta=0.3), batch)
    weigh = WEIGHTS[form]
    numbers = zip((1.0, 1.0, 0.5, 1.7), (1, -1, 1, -1), strict=True)
    close(grads["logp"], [-weigh(w, a, 0.3) / 4 for w, a in numbers])


@pytest.mark.parametrize("form", FORMS)
def test_both_styles_have_one_gradient(form):
    arguments = {"form": form, "beta": 0.2, "group": 2}
    differentiable, reinforce = (anypo.recipe(n, **arguments) for n in ("rpg", "rpg_reinforce"))
    same(reinforce, differentiable, scene(), values=False)


def test_without_a_divergence_all_forms_are_one():
    plain = anypo.recipe("rpg", form="fkl", beta=0.0, group=2)
    for form in FORMS[1:]:
        same(anypo.recipe("rpg", form=form, beta=0.0, group=2), plain, scene())


@pytest.mark.parametrize(
    ("form", "value"), [("fkl", 0.0), ("rkl", 0.0), ("ufkl", 0.0), ("urkl", -1.0)]
)
def test_values_where_nothing_moved(form, value):
    batch = ratios(1.0, 1.0).with_({"advantage": torch.zeros(2).double()})
    assert evaluate(anypo.recipe("rpg", form=form, beta=1.0), batch)[0] == pytest.approx(value)


def test_the_unnormalised_reverse_form_is_the_weighted_k3_less_its_constant():
    batch = ratios(0.5, 2.0)
    urkl = anypo.recipe("rpg", form="urkl", beta=0.5)
    k3 = urkl.but(regularize=(KL("old", 0.5, "k3", weighted=True),))
    same(urkl, k3, batch, values=False)
    assert evaluate(k3, batch)[0] - evaluate(urkl, batch)[0] == pytest.approx(0.5)


@pytest.mark.parametrize("form", FORMS)
def test_the_hard_clip_acts_on_the_ratio_and_inside_the_divergence(form):
    """Beyond the bounds a step keeps the weight that it has on them."""
    recipe = anypo.recipe("rpg_reinforce", form=form, beta=0.3, clip_low=0.2, clip_high=0.28)
    _, grads = evaluate(recipe, ratios(2.0, 0.5, 0.3, 1.1))
    numbers = zip((1.28, 0.8, 0.8, 1.1), (1, -1, 1, -1), strict=True)
    close(grads["logp"], [-WEIGHTS[form](w, a, 0.3) / 4 for w, a in numbers])


@pytest.mark.parametrize("form", ["k1", "k2", "k3", "k1-"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_tangent_is_the_penalty_in_gradient(form, weighted):
    penalty = KL("old", 0.7, form, weighted=weighted)
    batch = ratios(0.5, 2.0, 1.0)
    grads = []
    for piece in (penalty, Tangent(penalty)):
        leaf = batch["logp"].clone().requires_grad_()
        grads.append(torch.autograd.grad(piece(batch.with_({"logp": leaf})).sum(), leaf)[0])
    torch.testing.assert_close(*grads)


def test_a_hinge_acts_on_the_mean_above_its_budget():
    """Logs of ratios 1 and 3: the mean of k1 is 2; slope 10 above 1.5 gives 10·0.5·2."""
    batch = ratios(math.e, math.e**3)
    close(Hinge(KL("old", 1.0, "k1"), 1.5, 10.0)(batch), [10.0, 10.0])
    close(Hinge(KL("old", 1.0, "k1"), 2.5, 10.0)(batch), [0.0, 0.0])
    leaf = batch["logp"].clone().requires_grad_()
    total = Hinge(KL("old", 1.0, "k1"), 1.5, 10.0)(batch.with_({"logp": leaf})).mean()
    close(torch.autograd.grad(total, leaf)[0], [2.5, 2.5])


# ── f-DPG ───────────────────────────────────────────────────────────────────────────────────────

GENERATORS = {
    "kl": lambda t: -math.log(t),
    "reverse_kl": lambda t: t * math.log(t),
    "js": lambda t: t * math.log(2 * t / (1 + t)) + math.log(2 / (1 + t)),
    "tv": lambda t: abs(t - 1) / 2,
    "chi_square": lambda t: 1 / t + t,
    "reverse_chi_square": lambda t: (t - 1) ** 2,
}
"""f of each divergence `E_p[f(π/p)]`; adding c·(t − 1) would change none of them."""


@pytest.mark.parametrize("f", SLOPES)
@pytest.mark.parametrize("t", [0.3, 0.9, 2.5])
def test_slopes_are_those_of_the_divergences(f, t):
    step = 1e-6
    wanted = (GENERATORS[f](t + step) - GENERATORS[f](t - step)) / (2 * step)
    got = float(slope(torch.tensor(math.log(t), dtype=torch.float64), f))
    assert got == pytest.approx(wanted, rel=1e-6)


def answers(**more: list[float]) -> Batch:
    """Two answers of two tokens and one, all of one policy."""
    logp = [-0.5, -0.5, -2.0]
    columns = {"logp": logp, "logp_old": logp, "logp_mu": logp, "ref.base": logp}
    return steps([2, 1], reward=[0, 0, 0]).with_(
        {k: torch.tensor(v, dtype=torch.float64) for k, v in {**columns, **more}.items()}
    )


@pytest.mark.parametrize("f", SLOPES)
def test_at_the_target_every_answer_has_one_pseudo_reward(f):
    recipe = anypo.recipe("f_dpg", f=f)
    got = credit(recipe, shape(recipe, answers()))["advantage"]
    close(got, [-float(slope(torch.zeros(1).double(), f))] * 3)


def test_reverse_kl_is_the_reward_less_the_kl_up_to_a_constant():
    """−f' = R/β − log(π/ref) − log Z − 1, which is KL in the reward divided by β."""
    batch = answers(**{"ref.base": [-1.0, -0.5, -1.0]}).with_(
        {"reward": torch.tensor([0, 0.3, 0.1]).double()}
    )
    dpg = anypo.recipe("f_dpg", f="reverse_kl", beta=0.2, z=0.7)
    got = credit(dpg, shape(dpg, batch))["advantage"]
    charged = anypo.recipe("rloo", beta=0.0).but(reward=(KLReward(0.2),))
    total = shape(charged, batch)
    returned = total.sum(total["reward"], within="traj") / 0.2
    torch.testing.assert_close(got, returned - math.log(0.7) - 1)


def test_the_target_of_forward_kl_needs_no_policy():
    """w·(−f') = (π/q)·(p/π) = p/q: the gradient of the distributional policy gradient."""
    batch = answers(logp=[-0.2, -0.1, -3.0], logp_old=[-0.2, -0.1, -3.0])
    _, grads = evaluate(anypo.recipe("f_dpg", f="kl", z=0.5), batch)
    close(grads["logp"], [-0.5 / 0.5] * 3)  # p/q = 1/Z, over two answers


def test_z_is_the_mean_weight_of_the_target_over_all_answers():
    """P/q = e^0, e^1 now; 3 answers with mean 5 before: Z = (15 + 1 + e)/5."""
    batch = answers(**{"ref.base": [-0.5, -0.5, -1.0]})
    recipe = anypo.recipe("f_dpg", f="reverse_kl")
    state = {"f_baseline": 2.0, "f_z": 5.0, "f_seen": 3.0}
    shaped = shape(recipe, batch, state)
    got = credit(recipe, shaped)
    z = (15 + 1 + math.e) / 5
    pseudo = [-1 - math.log(z)] * 2 + [-math.log(z)]
    close(got["advantage"], [x - 2.0 for x in pseudo])
    after = recipe.advantage.observe(got, state)
    assert after["f_z"] == pytest.approx(z)
    assert after["f_seen"] == 5.0
    assert after["f_baseline"] == pytest.approx(2.0 + 2 / 5 * (sum(pseudo[1:]) / 2 - 2.0))


def test_the_baseline_forgets_what_is_older_than_its_window():
    recipe = anypo.recipe("f_dpg", f="reverse_kl").set("advantage.window", 4)
    state = {"f_baseline": 1.0, "f_z": 1.0, "f_seen": 1000.0}
    got = credit(recipe, shape(recipe, answers(), state))
    assert recipe.advantage.observe(got, state)["f_baseline"] == pytest.approx(
        1 - 0.5 * 2, abs=0.01
    )
    assert recipe.advantage.observe(Batch.empty(), state) == state


def test_the_first_batch_starts_at_its_own_mean():
    recipe = anypo.recipe("f_dpg", f="reverse_kl")
    got = credit(recipe, shape(recipe, answers()))
    after = recipe.advantage.observe(got, recipe.advantage.init())
    assert after == {"f_baseline": pytest.approx(-1.0), "f_z": pytest.approx(1.0), "f_seen": 2.0}


def test_the_loss_is_a_weighted_likelihood_of_whole_answers():
    """On samples of an older policy, π/q multiplies; the loss sums over tokens."""
    batch = answers(logp=[-0.5, -0.5, -1.0])
    recipe = anypo.recipe("f_dpg", f="kl", z=1.0)
    assert recipe.aggregate == Mean("traj", "batch")
    loss, grads = evaluate(recipe, batch)
    close(grads["logp"], [-0.5, -0.5, -0.5 * math.e])
    assert loss == pytest.approx(-(0.5 * -1.0 + 0.5 * math.e * -1.0))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("rpg", {"form": "k3"}),
        ("rpg", {"beta": -0.1}),
        ("rpg", {"group": 1}),
        ("rpg_reinforce", {"form": "k3"}),
        ("rpg_reinforce", {"clip_low": -0.1}),
        ("rpg_reinforce", {"clip_high": -0.1}),
        ("f_dpg", {"f": "hellinger"}),
        ("f_dpg", {"beta": 0.0}),
        ("f_dpg", {"z": -1.0}),
    ],
)
def test_bad_arguments_are_refused(name, arguments):
    with pytest.raises(UsageError, match=f"^{name}: "):
        anypo.recipe(name, **arguments)
