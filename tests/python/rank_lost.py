# SPDX-License-Identifier: Apache-2.0
"""The last rank goes without a word; all others hear of it. HVD_TEST_END says how it goes."""
import os
import signal
import time

import torch
from harness import raises

import hvd.torch as hvd


class Planned(BaseException):
    """Nobody catches it: the interpreter ends with a traceback."""


def test_lost():
    hvd.allreduce(torch.ones(1000))
    if hvd.rank() == hvd.size() - 1:
        if os.environ.get("HVD_TEST_END") == "exception":
            for i in range(20):  # and has work under way
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
    os._exit(0)  # there is nobody to take leave of
