#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""HVD_BACKEND=mpi beside bare MPI_Allreduce, in one run, in turn: float32, one host, everything through MPI.

    mpi.py BUILD [--rounds 7] [--ms 400] [--ranks 2]

Each round starts both programs under mpirun, the second of the last round first; a program prints the
median of each size. A ratio (ours / MPI's) is taken inside a round and the median of the rounds is
printed: below 1.03 is the target. HVD_MPI_THREADS=funneled is measured too, without a target."""
import argparse
import datetime
import json
import os
import statistics

from collectives import MPIRUN, run_one

SIZES = [1 << 20, 16 << 20, 64 << 20]
TARGET = 1.03
SET = {"HVD_BACKEND": "mpi", "HVD_MPI_FLAT": "1"}


def programs(build, ranks, ms):
    bench = os.path.join(build, "tests", "bench")
    bind = ["--bind-to", "core" if ranks <= len(os.sched_getaffinity(0)) else "none"]
    run = MPIRUN + bind + ["-np", str(ranks)]
    sizes = ["-t", str(ms)] + [str(s) for s in SIZES]

    def ours(**more):
        plugin = os.path.abspath(os.path.join(build, "libhvd_mpi.so"))
        settings = [word for name, value in {**SET, "HVD_MPI_PLUGIN": plugin, **more}.items() for word in ("-x", f"{name}={value}")]
        return run + settings + [os.path.join(bench, "bench_hvd")] + sizes

    return {"MPI_Allreduce": run + [os.path.join(bench, "bench_mpi")] + sizes, "hvd, mpi": ours(),
            "hvd, funneled": ours(HVD_MPI_THREADS="funneled")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ms", type=int, default=400)
    parser.add_argument("--ranks", type=int, default=2)
    args = parser.parse_args()
    found = programs(args.build, args.ranks, args.ms)
    load, rounds = os.getloadavg(), []
    for number in range(args.rounds):
        names = list(found) if number % 2 else list(reversed(found))
        rounds.append({name: run_one(found[name], 300) for name in names})
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    print(f"{now}  {args.ranks} ranks, {len(os.sched_getaffinity(0))} cores, load {load[0]:.1f} before, "
          f"{os.getloadavg()[0]:.1f} after, {args.rounds} rounds")
    rows = []
    for size in SIZES:
        for place in ("in", "out"):
            key = (size, place) if (size, "out") in rounds[0]["hvd, mpi"] else (size, "in")
            p50 = {name: statistics.median(r[name][key] for r in rounds) for name in found}
            ratio = {name: statistics.median(r[name][key] / r["MPI_Allreduce"][key] for r in rounds)
                     for name in found}
            rows.append({"bytes": size, "place": place, "p50_ns": p50, "ratio": ratio})
            print(f"{size:>9} {place:>4}  " + "  ".join(
                f"{name} {p50[name] / 1e6:8.3f} ms x{ratio[name]:.3f}" for name in found)
                + ("  ok" if ratio["hvd, mpi"] <= TARGET else f"  above {TARGET}"))
    out = os.path.join(args.build, "bench")
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "mpi.json"), "w", encoding="utf-8") as file:
        json.dump({"date": now, "load_before": load, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
