# SPDX-License-Identifier: Apache-2.0
"""The last rank ends without a goodbye, and all others notice. HVD_TEST_END chooses how it ends: by a signal (kill), by an
exception, or by a signal when step() has returned on all ranks and the GPUs have not begun its exchange (ahead; the
others say in the folder HVD_TEST_MARKS that it has returned)."""
import os
import signal
import time

import gpu_mode
import torch
from harness import raises

import hvd.torch as hvd


class Planned(BaseException):
    """An exception that is not caught: the interpreter ends with a traceback."""


def wait_for_marks(marks, n):
    """Returns when n other ranks have left their file in the folder. A barrier would not do: it returns on one rank
    before it has on all, and fails on the rest if that one dies."""
    end = time.monotonic() + 60
    while len(os.listdir(marks)) < n:
        assert time.monotonic() < end, f"only {os.listdir(marks)} after 60 s"
        time.sleep(0.01)


def step_ahead():
    """A step that has returned on this rank. Returns its optimizer."""
    model = torch.nn.Linear(5, 5)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    model(torch.ones(1, 5)).sum().backward()
    optimizer.step()
    return optimizer


def test_lost_after_step():
    if os.environ.get("HVD_TEST_END") != "ahead":
        return
    last, marks = hvd.size() - 1, os.environ["HVD_TEST_MARKS"]
    with gpu_mode.ahead():
        optimizer = step_ahead()
        if hvd.rank() == last:
            wait_for_marks(marks, last)
            os.kill(os.getpid(), signal.SIGKILL)
        with open(os.path.join(marks, str(hvd.rank())), "w"):
            pass
    with raises(hvd.HorovodInternalError, f"rank {last}"):
        optimizer.state_dict()


def test_lost():
    if os.environ.get("HVD_TEST_END") != "ahead":
        hvd.allreduce(torch.ones(1000))
    if hvd.rank() == hvd.size() - 1:
        if os.environ.get("HVD_TEST_END") == "exception":
            for i in range(20):  # operations are in flight
                hvd.allreduce_async_(torch.ones(1000000), name=f"left behind {i}")
            raise Planned
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    with raises(hvd.HorovodInternalError):
        while time.monotonic() < begin + 60:
            hvd.allreduce(torch.ones(1000), name="after")
    with raises(hvd.HorovodInternalError):
        hvd.barrier()
    begin = time.monotonic() - begin
    assert begin < 30, begin
    print("heard of it", flush=True)
    os._exit(0)  # without hvd.shutdown(): the job has failed
