#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The 161 gradients of ResNet-50 (25.6 million float32, 102 MB): hvd.torch compared with torch.distributed's gloo.

    bench_torch.py RANKS ROUNDS [FILE]

Starts its ranks. Every round does each of these once, in turn, so that all see the same machine:
    hvd_optimizer   DistributedOptimizer.synchronize(): submits 161 operations and waits for them
    hvd_async       161 allreduce_async_, then 161 synchronize
    hvd_grouped     one grouped_allreduce_async_ of 161
    hvd_flat        one allreduce_ of one flat tensor
    gloo_async      161 all_reduce(async_op=True), then 161 wait
    gloo_flat       one all_reduce of one flat tensor
Prints medians in milliseconds and their ratios as JSON, to FILE too. HVD_LIBRARY names the libhvd.so.
"""
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time

SECONDS = 900


def resnet50_shapes():
    """Shapes of the net's parameters, in the order in which backward reaches them."""
    shapes = [(64, 3, 7, 7), (64,), (64,)]
    width_in = 64
    for blocks, width in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            for out, into, kernel in ((width, width_in, 1), (width, width, 3), (4 * width, width, 1)):
                shapes += [(out, into, kernel, kernel), (out,), (out,)]
            if block == 0:  # the shortcut changes the width too
                shapes += [(4 * width, width_in, 1, 1), (4 * width,), (4 * width,)]
            width_in = 4 * width
    shapes += [(1000, 2048), (1000,)]
    return shapes[::-1]


def ways(torch, dist, hvd):
    """The calls of a round: names and functions without arguments."""
    shapes = resnet50_shapes()
    params = [torch.nn.Parameter(torch.zeros(s)) for s in shapes]
    for p in params:
        p.grad = torch.ones_like(p)
    grads = [p.grad for p in params]
    flat = torch.ones(sum(g.numel() for g in grads))
    names = [f"layer{i}.weight" for i in range(len(params))]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(params, lr=0.1), list(zip(names, params)))

    def hvd_async():
        handles = [hvd.allreduce_async_(g, name=n) for g, n in zip(grads, names)]
        for handle in handles:
            hvd.synchronize(handle)

    def gloo_async():
        for work in [dist.all_reduce(g, async_op=True) for g in grads]:
            work.wait()

    return {
        "hvd_optimizer": optimizer.synchronize,
        "hvd_async": hvd_async,
        "hvd_grouped": lambda: hvd.synchronize(hvd.grouped_allreduce_async_(grads, name="all")),
        "hvd_flat": lambda: hvd.allreduce_(flat, name="flat"),
        "gloo_async": gloo_async,
        "gloo_flat": lambda: dist.all_reduce(flat),
    }, (grads, flat)


def rank_main(rank, ranks, rounds, port):
    import torch
    import torch.distributed as dist

    import hvd.torch as hvd

    torch.set_num_threads(1)
    # gloo's threads are created first, because on one core they would compete with the program.
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    cpus = sorted(os.sched_getaffinity(0))
    if ranks <= len(cpus):
        os.sched_setaffinity(0, {cpus[rank]})
    hvd.init()
    todo, (grads, flat) = ways(torch, dist, hvd)
    times = {name: [] for name in todo}
    for i in range(rounds + 4):  # the first ones warm up: memory, the response cache, the schedule
        for tensor in (*grads, flat):
            tensor.fill_(1)  # gloo sums: values would grow without end
        for name, call in todo.items():
            dist.barrier()
            begin = time.perf_counter_ns()
            call()
            if i >= 4:
                times[name].append((time.perf_counter_ns() - begin) / 1e6)
    hvd.barrier()
    if rank == 0:
        medians = {name: round(statistics.median(t), 3) for name, t in times.items()}
        best = min(medians["gloo_async"], medians["gloo_flat"])
        report = {
            "ranks": ranks,
            "rounds": rounds,
            "tensors": len(grads),
            "bytes": 4 * flat.numel(),
            "torch": torch.__version__,
            "load": os.getloadavg()[0],
            "milliseconds": medians,
            "optimizer_to_own_flat": round(medians["hvd_optimizer"] / medians["hvd_flat"], 3),
            "best_gloo_to_optimizer": round(best / medians["hvd_optimizer"], 3),
        }
        print("REPORT " + json.dumps(report), flush=True)
    hvd.barrier()
    hvd.shutdown()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    ranks, rounds = int(sys.argv[1]), int(sys.argv[2])
    if "BENCH_TORCH_PORT" in os.environ:
        rank_main(int(os.environ["HVD_RANK"]), ranks, rounds, int(os.environ["BENCH_TORCH_PORT"]))
        return
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with tempfile.NamedTemporaryFile() as key:
        key.write(secrets.token_bytes(32))
        key.flush()
        env = dict(
            os.environ,
            PYTHONPATH=os.path.join(root, "core", "python"),
            OMP_NUM_THREADS="1",
            HVD_SIZE=str(ranks),
            HVD_RENDEZVOUS=f"127.0.0.1:{free_port()}",
            HVD_KEY_FILE=key.name,
            BENCH_TORCH_PORT=str(free_port()),
        )
        children = [
            subprocess.Popen(
                [sys.executable, os.path.abspath(__file__), *sys.argv[1:3]],
                env=dict(env, HVD_RANK=str(rank)),
                stdout=subprocess.PIPE if rank == 0 else None,
                text=True,
            )
            for rank in range(ranks)
        ]
        try:
            output, _ = children[0].communicate(timeout=SECONDS)
            codes = [child.wait(timeout=30) for child in children]
        finally:
            for child in children:
                child.kill()
    if any(codes):
        sys.exit(f"bench_torch: ranks ended with {codes}")
    report = next(line[7:] for line in output.splitlines() if line.startswith("REPORT "))
    print(report)
    if len(sys.argv) > 3:
        with open(sys.argv[3], "w") as file:
            file.write(report + "\n")


if __name__ == "__main__":
    main()
