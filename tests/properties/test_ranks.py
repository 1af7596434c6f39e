"""For every recipe: two gloo ranks give the gradient of one. One long-lived pair serves all."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection

import pytest
import torch

from tests.properties.test_invariance import STAGES, gradient
from tests.toys import toy_batch

LENGTHS = [[3, 1], [2, 4], [1, 2], [5, 1]]


def serve(rank: int, store: str, pipe: Connection) -> None:
    """A rank: answers (recipe, groups, budget) with its gradient and loss until told to stop."""
    import torch.distributed as dist

    from anypo.backends.ranks import Ranks

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    backend = Ranks(task=None)
    while (job := pipe.recv()) is not None:
        name, lengths, budget = job
        try:
            grad, facts = gradient(name, toy_batch(lengths), budget, backend=backend)
            pipe.send((grad.tolist(), facts["loss"]))
        except Exception as error:
            pipe.send(repr(error))
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two processes in one group."""
    context = multiprocessing.get_context("spawn")
    store = str(tmp_path_factory.mktemp("ranks") / "store")
    pipes, processes = [], []
    for rank in range(2):
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(rank, store, theirs), daemon=True)
        process.start()
        pipes.append(ours)
        processes.append(process)
    yield pipes
    for pipe in pipes:
        pipe.send(None)
    for process in processes:
        process.join(10)


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize(("groups", "budget"), [(4, 1), (4, 6), (2, 10_000)])
def test_two_ranks_give_the_gradient_of_one(pair, name, groups, budget):
    lengths = LENGTHS[:groups]
    expected, facts = gradient(name, toy_batch(lengths))
    for pipe in pair:
        pipe.send((name, lengths, budget))
    for pipe in pair:
        assert pipe.poll(60), "a rank hangs"
        answer = pipe.recv()
        assert not isinstance(answer, str), answer
        grad, loss = answer
        torch.testing.assert_close(
            torch.tensor(grad, dtype=torch.float64), expected, rtol=1e-10, atol=1e-12
        )
        assert loss == pytest.approx(facts["loss"], rel=1e-10, abs=1e-12)
