#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How long hvd-operator takes from jobs to running pods, compared with the same pods created directly; and its cost.

    operator.py BUILD [--rounds 3] [--nodes 20] [--loads 20x4,100x10,1x1000] [--pods 1000] [--idle 30]
                      [--agents 2000] [--failover 10000] [--only loads,queued,costs,agents,failover]

loads   on simulated nodes (KWOK), limits of scheduler and controller manager at 5,000 a second: jobs x workers, from
        the first create to all pods Running. In turn with the floor: the same pods, as the API server returned them,
        created by bench_pods, 16 at a time
queued  the same while no node takes pods, so all jobs wait. When each says that it waits the nodes are opened, all at
        once. Until all are Running; compared with the same floor
costs   RssAnon of the operator before any job, its maximum while --pods pods are created (10000: some minutes), and when
        they exist; and its processor time over --idle seconds with them
agents  the memory of the coordinator plane for a connected agent, and its longest turn while --agents connect at once
failover  the plane is killed while --failover agents train, and started again: until all are back, and what it costs
Ends with a table of results and targets. Leaves BUILD/bench/operator.json and .png."""
import argparse
import concurrent.futures
import datetime
import json
import math
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "cluster"))
from api import Api, Refused, wait_until  # noqa: E402
from cluster import Cluster, free_port  # noqa: E402

CAPACITY = {"cpu": "64", "memory": "256Gi", "pods": "600"}
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/hvd.dev/v1alpha1/namespaces/default/hvdjobs"
TARGETS = {"loads": 1.25, "queued": 1.6, "20x4": 1.0, "idle": 0.5, "memory": 4e6, "pod": 1024, "agent": 16 * 1024,
           "turn": 1000, "back": 120}
CLOSED = [{"key": "bench", "value": "closed", "effect": "NoSchedule"}]
PATIENCE = 300


def say(text):
    print(text, flush=True)


def job(name, workers):
    container = {"name": "worker", "image": "example.invalid/train:1", "command": ["python3", "train.py"],
                 "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}}}
    return {"apiVersion": "hvd.dev/v1alpha1", "kind": "HvdJob", "metadata": {"name": name, "namespace": "default"},
            "spec": {"workers": workers, "template": {"spec": {"containers": [container]}}}}


def bare(model, name):
    """The pod that the operator created, as a user would create it."""
    spec = {key: value for key, value in model["spec"].items()
            if key not in ("nodeName", "serviceAccount", "serviceAccountName")}
    labels = {key: value for key, value in model["metadata"]["labels"].items() if not key.startswith("hvd.dev/")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {**labels, "bench": "floor"}},
            "spec": spec}


class Operator:
    """The operator's process, with the admin's kubeconfig."""

    def __init__(self, build, cluster):
        self.log = open(os.path.join(cluster.folder, "log", "hvd-operator.log"), "wb")
        self.address = f"127.0.0.1:{free_port('127.0.0.1')}"
        self.process = subprocess.Popen([os.path.join(build, "hvd-operator"), "--kubeconfig", cluster.kubeconfig,
                                         "--metrics-addr", self.address],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        wait_until("the operator to be ready", 30, self.ready)

    def ready(self):
        try:
            with urllib.request.urlopen(f"http://{self.address}/readyz", timeout=10):
                return True
        except OSError:
            return False

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def anonymous(self):
        """RssAnon in bytes."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            line = next(line for line in f if line.startswith("RssAnon"))
        return int(line.split()[1]) * 1024

    def seconds(self):
        """Seconds of processor time."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


    def requests(self):
        """The number of its requests, by method."""
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        sums = {}
        for method, number in re.findall(r'^hvd_api_requests_total{method="([A-Z]+)"[^}]*} (\S+)$', text, re.M):
            sums[method] = sums.get(method, 0) + int(float(number))
        return sums


class Peak:
    """The maximum of the operator's RssAnon while the body runs."""

    def __init__(self, operator):
        self.operator, self.most, self.over = operator, operator.anonymous(), threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)

    def look(self):
        while not self.over.wait(0.05):
            self.most = max(self.most, self.operator.anonymous())

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


