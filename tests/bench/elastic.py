#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How long an elastic job waits when its world changes, and the cost of elasticity while it does not change.

    elastic.py BUILD [--kills 200] [--stops 20] [--changes 20] [--rounds 5] [--mib 1024] [--bytes 1048576]
                     [--only kill,stop,change,many,cost,state,join]

kill    4 ranks with --mib touched each: from SIGKILL to the first allreduce without the killed rank, on the
        slowest survivor
stop    the same for SIGSTOP
change  planned: the longest a survivor waits between two allreduces while the world gets smaller and larger; and
        from a joiner's hvd_init() until all have finished an allreduce with it
many    16 ranks, SIGKILL: as kill, without the memory
cost    --rounds of a fixed and an elastic world in turn in the same 2 processes: allreduce of 1 and 64 MiB
state   4 ranks, 64 MiB from the first to the last, as one block and as blocks of 1 kB to 8 MiB, beside memcpy just
        before each (bench_state.py; between hosts: network.py --only raw,state)
join    3 ranks of PyTorch with 384 MiB of state each (128 of it parameters) and steps of 200 ms, a fourth joins:
        its cost for the others, with all of the state at the boundary and with the moments sent after it (bench_join.py)
Leaves BUILD/bench/elastic.json and .png. See RESULTS.md for the targets."""
import argparse
import collections
import datetime
import json
import mmap
import os
import platform
import random
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "chaos"))
import job as jobs  # noqa: E402

RING = 1 << 16
HEAD = struct.Struct("<QQQQiiQ")
ENTRY = struct.Struct("<QII")
Entry = collections.namedtuple("Entry", "end contributors epoch")
TARGETS = {"kill": {"p50": 15, "p99": 50}, "stop": {"max": 500}, "shrink": {"max": 20}, "enter": {"p50": 50},
           "many": {"max": 200}}


class Ring:
    """The record of one rank (struct ring of bench_elastic.c)."""

    def __init__(self, path):
        self.pid = int(os.path.basename(path).split(".")[0])
        with open(path, "rb") as f:
            self.map = mmap.mmap(f.fileno(), HEAD.size + RING * ENTRY.size, prot=mmap.PROT_READ)

    def head(self):
        """The head: start, ready, joined (ns), n, rank, size, repair_ns."""
        return HEAD.unpack_from(self.map, 0)

    def count(self):
        return self.head()[3]

    def entry(self, i):
        return Entry(*ENTRY.unpack_from(self.map, HEAD.size + i % RING * ENTRY.size))

    def last(self):
        n = self.count()
        return self.entry(n - 1) if n else Entry(0, 0, 0)

    def since(self, ns):
        """Entries that ended after ns, and the one before them, in order."""
        n, found = self.count(), []
        for i in range(n - 1, max(-1, n - RING + 64), -1):
            found.append(self.entry(i))
            if found[-1].end <= ns:
                break
        return found[::-1]

    def alive(self):
        fields = jobs.stat_fields(self.pid)
        return fields is not None and fields[0] not in "ZX"


class Bench:
    """A job whose ranks reduce all the time."""

    def __init__(self, args, ranks, least, most, mib):
        self.args, self.ranks = args, ranks
        self.folder = tempfile.mkdtemp(prefix="hvd-bench-")
        self.rings = {}
        build = os.path.abspath(args.build)
        program = [os.path.join(build, "tests", "bench", "bench_elastic"), "run",
                   os.path.join(self.folder, "records"), str(mib), str(args.bytes)]
        argv = [os.path.join(build, "hvdrun"), "-np", str(ranks), "--min-np", str(least), "--max-np", str(most)]
        self.job = jobs.Job(self.folder, argv + program)

    def live(self):
        records = os.path.join(self.folder, "records")
        for name in os.listdir(records):
            path = os.path.join(records, name)
            if name.endswith(".ring") and name not in self.rings and \
                    os.path.getsize(path) >= HEAD.size + RING * ENTRY.size:
                self.rings[name] = Ring(path)
        return [r for r in self.rings.values() if r.alive()]

    def until(self, seconds, condition):
        """Waits until condition() returns something, and returns it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = condition()
            if found:
                return found
            if self.job.process.poll() is not None:
                raise RuntimeError(f"hvdrun ended with {self.job.process.returncode}: {self.said()}")
            time.sleep(0.001)
        return None

    def steady(self, ranks, seconds):
        """Waits until so many ranks reduce together. Returns their rings; None after the time limit."""
        def together():
            live = self.live()
            lasts = [r.last() for r in live]
            return live if len(live) == ranks and all(e.contributors == ranks for e in lasts) else None
        live = self.until(seconds, together)
        if not live:
            return None
        counts = [r.count() for r in live]
        more = self.until(seconds, lambda: all(r.count() > c + 20 for r, c in zip(live, counts)))
        return live if more else None

    def said(self):
        with open(os.path.join(self.folder, "hvdrun.log"), encoding="utf-8", errors="replace") as f:
            return "".join(f.readlines()[-8:])

    def close(self):
        with open(os.path.join(self.folder, "records", "stop"), "w", encoding="ascii"):
            pass
        self.job.wait(20)
        self.job.end()
        shutil.rmtree(self.folder, ignore_errors=True)


