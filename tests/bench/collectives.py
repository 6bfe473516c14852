#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""hvd compared with other libraries, in turn in one run: allreduce of float32, one host.

    collectives.py BUILD [--rounds 3] [--ms 150] [--ranks 2,4] [--quick]

Each round starts every program once; a program times each size for --ms and prints medians. The figure
of a program is the median of its rounds; a ratio is taken inside a round and its median printed. Leaves
BUILD/bench/collectives.json and .png."""
import argparse
import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys

from output import output_of

SIZES = [4, 64, 1024, 16384, 65536, 262144, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
QUICK = [4, 65536, 1 << 20, 16 << 20]
TARGETS = {64 << 20: 3.0, 16 << 20: 2.0, 1 << 20: 1.2, 65536: 1.0}
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe"]


def programs(build, ranks, ms, sizes):
    """name -> argv of every program that can run here."""
    sizes = [str(s) for s in sizes]
    here = os.path.dirname(os.path.abspath(__file__))
    bench = os.path.join(build, "tests", "bench")
    found = {"hvd": [os.path.join(build, "hvdrun"), "-np", str(ranks), "--no-prefix",
                     os.path.join(bench, "bench_hvd"), "-t", str(ms)] + sizes}
    mpi = os.path.join(bench, "bench_mpi")
    if os.path.exists(mpi) and shutil.which("mpirun"):
        bind = ["--bind-to", "core" if ranks <= len(os.sched_getaffinity(0)) else "none"]
        run = MPIRUN + bind + ["-np", str(ranks)]
        found["openmpi"] = run + [mpi, "-t", str(ms)] + sizes
        found["openmpi-nocma"] = run + ["--mca", "btl_vader_single_copy_mechanism", "none",
                                        mpi, "-t", str(ms)] + sizes
    if subprocess.run(["/usr/bin/python3", "-c", "import torch"], capture_output=True).returncode == 0:
        found["gloo"] = ["/usr/bin/python3", os.path.join(here, "bench_gloo.py"), str(ranks), str(ms)] + sizes
    return found


def run_one(argv, timeout):
    """(bytes, place) -> p50 in ns, from the lines "bytes place calls p50 p90"."""
    result = {}
    for line in output_of(argv, timeout).splitlines():
        word = line.split()
        if len(word) == 5 and word[0].isdigit():
            result[int(word[0]), word[1]] = int(word[3])
    return result


def measure(build, ranks, args, sizes):
    found = programs(build, ranks, args.ms, sizes)
    rounds = []
    for number in range(args.rounds):
        print(f"  {ranks} ranks, round {number + 1} of {args.rounds}: load {os.getloadavg()[0]:.1f}",
              file=sys.stderr, flush=True)
        rounds.append({name: run_one(argv, 300) for name, argv in found.items()})
    return rounds


def summarize(ranks, rounds, sizes):
    rows = []
    for size in sizes:
        for place in ("in", "out"):
            p50 = {}
            for name in rounds[0]:
                times = [r[name].get((size, place), r[name].get((size, "in"))) for r in rounds]
                p50[name] = statistics.median(times)
            peers = [n for n in p50 if n != "hvd"]
            ratios = [min(r[n].get((size, place), r[n].get((size, "in"))) for n in peers)
                      / r["hvd"][size, place] for r in rounds] if peers else []
            rows.append({"ranks": ranks, "bytes": size, "place": place, "p50_ns": p50,
                         "ratio_best_peer": statistics.median(ratios) if ratios else None,
                         "busbw_GBps": size * 2 * (ranks - 1) / ranks / p50["hvd"],
                         "target": TARGETS.get(size) if ranks == 2 else None})
    return rows


def show(rows):
    names = list(rows[0]["p50_ns"])
    print(f"{'ranks':>5} {'bytes':>9} place " + " ".join(f"{n + ' us':>17}" for n in names) +
          "   x best peer  target")
    for row in rows:
        ratio = row["ratio_best_peer"]
        print(f"{row['ranks']:>5} {row['bytes']:>9} {row['place']:>5} " +
              " ".join(f"{row['p50_ns'][n] / 1000:>17.2f}" for n in names) +
              (f"   {ratio:>11.2f}" if ratio else " " * 14) +
              (f"  {row['target']:>6}" if row["target"] else ""))


def draw(rows, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    worlds = sorted({r["ranks"] for r in rows})
    figure, axes = plt.subplots(1, len(worlds), figsize=(6.5 * len(worlds), 5), squeeze=False)
    for axis, ranks in zip(axes[0], worlds):
        mine = [r for r in rows if r["ranks"] == ranks and r["place"] == "in"]
        for name in mine[0]["p50_ns"]:
            axis.loglog([r["bytes"] for r in mine], [r["p50_ns"][name] / 1000 for r in mine],
                        marker="o", linewidth=2.5 if name == "hvd" else 1.2, label=name)
        axis.set(title=f"allreduce float32, {ranks} ranks, one host, in place",
                 xlabel="bytes", ylabel="median time of a call, microseconds")
        axis.grid(True, which="both", alpha=0.25)
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ms", type=int, default=150)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    sizes = QUICK if args.quick else SIZES
    out = os.path.join(args.build, "bench")
    os.makedirs(out, exist_ok=True)
    rows = []
    load = os.getloadavg()
    for ranks in [int(r) for r in args.ranks.split(",")]:
        rows += summarize(ranks, measure(args.build, ranks, args, sizes), sizes)
    head = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "machine": platform.processor() or platform.machine(), "kernel": platform.release(),
            "cores": len(os.sched_getaffinity(0)), "load_before": load, "load_after": os.getloadavg()}
    with open(os.path.join(out, "collectives.json"), "w", encoding="utf-8") as file:
        json.dump({**head, "rows": rows}, file, indent=1)
    print(f"{head['date']}  {head['cores']} cores, load {load[0]:.1f} before, {head['load_after'][0]:.1f} after")
    show(rows)
    draw(rows, os.path.join(out, "collectives.png"))
    print(f"written: {out}/collectives.json, {out}/collectives.png")


if __name__ == "__main__":
    main()
