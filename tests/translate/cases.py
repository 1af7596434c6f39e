"""Configurations as people write them: file name → text."""

from __future__ import annotations

HEAD = "from trl import GRPOConfig, GRPOTrainer\n"


def grpo(*words: str, trainer: str = "GRPO") -> str:
    """A file with one call."""
    inner = "".join(f"    {w},\n" for w in words)
    return f"from trl import {trainer}Config\nargs = {trainer}Config(\n{inner})\n"


ACTOR = "actor_rollout_ref.actor."


def verl(*words: str) -> str:
    """A script with one command line; `~` is the actor's prefix."""
    words = tuple(w.replace("~", ACTOR) for w in words)
    common = ("actor_rollout_ref.rollout.n=8", "data.train_files=train.parquet")
    return "python3 -m verl.trainer.main_ppo \\\n" + " \\\n".join([*common, *words]) + "\n"


def sb3(call: str, env: str = "'CartPole-v1'", name: str = "PPO") -> str:
    """A file that trains an agent."""
    return (
        f"from stable_baselines3 import {name}\n"
        f"model = {name}('MlpPolicy', {env}, {call})\nmodel.learn(20_000)\n"
    )


TRL = {
    "plain": grpo("max_steps=10"),
    "grpo": grpo("loss_type='grpo'", "beta=0.04", "use_bias_correction_kl=False"),
    "dr_grpo": grpo("loss_type='dr_grpo'", "scale_rewards='none'", "max_steps=20"),
    "dr_grpo_scaled": grpo("loss_type='dr_grpo'", "beta=0.001"),
    "dapo": grpo("epsilon_high=0.28", "delta=4.0", "num_iterations=2", "temperature=0.8"),
    "bnpo": grpo("loss_type='bnpo'", "scale_rewards='batch'"),
    "cispo": grpo("loss_type='cispo'", "epsilon_high=5.0", "steps_per_generation=4"),
    "cispo_trap": grpo("loss_type='cispo'"),
    "gspo": grpo(
        "loss_type='grpo'", "importance_sampling_level='sequence'", "epsilon=3e-4",
        "epsilon_high=4e-4", "steps_per_generation=4",
    ),
    "gspo_kl": grpo("importance_sampling_level='sequence'", "beta=0.01", "num_iterations=2"),
    "luspo": grpo("loss_type='luspo'", "importance_sampling_level='sequence'"),
    "sapo": grpo("loss_type='sapo'"),
    "entropy": grpo("entropy_coef=0.001", "top_entropy_quantile=0.2", "beta=0.02"),
    "sizes": grpo(
        "per_device_train_batch_size=4", "gradient_accumulation_steps=8", "num_generations=16",
        "generation_batch_size=64", "max_steps=100", "save_steps=50", "eval_steps=25",
    ),
    "optimizer": grpo(
        "weight_decay=0.01", "adam_beta2=0.95", "adam_epsilon=1e-6", "max_grad_norm=0.2",
        "lr_scheduler_type='cosine'", "learning_rate=2 * 1e-6", "bf16=False", "seed=7",
        "warmup_steps=10", "max_steps=30",
    ),
    "adapter": (
        "from peft import LoraConfig\n" + HEAD + "peft = LoraConfig(r=16, lora_alpha=32)\n"
        "trainer = GRPOTrainer('x', [], GRPOConfig('out', beta=0.1), peft_config=peft)\n"
    ),
    "trainer": (
        "from datasets import load_dataset\nfrom trl.rewards import accuracy_reward\n" + HEAD
        + "def mine(completions, **kw):\n    return [1.0 for _ in completions]\n"
        "data = load_dataset('json', data_files='q.jsonl')\n"
        "common = dict(reward_weights=[1.0, 0.5], num_generations=4)\n"
        "GRPOTrainer(model='some/model', reward_funcs=[accuracy_reward, mine],\n"
        "    train_dataset=data, args=GRPOConfig(**common, report_to='none'))\n"
    ),
    "rloo": grpo("num_generations=4", trainer="RLOO"),
    "rloo_ratio": grpo("num_iterations=2", "normalize_advantages=True", trainer="RLOO"),
    "rloo_clip": grpo("reward_clip_range=(-1, 1)", "beta=0.0", trainer="RLOO"),
    "dpo": grpo("beta=0.2", "max_steps=9", trainer="DPO"),
    "ipo": grpo("loss_type=['ipo']", trainer="DPO"),
    "sppo": grpo("loss_type='sppo_hard'", "beta=0.001", trainer="DPO"),
    "hinge": grpo("loss_type='hinge'", trainer="DPO"),
    "sft": grpo("packing=True", "num_train_epochs=1", trainer="SFT"),
}  # fmt: skip

