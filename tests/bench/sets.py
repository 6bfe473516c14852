#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Sets of ranks: float32, one host, in turn in one run.

    sets.py BUILD [--rounds 5] [--ms 200]

- set/world: a sum of 2 of 4 ranks, in a set, beside the same of a world of 2 ranks.
- pairs: the rate of 4 pairs of 8 ranks at once, beside communicators of MPI.
- exchange: all-to-alls of 8 ranks with splits that change in each call, beside MPI_Alltoallv, which is given the
  numbers that hvd has to exchange.
- make: microseconds from the making to the removal of a set of all ranks, which is used once.

A ratio is that of the medians of one round; the median of the rounds is printed."""
import argparse
import os
import statistics

from collectives import MPIRUN
from output import output_of, stamp

SIZES = [4, 1024, 65536, 1 << 20, 16 << 20]


def lines(argv):
    """bytes -> the numbers of the line after them."""
    found = {}
    for line in output_of(argv, 300).splitlines():
        word = line.split()
        if word and word[0].isdigit():
            found[int(word[0])] = [float(w) for w in word[1:]]
    return found


class Bench:
    def __init__(self, build, ms):
        self.run = [os.path.join(build, "hvdrun"), "--no-prefix", "--doctor=off", "-np"]
        self.program = os.path.join(build, "tests", "bench", "bench_sets")
        self.mpi_program = os.path.join(build, "tests", "bench", "bench_mpi_sets")
        self.end = ["-t", str(ms)] + [str(s) for s in SIZES]

    def hvd(self, ranks, *what):
        return lines(self.run + [str(ranks), self.program, *what] + self.end)

    def make(self, ranks):
        return lines(self.run + [str(ranks), self.program, "make", "200"])[200][0]

    def mpi(self, ranks, *what):
        bind = ["--bind-to", "core" if ranks <= len(os.sched_getaffinity(0)) else "none"]
        return lines(MPIRUN + bind + ["-np", str(ranks), self.mpi_program, *what] + self.end)


def show(title, pairs, column, unit, better):
    """pairs: one (theirs, ours) for each round."""
    for size in SIZES:
        theirs, ours = (statistics.median(pair[k][size][column] for pair in pairs) / unit for k in (0, 1))
        ratio = statistics.median(pair[1][size][column] / pair[0][size][column] for pair in pairs)
        print(f"{title:<28} {size:>9}  {theirs:10.3f}  {ours:10.3f}  x{ratio:.3f} ({better})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ms", type=int, default=200)
    args = parser.parse_args()
    bench = Bench(args.build, args.ms)
    worlds, pairs, exchanges, made = [], [], [], []
    print(stamp(args.rounds))
    for _ in range(args.rounds):
        worlds.append((bench.hvd(2, "sums", "2"), bench.hvd(4, "sums", "2")))
        if os.path.exists(bench.mpi_program):
            pairs.append((bench.mpi(8, "pairs"), bench.hvd(8, "pairs")))
            exchanges.append((bench.mpi(8, "exchange"), bench.hvd(8, "exchange")))
        made.append((bench.make(2), bench.make(4)))
    show("world, set: us", worlds, 1, 1e3, "smaller is better")
    if pairs:
        show("pairs, MPI, hvd: GB/s", pairs, 2, 1e9, "larger is better")
        show("MPI_Alltoallv, hvd: us", exchanges, 1, 1e3, "smaller is better")
    for k, ranks in enumerate((2, 4)):
        print(f"a set of {ranks} ranks made, used and removed: {statistics.median(m[k] for m in made):.0f} us")
    print(stamp(args.rounds))


if __name__ == "__main__":
    main()
