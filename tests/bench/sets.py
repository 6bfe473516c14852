#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Sets of ranks: float32, one host, in turn in one run.

    sets.py BUILD [--rounds 5] [--ms 200]

- sums: of 2 of 4 ranks, in a set, beside the same of a world of 2 ranks.
- pairs: the rate of 4 pairs of 8 ranks at once, beside communicators of MPI.
- exchange: all-to-alls of 8 ranks with splits that change in each call, beside MPI_Alltoallv, which is given the
  numbers that hvd has to exchange.
- make: microseconds from the making to the removal of a set of all ranks, which is used once.

Beside all of them the groups of torch.distributed's gloo, if PyTorch is installed. Medians of the rounds; a ratio is
that of the medians of one round, and the median of the rounds is printed."""
import argparse
import os
import statistics
import subprocess

from collectives import MPIRUN
from output import output_of, stamp

TORCH_PYTHON = "/usr/bin/python3"  # Debian's, for which its PyTorch is
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
        self.gloo_program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench_gloo_sets.py")
        self.has_mpi = os.path.exists(self.mpi_program)
        self.has_gloo = subprocess.run([TORCH_PYTHON, "-c", "import torch"], capture_output=True).returncode == 0
        self.end = ["-t", str(ms)] + [str(s) for s in SIZES]

    def hvd(self, ranks, *what):
        return lines(self.run + [str(ranks), self.program, *what])

    def mpi(self, ranks, *what):
        bind = ["--bind-to", "core" if ranks <= len(os.sched_getaffinity(0)) else "none"]
        return {"MPI": lines(MPIRUN + bind + ["-np", str(ranks), self.mpi_program, *what])} if self.has_mpi else {}

    def gloo(self, ranks, *what):
        return {"gloo": lines([TORCH_PYTHON, self.gloo_program, str(ranks), *what])} if self.has_gloo else {}

    def sums(self):
        """What each library needs, one after the other: name -> result. So do the others below."""
        what = ["sums", "2"] + self.end
        return {"world": self.hvd(2, *what), "hvd": self.hvd(4, *what), **self.gloo(4, *what)}

    def beside(self, *what):
        return {**self.mpi(8, *what, *self.end), "hvd": self.hvd(8, *what, *self.end), **self.gloo(8, *what, *self.end)}

    def made(self, ranks):
        found = {"hvd": self.hvd(ranks, "make", "200"), **self.gloo(ranks, "make", "20")}
        return {name: next(iter(result.values()))[0] for name, result in found.items()}


def show(title, rounds, column, unit):
    """rounds: what Bench.sums() and the like have returned."""
    names = list(rounds[0])
    others = [name for name in names if name != "hvd"]
    heads = names + [f"hvd/{name}" for name in others]
    print(f"\n{title}\n{'bytes':>9}" + "".join(f"{head:>12}" for head in heads))
    for size in SIZES:
        values = {name: [one[name][size][column] for one in rounds] for name in names}
        medians = [statistics.median(values[name]) / unit for name in names]
        ratios = [statistics.median(a / b for a, b in zip(values["hvd"], values[name])) for name in others]
        print(f"{size:>9}" + "".join(f"{number:>12.3f}" for number in medians + ratios))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ms", type=int, default=200)
    args = parser.parse_args()
    bench = Bench(args.build, args.ms)
    sums, pairs, exchanges, made = [], [], [], []
    print(stamp(args.rounds))
    if not bench.has_mpi:
        print("skipped: MPI: there was no mpicc to build bench_mpi_sets")
    if not bench.has_gloo:
        print(f"skipped: gloo: {TORCH_PYTHON} cannot import torch")
    for _ in range(args.rounds):
        sums.append(bench.sums())
        pairs.append(bench.beside("pairs"))
        exchanges.append(bench.beside("exchange"))
        made.append((bench.made(2), bench.made(4)))
    show("a sum of 2 of 4 ranks: us (smaller is better)", sums, 1, 1e3)
    show("4 pairs of 8 ranks: GB/s (larger is better)", pairs, 2, 1e9)
    show("all-to-all of 8 ranks, MPI_Alltoallv: us (smaller is better)", exchanges, 1, 1e3)
    print()
    for k, ranks in enumerate((2, 4)):
        each = [f"{name} {statistics.median(m[k][name] for m in made):.0f} us" for name in made[0][k]]
        print(f"a set of {ranks} ranks made, used and removed: {', '.join(each)}")
    print(stamp(args.rounds))


if __name__ == "__main__":
    main()
