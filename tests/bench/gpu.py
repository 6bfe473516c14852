#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""hvd beside bare NCCL on fake GPUs that take time (tests/fake/README.md), in turn in one run. No GPU is needed.

    gpu.py BUILD [--rounds 5] [--worlds 2x1,2x2@100,8x2@100,16x2@100,16x16@100] [--async 30] [--only loop,25,64]

A world is RANKSxHOSTS@DELAY: hosts are network namespaces (root), and each packet between them takes DELAY us.

loop   sums of 32 MB. bare: all are on the stream at once, as with all_reduce_perf. hvd: four are in flight
25 64  steps of ResNet-50: 30 ms of backward, whose 161 gradients take NCCL 25 ms. bare: buckets of so many MiB, as
       with PyTorch's DistributedDataParallel. hvd: one request for each gradient, fused into batches of up to that size

dead      us in which NCCL's stream has nothing to do: median, p99. loop: between two of its operations. Steps: in each
          step, while there is a gradient whose sum has not begun (bare waits for a bucket to fill up)
step      ms from one step's begin to the next one's on the device: median, p99. ideal: backward or NCCL alone
hidden    the part of NCCL's time in which backward runs
host      us of the host's call that starts a sum, median
cpu       us of a rank's processor time for each of NCCL's operations
--async   us until a launch of a nonblocking communicator (hvd's) is on its stream

A row shows the median of its rounds. Leaves BUILD/bench/gpu.txt."""
import argparse
import datetime
import json
import os
import statistics

from output import output_of

CUDA_TIME = "h2d=25e9,d2h=25e9,d2d=1400e9,copy=2e-6,kernel=3e-6,call=2e-6,launch=4e-6,data=off"
NCCL_TIME = "bw={bw:g},latency=45e-6,call=5.5e-6,async={launch:g}"
GRADIENTS = 25_557_032 * 4  # bytes
NCCL_MS, BACKWARD_MS = 25, 30
CALLS, STEPS = 60, 20
MIB = 1 << 20
KINDS = {"loop": ("loop", CALLS, 32 * MIB), "25": ("step", STEPS, 25 * MIB), "64": ("step", STEPS, 64 * MIB)}


class World:
    def __init__(self, text):
        shape, _, delay = text.partition("@")
        ranks, _, hosts = shape.partition("x")
        self.ranks, self.hosts, self.delay = int(ranks), int(hosts or 1), int(delay or 0)
        self.text = f"{self.ranks} ranks, {self.hosts} host{'s' * (self.hosts > 1)}" + f", {self.delay} us" * (self.delay > 0)

    def env(self, launch_us):
        """All gradients take NCCL_MS, whatever the number of ranks."""
        bw = 2 * (self.ranks - 1) / self.ranks * GRADIENTS / (NCCL_MS / 1e3)
        return {"FAKE_CUDA_TIME": CUDA_TIME, "FAKE_NCCL_TIME": NCCL_TIME.format(bw=bw, launch=launch_us / 1e6)}


def run(build, way, world, kind, launch_us):
    mode, rounds, size = KINDS[kind]
    argv = [os.path.join(build, "tests", "bench", "bench_gpu_bare" if way == "bare" else "bench_gpu"),
            mode, str(world.ranks), str(rounds), str(size)]
    if way == "hvd":
        argv += [str(world.hosts), str(world.delay)]
    load = os.getloadavg()[0]
    result = json.loads(output_of(argv, 300, world.env(launch_us)).splitlines()[-1])
    return {**result, "load": load}


def row(world, kind, way, results):
    value = {key: statistics.median(r[key] for r in results) for key in results[0]}
    text = (f"{world.text:<26} {kind:>4} {way:<4} {value['load']:5.1f} {value['batches']:8.2f} "
            f"{value['dead_p50_us']:9.1f} {value['dead_p99_us']:9.1f} ")
    if kind == "loop":
        text += 27 * " "
    else:
        hidden = 1 - (value["round_p50_ms"] - BACKWARD_MS) / value["nccl_ms"]
        text += f"{value['round_p50_ms']:8.2f} {value['round_p99_ms']:8.2f} {100 * hidden:7.0f}% "
    return text + f"{value['call_us']:7.1f} {value['cpu_us']:8.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worlds", default="2x1,2x2@100,8x2@100,16x2@100,16x16@100")
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--async", dest="launch", type=float, default=30)
    args = parser.parse_args()
    worlds = [World(text) for text in args.worlds.split(",")]
    out = os.path.join(args.build, "bench")
    os.makedirs(out, exist_ok=True)
    path = os.path.join(out, "gpu.txt")
    with open(path, "w", encoding="utf-8") as file:
        def show(text):
            print(text, flush=True)
            print(text, file=file, flush=True)
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        show(f"{now}  {len(os.sched_getaffinity(0))} processors, {args.rounds} rounds, launches {args.launch:g} us")
        show(f"{'world':<26} {'':>4} {'':<4} {'load':>5} {'batches':>8} {'dead':>9} {'p99':>9} {'step':>8} {'p99':>8} "
             f"{'hidden':>8} {'host':>7} {'cpu':>8}")
        for world in [w for w in worlds if w.hosts == 1 or os.geteuid() == 0]:
            for kind in args.only.split(","):
                results = {"bare": [], "hvd": []}
                for _ in range(args.rounds):
                    for way, found in results.items():
                        found.append(run(args.build, way, world, kind, args.launch))
                for way, found in results.items():
                    show(row(world, kind, way, found))
    print(f"written: {path}")


if __name__ == "__main__":
    main()
