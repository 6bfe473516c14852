#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""hvd-operator in a cluster that is full: as many jobs as the nodes hold, and others that wait.

    operator_scale.py BUILD [--nodes 1000] [--workers 10] [--waiting 2000] [--namespaces 50]

Simulated nodes (KWOK) that hold one job each. The floor: the pods of NODES jobs, created by bench_pods, 16 at a time.
Then NODES jobs, all at once, until all their pods run, and --waiting further jobs, until each says why it waits. Prints the
times, the longest delay of a renewal of the lease, RssAnon of operator and plane, and processor time. Leaves
BUILD/bench/operator_scale.json. Some minutes."""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "cluster"))
import operators  # noqa: E402
from api import Api, wait_until  # noqa: E402
from cluster import Cluster, free_port  # noqa: E402

ALL_JOBS, ALL_PODS = "/apis/hvd.dev/v1alpha1/hvdjobs", "/api/v1/pods"
PATIENCE = 1800
AT_ONCE = 16
LATE, NARROW = 1.0, 1.25   # targets: seconds of a late renewal; times the floor


def say(text):
    print(text, flush=True)


def memory(process):
    """RssAnon in MB."""
    with open(f"/proc/{process.pid}/status", encoding="ascii") as f:
        return int(next(line for line in f if line.startswith("RssAnon")).split()[1]) / 1024


def seconds(process):
    """Seconds of processor time."""
    with open(f"/proc/{process.pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Scale:
    def __init__(self, arguments, cluster):
        self.arguments, self.cluster = arguments, cluster
        self.number = 0

    def create(self, objects, labels, running):
        """Creates the objects; returns the seconds until so many pods with the labels run."""
        with tempfile.NamedTemporaryFile("w", suffix=".objects", dir=self.cluster.folder) as f:
            f.writelines(f"{path}\t{json.dumps(thing)}\n" for path, thing in objects)
            f.flush()
            text = subprocess.run(
                [os.path.join(self.arguments.build, "tests/bench/bench_pods"), "--kubeconfig", self.cluster.kubeconfig,
                 "--labels", labels, "--running", str(running), "--seconds", str(PATIENCE), f.name],
                stdout=subprocess.PIPE, text=True, check=True).stdout
        return next(float(line.split()[1]) for line in text.splitlines() if line.startswith("running"))

    def jobs(self, count):
        made = []
        for _ in range(count):
            namespace = f"tenant-{self.number % self.arguments.namespaces}"
            job = operators.manifest(f"job-{self.number}", self.arguments.workers, namespace=namespace)
            made.append((f"/apis/hvd.dev/v1alpha1/namespaces/{namespace}/hvdjobs", job))
            self.number += 1
        return made

    def floor(self):
        """The pods of the first job, as the operator made them, created directly."""
        self.create(self.jobs(1), "hvd.dev/job", self.arguments.workers)
        model = self.cluster.api.get(f"{ALL_PODS}?labelSelector=hvd.dev/job&limit=1")["items"][0]
        self.cluster.api.delete(f"{self.jobs_of(0)}/job-0?propagationPolicy=Background")
        self.wait_for_none("hvd.dev/job")
        spec = {key: value for key, value in model["spec"].items()
                if key not in ("nodeName", "serviceAccount", "serviceAccountName")}
        pods = []
        for i in range(self.arguments.nodes * self.arguments.workers):
            path = f"/api/v1/namespaces/tenant-{i % self.arguments.namespaces}/pods"
            pods.append((path, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"f{i}", "labels": {"bench": "floor"}},
                                "spec": spec}))
        took = self.create(pods, "bench=floor", len(pods))
        for i in range(self.arguments.namespaces):
            self.cluster.api.delete(f"/api/v1/namespaces/tenant-{i}/pods?labelSelector=bench%3Dfloor&gracePeriodSeconds=0")
        self.wait_for_none("bench=floor")
        return took

    @staticmethod
    def jobs_of(number):
        return f"/apis/hvd.dev/v1alpha1/namespaces/tenant-{number}/hvdjobs"

    def wait_for_none(self, labels):
        labels = labels.replace("=", "%3D")
        wait_until("all pods to be gone", PATIENCE,
                   lambda: not self.cluster.api.get(f"{ALL_PODS}?labelSelector={labels}&limit=1")["items"])

    def without_reason(self):
        """The number of jobs that wait and do not say why."""
        return sum(1 for job in self.cluster.api.get(ALL_JOBS)["items"]
                   if job.get("status", {}).get("phase", "New") in ("New", "Queued")
                   and not job.get("status", {}).get("message"))

    def waiting(self):
        """Creates the jobs that wait; returns the seconds until all exist, and until each has its reason."""
        def create(jobs):
            api = Api.from_kubeconfig(self.cluster.kubeconfig, self.cluster.ca)
            for path, job in jobs:
                api.create(path, job)

        began, jobs = time.monotonic(), self.jobs(self.arguments.waiting)
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(create, [jobs[i::AT_ONCE] for i in range(AT_ONCE)]))
        created = time.monotonic() - began
        wait_until("each job that waits to say why", PATIENCE, lambda: self.without_reason() == 0, 0.5)
        return created, time.monotonic() - began


def measure(arguments, cluster, operator):
    scale = Scale(arguments, cluster)
    for i in range(arguments.namespaces):
        cluster.api.create("/api/v1/namespaces", {"metadata": {"name": f"tenant-{i}"}})
        wait_until("the namespace's account", 60, lambda i=i: cluster.api.get(
            f"/api/v1/namespaces/tenant-{i}/serviceaccounts")["items"])
    floor = scale.floor()
    say(f"floor: {floor:.1f} s; load {os.getloadavg()[0]:.1f}")
    before = seconds(operator.process)
    jobs = scale.create(scale.jobs(arguments.nodes), "hvd.dev/job", arguments.nodes * arguments.workers)
    say(f"jobs: {jobs:.1f} s, {jobs / floor:.2f} x the floor (wanted {NARROW}); load {os.getloadavg()[0]:.1f}")
    alone = memory(operator.process)
    created, reasons = scale.waiting()
    results = {"floor": floor, "jobs": jobs, "ratio": jobs / floor, "created": created, "reasons": reasons,
               "late": operator.metric("hvd_lease_late_seconds"), "rss_running_mb": alone,
               "rss_mb": memory(operator.process), "plane_rss_mb": memory(operator.plane.process),
               "processor_seconds": seconds(operator.process) - before,
               "pods": len(cluster.api.get(f"{ALL_PODS}?labelSelector=hvd.dev/job")["items"])}
    say(f"{arguments.waiting} waiting: created in {created:.1f} s, each has its reason after {reasons:.1f} s; "
        f"{results['pods']} pods")
    say(f"longest delay of a renewal of the lease: {1000 * results['late']:.0f} ms (wanted {1000 * LATE:.0f})")
    say(f"RssAnon: {alone:.1f} MB with the jobs that run, {results['rss_mb']:.1f} MB with all; of hvd-plane "
        f"{results['plane_rss_mb']:.1f} MB; {results['processor_seconds']:.1f} s of processor time; load {os.getloadavg()[0]:.1f}")
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--waiting", type=int, default=2000)
    parser.add_argument("--namespaces", type=int, default=50)
    arguments = parser.parse_args()
    capacity = {"cpu": str(arguments.workers), "memory": "64Gi", "pods": "110"}
    with Cluster(kwok=arguments.nodes, capacity=capacity) as cluster:
        operators.install(cluster)
        agents = ("127.0.0.1", free_port("127.0.0.1"))
        with operators.Operator(cluster, "--bundle", "bundle", agents=agents) as operator:
            operator.wait_ready()
            results = measure(arguments, cluster, operator)
    folder = os.path.join(arguments.build, "bench")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "operator_scale.json"), "w", encoding="utf-8") as f:
        json.dump(results, f, indent=1)


if __name__ == "__main__":
    main()
