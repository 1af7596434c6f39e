"""The log-probability of a step is read from the row before its token, never from its own."""

from __future__ import annotations

import pytest
import torch

from anypo.backends.language_load import load_policy
from anypo.backends.language_score import Readout
from anypo.core.batch import Batch

ROWS = torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8]]).log()


@pytest.fixture
def policy(monkeypatch):
    """A policy whose network gives three rows of logits for the tokens 1, 0, 2."""
    policy = load_policy("tiny")
    monkeypatch.setattr(policy.net, "hidden", lambda parts: (ROWS, [torch.arange(3)]))
    monkeypatch.setattr(policy.net, "readout", lambda: Readout(torch.eye(3)))
    return policy


def batch(positions: list[int]) -> Batch:
    """One sequence 1, 0, 2 with steps at these positions."""
    zero = torch.zeros(len(positions), dtype=torch.long)
    ids = {"traj": zero, "seq": zero, "group": zero, "position": torch.tensor(positions)}
    return Batch({}, ids, {}, {"tokens": [torch.tensor([1, 0, 2])], "prompt_length": [1]})


def test_a_token_is_scored_by_the_row_before_it(policy):
    logp = policy.columns(batch([1, 2]), frozenset({"logp"}), {})["logp"]
    assert logp.tolist() == pytest.approx([-1.6094, -2.3026], abs=5e-5)


def test_a_step_beyond_the_tokens_is_an_error_and_not_cut(policy):
    with pytest.raises((IndexError, ValueError)):
        policy.columns(batch([1, 3]), frozenset({"logp"}), {})


def test_the_first_token_is_predicted_by_nothing(policy):
    with pytest.raises(ValueError, match="position 0"):
        policy.columns(batch([0, 1]), frozenset({"logp"}), {})
