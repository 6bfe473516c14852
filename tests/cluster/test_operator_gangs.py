#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 20 s, waiting
# needs: kubernetes
"""Gangs on a real control plane: what a worker needs of a node, and when a gang is admitted and rolled back.
timeout: 3000"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import case  # noqa: E402
import operators  # noqa: E402
from api import wait_until  # noqa: E402

NODES = 4   # of 8 processors each


class Gangs(operators.Operated):
    nodes = NODES
    options_of_cluster = {"gates": {"GenericWorkload": True, "GangScheduling": True},
                          "runtime": ["scheduling.k8s.io/v1alpha2=true"]}

    # ---- what a worker needs beside its requests

    def bound_pod(self, name, node, **spec):
        """A pod of nobody on a node."""
        self.cluster.api.create("/api/v1/namespaces/default/pods", {
            "metadata": {"name": name}, "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0,
                                                 "containers": [{"name": "main", "image": "none"}], **spec}})
        return f"/api/v1/namespaces/default/pods/{name}"

    def wait_words(self, job, *words):
        wait_until(f"{job.name}: {words}", 30, lambda: all(word in job.status().get("message", "") for word in words))

    def test_what_the_api_server_adds(self):
        """A LimitRange's default request and a RuntimeClass's overhead count."""
        api, ranges = self.cluster.api, "/api/v1/namespaces/default/limitranges"
        plain = {"name": "main", "image": "none", "command": ["train"]}
        job = self.job("ranged", NODES + 1, template={"spec": {"containers": [plain]}}, run={"suspend": True})
        job.wait_phase("Suspended")
        limits = {"metadata": {"name": "range"}, "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "7"}}]}}
        api.create(ranges, limits)
        try:
            job.patch({"runPolicy": {"suspend": False}})
            self.wait_words(job, f"{NODES} of {NODES + 1} workers fit now; a worker asks for cpu 7")
            job.delete()
        finally:
            api.delete(f"{ranges}/range")
        api.create("/apis/node.k8s.io/v1/runtimeclasses", {"metadata": {"name": "heavy"}, "handler": "runc",
                                                           "overhead": {"podFixed": {"cpu": "6500m"}}})
        try:
            heavy = self.job("heavy", NODES + 1, template={"spec": {"runtimeClassName": "heavy", "containers": [plain]}})
            self.wait_words(heavy, "a worker asks for cpu 6500m")
        finally:
            api.delete("/apis/node.k8s.io/v1/runtimeclasses/heavy")

    def test_pods_that_are_in_the_way(self):
        """A host port in use, and the anti-affinity of another pod: the job waits, says for what, and runs when it is gone."""
        api = self.cluster.api
        labels = api.get("/api/v1/nodes/kwok-1")["metadata"]["labels"]
        port = {"containerPort": 7070, "hostPort": 7070}
        away = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "hvdjob"}}}]}}
        self.assertIn("kubernetes.io/hostname", labels)
        paths = [self.bound_pod("holder", "kwok-0", containers=[{"name": "main", "image": "none", "ports": [port]}]),
                 self.bound_pod("keeper", "kwok-1", affinity=away)]
        try:
            wait_until("them to run", 30, lambda: all(api.get(path)["status"]["phase"] == "Running" for path in paths))
            job = self.job("ported", NODES, template={"spec": {"containers": [
                {"name": "main", "image": "none", "command": ["train"], "ports": [port]}]}})
            self.wait_words(job, f"{NODES - 2} of {NODES} workers fit now", "node kwok-0: host port 7070/TCP is in use",
                            "node kwok-1: the anti-affinity of pod default/keeper keeps workers off it")
        finally:
            for path in paths:
                api.delete(path)
        job.wait_running(NODES)

    # ---- admission

    def add_node(self, name):
        has = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        node = {"apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": {"type": "kwok", "kubernetes.io/os": "linux"}}}
        self.cluster.api.create("/api/v1/nodes", node)
        self.cluster.api.call("PATCH", f"/api/v1/nodes/{name}/status",
                              {"status": {"allocatable": has, "capacity": has}}, kind="application/merge-patch+json")
        self.addCleanup(self.cluster.api.delete, f"/api/v1/nodes/{name}")

    def test_gang_waits_until_it_fits(self):
        job = self.job("toofew", NODES + 1, cpu="6", gang={"probeSeconds": 0})
        status = job.wait_phase("Queued")
        self.assertIn(f"{NODES} of {NODES + 1} workers fit", status["message"])
        self.assertIn("cpu", status["message"])
        self.assertEqual(job.pods(), {})
        self.add_node("one-more")
        job.wait_phase("Running")
        job.wait_running(NODES + 1)
        self.assertEqual(job.condition("Admitted")["status"], "True")

    def test_two_gangs_do_not_deadlock(self):
        """Each of two gangs fits alone, but not both. If half of each were placed, neither would ever run."""
        pair = [self.job(name, 3, cpu="6") for name in ("left", "right")]
        wait_until("one of them to run", 60, lambda: any(j.status().get("phase") == "Running" for j in pair))
        first, second = sorted(pair, key=lambda j: j.status().get("phase") != "Running")
        self.assertEqual(second.status()["phase"], "Queued")
        self.assertEqual([], [p for p in second.pods().values() if p["spec"].get("nodeName")])
        self.assertIn("1 of 3 workers fit", second.status()["message"])
        first.wait_running(3)
        first.end_all()
        first.wait_phase("Succeeded")
        second.wait_phase("Running")
        second.wait_running(3)

    def test_many_gangs_one_after_the_other(self):
        """One gang fits at a time, six are created at once: all succeed, never two run together."""
        jobs = [self.job(f"turn{i}", 4, cpu="5", run={"cleanPodPolicy": "All"}) for i in range(6)]
        done = set()
        while len(done) < len(jobs):
            wait_until("somebody's turn", 60, lambda: [j for j in jobs if j.status().get("phase") == "Running"])
            on_nodes = {j.name for j in jobs if any(p["spec"].get("nodeName") for p in j.pods(alive=True).values())}
            self.assertEqual(len(on_nodes), 1, on_nodes)
            for job in jobs:
                if job.status().get("phase") == "Running" and len(job.running()) == 4:
                    job.end_all()
                    job.wait_phase("Succeeded")
                    done.add(job.name)

    def test_never_feasible_says_why(self):
        job = self.job("huge", 2, cpu="9", gang={"probeSeconds": 0})
        status = job.wait_phase("Queued")
        self.assertIn("0 of 2 workers fit", status["message"])
        self.assertIn("cpu", status["message"])
        self.assertEqual(job.condition("Admitted")["status"], "False")
        self.assertIn("cpu", self.cluster.kubectl("describe", "hvdjob/huge"))

    def test_rolled_back_when_nothing_comes(self):
        """A gang that does not fit is admitted for an autoscaler, of which there is none: it is rolled back."""
        job = self.job("probe", 2, cpu="9", gang={"probeSeconds": 1, "timeoutSeconds": 3})
        job.wait_phase("Starting")
        wait_until("a roll-back", 60, lambda: job.status().get("rollbacks", 0) > 0)
        job.wait_phase("Queued")
        wait_until("no worker", 60, lambda: not job.pods(alive=True))

    def test_native_pod_groups(self):
        job = self.job("native", 3, gang={"backend": "native"})
        job.wait_phase("Running")
        group = self.cluster.api.get("/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups/native")
        self.assertEqual(group["metadata"]["ownerReferences"][0]["name"], "native")
        for pod in job.pods().values():
            self.assertEqual(pod["spec"]["schedulingGroup"], {"podGroupName": "native"})

    def test_backend_that_is_not_served(self):
        job = self.job("volcano", 1, gang={"backend": "volcano"})
        status = job.wait_phase("Queued")
        self.assertIn("scheduling.volcano.sh", status["message"])
        self.assertEqual(job.pods(), {})


def needs():
    operators.check_program()


if __name__ == "__main__":
    case.main("test_operator_gangs", needs)
