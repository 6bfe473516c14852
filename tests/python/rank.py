#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The program of every rank of a test: rank.py NAME... runs the test_* functions of rank_NAME.py, one after the
other on all ranks at once. NAME:test_one,test_two runs only these. Exit code 1 if one has failed on this rank.

By hand: tests/python/ranks.py 2 python3 tests/python/rank.py ops
"""
import importlib
import os
import sys
import traceback

import gpu_mode
import torch

import hvd.torch as hvd


def run(module, names):
    """Calls the tests in the order of the file until one fails, after which the ranks would be out of step."""
    for name in names or [n for n in vars(module) if n.startswith("test_")]:
        try:
            getattr(module, name)()
        except Exception:
            traceback.print_exc()
            print(f"FAILED {module.__name__}:{name} in process {os.getpid()}", flush=True)
            return False
        if not hvd.is_initialized() or hvd.rank() == 0:
            print(f"ok {module.__name__}:{name}", flush=True)
    return True


def main():
    torch.set_num_threads(1)
    for argument in sys.argv[1:]:
        name, _, tests = argument.partition(":")
        module = importlib.import_module(f"rank_{name}")
        own_life = getattr(module, "OWN_LIFE", False)
        gpu_mode.enter()
        if not own_life:
            hvd.init()
        if not run(module, tests.split(",") if tests else []):
            os._exit(1)  # at once, because the other ranks wait for this one
        if not own_life:
            hvd.shutdown()


if __name__ == "__main__":
    main()