def without(ring, ns, ranks):
    """The time after ns when this rank first finished an allreduce of so many ranks. None: not yet."""
    return next((e.end for e in ring.since(ns) if e.end > ns and e.contributors == ranks), None)


def strike(bench, live, number):
    """Kills or stops a rank. Returns the ms until the slowest survivor continued; None: the survivors did not continue."""
    time.sleep(random.uniform(0.005, 0.05))
    victim = random.choice(live)
    survivors = [r for r in live if r is not victim]
    begin = time.monotonic_ns()
    os.kill(victim.pid, number)
    done = bench.until(30, lambda: [without(r, begin, len(survivors)) for r in survivors]
                       if all(r.last().contributors == len(survivors) for r in survivors) else None)
    if not done or None in done:
        return None
    if number == signal.SIGSTOP:
        bench.until(5, lambda: not victim.alive())
        if victim.alive():
            os.kill(victim.pid, signal.SIGKILL)
    return (max(done) - begin) / 1e6


def strikes(args, what, number, times, ranks, least, mib, patience):
    """So many measurements, in as many jobs as needed: if a lost rank is not replaced in time, a new job is started."""
    found, bench, job_starts = [], None, 0
    try:
        while len(found) < times:
            live = bench.steady(ranks, patience) if bench else None
            if not live:
                if bench:
                    bench.close()
                bench, job_starts = Bench(args, ranks, least, ranks, mib), job_starts + 1
                live = bench.steady(ranks, 60)
            took = strike(bench, live, number) if live else None
            if took is None:
                raise RuntimeError(f"{what}: the survivors did not go on: {bench.said()}")
            found.append(took)
            # A new rank at once: otherwise it would come after a pause that doubles each time.
            for size in (ranks - 1, ranks):
                bench.job.control.scale(size)
            print(f"\r  {what}: {len(found)} of {times}, {took:.1f} ms, {job_starts} jobs   ", end="",
                  file=sys.stderr, flush=True)
    finally:
        print(file=sys.stderr)
        if bench:
            bench.close()
    return found


def many(args):
    """16 ranks, of which one after the other is killed."""
    found = []
    while len(found) < 12:
        bench = Bench(args, 16, 8, 16, 0)
        try:
            for ranks in range(16, 12, -1):
                live = bench.steady(ranks, 60)
                took = strike(bench, live, signal.SIGKILL) if live else None
                if took is None:
                    break
                found.append(took)
        finally:
            bench.close()
        if not found:
            raise RuntimeError("many: the survivors did not go on")
    return found


def pause(ring, begin, epoch):
    """ms: the longest time between two allreduces, from begin until the first in a later epoch, less an ordinary one."""
    entries = ring.since(begin)
    last = next(i for i, e in enumerate(entries) if e.epoch > epoch)
    gaps = [b.end - a.end for a, b in zip(entries[:last + 1], entries[1:last + 1])]
    before = [b.end - a.end for a, b in zip(entries, entries[1:])]
    return (max(gaps) - statistics.median(before)) / 1e6


