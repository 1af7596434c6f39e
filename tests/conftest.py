"""Settings that every test shares: one thread per worker, and the same examples on every run."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))

settings.register_profile(
    "same-every-time",
    derandomize=True,
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile(
    "search", parent=settings.get_profile("same-every-time"), derandomize=False
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same-every-time"))


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """A finished run of a few seconds, which learned something: `tiny` on `first_letter`."""
    import anypo

    out = tmp_path_factory.mktemp("trained") / "run"
    settings = {"steps": 14, "prompts": 8, "eval_every": 7, "save_every": "7", "seed": 3}
    anypo.train("grpo", "tiny", "first_letter", out=out, **settings)
    return out


@pytest.fixture(scope="session")
def adapted(tmp_path_factory) -> Path:
    """The same with an adapter of low rank."""
    import anypo

    out = tmp_path_factory.mktemp("adapted") / "run"
    settings = {"steps": 6, "prompts": 8, "eval_every": 0, "seed": 3}
    anypo.train("grpo", "tiny", "first_letter", out=out, lora=4, **settings)
    return out
