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


def one_size(nbytes, budget_ns):
    x = torch.zeros(nbytes // 4)
    begin = time.perf_counter_ns()
    for _ in range(5):
        dist.all_reduce(x)
    calls = torch.tensor([max(5, min(20000, budget_ns * 5 // max(1, time.perf_counter_ns() - begin)))])
    dist.broadcast(calls, 0)
    times = []
    for _ in range(int(calls)):
        start = time.perf_counter_ns()
        dist.all_reduce(x)
        times.append(time.perf_counter_ns() - start)
    times.sort()
    return len(times), times[len(times) // 2], times[len(times) * 9 // 10]


def rank_main(rank, ranks, port, budget_ns, sizes):
    torch.set_num_threads(1)
    cpus = sorted(os.sched_getaffinity(0))
    if ranks <= len(cpus):
        os.sched_setaffinity(0, {cpus[rank]})
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    for nbytes in sizes:
        calls, p50, p90 = one_size(nbytes, budget_ns)
        if rank == 0:
            print(nbytes, "in", calls, p50, p90, flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    ranks, budget_ns = int(sys.argv[1]), int(sys.argv[2]) * 1_000_000
    sizes = [int(a) for a in sys.argv[3:]]
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    children = []
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            try:
                rank_main(rank, ranks, port, budget_ns, sizes)
            except BaseException as error:  # the parent sees the exit code
                print(f"bench_gloo: rank {rank}: {error}", file=sys.stderr)
                os._exit(1)
            os._exit(0)
        children.append(pid)
    codes = [os.waitpid(pid, 0)[1] for pid in children]
    sys.exit(any(codes))


if __name__ == "__main__":
    main()
