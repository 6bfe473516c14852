# SPDX-License-Identifier: Apache-2.0
"""horovod.runner.util.threads"""
import contextlib
import threading


def in_thread(target, args=(), name=None, daemon=True, silent=False):
    """Starts a thread that calls target(*args), and returns it. silent: an exception ends it without a word."""
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, such as (arg,), got {type(args).__name__}")

    def quietly(*args):
        with contextlib.suppress(Exception):
            target(*args)

    thread = threading.Thread(target=quietly if silent else target, args=args, name=name, daemon=daemon)
    thread.start()
    return thread
