#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two builds of hvd in turn, to see whether a change made something slower: collectives on one host, gradients of PyTorch,
elastic jobs.

    compare.py OLD NEW [--rounds 7] [--only collectives,gradients,elastic]

OLD and NEW are checkouts, each built with `make all` in its folder build. A round runs every benchmark of both, the old one
first in even rounds and the new one in odd rounds. A figure is the median of its rounds. "new/old" is the median of the
ratios of each round. "spread" is the smallest and the largest old round, divided by the old median: a new median above the
largest old round is marked as slower. Leaves NEW/build/bench/compare.json."""
import argparse
import json
import os
import statistics
import sys

from collectives import run_one
from output import output_of

PYTHON = "/usr/bin/python3"
SIZES = ["4", "1024", "16384", "65536", "262144", "1048576", "4194304", "16777216", "67108864"]


def run(root, argv):
    return output_of(argv, env={"HVD_LIBRARY": os.path.join(root, "build", "libhvd.so")}, cwd=root)


def collectives(root):
    """Microseconds of an allreduce of float32, by ranks, bytes and place (in: in place)."""
    found = {}
    for ranks in "2", "4":
        build = os.path.join(root, "build")
        argv = [os.path.join(build, "hvdrun"), "-np", ranks, "--no-prefix", os.path.join(build, "tests", "bench", "bench_hvd")]
        for (size, place), ns in run_one(argv + ["-t", "150"] + SIZES, 600).items():
            found[f"{ranks} ranks, {size} B, {place}"] = ns / 1000
    return found


def gradients(root):
    """Milliseconds for the gradients of ResNet-50."""
    report = json.loads(run(root, [PYTHON, "tests/bench/bench_torch.py", "2", "8"]).splitlines()[-1])
    return {name: value for name, value in report["milliseconds"].items() if name.startswith("hvd")}


def elastic(root):
    """Milliseconds: from SIGKILL or a change to the next result (p50), and an allreduce in a fixed and an elastic job."""
    run(root, [PYTHON, "tests/bench/elastic.py", "build", "--only", "kill,change,cost", "--kills", "16", "--changes", "6",
               "--rounds", "2", "--mib", "64"])
    with open(os.path.join(root, "build", "bench", "elastic.json"), encoding="utf-8") as file:
        report = json.load(file)
    found = {name: row["p50"] for name, row in report.items() if isinstance(row, dict) and "p50" in row}
    for row in report["cost"]:
        for job in "fixed", "elastic":
            found[f"{job} job, {row['bytes'] >> 20} MiB, {row['place']}"] = row[f"{job}_ns"] / 1e6
    return found


BENCHMARKS = {"collectives": (collectives, "us"), "gradients": (gradients, "ms"), "elastic": (elastic, "ms")}


def measure(root, name):
    found = BENCHMARKS[name][0](root)
    if not found:
        sys.exit(f"{root}: {name}: no figure in what it printed")
    return found


def summary(old, new):
    """What the table says of a figure, from its old and its new rounds, in their order."""
    middle = statistics.median(old)
    return {"old": middle, "new": statistics.median(new), "ratio": statistics.median(n / o for n, o in zip(new, old)),
            "spread": [min(old) / middle, max(old) / middle], "slower": statistics.median(new) > max(old)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=os.path.abspath)
    parser.add_argument("new", type=os.path.abspath)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(BENCHMARKS))
    args = parser.parse_args()
    if args.old == args.new:
        parser.error("OLD and NEW are the same folder")
    rounds = {root: {name: [] for name in args.only} for root in (args.old, args.new)}
    for number in range(args.rounds):
        for name in args.only:
            for root in (args.old, args.new) if number % 2 == 0 else (args.new, args.old):
                rounds[root][name].append(measure(root, name))
        print(f"  round {number + 1} of {args.rounds}: load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    results = {}
    print(f"{'':40} {'old':>10} {'new':>10}    new/old  spread of old")
    for name in args.only:
        old, new = rounds[args.old][name], rounds[args.new][name]
        for key in dict.fromkeys([*old[0], *new[0]]):
            if not all(key in found for found in old + new):
                print(f"{name + ': ' + key:40} not in every round")
                continue
            row = results[f"{name}: {key}"] = summary([r[key] for r in old], [r[key] for r in new])
            print(f"{name + ': ' + key:40} {row['old']:>10.2f} {row['new']:>10.2f} {BENCHMARKS[name][1]} {row['ratio']:>7.2f}"
                  f"  {row['spread'][0]:.2f} to {row['spread'][1]:.2f}{'  slower' if row['slower'] else ''}")
    out = os.path.join(args.new, "build", "bench")
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "compare.json"), "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
    print(f"written: {out}/compare.json")


if __name__ == "__main__":
    main()
