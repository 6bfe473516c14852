# SPDX-License-Identifier: Apache-2.0
"""What programs written for Horovod rely on beyond results: its errors, warnings, attributes, and what is done where an
argument is left out. rank_autograd.py has its gradients."""
import os
import sys
import time
import warnings

import torch
from harness import raises
from rank_optimizer import Net, data, loss_of, make
from rank_ops import same

import hvd.torch as hvd


def test_errors_are_value_errors():
    x = torch.ones(3)
    handle = hvd.allreduce_async(x, name="a name in use") if hvd.rank() == 0 else None
    if handle is not None:
        with raises(ValueError, "is in flight"):
            hvd.allreduce_async(x, name="a name in use")
    hvd.barrier()
    if handle is None:
        handle = hvd.allreduce_async(x, name="a name in use")
    hvd.synchronize(handle)
    handle = hvd.allreduce_async(x, name="a name in use")  # it was waited for
    while not hvd.poll(handle):
        pass
    time.sleep(0.002)
    hvd.synchronize(hvd.allreduce_async(x, name="a name in use"))  # the other one has ended
    for wrong in (lambda: hvd.broadcast(x, hvd.size()), lambda: hvd.allreduce(x, op=99), lambda: hvd.alltoall(x, [9])):
        with raises(ValueError):
            wrong()
    with raises(ValueError, "splits"):
        hvd.alltoall(x, splits=torch.ones(hvd.size(), 1, dtype=torch.int32))
    with raises(ValueError, "splits"):
        hvd.alltoall(x, splits=torch.ones(hvd.size()))
    with raises(ValueError, "either average or op"):
        hvd.allreduce(x, average=True, op=hvd.Sum)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        same(hvd.allreduce(x, average=False), torch.full([3], float(hvd.size())))
    assert [w.category for w in said] == [DeprecationWarning] and said[0].filename == __file__, said


def test_alltoall():
    n, me = hvd.size(), hvd.rank()
    x = torch.arange(3 * n, dtype=torch.float64).requires_grad_()
    got, rows = hvd.alltoall(x, splits=[2] * n)  # n rows are not sent
    assert rows.tolist() == [2] * n and rows.dtype is torch.int32
    same(got.detach(), torch.arange(2 * me, 2 * me + 2).double().repeat(n))
    got.sum().backward()
    assert x.grad.tolist() == [1.0] * 2 * n + [0.0] * n
    got, rows = hvd.synchronize(hvd.alltoall_async(torch.full([n], float(me))))
    assert got.tolist() == list(range(n)) and rows.tolist() == [1] * n
    x = torch.tensor(1.0, requires_grad=True)
    hvd.alltoall(x, splits=[0] * n)[0].sum().backward()
    assert x.grad == 0
    got, rows = hvd.alltoall(torch.zeros(2 * n), splits=[])
    assert got.shape == (2 * n,) and rows.tolist() == [2] * n


def test_step_after_synchronize():
    def step(net, optimizer, skip):
        optimizer.zero_grad()
        loss_of(net, data(0, hvd.rank())).backward()
        optimizer.synchronize()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            if skip:
                with optimizer.skip_synchronize():
                    optimizer.step()
            else:
                optimizer.step()
        return [str(w.message) for w in said if "skip_synchronize" in str(w.message)]

    net = Net()
    optimizer = hvd.DistributedOptimizer(make("sgd")(net.parameters()), net.named_parameters())
    for _ in range(2):
        assert not step(net, optimizer, True)
        (text,) = step(net, optimizer, False)
        assert text.startswith("optimizer.step() called without optimizer.skip_synchronize()"), text
    optimizer.zero_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss_of(net, data(0, hvd.rank())).backward()
        optimizer.step()
        optimizer.synchronize()  # of a step that the program drops
        optimizer.zero_grad()
        loss_of(net, data(0, hvd.rank())).backward()
        optimizer._hvd_combine()  # as GradScaler does
        optimizer.step()


def test_attributes():
    net = Net()
    groups = [{"params": list(net.layers.parameters())}, {"params": [net.scale, *net.last.parameters()]}]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(groups, lr=0.1), gradient_predivide_factor=2.0)
    names = [optimizer._parameter_names[p] for group in optimizer.param_groups for p in group["params"]]
    count = len(groups[0]["params"])
    assert names == [f"allreduce.noname.0.{i}" for i in range(count)] + [f"allreduce.noname.1.{i}" for i in range(3)]
    assert optimizer.op == hvd.Average and optimizer.gradient_predivide_factor == 2.0
    assert optimizer.process_set is hvd.global_process_set and not optimizer.sparse_as_dense
    optimizer.set_backward_passes_per_step(3)
    assert optimizer.backward_passes_per_step == 3
    optimizer.backward_passes_per_step = 2
    assert optimizer._hvd_options["passes"] == 2

    class Own(torch.optim.SGD):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.op = "its own"

    assert hvd.DistributedOptimizer(Own(net.parameters(), lr=0.1), net.named_parameters()).op == "its own"
    adasum = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters(), op=hvd.Adasum)
    assert adasum.op == hvd.Adasum