class Bench:
    def __init__(self, build, cluster, operator):
        self.build, self.cluster, self.operator = build, cluster, operator
        self.model = None
        self.round = 0
        self.doors = {}   # connection for each node

    def run(self, objects, labels, pods):
        """Runs bench_pods. Returns its figures."""
        with tempfile.NamedTemporaryFile("w", suffix=".objects", dir=self.cluster.folder) as f:
            f.writelines(f"{path}\t{json.dumps(thing)}\n" for path, thing in objects)
            f.flush()
            with subprocess.Popen(
                    [os.path.join(self.build, "tests/bench/bench_pods"), "--kubeconfig", self.cluster.kubeconfig,
                     "--labels", labels, "--running", str(pods), "--seconds", str(PATIENCE), f.name],
                    stdout=subprocess.PIPE, text=True) as child:
                figures = {"steps": [(0.0, 0)]}
                for line in child.stdout:
                    word, seconds, number = line.split()
                    if word == "step":
                        figures["steps"].append((float(seconds), int(number)))
                        continue
                    figures[word] = float(seconds)
        if child.returncode != 0:
            sys.exit(f"operator.py: bench_pods ended with {child.returncode}")
        return figures

    def clean(self):
        """Waits until no job and no pod of the previous measurement is left."""
        for path in (JOBS, PODS):
            self.cluster.api.delete(f"{path}?propagationPolicy=Background&gracePeriodSeconds=0")
        wait_until("all jobs to be gone", PATIENCE, lambda: not self.cluster.api.get(f"{JOBS}?limit=1")["items"])
        wait_until("all pods to be gone", PATIENCE, lambda: not self.cluster.api.get(f"{PODS}?limit=1")["items"])
        time.sleep(1)

    def jobs(self, jobs, workers):
        self.round += 1
        before = self.operator.requests()
        figures = self.run([(JOBS, job(f"b{self.round}-{i}", workers)) for i in range(jobs)], "hvd.dev/job",
                           jobs * workers)
        figures["requests"] = {method: n - before.get(method, 0) for method, n in self.operator.requests().items()}
        if not self.model:
            self.model = self.cluster.api.get(f"{PODS}?labelSelector=hvd.dev/job&limit=1")["items"][0]
        self.clean()
        return figures

    def floor(self, pods):
        self.round += 1
        figures = self.run([(PODS, bare(self.model, f"f{self.round}-{i}")) for i in range(pods)], "bench=floor", pods)
        self.clean()
        return figures

    def open_nodes(self, opened):
        """Closes or opens nodes by a taint of our own, because the controller manager removes the taint of a cordon
        later. All at once, on open connections."""
        def patch(name):
            self.doors[name].call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": [] if opened else CLOSED}},
                                  "application/merge-patch+json")

        if not self.doors:
            for node in self.cluster.api.get("/api/v1/nodes")["items"]:
                self.doors[node["metadata"]["name"]] = Api.from_kubeconfig(self.cluster.kubeconfig, self.cluster.ca)
        with concurrent.futures.ThreadPoolExecutor(len(self.doors)) as pool:
            list(pool.map(patch, self.doors))

    def open_when_queued(self, jobs):
        wait_until("all jobs to wait", PATIENCE, lambda: sum(
            job.get("status", {}).get("phase") == "Queued" for job in self.cluster.api.get(JOBS)["items"]) == jobs, 0.2)
        self.open_nodes(True)

    def queued(self, jobs, workers):
        self.open_nodes(False)
        door = threading.Thread(target=self.open_when_queued, args=(jobs,))
        door.start()
        try:
            return self.jobs(jobs, workers)
        finally:
            door.join()


def sizes(load):
    """"20x4": 20 jobs of 4 workers."""
    jobs, workers = map(int, load.split("x"))
    return jobs, workers


