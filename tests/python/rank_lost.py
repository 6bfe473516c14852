# SPDX-License-Identifier: Apache-2.0
"""The last rank ends without a goodbye, and all others notice. HVD_TEST_END chooses how it ends."""
import os
import signal
import time

import torch
from harness import raises

import hvd.torch as hvd


class Planned(BaseException):
    """An exception that is not caught: the interpreter ends with a traceback."""


def test_lost():
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
