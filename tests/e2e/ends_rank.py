#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank that trains until another rank, the victim, ends in a chosen way: ends_rank.py WAY DIR. Rank 1 is the victim,
once: a file in DIR records that it was. In a fixed job the others step until their operations fail, which is an
uncaught exception, or for 100 more steps. In an elastic job they step until a new rank has joined, or until rank 0,
2.5 s after the world became smaller, says that none will; all ranks agree on that in a step. They print the sizes of
the world. If WAY begins with "last-", the victim ends after the last step of all ranks."""
import array
import os
import signal
import sys
import time

import hvd

NONE_COMES_S = 2.5  # a replacement is started after 1 s


def shutdown_and_live():
    hvd.shutdown()
    time.sleep(600 if "HVD_ELASTIC" not in os.environ else 4)


def shutdown_and_exit(code):
    hvd.shutdown()
    os._exit(code)


def raise_after_shutdown():
    try:
        raise ValueError("a reason")
    finally:
        hvd.shutdown()


def raise_error():
    raise ValueError("a reason")


WAYS = {
    "return": lambda: sys.exit(),
    "exit-n": lambda: sys.exit(3),
    "exit-text": lambda: sys.exit("no data"),
    "exception": raise_error,
    "finally": raise_after_shutdown,
    "shutdown-exit-n": lambda: shutdown_and_exit(3),
    "shutdown-live": shutdown_and_live,
    "os-exit-0": lambda: os._exit(0),
    "os-exit-n": lambda: os._exit(3),
    "signal": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
}


def step(stop):
    """Whether any rank wants to stop."""
    mine = array.array("i", [int(stop)])
    hvd.allreduce_(mine, op=hvd.Max, name="stop")
    return mine[0] != 0


def is_victim(folder):
    if hvd.rank() != 1:
        return False
    try:
        os.close(os.open(os.path.join(folder, "been"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def fixed(end, victim):
    for i in range(110):
        if victim and i == 10:
            end()
            return
        step(False)
        time.sleep(0.005)


def elastic(end, victim, last):
    sizes, steps, smaller_at, stop = [hvd.size()], 0, None, False
    if not victim and hvd.elastic.world().waiting:
        hvd.enter()
    began = time.monotonic()
    while not step(stop):
        if victim and steps == 10 and not last:
            end()
            return
        hvd.elastic.commit()
        if hvd.size() != sizes[-1]:
            sizes.append(hvd.size())
        if hvd.size() < 3 and smaller_at is None:
            smaller_at = time.monotonic()
        steps += 1
        late = smaller_at is not None and time.monotonic() - smaller_at > NONE_COMES_S
        came_back = smaller_at is not None and hvd.size() == 3
        enough = last and steps == 20
        stop = hvd.rank() == 0 and (came_back or enough or time.monotonic() - began > 30 or (late and is_expected()))
        time.sleep(0.005)
    if hvd.rank() == 0:
        print("sizes", *sizes, flush=True)
    hvd.shutdown()
    if victim and last:
        end()


def is_expected():
    """Whether no replacement is expected; otherwise a rank that is slow to start is waited for."""
    return os.environ["ENDS_REPLACED"] == "no"


def main():
    way, folder = sys.argv[1:]
    last = way.startswith("last-")
    end = WAYS[way.removeprefix("last-")]
    hvd.init()
    victim = is_victim(folder)
    if "HVD_ELASTIC" in os.environ:
        elastic(end, victim, last)
    else:
        fixed(end, victim)


main()
