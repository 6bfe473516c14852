# SPDX-License-Identifier: Apache-2.0
"""The program continues while the GPU still works: no call waits for it on the host before it must. With the fake
driver only, and with NCCL (gpu_mode.ahead())."""
import contextlib
import threading
import time
import weakref

import gpu_mode
import torch
from harness import raises
from rank_ops import same
from rank_optimizer import Net, compare, data, loss_of

import hvd.torch as hvd
from hvd import _lib, world
from hvd.torch import _enqueued

OWN_LIFE = True


class OnStream(torch.optim.SGD):
    """SGD whose step() puts the update on the current stream and returns, as on a real GPU."""

    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                gpu_mode.enqueue(lambda p=param.data, grad=param.grad, lr=group["lr"]: p.sub_(lr * grad))


def wrapped(model, **options):
    return hvd.DistributedOptimizer(OnStream(model.parameters(), lr=0.1), model.named_parameters(), **options)


@contextlib.contextmanager
def life():
    """From init() to a shutdown() that succeeds."""
    hvd.init()
    yield
    hvd.shutdown()
    assert not _enqueued._operations


def none_has_ended():
    handles = [operation.handle for operation in _enqueued._operations.values()]
    return handles and all(_lib.lib.hvd_poll(handle) == 0 for handle in handles)


def backward_and_step(model, optimizer, step=0):
    optimizer.zero_grad()
    loss_of(model, data(step, hvd.rank())).backward()
    optimizer.step()


def train(**options):
    ours, single = Net(), Net()
    optimizer = wrapped(ours, **options)
    reference = torch.optim.SGD(single.parameters(), lr=0.1)
    for step in range(12):  # the schedule freezes meanwhile
        with gpu_mode.ahead():
            before = [p.detach().clone() for p in ours.parameters()]
            backward_and_step(ours, optimizer, step)
            assert none_has_ended()
            assert all(torch.equal(a, b) for a, b in zip(before, ours.parameters()))
        reference.zero_grad()
        loss_of(single, data(step)).backward()
        reference.step()
    compare(ours, single)


def test_step_returns():
    with life():
        train()
        train(groups=2)


def test_gradients_are_released():
    """A gradient that the program drops lives until the operation has ended."""
    with life():
        model = Net()
        optimizer = wrapped(model)
        with gpu_mode.ahead():
            loss_of(model, data(0, hvd.rank())).backward()
            optimizer.synchronize()
            grads = [weakref.ref(p.grad) for p in model.parameters()]
            optimizer.zero_grad(set_to_none=True)
            assert all(grad() is not None for grad in grads)
        deadline = time.monotonic() + 20
        while any(grad() is not None for grad in grads):
            assert time.monotonic() < deadline
            optimizer.zero_grad()
            time.sleep(0.001)


def test_names_in_use():
    """A name is submitted again once its last operation has ended; the call waits for that."""
    with life():
        for again in (False, True):
            model = Net()
            optimizer = wrapped(model)
            x = torch.ones(3)
            with gpu_mode.ahead():
                backward_and_step(model, optimizer)
                hvd.allreduce_(x, op=hvd.Sum, name="x")
                begin = time.monotonic()
                timer = threading.Timer(0.2, gpu_mode.driver.stall, [False])
                timer.start()
                if again:
                    hvd.allreduce_(x, op=hvd.Sum, name="x")
                else:
                    loss_of(model, data(1, hvd.rank())).backward()
                assert time.monotonic() - begin > 0.1
                timer.join()
            same(x, torch.full([3], float(hvd.size() ** (2 if again else 1))))
            optimizer.synchronize()


