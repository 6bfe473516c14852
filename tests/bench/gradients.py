#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The 161 gradients of ResNet-50 through hvd.torch compared with one flat buffer of as many bytes through Open
MPI's in-place MPI_Allreduce (the better of its two shared-memory settings) and with gloo, in turn.

    gradients.py BUILD [--rounds 3] [--calls 8]

Leaves BUILD/bench/gradients.json."""
import argparse
import json
import os
import shutil
import statistics
import sys

from output import output_of

HERE = os.path.dirname(os.path.abspath(__file__))
MPIRUN = ["mpirun", "--allow-run-as-root", "--bind-to", "core", "-np", "2"]
NO_CMA = ["--mca", "btl_vader_single_copy_mechanism", "none"]


def ours(build, calls):
    text = output_of([sys.executable, os.path.join(HERE, "bench_torch.py"), "2", str(calls)],
                     env={"HVD_LIBRARY": os.path.abspath(os.path.join(build, "libhvd.so"))})
    return json.loads(text.splitlines()[-1])


def openmpi_ms(build, nbytes):
    """Milliseconds for one flat in-place buffer. None without Open MPI."""
    program = os.path.join(build, "tests", "bench", "bench_mpi")
    if not shutil.which("mpirun") or not os.path.exists(program):
        return None
    best = []
    for options in ([], NO_CMA):
        for line in output_of(MPIRUN + options + [program, "-t", "1000", str(nbytes)]).splitlines():
            word = line.split()
            if len(word) == 5 and word[1] == "in":
                best.append(int(word[3]) / 1e6)
    return min(best)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=8)
    args = parser.parse_args()
    rounds = []
    for number in range(args.rounds):
        report = ours(args.build, args.calls)
        report["openmpi_flat"] = openmpi_ms(args.build, report["bytes"])
        rounds.append(report)
        print(f"  round {number + 1} of {args.rounds}: load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    names = list(rounds[0]["milliseconds"])
    median = {n: statistics.median(r["milliseconds"][n] for r in rounds) for n in names}
    result = {"bytes": rounds[0]["bytes"], "tensors": rounds[0]["tensors"], "load": os.getloadavg(),
              "milliseconds": median, "rounds": rounds}
    print("161 gradients of ResNet-50, 102 MB, 2 ranks, one host; medians in ms")
    for name in names:
        print(f"  {name:<14} {median[name]:8.1f}")
    optimizer = median["hvd_optimizer"]
    result["to_own_flat"] = optimizer / median["hvd_flat"]
    print(f"optimizer / own flat buffer:      {result['to_own_flat']:.2f}   (target <= 1.6)")
    if rounds[0]["openmpi_flat"]:
        result["openmpi_flat"] = statistics.median(r["openmpi_flat"] for r in rounds)
        result["to_openmpi"] = statistics.median(
            r["milliseconds"]["hvd_optimizer"] / r["openmpi_flat"] for r in rounds)
        print(f"  {'openmpi_flat':<14} {result['openmpi_flat']:8.1f}")
        print(f"optimizer / Open MPI flat buffer: {result['to_openmpi']:.2f}   (target <= 0.4)")
    out = os.path.join(args.build, "bench")
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "gradients.json"), "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
    print(f"written: {out}/gradients.json")


if __name__ == "__main__":
    main()
