#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""hvd compared with other libraries and with one plain TCP stream, in turn in one run: allreduce of float32
between hosts. Hosts are network namespaces joined by a bridge, plain and at 1 Gbit/s (tbf). Root.

    network.py BUILD [--hosts 2,4] [--each 1] [--rounds 3] [--ms 300] [--rates none,1gbit] [--only hvd,raw,state]

Each round starts every program once; a program times each size for --ms and prints medians. busbw is
bytes * 2(p-1)/p / time with p hosts (raw, state, messages from one rank to another: bytes / time). state, only on request: what a joiner
receives as one block while others have it (bench_state.py; --each 2). Leaves BUILD/bench/network.json."""
import argparse
import contextlib
import datetime
import json
import os
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

SIZES = [4, 1024, 65536, 1 << 20, 16 << 20, 64 << 20]
SHAPED_SIZES = [4, 65536, 1 << 20, 16 << 20]  # the programs warm up with 20 calls: seconds at 1 Gbit/s
RAW_SIZES = [16 << 20, 64 << 20]
GLOO = "/usr/bin/python3"
HERE = os.path.dirname(os.path.abspath(__file__))


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextlib.contextmanager
def hosts(count, rate):
    """Names of count namespaces with addresses 10.78.0.1 ... on eth0."""
    prefix = f"hvdb{os.getpid()}-"
    names = [f"{prefix}{i}" for i in range(count)]
    switch = prefix + "s"
    try:
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "br0", "type", "bridge", "forward_delay", "0")
        ip("-n", switch, "link", "set", "br0", "up")
        for i, name in enumerate(names):
            ip("netns", "add", name)
            ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"h{i}", "netns", switch)
            ip("-n", switch, "link", "set", f"h{i}", "master", "br0", "up")
            ip("-n", name, "addr", "add", f"10.78.0.{i + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            if rate != "none":
                subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf",
                                "rate", rate, "burst", "256kb", "latency", "50ms"], check=True)
        yield names
    finally:
        for name in names + [switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def inside(name, argv):
    return ["ip", "netns", "exec", name, *argv]


def lines(text):
    """(bytes, place) -> p50 in ns, from the lines "bytes place calls p50 p90"."""
    found = {}
    for line in text.splitlines():
        word = line.split()
        if len(word) == 5 and word[0].isdigit():
            found[int(word[0]), word[1]] = int(word[3])
    return found


def run_ranks(names, argv, extra, each=1):
    """Starts so many processes in each namespace, with HVD_RANK and so on. Returns the output of rank 0."""
    names = [name for name in names for _ in range(each)]
    with tempfile.TemporaryDirectory() as folder:
        key = os.path.join(folder, "key")
        with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as f:
            f.write(secrets.token_hex(32))
        port = 20000 + secrets.randbelow(20000)
        procs = []
        for rank, name in enumerate(names):
            env = dict(os.environ, HVD_RANK=str(rank), HVD_SIZE=str(len(names)), HVD_KEY_FILE=key,
                       HVD_RENDEZVOUS=f"10.78.0.1:{port}", **extra)
            procs.append(subprocess.Popen(inside(name, argv), env=env, stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, text=True))
        try:
            done = [p.communicate(timeout=300) for p in procs]
        finally:
            for p in procs:
                p.kill()
        for p, (_, complaint) in zip(procs, done):
            if p.returncode != 0:
                raise RuntimeError(f"{' '.join(argv[:3])} ended with {p.returncode}: {complaint[-800:]}")
        return lines(done[0][0])


def run_mpi(names, argv):
    """Open MPI over TCP: its daemons are started by a script in place of ssh."""
    with tempfile.TemporaryDirectory() as folder:
        agent = os.path.join(folder, "agent")
        with open(agent, "w", encoding="ascii") as f:
            f.write('#!/bin/sh\n# HOST COMMAND...: the address tells which namespace\n'
                    'host=$1; shift\nexec ip netns exec "$HVD_BENCH_PREFIX$((${host##*.} - 1))" /bin/sh -c "$*"\n')
        os.chmod(agent, 0o700)
        spread = ",".join(f"10.78.0.{i + 1}:1" for i in range(len(names)))
        done = subprocess.run(
            inside(names[0], ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-np", str(len(names)),
                              "-H", spread, "--mca", "plm_rsh_agent", agent, "--mca", "btl", "tcp,self",
                              "--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0",
                              "--mca", "pml", "ob1", "--mca", "orte_keep_fqdn_hostnames", "1", *argv]),
            env=dict(os.environ, HVD_BENCH_PREFIX=names[0][:-1]),
            capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"mpirun ended with {done.returncode}: {done.stderr[-800:]}")
        return lines(done.stdout)


def gloo_rank(budget_ns, sizes):
    """What this script runs in a namespace for gloo."""
    import torch.distributed as dist  # needed only there
    import bench_gloo
    rank, ranks = int(os.environ["HVD_RANK"]), int(os.environ["HVD_SIZE"])
    dist.init_process_group("gloo", init_method=f"tcp://{os.environ['HVD_RENDEZVOUS']}", rank=rank, world_size=ranks)
    for nbytes in sizes:
        calls, p50, p90 = bench_gloo.one_size(nbytes, budget_ns)
        if rank == 0:
            print(nbytes, "in", calls, p50, p90, flush=True)
    dist.barrier()
    dist.destroy_process_group()


def programs(build, args, sizes):
    """name -> function of the namespaces."""
    bench = os.path.join(os.path.abspath(build), "tests", "bench")
    raw_sizes = [str(s) for s in sizes if s in RAW_SIZES] or [str(RAW_SIZES[0])]
    sizes = [str(s) for s in sizes]
    net = [os.path.join(bench, "bench_net"), "-t", str(args.ms)]
    found = {"raw": lambda names: run_ranks(names[:2], net + ["raw"] + raw_sizes, {}),
             "hvd_coll": lambda names: run_ranks(names, net + ["coll"] + sizes, {}, args.each),
             "hvd": lambda names: run_ranks(names, [os.path.join(bench, "bench_hvd"), "-t", str(args.ms)] + sizes, {},
                                            args.each)}
    if "state" in (args.only or []):
        script = [sys.executable, os.path.join(HERE, "bench_state.py"), "64", "8"]
        library = {"HVD_LIBRARY": os.path.join(os.path.abspath(build), "libhvd.so")}
        found["state"] = lambda names: {key: ns for key, ns in run_ranks(names, script, library, args.each).items()
                                        if key[1] == "large"}
    messages = [os.path.join(bench, "bench_messages"), "-n", "-t", str(args.ms)] + [s for s in sizes if int(s) <= 16 << 20]
    found["messages"] = lambda names: run_ranks(names[:2], messages, {})
    mpi = os.path.join(bench, "bench_mpi")
    if os.path.exists(mpi) and shutil.which("mpirun"):
        found["openmpi"] = lambda names: run_mpi(names, [mpi, "-t", str(args.ms)] + sizes)
    if subprocess.run([GLOO, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
        gloo = [GLOO, os.path.join(HERE, "network.py"), "--gloo-rank", build, "--ms", str(args.ms), "--sizes", ",".join(sizes)]
        found["gloo"] = lambda names: run_ranks(names, gloo, {"GLOO_SOCKET_IFNAME": "eth0"})
    return {n: f for n, f in found.items() if not args.only or n in args.only}


def busbw(name, nbytes, ns, ranks):
    share = 1 if name in ("raw", "state", "messages") else 2 * (ranks - 1) / ranks
    return nbytes * share / ns  # bytes per ns: GB/s


def measure(build, ranks, rate, args):
    sizes = args.sizes or (SIZES if rate == "none" else SHAPED_SIZES)
    found, rounds, failed = programs(build, args, sizes), [], {}
    with hosts(ranks, rate) as names:
        for number in range(args.rounds):
            print(f"  {ranks} hosts, {rate}, round {number + 1} of {args.rounds}: load {os.getloadavg()[0]:.1f}",
                  file=sys.stderr, flush=True)
            row = {}
            for name, run in found.items():
                try:
                    row[name] = run(names)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    failed[name] = str(error)
            rounds.append(row)
    for name, text in failed.items():
        print(f"  {name} did not run: {text}", file=sys.stderr)
    return rounds


def summarize(ranks, rate, rounds):
    rows = []
    keys = sorted({(name, size) for r in rounds for name in r for size, _ in r[name]}, key=lambda k: (k[1], k[0]))
    for name, size in keys:
        times = [min(t for (s, _), t in r[name].items() if s == size) for r in rounds
                 if name in r and any(s == size for s, _ in r[name])]
        p50 = statistics.median(times)
        rows.append({"hosts": ranks, "rate": rate, "program": name, "bytes": size, "p50_ns": p50,
                     "busbw_GBps": busbw(name, size, p50, ranks)})
    raw = {r["bytes"]: r["busbw_GBps"] for r in rows if r["program"] == "raw"}
    for r in rows:
        r["of_raw"] = r["busbw_GBps"] / raw[r["bytes"]] if r["bytes"] in raw else None
        of_raw = f"{r['of_raw']:6.3f} of raw" if r["of_raw"] else ""
        print(f"{ranks} hosts {rate:>6} {r['program']:>9} {r['bytes']:>9} B {r['p50_ns'] / 1000:12.1f} us "
              f"{r['busbw_GBps'] * 1000:9.1f} MB/s {of_raw}", flush=True)
    return rows


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--hosts", type=lambda t: [int(v) for v in t.split(",")], default=[2, 4])
    p.add_argument("--rates", type=lambda t: t.split(","), default=["none", "1gbit"])
    p.add_argument("--sizes", type=lambda t: [int(v) for v in t.split(",")])
    p.add_argument("--each", type=int, default=1, help="ranks a host, for ours")
    p.add_argument("--only", type=lambda t: t.split(","))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--ms", type=int, default=300)
    p.add_argument("--gloo-rank", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.gloo_rank:
        return gloo_rank(args.ms * 1_000_000, args.sizes)
    if os.geteuid() != 0:
        print("SKIP: bench/network: root: network namespaces cannot be made here")
        return None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # then the namespaces are removed too
    rows = []
    for rate in args.rates:
        for ranks in args.hosts:
            rows += summarize(ranks, rate, measure(args.build, ranks, rate, args))
    folder = os.path.join(args.build, "bench")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "network.json"), "w", encoding="utf-8") as f:
        json.dump({"when": datetime.datetime.now().isoformat(timespec="seconds"), "load": os.getloadavg(),
                   "cpus": os.cpu_count(), "rows": rows}, f, indent=1)
    return None


if __name__ == "__main__":
    sys.exit(main())
