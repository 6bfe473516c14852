#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""torch.distributed's gloo all_reduce, float32 sum, in place. Forks its ranks.

    bench_gloo.py RANKS MILLISECONDS BYTES...

Rank 0 prints a line for each size: "bytes in calls p50_ns p90_ns", as bench_hvd does."""
import os
import socket
import sys
import time

import torch
import torch.distributed as dist


def measure(call, budget_ns, group=None, root=0, most=20000):
    """Calls call(step) for budget_ns. All ranks of the group do so equally often; root is one of them. Returns the
    sorted times of the calls in ns."""
    warm_up = 5
    begin = time.perf_counter_ns()
    for step in range(warm_up):
        call(step)
    spent = max(1, time.perf_counter_ns() - begin)
    calls = torch.tensor([max(5, min(most, budget_ns * warm_up // spent))])
    dist.broadcast(calls, root, group=group)
    times = []
    for step in range(int(calls)):
        start = time.perf_counter_ns()
        call(warm_up + step)
        times.append(time.perf_counter_ns() - start)
    return sorted(times)


def one_size(nbytes, budget_ns):
    x = torch.zeros(nbytes // 4)
    times = measure(lambda _: dist.all_reduce(x), budget_ns)
    return len(times), times[len(times) // 2], times[len(times) * 9 // 10]


def all_sizes(rank, budget_ns, sizes):
    for nbytes in sizes:
        calls, p50, p90 = one_size(nbytes, budget_ns)
        if rank == 0:
            print(nbytes, "in", calls, p50, p90, flush=True)


def rank_main(rank, ranks, port, run):
    torch.set_num_threads(1)
    cpus = sorted(os.sched_getaffinity(0))
    if ranks <= len(cpus):
        os.sched_setaffinity(0, {cpus[rank]})
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    run(rank)
    dist.barrier()
    dist.destroy_process_group()


def fork_ranks(ranks, run):
    """Calls run(rank) in `ranks` processes of one job. Returns whether one of them has failed."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    children = []
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            try:
                rank_main(rank, ranks, port, run)
            except BaseException as error:  # the parent sees the exit code
                print(f"{sys.argv[0]}: rank {rank}: {error}", file=sys.stderr)
                os._exit(1)
            os._exit(0)
        children.append(pid)
    return any([os.waitpid(pid, 0)[1] for pid in children])


def main():
    budget_ns, sizes = int(sys.argv[2]) * 1_000_000, [int(a) for a in sys.argv[3:]]
    sys.exit(fork_ranks(int(sys.argv[1]), lambda rank: all_sizes(rank, budget_ns, sizes)))


if __name__ == "__main__":
    main()