def change(bench, live, ranks):
    """A planned change. Returns the longest pause of the ranks that stay, and the ms from the last joiner's hvd_init() until
    all ranks reduce with it (None without a joiner)."""
    epoch, begin = live[0].last().epoch, time.monotonic_ns()
    status, answer = bench.job.control.scale(ranks)
    if status != 200:
        raise RuntimeError(f"scale to {ranks}: {status} {answer}")
    now = bench.steady(ranks, 60)
    if not now:
        raise RuntimeError(f"scale to {ranks} did not come: {bench.said()}")
    stayed = [r for r in now if r in live]
    joined = [r for r in now if r not in live]
    pauses = [pause(r, begin, epoch) for r in stayed]
    begun = max((r.head()[1] for r in joined), default=None)
    entry = [(without(r, begun, ranks) - begun) / 1e6 for r in now] if joined else []
    return max(pauses), max(entry, default=None)


def changes(args, times):
    rows = {"shrink": [], "grow": [], "enter": []}
    bench = Bench(args, 4, 2, 6, args.mib)
    try:
        for _ in range(times):
            smaller, _ = change(bench, bench.steady(4, 60), 3)
            larger, entered = change(bench, bench.steady(3, 60), 4)
            rows["shrink"].append(smaller)
            rows["grow"].append(larger)
            rows["enter"].append(entered)
    finally:
        bench.close()
    return rows


def cost(args):
    """A row for each place and size: medians over the rounds in ns, and the median ratio of neighbouring rounds."""
    argv = [os.path.join(args.build, "hvdrun"), "-np", "2", "--no-prefix",
            os.path.join(args.build, "tests", "bench", "bench_elastic"), "cost", str(args.rounds), "1048576",
            "67108864"]
    done = subprocess.run(argv, env=dict(os.environ, HVD_DOCTOR="off"), capture_output=True, text=True, timeout=600,
                          check=True)
    times = collections.defaultdict(lambda: ([], []))
    for line in done.stdout.splitlines():
        elastic, place, size, ns = line.split()
        times[place, int(size)][int(elastic)].append(int(ns))
    return [{"place": place, "bytes": size, "fixed_ns": statistics.median(fixed),
             "elastic_ns": statistics.median(elastic),
             "ratio": statistics.median(e / f for f, e in zip(fixed, elastic))}
            for (place, size), (fixed, elastic) in sorted(times.items())]


