#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""HVD_BACKEND=mpi compared with bare MPI_Allreduce: float32, one host, everything through MPI.

    mpi.py BUILD [--rounds 5] [--ms 400] [--ranks 2]

bench_both calls them in turn, in one process, on the same tensors. A ratio (hvd's time / MPI's) is that of the
medians of one start of bench_both. The median of the rounds is printed; the target is 1.03 at most from 1 MiB on.
4 bytes do not go through MPI at all: hvd's own shared memory is as fast."""
import argparse
import datetime
import json
import os
import statistics

from collectives import MPIRUN
from output import output_of

SIZES = [4, 1 << 20, 16 << 20, 64 << 20]
TARGET = 1.03


def one_round(build, ranks, ms):
    """(bytes, place) -> (MPI's median, ours), in ns."""
    bind = ["--bind-to", "core" if ranks <= len(os.sched_getaffinity(0)) else "none"]
    program = os.path.join(build, "tests", "bench", "bench_both")
    env = {"HVD_BACKEND": "mpi", "HVD_MPI_FLAT": "1"}
    argv = MPIRUN + bind + ["-np", str(ranks), program, "-t", str(ms)] + [str(s) for s in SIZES]
    lines = [line.split() for line in output_of(argv, env=env).splitlines()]
    return {(int(w[0]), w[1]): (int(w[3]), int(w[4])) for w in lines if len(w) == 5 and w[0].isdigit()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ms", type=int, default=400)
    parser.add_argument("--ranks", type=int, default=2)
    args = parser.parse_args()
    load = os.getloadavg()
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    report = []
    rounds = [one_round(args.build, args.ranks, args.ms) for _ in range(args.rounds)]
    for key in rounds[0]:
        mpi, hvd = (statistics.median(r[key][k] for r in rounds) for k in (0, 1))
        ratio = statistics.median(r[key][1] / r[key][0] for r in rounds)
        report.append({"bytes": key[0], "place": key[1], "mpi_ns": mpi, "hvd_ns": hvd, "ratio": ratio})
    print(f"{now}  {args.ranks} ranks, {len(os.sched_getaffinity(0))} cores, load {load[0]:.1f} before, "
          f"{os.getloadavg()[0]:.1f} after, {args.rounds} rounds")
    for r in report:
        missed = f"  above {TARGET}" if r["bytes"] > SIZES[0] and r["ratio"] > TARGET else ""
        print(f"{r['bytes']:>9} {r['place']:>4}  MPI_Allreduce {r['mpi_ns'] / 1e6:8.3f} ms  "
              f"hvd {r['hvd_ns'] / 1e6:8.3f} ms  x{r['ratio']:.3f}{missed}")
    out = os.path.join(args.build, "bench")
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "mpi.json"), "w", encoding="utf-8") as file:
        json.dump({"date": now, "load_before": load, "load_after": os.getloadavg(), "rows": report}, file, indent=1)


if __name__ == "__main__":
    main()
