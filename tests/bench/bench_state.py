#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of the benchmark of state transfer: rank 0 sends blocks of memory to the last rank, as hvd.elastic
does for a joiner; the others have the state and only take part. Started like any rank.

    bench_state.py MIB ROUNDS

Rank 0 prints lines "bytes place rounds p50 p90": the nanoseconds for one large block (place: large) and for
blocks of 1 kB to 8 MiB (mixed), those of a memcpy of as many bytes just before each, while the others sleep
(large-copy, mixed-copy), and each transfer's speed in percent of its memcpy's (large-percent,
mixed-percent)."""
import ctypes
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "core", "python"))

import hvd  # noqa: E402
from hvd import _transfer  # noqa: E402

MIXED = [4 << 10, 2 << 20, 64 << 10, 8 << 20, 300_001, 1 << 20, 1000]


def lengths(mixed, total):
    if not mixed:
        return [total]
    found = []
    while sum(found) < total:
        found.append(min(MIXED[len(found) % len(MIXED)], total - sum(found)))
    return found


def copy_ns(source, target):
    begin = time.monotonic_ns()
    ctypes.memmove(ctypes.addressof(target), ctypes.addressof(source), len(source))
    return time.monotonic_ns() - begin


def measure(mixed, total, rounds):
    giver, taker = hvd.rank() == 0, hvd.rank() == hvd.size() - 1
    memory = [(ctypes.c_char * total)() for _ in range(1 + giver)] if giver or taker else []
    for part in memory:
        ctypes.memset(part, hvd.rank() + 1, total)
    views, at = [], 0
    for length in lengths(mixed, total) if memory else []:
        views.append(memoryview(memory[0]).cast("B")[at : at + length])
        at += length
    times, copies = [], []
    for number in range(-2, rounds):
        hvd.barrier("begin")
        copied = copy_ns(memory[0], memory[1]) if giver else 0
        hvd.barrier("copied")
        begin = time.monotonic_ns()
        if not _transfer.transfer(0, [hvd.size() - 1], lambda: (None, views), lambda _: views):
            raise RuntimeError("the block did not arrive")
        hvd.barrier("brought")
        if number >= 0:
            times.append(time.monotonic_ns() - begin)
            copies.append(copied)
    if taker and any(bytes(view[-1:]) != b"\1" for view in views):
        raise RuntimeError("other bytes arrived")
    return times, copies


def line(total, place, values):
    values = sorted(values)
    print(total, place, len(values), int(statistics.median(values)), int(values[len(values) * 9 // 10]), flush=True)


def main():
    total, rounds = int(sys.argv[1]) << 20, int(sys.argv[2])
    hvd.init()
    for place in ("large", "mixed"):
        times, copies = measure(place == "mixed", total, rounds)
        if hvd.rank() == 0:
            line(total, place, times)
            line(total, place + "-copy", copies)
            line(total, place + "-percent", [100 * c // t for c, t in zip(copies, times)])
    hvd.shutdown()


main()