def lines_of(args, options, script, *words):
    """The output of the ranks of a benchmark in Python."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), script)
    build = os.path.abspath(args.build)
    env = dict(os.environ, HVD_DOCTOR="off", HVD_LIBRARY=os.path.join(build, "libhvd.so"), OMP_NUM_THREADS="1",
               HVDRUN=os.path.join(build, "hvdrun"))
    argv = [os.path.join(build, "hvdrun"), *options, "--no-prefix", sys.executable, script, *words]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=600, check=True).stdout.splitlines()


def join(args):
    """Rows of bench_join.py."""
    name = f"bench-join-{os.getpid()}"
    lines = lines_of(args, ["--name", name, "-np", "3", "--min-np", "3", "--max-np", "4"], "bench_join.py", name, "128",
                     "200", str(args.rounds))
    rows = [line.split() for line in lines if line.startswith(("together ", "apart "))]
    return [{"way": way, "n": int(n), "boundary_ms": float(boundary), "step_ms": float(step)}
            for way, n, boundary, step in rows]


def state(args):
    """Rows of bench_state.py."""
    rows = {}
    for line in lines_of(args, ["-np", "4", "--min-np", "2"], "bench_state.py", "64", str(4 * args.rounds)):
        size, place, _, p50, _ = line.split()
        rows[place] = int(p50) if place.endswith("percent") else int(size) / int(p50)
    return [{"place": place, "GBps": rows[place], "copy_GBps": rows[place + "-copy"],
             "percent": rows[place + "-percent"]} for place in ("large", "mixed")]


def summary(values):
    values = sorted(values)
    return {"n": len(values), "p50": statistics.median(values), "p90": values[int(len(values) * 0.9)],
            "p99": values[min(len(values) - 1, int(len(values) * 0.99))], "max": values[-1], "ms": values}


def measure(args):
    results = {}
    if "kill" in args.only:
        results["kill"] = summary(strikes(args, "kill", signal.SIGKILL, args.kills, 4, 2, args.mib, 5))
    if "stop" in args.only:
        results["stop"] = summary(strikes(args, "stop", signal.SIGSTOP, args.stops, 4, 2, 64, 5))
    if "many" in args.only:
        results["many"] = summary(many(args))
    if "change" in args.only:
        results.update({name: summary(ms) for name, ms in changes(args, args.changes).items()})
    if "cost" in args.only:
        results["cost"] = cost(args)
    if "state" in args.only:
        results["state"] = state(args)
    if "join" in args.only:
        results["join"] = join(args)
    return results


def show(results):
    for name, row in results.items():
        if name == "cost":
            for r in row:
                print(f"cost    {r['place']:>3} {r['bytes'] >> 20:>3} MiB  fixed {r['fixed_ns'] / 1e6:7.2f} ms, elastic "
                      f"{r['elastic_ns'] / 1e6:7.2f} ms, ratio {r['ratio']:.3f}")
            continue
        if name == "state":
            for r in row:
                print(f"state   {r['place']:>5}  {r['GBps']:6.2f} GB/s, memcpy {r['copy_GBps']:6.2f}, a transfer to the memcpy "
                      f"before it {r['percent']} %  target 70")
            continue
        if name == "join":
            for r in row:
                print(f"join    {r['way']:<9} n {r['n']:>3}  boundary {r['boundary_ms']:6.1f} ms, the step behind it "
                      f"{r['step_ms']:6.1f} ms longer than others")
            continue
        target = ", ".join(f"{k} <= {v}" for k, v in TARGETS.get(name, {}).items())
        print(f"{name:<7} n {row['n']:>4}  p50 {row['p50']:8.2f}  p90 {row['p90']:8.2f}  p99 {row['p99']:8.2f}  "
              f"max {row['max']:8.2f} ms  {target}")


def draw(results, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    figure, axis = plt.subplots(figsize=(9, 5))
    for name, row in results.items():
        if name not in ("cost", "state", "join") and row["n"] > 1:
            share = [(i + 1) / row["n"] for i in range(row["n"])]
            axis.step([max(v, 0.01) for v in row["ms"]], share, where="post", label=f"{name} ({row['n']})")
    if not axis.lines:
        return
    axis.set(title="elastic: how long the survivors stand still", xlabel="milliseconds", ylabel="share", xscale="log")
    axis.grid(True, which="both", alpha=0.25)
    axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build")
    p.add_argument("--kills", type=int, default=200)
    p.add_argument("--stops", type=int, default=20)
    p.add_argument("--changes", type=int, default=20)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--mib", type=int, default=1024)
    p.add_argument("--bytes", type=int, default=1 << 20)
    p.add_argument("--only", type=lambda t: t.split(","), default=["kill", "stop", "many", "change", "cost", "state",
                                                                          "join"])
    args = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    jobs.adopt_orphans()
    load = os.getloadavg()
    results = measure(args)
    head = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "machine": platform.processor() or platform.machine(), "kernel": platform.release(),
            "cores": len(os.sched_getaffinity(0)), "load_before": load, "load_after": os.getloadavg(),
            "mib": args.mib, "bytes": args.bytes}
    out = os.path.join(args.build, "bench")
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "elastic.json"), "w", encoding="utf-8") as f:
        json.dump({**head, **results}, f, indent=1)
    print(f"{head['date']}  {head['cores']} cores, load {load[0]:.1f} before, {head['load_after'][0]:.1f} after")
    show(results)
    draw(results, os.path.join(out, "elastic.png"))


if __name__ == "__main__":
    main()
