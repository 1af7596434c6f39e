"""`generate` and `load_policy`: a policy by name or folder, and what it says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anypo.backends import policies
from anypo.core.errors import UsageError

Prompt = str | list[dict[str, str]]


def load_policy(
    name: str | Path, *, task: Any = None, lora: int = 0, precision: str = "", seed: int = 0
) -> Any:
    """A policy by name, or out of the folder of a run, of a checkpoint, of an export or of a model.

    Parameters
    ----------
    name : as `--policy` takes it; a run's folder is its last checkpoint.
    task : an object; a small policy that is made afresh takes its sizes from it.
    lora : rank of a fresh adapter (0 = none). precision : of forward passes.
    seed : of what is made afresh.

    Raises `UsageError` for an unknown name, or for an option that the policy does not have.
    """
    return policies.load_policy(str(name), task=task, lora=lora, precision=precision, seed=seed)


def generate(
    policy: Any,
    prompts: Prompt | Sequence[Prompt],
    n: int = 1,
    *,
    temperature: float = 1.0,
    max_tokens: int = 256,
    seed: int = 0,
    precision: str = "",
) -> list[list[str]]:
    """`n` answers of a policy to each prompt, as text.

    Parameters
    ----------
    policy : a name, a folder (a run's is its last checkpoint), a finished `Run`, or an object.
    prompts : a text, a chat (a list of `{"role": …, "content": …}`), or a list of such.
    temperature : of the sampled distribution; 0 is greedy. No top-p or top-k, as in training.
    max_tokens : most tokens of an answer.
    seed : the same one gives the same answers. precision : of forward passes.

    Raises `UsageError` for a policy that writes no text, and whatever `load_policy` raises.
    """
    policy = getattr(policy, "out", policy)  # a finished run
    if isinstance(policy, (str, Path)):
        policy = load_policy(policy, precision=precision, seed=seed)
    if policy.kind != "language":
        raise UsageError(
            f"{policy.name} is of kind {policy.kind} and writes no text: anypo evaluate measures it"
        )
    return policy.generate_text(
        prompts, n, temperature=temperature, max_tokens=max_tokens, seed=seed
    )
