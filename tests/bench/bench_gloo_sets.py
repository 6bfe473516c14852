#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What bench_sets measures, with the groups of torch.distributed's gloo, for comparison. Forks its ranks.

    bench_gloo_sets.py RANKS sums MEMBERS | pairs | exchange | make N [-t MILLISECONDS BYTES...]

Output as of bench_sets. As with MPI, an exchange is given the numbers of rows that hvd has to exchange."""
import sys
import time

import torch
import torch.distributed as dist
from bench_gloo import fork_ranks, measure

ROW = 4  # floats


def p50_of(call, budget_ns, group, root):
    times = measure(call, budget_ns, group, root, most=100000)
    return len(times), times[len(times) // 2]


def sums(rank, members, budget_ns, sizes):
    group = dist.new_group(range(members))
    for nbytes in sizes if rank < members else []:
        x = torch.zeros(nbytes // 4)
        calls, p50 = p50_of(lambda _, x=x: dist.all_reduce(x, group=group), budget_ns, group, 0)
        if rank == 0:
            print(nbytes, calls, p50, flush=True)


def pairs(rank, budget_ns, sizes):
    groups = [dist.new_group([i, i + 1]) for i in range(0, dist.get_world_size(), 2)]
    group = groups[rank // 2]
    for nbytes in sizes:
        x = torch.zeros(nbytes // 4)
        calls, p50 = p50_of(lambda _, x=x: dist.all_reduce(x, group=group), budget_ns, group, rank // 2 * 2)
        rate = torch.tensor([nbytes / p50 * 1e9 / 2], dtype=torch.float64)
        dist.all_reduce(rate)
        if rank == 0:
            print(nbytes, calls, p50, f"{float(rate):.3g}", flush=True)


def exchange(rank, budget_ns, sizes):
    ranks = dist.get_world_size()
    for nbytes in sizes:
        each = nbytes // 4 // ROW // ranks
        given, taken = (torch.zeros((each + 1) * ranks, ROW) for _ in range(2))

        def call(step, each=each, given=given, taken=taken):
            rows = [each + (1 if (r + step) % 2 else -1 if each else 0) for r in range(ranks)]
            mine = [rows[rank]] * ranks
            dist.all_to_all_single(taken[: sum(mine)], given[: sum(rows)], mine, rows)

        calls, p50 = p50_of(call, budget_ns, None, 0)
        if rank == 0:
            print(nbytes, calls, p50, flush=True)


def make(rank, n):
    x = torch.ones(1)
    begin = time.perf_counter_ns()
    for _ in range(n):
        group = dist.new_group(range(dist.get_world_size()))
        dist.all_reduce(x, group=group)
        dist.destroy_process_group(group)
    if rank == 0:
        print(n, f"{(time.perf_counter_ns() - begin) / 1e3 / n:.1f}", flush=True)


def main():
    ranks, what, words = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    first = int(words.pop(0)) if what in ("sums", "make") else None
    budget_ns, sizes = int(words[1]) * 1_000_000 if words else 0, [int(a) for a in words[2:]]
    runs = {
        "sums": lambda rank: sums(rank, first, budget_ns, sizes),
        "pairs": lambda rank: pairs(rank, budget_ns, sizes),
        "exchange": lambda rank: exchange(rank, budget_ns, sizes),
        "make": lambda rank: make(rank, first),
    }
    sys.exit(fork_ranks(ranks, runs[what]))


if __name__ == "__main__":
    main()