YAML = {
    "trl_grpo": "num_generations: 4\nlearning_rate: 1e-5\nmodel_name_or_path: a/b\nuse_peft: true\n"
    "lora_r: 8\nreward_funcs: [think_format_reward]\n",
    "trl_rloo": "normalize_advantages: false\nnum_generations: 4\n",
    "trl_dpo": "label_smoothing: 0\nbeta: 0.3\n",
    "trl_sft": "packing: false\nlearning_rate: 2.0e-5\n",
    "verl_ppo": "algorithm: {adv_estimator: gae}\ntrainer: {total_training_steps: 5}\n",
    "verl_grpo": "algorithm:\n  adv_estimator: grpo\nactor_rollout_ref:\n  rollout: {n: 4}\n"
    "  actor: {use_kl_loss: true, kl_loss_type: k3+}\ndata: {train_files: [a.parquet]}\n",
}

SHELL = {
    "grpo": verl("algorithm.adv_estimator=grpo"),
    "kl": verl("algorithm.adv_estimator=grpo", "~use_kl_loss=True"),
    "kl_reward": verl(
        "algorithm.adv_estimator=reinforce_plus_plus", "algorithm.use_kl_in_reward=True"
    ),
    "baseline": verl("algorithm.adv_estimator=reinforce_plus_plus_baseline"),
    "rloo": verl("algorithm.adv_estimator=rloo"),
    "remax": verl("algorithm.adv_estimator=remax"),
    "gspo": verl(
        "algorithm.adv_estimator=grpo", "~policy_loss.loss_mode=gspo",
        "~loss_agg_mode=seq-mean-token-mean",
        "~clip_ratio_low=0.0003",
        "~clip_ratio_high=0.0004",
    ),
    "cispo": verl("algorithm.adv_estimator=grpo", "~policy_loss.loss_mode=cispo"),
    "gmpo": verl(
        "algorithm.adv_estimator=grpo", "~policy_loss.loss_mode=geo_mean",
        "~clip_ratio_low=0.4", "~clip_ratio_high=0.4",
    ),
    "clip_cov": verl(
        "algorithm.adv_estimator=grpo", "~policy_loss.loss_mode=clip_cov"
    ),
    "kl_cov": verl(
        "algorithm.adv_estimator=grpo", "~policy_loss.loss_mode=kl_cov",
        "~ppo_epochs=2",
    ),
    "dppo": verl(
        "algorithm.adv_estimator=grpo", "~policy_loss.loss_mode=dppo_kl",
        "~clip_ratio_c=20",
    ),
    "gpg": verl("algorithm.adv_estimator=gpg", "~policy_loss.loss_mode=gpg"),
    "dr_grpo": verl(
        "algorithm.adv_estimator=grpo", "algorithm.norm_adv_by_std_in_grpo=False",
        "~loss_agg_mode=seq-mean-token-sum-norm",
        "~loss_scale_factor=1024", "~clip_ratio_c=1e9",
    ),
    "filter": verl("algorithm.adv_estimator=grpo", "algorithm.filter_groups.enable=True"),
    "ppo": verl("algorithm.adv_estimator=gae", "~entropy_coeff=0.01"),
    "trl": "accelerate launch --num_processes 2 $(which trl) x\ntrl grpo --learning_rate 1e-5 \\\n"
    "  --num_generations 4 --reward_funcs think_format_reward --use_vllm\n",
}  # fmt: skip

SB3 = {
    "ppo": sb3("n_steps=128, batch_size=32, gae_lambda=0.8, gamma=0.98, n_epochs=4"),
    "envs": sb3("ent_coef=0.01", "make_vec_env('CartPole-v1', n_envs=4, seed=1)"),
    "value_clip": sb3("clip_range_vf=0.2, vf_coef=1.0, clip_range=0.1, seed=5"),
    "raw": sb3("normalize_advantage=False, target_kl=0.02, tensorboard_log='logs'"),
    "many": sb3("n_steps=100, batch_size=33", "SubprocVecEnv([make() for _ in range(3)])"),
    "a2c": sb3("n_steps=8", name="A2C"),
    "a2c_adam": sb3("use_rms_prop=False, normalize_advantage=True, ent_coef=0.0", name="A2C"),
}

FILES = {
    **{f"trl_{k}.py": v for k, v in TRL.items()},
    **{f"{k}.yaml": v for k, v in YAML.items()},
    **{f"verl_{k}.sh": v for k, v in SHELL.items()},
    **{f"sb3_{k}.py": v for k, v in SB3.items()},
}