def measure_loads(bench, arguments):
    results = {}
    bench.jobs(2, 2)   # creates what is created once
    for load in arguments.loads.split(","):
        jobs, workers = sizes(load)
        rounds = {"jobs": [], "queued": [], "floor": []}
        for number in range(arguments.rounds):
            if "loads" in arguments.only:
                rounds["jobs"].append(bench.jobs(jobs, workers))
            rounds["floor"].append(bench.floor(jobs * workers))
            if "queued" in arguments.only:
                rounds["queued"].append(bench.queued(jobs, workers))
            say(f"{load}, round {number + 1}: " + ", ".join(
                f"{name} {figures[-1]['running']:.2f} s" for name, figures in rounds.items() if figures)
                + f"; requests {rounds['jobs'][-1]['requests'] if rounds['jobs'] else '-'}, queued first "
                f"{rounds['queued'][-1]['requests'] if rounds['queued'] else '-'}; load {os.getloadavg()[0]:.1f}")
        median = {name: statistics.median(f["running"] for f in figures) for name, figures in rounds.items() if figures}
        ratio = {name: median[name] / median["floor"] for name in median}
        results[load] = {"rounds": rounds, "median": median, "ratio": ratio}
        say(f"{load}: " + ", ".join(f"{name} {median[name]:.2f} s ({ratio[name]:.2f} x the floor)" for name in median))
    return results


