#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 19 s, waiting
# needs: kubernetes
"""The control plane with simulated nodes: it starts, kubectl works, pods run, options take effect, its API server can be
stopped and started, and nothing is left of it.
timeout: 3000"""
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import case  # noqa: E402
import cluster as clusters  # noqa: E402
from api import Api, Refused, condition, wait_until  # noqa: E402

PODS = "/api/v1/namespaces/default/pods"
NODES = 3


def pod(name, **more):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "main", "image": "none", **more}]}}


class Plane(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = clusters.Cluster(kwok=NODES, gates={"GenericWorkload": True, "GangScheduling": True},
                                       runtime=["scheduling.k8s.io/v1alpha2=true"]).start()
        print("seconds:", json.dumps(cls.cluster.ready), file=sys.stderr)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()
        left = case.left_of(cls.cluster.folder)
        assert not left, f"left behind: {left}"

    def phase(self, name):
        return self.cluster.api.get(f"{PODS}/{name}")["status"].get("phase")

    def wait_for_phase(self, name, phase):
        wait_until(f"pod {name} to be {phase}", 60, lambda: self.phase(name) == phase)

    def test_kubectl(self):
        version = json.loads(self.cluster.kubectl("version", "-o", "json"))
        self.assertEqual(version["serverVersion"]["gitVersion"], version["clientVersion"]["gitVersion"])
        nodes = json.loads(self.cluster.kubectl("get", "nodes", "-o", "json"))["items"]
        self.assertEqual(len(nodes), NODES)
        for node in nodes:
            self.assertEqual(condition(node, "Ready"), "True")
            self.assertEqual(node["status"]["allocatable"]["cpu"], "8")
        with self.assertRaises(subprocess.CalledProcessError) as caught:
            self.cluster.kubectl("get", "pod", "nobody")
        self.assertIn("NotFound", caught.exception.stderr)

    def test_pod_runs_and_goes(self):
        self.cluster.kubectl("create", "-f", "-", text=json.dumps(pod("runs")))
        self.wait_for_phase("runs", "Running")
        self.assertRegex(self.cluster.api.get(f"{PODS}/runs")["spec"]["nodeName"], "^kwok-")
        self.cluster.api.delete(f"{PODS}/runs")
        with self.assertRaises(Refused) as caught:
            wait_until("pod runs to be gone", 60, lambda: not self.phase("runs"))
        self.assertEqual(caught.exception.code, 404)

    def test_pod_that_fits_nowhere_waits(self):
        self.cluster.api.create(PODS, pod("large", resources={"requests": {"cpu": "9"}}))
        wait_until("the scheduler's word", 60,
                   lambda: condition(self.cluster.api.get(f"{PODS}/large"), "PodScheduled") == "False")
        self.assertEqual(self.phase("large"), "Pending")
        self.cluster.api.delete(f"{PODS}/large")

    def test_job_is_done(self):
        """The controllers work, not only the scheduler."""
        self.cluster.kubectl("create", "job", "done", "--image=none")
        self.cluster.kubectl("wait", "--for=condition=complete", "--timeout=60s", "job/done")
        self.cluster.kubectl("delete", "job", "done")

    def test_options_arrive(self):
        groups = {group["name"]: [v["version"] for v in group["versions"]]
                  for group in self.cluster.api.get("/apis")["groups"]}
        self.assertIn("v1alpha2", groups.get("scheduling.k8s.io", []))

    def test_strangers_are_refused(self):
        for token, code in ((None, 403), ("guessed", 401)):
            stranger = Api(self.cluster.ready["server"], self.cluster.ca, token)
            with self.assertRaises(Refused) as caught:
                stranger.get(PODS)
            stranger.close()
            self.assertEqual(caught.exception.code, code)
        self.assertEqual(os.stat(self.cluster.kubeconfig).st_mode & 0o77, 0)

    def test_stop_and_start(self):
        """The API server is down for a while, as tests of the operator need it; its objects are kept."""
        self.cluster.api.create(PODS, pod("stays"))
        self.cluster.ask("stop kube-apiserver")
        with self.assertRaises(OSError):
            self.cluster.api.get("/readyz")
        self.cluster.ask("start kube-apiserver")
        wait_until("the API server", 120, lambda: self.answers("/readyz"))
        self.wait_for_phase("stays", "Running")
        self.cluster.api.delete(f"{PODS}/stays")
        with self.assertRaises(RuntimeError):
            self.cluster.ask("start kube-nobody")

    def answers(self, path):
        try:
            return self.cluster.api.get(path)
        except (OSError, Refused):
            return None


if __name__ == "__main__":
    case.main("test_plane")
