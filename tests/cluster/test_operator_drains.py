#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 60 s, waiting
# needs: kubernetes
"""hvd-operator beside other programs: those that write fields into the status of its jobs, those that drain nodes, and pods
that need room or keep its workers off.
timeout: 1200"""
import contextlib
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import case  # noqa: E402
import operators  # noqa: E402
from api import Refused, wait_until  # noqa: E402
from operators import Installed, Operator  # noqa: E402

APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
LIMIT = 6   # seconds: --drain-limit
SPOT = "aws-node-termination-handler/spot-itn"
REBALANCE = "aws-node-termination-handler/rebalance-recommendation"
MAINTENANCE = "cloud.google.com/active-node-maintenance"


class Beside(Installed):
    nodes = 3   # of 8 processors each

    def setUp(self):
        super().setUp()
        self.operator = Operator(self.cluster, "--drain-limit", str(LIMIT)).start().wait_ready()

    def tearDown(self):
        self.delete_jobs()
        self.operator.stop()

    # ---- other pods

    def says(self, job, words):
        wait_until(f"job {job.name} to say {words}", 30, lambda: words in job.status().get("message", ""))

    def join_anew(self):
        """All nodes leave and join again."""
        for number in range(self.nodes):
            path = f"/api/v1/nodes/kwok-{number}"
            node = self.cluster.api.get(path)
            self.cluster.api.delete(path)
            self.cluster.api.create("/api/v1/nodes", {
                "metadata": {"name": node["metadata"]["name"], "labels": node["metadata"]["labels"]},
                "status": {key: node["status"][key] for key in ("allocatable", "capacity")}})
        # New nodes have the taint not-ready until the controller manager removes it.
        wait_until("all nodes to be ready", 60, lambda: sum(
            condition["type"] == "Ready" and condition["status"] == "True" and not node["spec"].get("taints")
            for node in self.cluster.api.get("/api/v1/nodes")["items"]
            for condition in node["status"].get("conditions", [])) == self.nodes)

    def test_daemonset(self):
        """A gang gets no room of pods that a DaemonSet will have on new nodes, and these pods do not count twice once they
        are there."""
        path = "/apis/apps/v1/namespaces/default/daemonsets"
        container = {"name": "a", "image": "none", "resources": {"requests": {"cpu": "6"}}}
        self.join_anew()
        self.cluster.ask("stop kube-controller-manager")    # as if it were slow
        self.addCleanup(self.remove_daemonset, f"{path}/logs")
        try:
            self.cluster.api.create(path, {"metadata": {"name": "logs"}, "spec": {
                "selector": {"matchLabels": {"app": "logs"}},
                "template": {"metadata": {"labels": {"app": "logs"}}, "spec": {"containers": [container]}}}})
            time.sleep(0.5)    # the operator's watch
            job = self.job("beside-logs", 2, cpu="4")
            self.says(job, "cpu 4 asked, 2 of 8 free")
        finally:
            self.cluster.ask("start kube-controller-manager")
        wait_until("the DaemonSet's pods", 120, lambda: self.cluster.api.get(f"{path}/logs").get("status", {}).get(
            "numberReady") == self.nodes)
        small = self.job("small", self.nodes, cpu="2")
        small.wait_running(self.nodes)
        self.assertEqual(job.status()["phase"], "Queued")
        self.remove_daemonset(f"{path}/logs")
        job.wait_running(2)

    def remove_daemonset(self, path):
        with contextlib.suppress(Refused):
            self.cluster.api.delete(path)

    def test_labels_of_namespaces(self):
        """Another pod's anti-affinity selects the workers in namespaces that have a label (namespaceSelector)."""
        path, namespace = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default"
        term = {"topologyKey": "type", "namespaceSelector": {"matchLabels": {"team": "a"}},
                "labelSelector": {"matchExpressions": [{"key": "hvd.dev/job", "operator": "Exists"}]}}
        self.cluster.api.create(path, {"metadata": {"name": "alone"}, "spec": {
            "containers": [{"name": "a", "image": "none"}], "terminationGracePeriodSeconds": 0,
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}})
        wait_until("the pod", 60, lambda: self.cluster.api.get(f"{path}/alone")["status"]["phase"] == "Running")
        self.job("of-no-team").wait_running(1)
        self.cluster.api.call("PATCH", namespace, {"metadata": {"labels": {"team": "a"}}}, kind=MERGE)
        time.sleep(0.5)    # the operator's watch
        job = self.job("of-a-team")
        self.says(job, "the anti-affinity of pod default/alone keeps workers off it")
        self.cluster.api.call("PATCH", namespace, {"metadata": {"labels": {"team": None}}}, kind=MERGE)
        job.wait_running(1)
        self.cluster.api.delete(f"{path}/alone")

    # ---- several writers of one status

    def write_status(self, job, manager, **fields):
        """Applies fields of the status as that field manager; others' stay."""
        self.cluster.api.call("PATCH", f"{job.path}/status?fieldManager={manager}", {
            "apiVersion": "hvd.dev/v1alpha1", "kind": "HvdJob",
            "metadata": {"name": job.name, "namespace": job.namespace}, "status": fields}, kind=APPLY)

    def test_status_of_several_writers(self):
        """Conditions of other types and unknown fields stay, also if they change while the operator writes; their owner can
        still remove them. Fields that the operator no longer has are removed."""
        job = self.job("shared", 2, minWorkers=1, maxWorkers=9)
        job.wait_running(2)
        for number in range(30):   # beside the operator, which writes for each change of the workers
            job.patch({"workers": 1 + number % 3})
            condition = {"type": "example.com/Billed", "status": "True", "reason": "Paid", "message": str(number),
                         "lastTransitionTime": "2026-01-01T00:00:00Z"}
            self.write_status(job, "billing", conditions=[condition], billing={"cents": number})
        job.patch({"workers": 3})
        job.wait_running(3)
        wait_until("its status", 30, lambda: job.status().get("ready") == 3)
        self.assertEqual(job.condition("example.com/Billed"), condition)
        self.assertEqual(job.status()["billing"], {"cents": 29})
        self.assertIn("startTime", job.status())
        self.write_status(job, "billing", billing={"euros": 1})
        job.patch({"runPolicy": {"suspend": True}})
        status = job.wait_phase("Suspended")
        self.assertNotIn("startTime", status)
        self.assertEqual(status["billing"], {"euros": 1})
        self.assertEqual(job.condition("example.com/Billed"), {})

    # ---- drains

    def change_node(self, node, **parts):
        self.cluster.api.call("PATCH", f"/api/v1/nodes/{node}", parts, kind=MERGE)

    def cordon(self, node, on=True):
        self.change_node(node, spec={"unschedulable": on or None})

    def places(self, job):
        """{pod: node} of the workers that run."""
        return {name: p["spec"]["nodeName"] for name, p in job.pods(alive=True).items()
                if p["status"].get("phase") == "Running"}

    def drain(self, node, jobs):
        """Cordons the node and evicts the jobs' pods until none is on it, as kubectl drain does. Returns {job: (seconds,
        refused evictions)}."""
        begin, ends, refused = time.monotonic(), {}, dict.fromkeys((job.name for job in jobs), 0)
        self.cordon(node)
        while len(ends) < len(jobs):
            self.assertLess(time.monotonic() - begin, LIMIT + 15, (ends, [job.status() for job in jobs]))
            for job in jobs:
                here = [name for name, p in job.pods().items() if p["spec"].get("nodeName") == node]
                if not here and job.name not in ends:
                    ends[job.name] = time.monotonic() - begin
                for name in here:
                    try:
                        job.evict(name)
                    except Refused as error:
                        self.assertIn(error.code, (404, 429))
                        refused[job.name] += error.code == 429
            time.sleep(0.2)
        return {name: (ends[name], refused[name]) for name in ends}

    def test_drain_ends_at_min_workers(self):
        """Four jobs at minWorkers on one node. Shrink and Restart let it go at once, Wait and Block after --drain-limit. All
        run again elsewhere, and no failure is counted."""
        nodes = [f"kwok-{i}" for i in range(self.nodes)]
        for node in nodes:
            self.addCleanup(self.cordon, node, False)
        for node in nodes[1:]:
            self.cordon(node)
        jobs = {policy: self.job(policy.lower(), 1, minWorkers=1, maxWorkers=2, run={"drainPolicy": policy})
                for policy in ("Wait", "Shrink", "Restart", "Block")}
        for policy, job in jobs.items():
            job.wait_running(1)
            job.wait_evictions(0 if policy in ("Wait", "Block") else 1)
            annotations = next(iter(job.pods().values()))["metadata"].get("annotations", {})
            self.assertEqual(annotations.get("cluster-autoscaler.kubernetes.io/safe-to-evict"),
                             "false" if policy == "Block" else None)
        for node in nodes[1:]:
            self.cordon(node, False)
        ends = self.drain(nodes[0], jobs.values())
        for policy, job in jobs.items():
            seconds, refused = ends[job.name]
            if policy in ("Wait", "Block"):
                self.assertTrue(LIMIT - 2 < seconds < LIMIT + 5 and refused > 0, (policy, ends))
            else:
                self.assertTrue(seconds < LIMIT - 2 and refused == 0, (policy, ends))
            job.wait_phase("Running")
            job.wait_running(1)
            self.assertNotIn(nodes[0], self.places(job).values())
            self.assertEqual(job.status()["failures"], 0)
            job.note("NodeDrained", "cordoned")
            wait_until("the end of the drain", 10, lambda: "drainTime" not in job.status())
        jobs["Block"].wait_evictions(0)   # closed again

    def test_each_node_has_its_own_limit(self):
        """Two nodes of a job that lets nobody go are drained, the second one half a limit later: its worker may be evicted
        half a limit later, too, also by an operator that was started in between."""
        job = self.job("two", 2, minWorkers=1, maxWorkers=2, cpu="5", run={"drainPolicy": "Block"})
        job.wait_running(2)
        job.wait_evictions(0)
        (first, first_node), (second, second_node) = sorted(self.places(job).items())
        self.assertNotEqual(first_node, second_node)
        for node in (first_node, second_node):
            self.addCleanup(self.cordon, node, False)
        begun, gone = {}, {}
        for name, node, other in ((first, first_node, 0), (second, second_node, LIMIT / 2)):
            time.sleep(other)
            begun[name] = time.monotonic()
            self.cordon(node)
        wait_until("both drains", 10, lambda: len(job.status().get("drains", [])) == 2)
        self.assertEqual(self.operator.metric("hvd_drained_workers"), 2)
        self.operator.stop()   # it releases the lease
        self.operator.start().wait_ready()
        while len(gone) < 2:
            self.assertLess(time.monotonic() - begun[second], LIMIT + 15, job.status())
            for name in set(begun) - set(gone):
                try:
                    job.evict(name)
                    gone[name] = time.monotonic() - begun[name]
                except Refused as error:
                    self.assertEqual(error.code, 429)
            time.sleep(0.2)
        for name, seconds in gone.items():   # the status has whole seconds
            self.assertTrue(LIMIT - 1.5 < seconds < LIMIT + 5, gone)
        wait_until("the end of both drains", 20, lambda: "drains" not in job.status())
        job.wait_running(1)   # one node is left
        wait_until("the metrics", 10, lambda: [self.operator.metric(name) for name in (
            "hvd_drained_workers", "hvd_drain_moves_total", "hvd_drains_over_limit_total")] == [0, 2, 2])
        job.wait_evictions(0)
        self.assertEqual(job.status()["failures"], 0)

    def restarted(self, job, before):
        """Waits until all its workers are new ones and run; no attempt is used up."""
        wait_until("new workers", 30, lambda: len(job.running()) == len(before) and not set(job.running()) & set(before))
        status = job.wait_phase("Running")
        self.assertEqual((status["failures"], status["attemptsLeft"]), (0, 6))
        job.note("Restarting", "all workers start again")

    def test_policy_restart(self):
        """One of three workers is on a node that is going to be drained: all three start again elsewhere."""
        job = self.job("again", 3, minWorkers=1, maxWorkers=3, cpu="3", run={"drainPolicy": "Restart"})
        job.wait_running(3)
        before = self.places(job)
        node = min(before.values(), key=lambda one: list(before.values()).count(one))
        self.addCleanup(self.change_node, node, spec={"taints": None})
        self.change_node(node, spec={"taints": [{"key": REBALANCE, "effect": "PreferNoSchedule"}]})
        self.restarted(job, before)
        self.assertNotIn(node, self.places(job).values())
        job.note("NodeDrained", "all workers leave at the next step boundary and start again")
        job.note("Restarting", "a node with workers of the job is drained")

    def test_eviction_restarts_a_job_that_cannot_shrink(self):
        """One eviction is allowed; the whole job starts again after it. Meanwhile no other is allowed."""
        job = self.job("fixed", 3)
        job.wait_running(3)
        job.wait_evictions(1)
        before = job.running()
        job.evict(before[0])
        with self.assertRaises(Refused) as refused:
            job.evict(before[1])
        self.assertIn(refused.exception.code, (404, 429))   # 404: it has been deleted already
        self.restarted(job, before)
        job.note("Restarting", "a worker was lost and the job is not elastic")

    def test_workers_leave_before_a_node_ends(self):
        """The taint of a spot instance that ends, and a label of a maintenance, which a scheduler does not know: the workers
        are replaced on other nodes without an eviction, and no failure is counted."""
        for node in (f"kwok-{i}" for i in range(self.nodes)):
            self.addCleanup(self.change_node, node, spec={"taints": None}, metadata={"labels": {MAINTENANCE: None}})
        job = self.job("spot", 6, minWorkers=1, maxWorkers=6, cpu="2")
        job.wait_running(6)
        for signal in ({"spec": {"taints": [{"key": SPOT, "effect": "PreferNoSchedule"}]}},
                       {"metadata": {"labels": {MAINTENANCE: "ONGOING"}}}):
            places = self.places(job)
            node = min(places.values(), key=lambda one: list(places.values()).count(one))
            begin = time.monotonic()
            self.change_node(node, **signal)
            if "spec" in signal:
                wait_until("six workers elsewhere", 30, lambda: len(self.places(job)) == 6 and
                           node not in self.places(job).values())
            else:   # four fit on the last node, the others wait for a node
                wait_until("four workers on the last node", 30, lambda: len(self.places(job)) == 4 and
                           len(set(self.places(job).values())) == 1 and node not in self.places(job).values())
            self.assertLess(time.monotonic() - begin, 20)
            stay = {name for name, place in places.items() if place != node}
            self.assertEqual(stay, stay & set(self.places(job)))
        self.assertEqual((job.status()["failures"], job.status()["phase"]), (0, "Running"))
        self.assertNotIn("Waiting", job.events())
        job.note("NodeDrained", "will leave at the next step boundary")


def needs():
    operators.check_program()


if __name__ == "__main__":
    case.main("test_operator_drains", needs)