def measure_costs(bench, arguments):
    """Memory with many pods, and the cost of watching them when nothing happens."""
    before, pods = bench.operator.anonymous(), arguments.pods // 10 * 10
    bench.round += 1
    with Peak(bench.operator) as peak:
        bench.run([(JOBS, job(f"b{bench.round}-{i}", 10)) for i in range(pods // 10)], "hvd.dev/job", pods)
    time.sleep(5)
    after, start = bench.operator.anonymous(), bench.operator.seconds()
    time.sleep(arguments.idle)
    idle = 100 * (bench.operator.seconds() - start) / arguments.idle
    say(f"memory: {before / 1e6:.2f} MB before, {after / 1e6:.2f} MB with {pods} pods, {peak.most / 1e6:.2f} MB while "
        f"they came; idle: {idle:.2f} % of a core; load {os.getloadavg()[0]:.1f}")   # the pods end with the cluster
    return {"before": before, "after": after, "peak": peak.most, "pods": pods, "idle_percent": idle}


def figures_of_crowd(arguments, test, agents, pattern):
    """The figures that a test of the plane with so many agents prints."""
    done = subprocess.run([sys.executable, os.path.join(ROOT, "tests", "e2e", "test_plane_crowd.py"), f"Crowd.{test}"],
                          text=True, capture_output=True, timeout=PATIENCE, check=False,
                          env={**os.environ, "BUILD": arguments.build, "HVD_TEST_CROWD": str(agents)})
    found = re.search(pattern, done.stdout + done.stderr)
    if done.returncode != 0 or not found:
        sys.exit(f"operator.py: the test of the crowd failed:\n{done.stdout}{done.stderr}")
    return map(float, found.groups())


def measure_agents(arguments):
    joined, ms, each, turn = figures_of_crowd(
        arguments, "test_agents_that_connect_at_once", arguments.agents,
        r"joined (\d+) after (\d+) ms.*; ([\d.]+) KiB each; the slowest turn ([\d.]+) ms")
    say(f"agents: {joined:.0f} joined in {ms / 1000:.1f} s, {each:.1f} KiB each, the longest turn {turn:.1f} ms; "
        f"load {os.getloadavg()[0]:.1f}")
    return {"agents": joined, "seconds": ms / 1000, "bytes_each": each * 1024, "turn_ms": turn}


def measure_failover(arguments):
    agents, back, used, lost, turn, rss = figures_of_crowd(
        arguments, "test_nobody_is_lost_when_the_operator_is_replaced", arguments.failover,
        r"failover of (\d+) agents: back after ([\d.]+) s and ([\d.]+) s of its processor time, lost (\d+), "
        r"the slowest turn ([\d.]+) ms, RSS (\d+) MiB")
    say(f"failover: {agents:.0f} agents back after {back:.1f} s, {used:.1f} s of processor time; lost {lost:.0f}; the longest "
        f"turn {turn:.1f} ms; RSS {rss:.0f} MiB at most; load {os.getloadavg()[0]:.1f}")
    return {"agents": agents, "seconds": back, "processor_seconds": used, "lost": lost, "turn_ms": turn, "rss_mib": rss}


# ---- the table -------------------------------------------------------------------------------------

def rows_of(results):
    """Yields the results: description, figure, target, unit."""
    for load, result in results.get("loads", {}).items():
        median, ratio = result["median"], result["ratio"]
        if load in TARGETS and "jobs" in median:
            yield f"{load}, created to all Running", median["jobs"], TARGETS[load], "s"
        for name, target in (("jobs", "loads"), ("queued", "queued")):
            if name in ratio and not (load in TARGETS and name == "jobs"):
                yield f"{load}, {name}", ratio[name], TARGETS[target], "x floor"
    costs = results.get("costs")
    if costs:
        wanted = TARGETS["memory"] + TARGETS["pod"] * costs["pods"]
        yield f"RssAnon with {costs['pods']} pods", costs["after"] / 1e6, wanted / 1e6, "MB"
        yield "idle", costs["idle_percent"], TARGETS["idle"], "% of a core"
    agents = results.get("agents")
    if agents:
        yield "a connected agent", agents["bytes_each"] / 1024, TARGETS["agent"] / 1024, "KiB"
        yield f"longest turn, {agents['agents']:.0f} agents at once", agents["turn_ms"], TARGETS["turn"], "ms"
    failover = results.get("failover")
    if failover:
        yield f"{failover['agents']:.0f} agents back after a failover", failover["seconds"], TARGETS["back"], "s"
        yield "lost of them", failover["lost"], 0, ""
        yield "longest turn meanwhile", failover["turn_ms"], TARGETS["turn"], "ms"


def table(results):
    for words, figure, wanted, unit in rows_of(results):
        say(f"{words:36} {figure:8.2f}   wanted <= {wanted:8.2f} {unit:12} {'yes' if figure <= wanted else 'NO'}")


def draw(results, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    loads = results.get("loads", {})
    if not loads:
        return
    figure, axes = pyplot.subplots(1, len(loads), figsize=(5 * len(loads), 4), squeeze=False)
    for axis, (load, result) in zip(axes[0], loads.items()):
        for name, color in (("floor", "0.6"), ("jobs", "C0"), ("queued", "C1")):
            for figures in result["rounds"][name]:
                axis.step(*zip(*figures["steps"], (figures["running"], math.prod(sizes(load)))), where="post",
                          color=color, label=name)
        handles = dict(reversed(list(zip(*reversed(axis.get_legend_handles_labels())))))
        axis.legend(handles.values(), handles.keys())
        axis.set(title=f"{load} workers", xlabel="seconds since the first create", ylabel="pods Running")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def measure_cluster(arguments, results):
    with Cluster(kwok=arguments.nodes, capacity=CAPACITY) as cluster:
        cluster.kubectl("apply", "-k", os.path.join(ROOT, "k8s", "crd"))
        wait_until("HvdJob to be served", 30, lambda: served(cluster.api))
        operator = Operator(arguments.build, cluster)
        try:
            bench = Bench(arguments.build, cluster, operator)
            if {"loads", "queued"} & set(arguments.only):
                results["loads"] = measure_loads(bench, arguments)
            if "costs" in arguments.only:
                results["costs"] = measure_costs(bench, arguments)
        finally:
            operator.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--loads", default="20x4,100x10,1x1000")
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--idle", type=int, default=30)
    parser.add_argument("--agents", type=int, default=2000)
    parser.add_argument("--failover", type=int, default=10000)
    parser.add_argument("--only", default="loads,queued,costs,agents,failover", type=lambda text: text.split(","))
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    results = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
               "cores": os.cpu_count(), "kernel": platform.release(), "load": os.getloadavg(), "targets": TARGETS}
    if {"loads", "queued", "costs"} & set(arguments.only):
        measure_cluster(arguments, results)
    if "agents" in arguments.only:
        results["agents"] = measure_agents(arguments)
    if "failover" in arguments.only:
        results["failover"] = measure_failover(arguments)
    folder = os.path.join(arguments.build, "bench")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "operator.json"), "w", encoding="utf-8") as f:
        json.dump(results, f, indent=1)
    draw(results, os.path.join(folder, "operator.png"))
    table(results)
    say(f"{folder}/operator.json")


def served(api):
    try:
        return api.get(JOBS)
    except Refused:
        return None


if __name__ == "__main__":
    main()
