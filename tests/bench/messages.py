#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Messages between two ranks of one host, beside Open MPI's, in turn in one run.

    messages.py BUILD [--rounds 5] [--ms 200] [--elastic]

For each size the latency (half the time of a message there and back, in blocking calls) and the rate of 16 messages in
flight. A ratio is that of the medians of one round; the median of the rounds is printed. --elastic: hvd's job is elastic, so
the sender keeps a message until the receiver has acknowledged it."""
import argparse
import os
import statistics

from collectives import MPIRUN
from output import output_of, stamp

SIZES = [8, 1024, 16384, 65536, 1 << 20, 4 << 20]


def lines(argv):
    """bytes -> (latency in ns, bytes/s)."""
    found = {}
    for line in output_of(argv, 300).splitlines():
        word = line.split()
        if word and word[0].isdigit():
            found[int(word[0])] = (float(word[2]), float(word[3]))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ms", type=int, default=200)
    parser.add_argument("--elastic", action="store_true")
    args = parser.parse_args()
    programs = os.path.join(args.build, "tests", "bench")
    end = ["-t", str(args.ms)] + [str(s) for s in SIZES]
    ours = [os.path.join(args.build, "hvdrun"), "--no-prefix", "--doctor=off", "-np", "2"]
    ours += ["--min-np", "2", "--max-np", "2"] if args.elastic else []
    bind = ["--bind-to", "core" if len(os.sched_getaffinity(0)) >= 2 else "none"]
    print(stamp(args.rounds))
    rounds = []
    for _ in range(args.rounds):
        theirs = lines(MPIRUN + bind + ["-np", "2", os.path.join(programs, "bench_mpi_messages")] + end)
        rounds.append((theirs, lines(ours + [os.path.join(programs, "bench_messages")] + end)))
    print("bytes           MPI us      hvd us  ratio      MPI GB/s    hvd GB/s  ratio")
    for size in SIZES:
        cells = []
        for column, unit in ((0, 1e3), (1, 1e9)):
            mpi, hvd = (statistics.median(r[k][size][column] for r in rounds) / unit for k in (0, 1))
            ratio = statistics.median(r[1][size][column] / r[0][size][column] for r in rounds)
            cells.append(f"{mpi:10.3f}  {hvd:10.3f}  x{ratio:.2f}")
        print(f"{size:>9}  {'    '.join(cells)}")
    print(stamp(args.rounds))


if __name__ == "__main__":
    main()
