# SPDX-License-Identifier: Apache-2.0
"""Gradients through the collectives: Horovod's (hvd.torch.autograd says which)."""
import torch
from harness import raises

import hvd.torch as hvd


def leaf(shape, base=0):
    count = 1
    for extent in shape:
        count *= extent
    x = (torch.arange(count, dtype=torch.float64) + base).reshape(shape)
    return x.requires_grad_()


def weight(shape, rank=None):
    """The factors by which a rank multiplies its result before it sums, which make its gradient known."""
    rank = hvd.rank() if rank is None else rank
    count = 1
    for extent in shape:
        count *= extent
    return (torch.arange(count, dtype=torch.float64) % 5 + rank + 1).reshape(shape)


def total(shape):
    return sum(weight(shape, r) for r in range(hvd.size()))


def backward(result):
    (result * weight(result.shape)).sum().backward()


def test_allreduce():
    for op, factor in ((hvd.Sum, 1.0), (hvd.Average, 1.0 / hvd.size())):
        x = leaf([3, 2])
        backward(hvd.allreduce(x, op=op, name="a"))
        assert torch.allclose(x.grad, total([3, 2]) * factor)
    x = leaf([3])
    backward(hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25))
    assert torch.allclose(x.grad, total([3]) * 0.5)
    x = leaf([3])
    backward(hvd.allreduce(x, op=hvd.Max))
    assert torch.equal(x.grad, weight([3], hvd.size() - 1))


def test_allreduce_compressed():
    x = torch.ones(4, requires_grad=True)
    hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.bf16).sum().backward()
    assert x.grad.tolist() == [hvd.size()] * 4


def test_grouped_allreduce():
    x, y = leaf([3]), leaf([2, 2])
    a, b = hvd.grouped_allreduce([x, y], op=hvd.Sum)
    ((a * weight([3])).sum() + (b * weight([2, 2])).sum()).backward()
    assert torch.allclose(x.grad, total([3])) and torch.allclose(y.grad, total([2, 2]))


def test_allgather():
    me = hvd.rank()
    rows = [r + 1 for r in range(hvd.size())]
    x = leaf([rows[me], 2])
    backward(hvd.allgather(x))
    start = sum(rows[:me])
    assert torch.allclose(x.grad, total([sum(rows), 2])[start : start + rows[me]] / hvd.size())
    x = leaf([])
    backward(hvd.allgather(x, name="scalar"))
    assert x.grad.shape == () and x.grad == total([hvd.size()])[me] / hvd.size()


def test_grouped_allgather():
    x, y = leaf([2]), leaf([1, 3])
    a, b = hvd.grouped_allgather([x, y])
    ((a * weight(a.shape)).sum() + (b * weight(b.shape)).sum()).backward()
    me = hvd.rank()
    assert torch.allclose(x.grad, total(a.shape)[2 * me : 2 * me + 2] / hvd.size())
    assert torch.allclose(y.grad, total(b.shape)[me : me + 1] / hvd.size())


def test_broadcast():
    root = hvd.size() - 1
    x = leaf([4])
    backward(hvd.broadcast(x, root))
    want = total([4]) / hvd.size() if hvd.rank() == root else torch.zeros(4, dtype=torch.float64)
    assert torch.allclose(x.grad, want)


def test_alltoall():
    n, me = hvd.size(), hvd.rank()
    splits = [(me + r) % 3 for r in range(n)]
    x = leaf([sum(splits), 2])
    got, rows = hvd.alltoall(x, splits=splits)
    assert not rows.requires_grad
    (got * (me + 1)).sum().backward()
    want = torch.cat([torch.full([c, 2], r + 1.0, dtype=torch.float64) for r, c in enumerate(splits)])
    assert torch.equal(x.grad, want)
    x = leaf([n])
    (hvd.alltoall(x) * (me + 1)).sum().backward()
    assert x.grad.tolist() == [r + 1 for r in range(n)]


