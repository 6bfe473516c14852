#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 40 s, waiting
# needs: kubernetes
"""hvd-operator and a real kubelet: the job's status names an OOM-killed worker; an evicted worker drains at a step boundary,
the others train on in the same processes, and it is replaced.
timeout: 3000"""
import os
import re
import subprocess
import sys
from urllib.parse import urlsplit

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import case  # noqa: E402
import cluster as clusters  # noqa: E402
import pod_images  # noqa: E402
import operators  # noqa: E402
from api import wait_until  # noqa: E402
from operators import Job, Operator  # noqa: E402

EATER = "hvd.test/eat:1"
TRAINER = "hvd.test/steps:1"


class Real(operators.Installed):
    nodes, options_of_cluster = 0, {"real": True}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        eat, steps = cls.cluster.path("eat"), os.path.join(pod_images.PROGRAMS, "steps")
        subprocess.run([os.environ.get("CC", "gcc"), "-O1", "-o", eat, os.path.join(clusters.HERE, "eat.c")],
                       check=True, timeout=60)
        pod_images.load(cls.cluster, pod_images.bundle_name(), pod_images.bundle())
        pod_images.load(cls.cluster, EATER, {"/eat": eat, **pod_images.loaded(steps)})
        pod_images.load(cls.cluster, TRAINER, {"/steps": steps, **pod_images.loaded(steps)})
        # The address at which pods reach this host.
        host = urlsplit(cls.cluster.ready["server"]).hostname
        port = clusters.free_port(host)
        cls.operator = Operator(cls.cluster, "--bundle", pod_images.bundle_name(), agents=(host, port), name="real").start().wait_ready()

    @classmethod
    def tearDownClass(cls):
        cls.operator.stop()
        super().tearDownClass()

    def test_out_of_memory(self):
        """The OOM killer kills a rank, or a process that it started: the status names the worker."""
        for name, command in (("itself", ["/eat", "self"]), ("child", ["/eat"])):
            with self.subTest(name):
                container = {"name": "main", "image": EATER, "command": command,
                             "resources": {"limits": {"memory": "48Mi"}}}
                job = Job(self.cluster, name, 1, run={"backoffLimit": 0}, template={"spec": {
                    "containers": [container], "terminationGracePeriodSeconds": 1}})
                status = job.wait_phase("Failed", 120)
                first = status["firstFailure"]
                self.assertEqual((first["reason"], first["exitCode"], first["worker"]), ("OOMKilled", 137, 0))
                self.assertTrue(first["node"] and first["pod"] == f"{name}-0-0", first)
                self.assertIn("OOMKilled, exit code 137", job.condition("Failed")["message"])
                self.assertEqual((status["failures"], status["attemptsLeft"]), (1, 0))
                job.delete()
                job.wait_gone(120)


    def log(self, job, pod):
        return job.api.get(f"{job.all_pods}/{pod}/log?container=main")

    def trained(self, job, workers):
        """{pod: its log} once so many workers train together, otherwise None."""
        logs = {name: self.log(job, name) for name in job.running()}
        there = len(logs) == workers and all(f"world {workers} step" in text.splitlines()[-1]
                                             for text in logs.values() if text.strip())
        return logs if there and all(logs.values()) else None

    def test_eviction_drains(self):
        container = {"name": "main", "image": TRAINER, "imagePullPolicy": "Never", "command": ["/steps", "100000", "20"],
                     "env": [{"name": "LD_LIBRARY_PATH", "value": "/hvd/lib"}],
                     "resources": {"requests": {"cpu": "50m"}, "limits": {"memory": "256Mi"}}}
        job = Job(self.cluster, "evicted", 3, minWorkers=1, maxWorkers=3, doctor={"policy": "off"},
                  template={"spec": {"containers": [container], "terminationGracePeriodSeconds": 30,
                                     "securityContext": {"runAsUser": 1000, "runAsNonRoot": True}}})
        self.addCleanup(lambda: job.get() and job.delete())
        before = wait_until("a world of three", 120, lambda: self.trained(job, 3))
        job.wait_evictions(2)
        pods = job.pods()
        victim = sorted(before)[1]
        job.evict(victim)
        wait_until("the worker to be gone", 60, lambda: self.is_over(job, victim, pods))
        after = wait_until("a world of three again", 120, lambda: self.trained(job, 3))
        for name in set(before) - {victim}:
            pids = re.findall(r"^pid (\d+) world", after[name], re.M)
            self.assertEqual(len(set(pids)), 1, after[name])
            self.assertIn(" world 2 step", after[name])
            self.assertEqual(job.pods()[name]["metadata"]["uid"], pods[name]["metadata"]["uid"])
        status = job.status()
        self.assertEqual((status["failures"], status["phase"]), (0, "Running"), status)

    def is_over(self, job, name, pods):
        """Whether the pod has ended or is gone, even if another pod has its name now."""
        pod = job.pods().get(name)
        return not pod or pod["metadata"]["uid"] != pods[name]["metadata"]["uid"] or \
            pod["status"].get("phase") in ("Succeeded", "Failed")


def needs():
    operators.check_program()
    clusters.check_real()


if __name__ == "__main__":
    case.main("test_operator_real", needs)
