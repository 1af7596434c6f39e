"""Settings that every test shares: one thread per worker, and the same examples on every run."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

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
