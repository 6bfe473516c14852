# SPDX-License-Identifier: Apache-2.0
"""Functions that tests/python/test_run.py has ranks call: of a module, so that they can be pickled without cloudpickle."""
import os
import sys


def place(first, second=0):
    """What a rank is, and its arguments."""
    import hvd

    hvd.init()
    print(f"rank {hvd.rank()} speaks", flush=True)
    return hvd.rank(), hvd.size(), first + second


def fails_on_last():
    import hvd

    hvd.init()
    if hvd.rank() == hvd.size() - 1:
        raise KeyError("no such sample")
    hvd.barrier()


def dies():
    os._exit(7)


def exits():
    sys.exit(0)


def returns_a_frame():
    return sys._getframe()


def large(n):
    return bytes(n)


def waits():
    import time

    time.sleep(600)


def secrets():
    return [name for name in os.environ if name.startswith("HVD_RUN_")]


def writes_pid(file):
    with open(file, "a") as lines:
        lines.write(f"{os.getpid()}\n")
    waits()


def prints_much():
    print("\u00e9" * 1000000, flush=True)
    return 1