def test_calls_return():
    with life():
        n, me = hvd.size(), hvd.rank()
        for _ in range(3):
            x, y = torch.full([5], me + 1.0), torch.full([4], float(me))
            with gpu_mode.ahead():
                hvd.allreduce_(x, op=hvd.Sum, name="a")
                hvd.broadcast_(y, n - 1)
                z = hvd.allreduce(torch.full([2], me + 1.0), op=hvd.Max)
                rows = hvd.reducescatter(torch.ones(2 * n, 3), op=hvd.Sum)
                # The engine knows how much has arrived before it is there.
                assert hvd.allgather(torch.ones(me + 1, 2)).shape == (n * (n + 1) // 2, 2)
                assert hvd.alltoall(torch.ones(n, 2)).shape == (n, 2)
                hvd.SyncBatchNorm(2)(torch.ones(4, 2))
                assert none_has_ended()
            same(x, torch.full([5], n * (n + 1) / 2))
            same(y, torch.full([4], n - 1.0))
            same(z, torch.full([2], float(n)))
            same(rows, torch.full([2, 3], float(n)))
        for _ in range(200):
            hvd.allreduce(torch.ones(1))
        assert len(_enqueued._operations) < 100  # calls release what has ended


def test_changed_too_early():
    with life():
        model = Net()
        optimizer = wrapped(model)
        with gpu_mode.ahead():
            loss_of(model, data(0, hvd.rank())).backward()
            model.scale.grad.mul_(0.5)
            with raises(RuntimeError, "scale was changed while"):
                optimizer.step()
        optimizer.zero_grad()
        ours, single = Net(), Net()
        optimizer = wrapped(ours)
        with gpu_mode.ahead():
            loss_of(ours, data(0, hvd.rank())).backward()
            optimizer.synchronize()
            gpu_mode.enqueue(lambda: torch.nn.utils.clip_grad_norm_(ours.parameters(), 0.1))
            with optimizer.skip_synchronize():
                optimizer.step()
        loss_of(single, data(0)).backward()
        torch.nn.utils.clip_grad_norm_(single.parameters(), 0.1)
        torch.optim.SGD(single.parameters(), lr=0.1).step()
        compare(ours, single)


def test_last_step():
    """The rank leaves, by shutdown() or by its exit, when the GPU has finished its work."""
    for leave in (hvd.shutdown, world._leave):
        hvd.init()
        ours, single = Net(), Net()
        whole = data(0)
        optimizer = wrapped(ours)
        with gpu_mode.ahead():
            backward_and_step(ours, optimizer)
            timer = threading.Timer(0.2, gpu_mode.driver.stall, [False])
            timer.start()
            leave()
            timer.join()
        loss_of(single, whole).backward()
        torch.optim.SGD(single.parameters(), lr=0.1).step()
        for a, b in zip(ours.parameters(), single.parameters()):
            assert torch.allclose(a, b, atol=1e-5)


def fail_after_step():
    """A step whose operations fail on the GPU when it has returned. Returns the model and its optimizer."""
    model = Net()
    optimizer = wrapped(model)
    with gpu_mode.ahead():
        backward_and_step(model, optimizer)
        gpu_mode.driver.breaks(0, 719)
    return model, optimizer


def restart():
    with contextlib.suppress(hvd.HvdError):
        hvd.shutdown()
    gpu_mode.driver.mend(0)


def known():
    """Returns when the failure is known."""
    deadline = time.monotonic() + 20
    while any(_lib.lib.hvd_poll(operation.handle) == 0 for operation in _enqueued._operations.values()):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def step_within_skip(model, optimizer):
    known()
    with optimizer.skip_synchronize():
        optimizer.step()


def zero_grad(model, optimizer):
    known()
    optimizer.zero_grad()


CALLS = {
    "state_dict": lambda model, optimizer: optimizer.state_dict(),
    "backward": lambda model, optimizer: loss_of(model, data(1, hvd.rank())).backward(),
    "step": step_within_skip,
    "zero_grad": zero_grad,
    "allreduce": lambda model, optimizer: hvd.allreduce(torch.ones(1), name="allreduce.scale"),
    "shutdown": lambda model, optimizer: hvd.shutdown(),
}


def test_failure_later():
    """An operation that fails after step() is reported by the next call, with its text."""
    for name, call in CALLS.items():
        hvd.init()
        model, optimizer = fail_after_step()
        with raises(hvd.HvdError, "719"):
            call(model, optimizer)
            print(f"{name} has raised nothing")
        restart()


def test_failure_before_save():
    """The saved copy of a state does not contain what a failed operation has left."""
    hvd.init()
    model = Net()
    optimizer = wrapped(model)
    state = hvd.elastic.TorchState(model, optimizer)
    with gpu_mode.ahead():
        backward_and_step(model, optimizer)
        gpu_mode.driver.breaks(0, 719)
    good = model.scale.item()
    model.scale.data.fill_(float("nan"))
    with raises(hvd.HvdError, "719"):
        state.save()
    restart()
    state.restore()
    assert model.scale.item() == good
