"""Every translated command and file is one that `anypo train` takes, and gives the recipe meant."""

from __future__ import annotations

import runpy

import pytest

import anypo
from anypo.cli import arguments, train
from anypo.cli.options import gather
from anypo.core.dump import dump
from anypo.engine.settings import Settings
from anypo.engine.validate import validate
from anypo.translate import translate
from tests.toys import ToyPolicy
from tests.translate.cases import FILES


class Task:
    """A task of a kind, without questions."""

    name, horizon = "toy", 64

    def __init__(self, kind: str) -> None:
        self.kind = kind


class Any_(ToyPolicy):
    """A policy that offers everything, of a kind."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind


KINDS = {"dpo": "preference", "ipo": "preference", "sppo": "preference", "sft": "demonstration"}


ACTED: set[tuple[str, str]] = set()
"""Method and option that were seen to have an effect."""


def kind(library: str, method: str) -> str:
    return "control" if library == "sb3" else KINDS.get(method, "language")


@pytest.mark.parametrize("name", FILES)
def test_the_command_and_the_file_are_taken(name, tmp_path):
    file = tmp_path / name
    file.write_text(FILES[name])
    found = translate(file, rows=640)
    given = gather(train.Train, found.words[2:])
    chosen, options, remarks = train.choose(given)
    assert remarks == []
    pairs = {(chosen.method.info.name, option) for option in chosen.texts}
    if not pairs <= ACTED:  # a dry run for each option: once is enough
        arguments.effects(chosen)
        ACTED.update(pairs)
    assert dump(chosen.recipe) == dump(found.nearest)
    settings = options.settings
    for key, value in found.options.items():
        got = getattr(settings if hasattr(settings, key) else options, key)
        assert type(got)(value) == got, key
    method = found.expression.method
    of = kind(found.library, method)
    policy = Any_("control" if of == "control" else "language")
    validate(chosen.recipe, Task(of), policy, Settings(**vars(settings)))
    config = tmp_path / "config.yaml"
    config.write_text(found.config)
    from_file = gather(train.Train, ["--config", str(config)])
    assert {k: v for k, v in from_file.items() if k != "config"} == given
    assert dump(train.choose(from_file)[0].recipe) == dump(found.nearest)


@pytest.mark.parametrize("name", FILES)
def test_what_only_python_can_say_is_python(name, tmp_path):
    (tmp_path / name).write_text(FILES[name])
    found = translate(tmp_path / name, rows=640)
    assert found.exact == (dump(found.nearest) == dump(found.recipe))
    if found.exact:
        assert found.python == ""
        return
    (tmp_path / "code.py").write_text(found.python)
    space = runpy.run_path(str(tmp_path / "code.py"))
    assert dump(space["recipe"]) == dump(found.recipe)


def test_those_that_a_command_says_wholly(tmp_path):
    """Without a falling learning rate, most of TRL's recipes are command lines too."""
    wholly = {"trl_grpo", "trl_dapo", "trl_gspo", "trl_gspo_kl", "trl_cispo", "trl_luspo",
              "trl_dr_grpo", "trl_rloo", "trl_ipo", "trl_sft"}  # fmt: skip
    for name in wholly:
        text = FILES[f"{name}.py"].replace("args =", "a =").rstrip(")\n")
        (tmp_path / "a.py").write_text(f"{text}    lr_scheduler_type='constant',\n)\n")
        assert translate(tmp_path / "a.py").exact, name
    rest = {n for n in FILES if not n.startswith("trl_") and n.endswith((".sh", ".yaml"))}
    partial = set()
    for name in rest:
        (tmp_path / name).write_text(FILES[name])
        if not translate(tmp_path / name).exact:
            partial.add(name)
    assert partial == {"verl_remax.sh"}  # there its advantage goes through PPO's clip


def test_recipes_of_the_papers(tmp_path):
    """Configurations that mean a paper's method are its recipe, number by number."""
    plain = {"lr_scheduler_type": "constant"}
    grpo = {**plain, "loss_type": "grpo", "use_bias_correction_kl": False, "beta": 0.04}
    assert anypo.from_trl(grpo).recipe == anypo.recipe("grpo", eps=1e-4)
    dr = {**plain, "loss_type": "dr_grpo", "scale_rewards": "none"}
    assert anypo.from_trl(dr).recipe == anypo.recipe("dr_grpo")
    gspo = {**plain, "loss_type": "grpo", "importance_sampling_level": "sequence"}
    gspo |= {"epsilon": 3e-4, "epsilon_high": 4e-4}
    wanted = anypo.recipe("gspo").set("advantage.eps", 1e-4)
    assert anypo.from_trl(gspo).recipe == wanted
    actor = {"clip_ratio_high": 0.28, "clip_ratio_c": 10.0, "ppo_mini_batch_size": 512}
    actor |= {"optim": {"weight_decay": 0}}
    dapo = {
        "algorithm": {"adv_estimator": "grpo", "filter_groups": {"enable": True}},
        "data.train_batch_size": 512,
        "actor_rollout_ref": {"rollout": {"n": 16}, "actor": actor},
        "reward_model.overlong_buffer": {"enable": True, "len": 4096},
    }
    wanted = anypo.recipe("dapo", dual_clip=10.0, overlong=4096.0)
    assert anypo.from_verl(dapo).recipe == wanted
    sb3 = anypo.from_sb3({"n_steps": 8, "n_envs": 2}, "a2c").recipe
    assert sb3 == anypo.recipe("a2c")