def test_sparse_as_dense():
    """The wrapped optimizer gets sparse gradients: SparseAdam takes no others."""
    torch.manual_seed(7)
    rows = [[1, 2, 2], [3, 1], [0], [4, 4]]
    ours, single = torch.nn.Embedding(10, 3, sparse=True), torch.nn.Embedding(10, 3, sparse=True)
    ours.weight.data.copy_(single.weight.data)
    make_adam = lambda model: torch.optim.SparseAdam(list(model.parameters()), lr=0.1)  # noqa: E731
    for compression in hvd.Compression.none, hvd.Compression.bf16:
        single.load_state_dict(ours.state_dict())
        optimizer = hvd.DistributedOptimizer(make_adam(ours), sparse_as_dense=True, compression=compression)
        reference = make_adam(single)
        for _ in range(3):
            for model, opt, used in ((ours, optimizer, rows[hvd.rank()]), (single, reference, sum(rows[: hvd.size()], []))):
                opt.zero_grad()
                model(torch.tensor(used)).sum().backward()
            single.weight.grad = single.weight.grad / hvd.size()
            optimizer.step()
            assert ours.weight.grad.is_sparse and ours.weight.grad.sparse_dim() == 1
            reference.step()
        assert torch.allclose(ours.weight, single.weight, atol=1e-4), (ours.weight - single.weight).abs().max()


def test_sparse_as_dense_for_others():
    """Optimizers that take dense gradients get these, on every rank."""
    table = torch.nn.Embedding(6, 2, sparse=True)
    hvd.broadcast_parameters(table.state_dict(), root_rank=0)
    for optimizer in torch.optim.Adam(table.parameters(), lr=0.1), torch.optim.SparseAdam(list(table.parameters()), lr=0.1):
        table.weight.grad = None
        wants_sparse = isinstance(optimizer, torch.optim.SparseAdam)
        optimizer = hvd.DistributedOptimizer(optimizer, sparse_as_dense=True)
        for step in range(3):
            optimizer.zero_grad()
            if hvd.rank() == 0 or step == 1:  # the others do not use the table in the first step
                table(torch.tensor([1, step])).sum().backward()
            optimizer.step()
            assert table.weight.grad.is_sparse == wants_sparse
            assert not wants_sparse or table.weight.grad.sparse_dim() == 1
        rows = hvd.allgather(table.weight.detach().reshape(1, -1))
        same(rows, rows[:1].expand_as(rows))


def test_state_of_a_new_optimizer():
    """Gradients of zeros are there after broadcast_optimizer_state(), sparse ones for SparseAdam."""
    model = torch.nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert model.bias.grad is None
    same(model.weight.grad, torch.zeros(2, 2))
    for make_optimizer in torch.optim.SparseAdam, torch.optim.SGD:
        table = torch.nn.Embedding(4, 2, sparse=True)
        optimizer = make_optimizer(list(table.parameters()), lr=0.1)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=table)
        assert table.weight.grad.is_sparse and table.weight.grad.sparse_dim() == 1
        table(torch.tensor([1])).sum().backward()
        optimizer.step()


def test_state_of_one_rank():
    """Where rank 0 has a state, nothing is added to the others' gradients: a parameter that is not used would decay there."""
    model = torch.nn.Linear(2, 2)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    if hvd.rank() == 0:
        model.weight.grad = torch.ones(2, 2)
        optimizer.step()
        optimizer.zero_grad()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert model.bias.grad is None
    model.weight.grad = torch.ones(2, 2)
    optimizer.step()
    for tensor in model.parameters():
        rows = hvd.allgather(tensor.detach().reshape(1, -1))
        same(rows, rows[:1].expand_as(rows))


def test_other_modules_called_sparse():
    """Only tables of embeddings have sparse gradients."""

    class Other(torch.nn.Linear):
        sparse = True

    model = Other(2, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=model)
    same(model.weight.grad, torch.zeros(2, 2))
    optimizer.step()


def test_waiting_twice():
    handle = hvd.allreduce_async(torch.ones(1))
    hvd.synchronize(handle)
    assert hvd.synchronize(handle) is None
    with raises(ValueError, "no handle"):
        hvd.synchronize("no handle")


def test_names_of_horovod():
    """After install() the modules of horovod give hvd's names; a second install() changes nothing."""
    from hvd import horovod_alias

    before = os.environ.pop("HVD_JOIN_ALL", None)
    horovod_alias.install()
    import horovod.torch
    import horovod.torch.mpi_ops
    from horovod.common.util import split_list
    from horovod.torch.elastic import TorchState

    assert os.environ.pop("HVD_JOIN_ALL") == "0"
    if before is not None:
        os.environ["HVD_JOIN_ALL"] = before
    assert horovod.torch.DistributedOptimizer is hvd.DistributedOptimizer
    assert horovod.torch.mpi_ops.allreduce is hvd.allreduce and TorchState is hvd.elastic.TorchState
    horovod_alias.install()  # again: nothing changes
    assert sys.path.count(horovod_alias.FOLDER) == 1 and os.environ["PYTHONPATH"].count(horovod_alias.FOLDER) == 1
    assert split_list(list(range(5)), 2) == [[0, 1, 2], [3, 4]]
    assert horovod.__version__.startswith("0.28.")