def test_reducescatter():
    n = hvd.size()
    for op, factor in ((hvd.Sum, n), (hvd.Average, 1)):
        rows = n + 1
        x = leaf([rows, 2])
        backward(hvd.reducescatter(x, op=op))
        counts = [rows // n + (r < rows % n) for r in range(n)]
        want = torch.cat([weight([c, 2], r) for r, c in enumerate(counts)])
        assert torch.allclose(x.grad, want * factor)
    x, y = leaf([n]), leaf([2 * n])
    a, b = hvd.grouped_reducescatter([x, y], op=hvd.Sum)
    (a.sum() + b.sum()).backward()
    assert x.grad.tolist() == [n] * n and y.grad.tolist() == [n] * 2 * n
    x = leaf([n])
    hvd.reducescatter(x, op=hvd.Average, prescale_factor=2.0, postscale_factor=0.75).sum().backward()
    assert x.grad.tolist() == [1.5] * n


def test_gradient_of_gradient():
    """create_graph=True: the gradient is itself a result of collectives, and has a gradient. The factors of Horovod's
    backward count in both."""
    n, me = hvd.size(), hvd.rank()
    operations = {
        "allreduce": (lambda t: hvd.allreduce(t, op=hvd.Sum), 1, 1),
        "allgather": (hvd.allgather, 1 / n, 1 / n**2),
        "broadcast": (lambda t: hvd.broadcast(t, 0), 1 / n, 1 / n**2),
        "alltoall": (hvd.alltoall, 1, 1),
        "reducescatter": (lambda t: hvd.reducescatter(t, op=hvd.Sum), n, n),
    }
    for name, (operation, once, twice) in operations.items():
        x = (torch.arange(2 * n, dtype=torch.float64) + 1 + me).requires_grad_()
        (first,) = torch.autograd.grad((operation(x) ** 3).sum(), x, create_graph=True)
        (first * (me + 2)).sum().backward()
        # The same in one process: each rank's x is a row of one tensor.
        rows = torch.stack([torch.arange(2 * n, dtype=torch.float64) + 1 + r for r in range(n)])
        rows.requires_grad_()
        total = {
            "allreduce": lambda a: n * (a.sum(0) ** 3).sum(),
            "allgather": lambda a: n * (a**3).sum(),
            "broadcast": lambda a: n * (a[0] ** 3).sum(),
            "alltoall": lambda a: (a**3).sum(),
            "reducescatter": lambda a: (a.sum(0) ** 3).sum(),
        }[name](rows)
        (all_first,) = torch.autograd.grad(total, rows, create_graph=True)
        assert torch.allclose(first, all_first[me] * once), name
        factors = torch.arange(n, dtype=torch.float64) + 2
        (all_first * factors[:, None]).sum().backward()
        assert torch.allclose(x.grad, rows.grad[me] * twice), name


def test_in_place_is_seen():
    """Autograd notices that a saved value was overwritten."""
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    z = (y * y).sum()
    hvd.allreduce_(y.detach(), op=hvd.Sum)
    with raises(RuntimeError, "modified by an inplace operation"):
        z.backward()


def test_sync_batch_norm():
    n, me = hvd.size(), hvd.rank()
    torch.manual_seed(1)
    full = torch.randn(4 * n, 3, 5, dtype=torch.float64) * 2 + 7
    ours = hvd.SyncBatchNorm(3).double()
    plain = torch.nn.BatchNorm1d(3).double()
    mine = full[4 * me : 4 * me + 4].clone().requires_grad_()
    everything = full.clone().requires_grad_()
    got, want = ours(mine), plain(everything)
    assert torch.allclose(got, want[4 * me : 4 * me + 4])
    got.pow(3).sum().backward()
    want.pow(3).sum().backward()
    assert torch.allclose(mine.grad, everything.grad[4 * me : 4 * me + 4])
    assert torch.allclose(hvd.allreduce(ours.weight.grad, op=hvd.Sum), plain.weight.grad)
    assert torch.allclose(ours.running_mean, plain.running_mean)
    assert torch.allclose(ours.running_var, plain.running_var)
    ours.eval(), plain.eval()
    assert torch.allclose(ours(mine), plain(mine))


def test_sync_batch_norm_bfloat16():
    """Counts and squares of a 16-bit input are kept in float32."""
    torch.manual_seed(2)
    x = (torch.randn(30, 2, 35) * 2 + 100).to(torch.bfloat16)
    ours, plain = hvd.SyncBatchNorm(2), torch.nn.BatchNorm1d(2)
    want = plain(torch.cat([x.float()] * hvd.size()))[:30]
    got = ours(x)
    if hvd.size() > 1:
        assert got.dtype == torch.bfloat16
        assert torch.allclose(got.float(), want, atol=0.05), (got.float() - want).abs().max()
        assert torch.allclose(ours.running_mean, plain.running_mean, rtol=1e-4)
        assert torch.allclose(ours.running_var, plain.running_var, rtol=1e-4)
