# SPDX-License-Identifier: Apache-2.0
"""join(): ranks with fewer batches than others, in training and in every operation. Two ranks at least."""
import torch
from harness import raises
from rank_ops import combined, mine, same

import hvd
import hvd.torch

MANY = 12  # steps of rank 0


def train(steps):
    """A model's weights after steps of which each rank has its own number, with gradients of one rank: rank + 1."""
    model = torch.nn.Linear(3, 2, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = hvd.torch.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        (model.weight.sum() * (hvd.rank() + 1)).backward()
        optimizer.step()
    return model.weight


def test_training():
    """Rank r has r more steps than rank 0. A step divides by all ranks, also by those that have joined."""
    n, me = hvd.size(), hvd.rank()
    for _ in range(2):
        weight = train(MANY + me)
        assert hvd.torch.join() == n - 1
        want = -sum((rank + 1) / n for rank in range(n) for step in range(MANY + rank) if step < MANY + me)
        same(weight.detach(), torch.full_like(weight, want))


def test_operations():
    """The last rank alone has data."""
    n, last = hvd.size(), hvd.size() - 1
    if hvd.rank() == last:
        x = mine([4, 3])
        same(hvd.torch.allreduce(x, op=hvd.torch.Sum), x)
        same(hvd.torch.allreduce(x), x / n)
        same(hvd.torch.allreduce(x, op=hvd.torch.Min), x)
        same(hvd.torch.allgather(x), x)
        same(hvd.torch.broadcast(x, last), x)
        got = hvd.torch.alltoall(torch.arange(n).float())
        same(got, torch.tensor([float(last)]))
        assert hvd.torch.allgather_object({"rank": last}) == [{"rank": last}]
        first, second = hvd.torch.grouped_allreduce([x, x + 1], op=hvd.torch.Sum)
        same(first, x)
        same(second, x + 1)
    assert hvd.join() == last
    x = mine([2])
    same(hvd.torch.allreduce(x, op=hvd.torch.Sum), combined([mine([2], rank=r) for r in range(n)], hvd.torch.Sum))


def test_between_backward_and_step():
    model = torch.nn.Linear(2, 1)
    optimizer = hvd.torch.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
    model(torch.ones(2)).sum().backward()
    with raises(RuntimeError, "between backward"):
        hvd.torch.join()
    optimizer.step()
    assert hvd.torch.join() in range(hvd.size())


def test_shutdown_without_join():
    """An error, not the end of this process: the other ranks have a checkpoint to write. Takes 5 s."""
    if hvd.size() != 3:
        return
    if hvd.rank() == hvd.size() - 1:
        hvd.shutdown()
    else:
        with raises(hvd.torch.HvdError, "has shut down without"):
            hvd.torch.join()
        hvd.shutdown()
    hvd.init()
