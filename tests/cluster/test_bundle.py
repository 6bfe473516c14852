#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 120 s
# needs: kubernetes
"""The operator's pods on a real kubelet, in a namespace that enforces pod security "restricted": the bundle is copied into
a container whose image has only a C library, its programs run there, and /dev/shm has its size. An image without glibc
is refused, with the reason in the pod's status.
timeout: 3000"""
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import case  # noqa: E402
import cluster as clusters  # noqa: E402
import pod_images  # noqa: E402
import image  # noqa: E402
from api import wait_until  # noqa: E402

PROGRAMS = pod_images.PROGRAMS
USERS = "hvd.test/user:1"
SPACE = "/api/v1/namespaces/training"


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = clusters.Cluster(real=True).start()
        cls.api = cls.cluster.api
        sum_ = os.path.join(PROGRAMS, "sum")
        pod_images.load(cls.cluster, pod_images.bundle_name(), pod_images.bundle())
        pod_images.load(cls.cluster, USERS, {"/sum": sum_, "/bin/df": "/bin/df", **pod_images.loaded(sum_, "/bin/df")})
        cls.api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": "training", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})
        wait_until("the account", 60, lambda: cls.api.get(f"{SPACE}/serviceaccounts")["items"])

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()
        left = case.left_of(cls.cluster.folder)
        assert not left, f"left behind: {left}"

    def run_pod(self, name, image_name, command=None):
        """The pod that the operator would make; with another command, because there is no operator to dial."""
        container = {"name": "worker", "image": image_name, "imagePullPolicy": "Never", "command": ["/sum"],
                     "env": [{"name": "LD_LIBRARY_PATH", "value": "/hvd/lib"}],
                     "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "256Mi"}},
                     "securityContext": {"readOnlyRootFilesystem": True}}
        job = {"metadata": {"name": name, "uid": "f9a2f5c2-5df4-4b4b-9d6a-3c1c2b7b0c11", "namespace": "training"},
               "spec": {"template": {"spec": {"containers": [container], "securityContext": {
                   "runAsUser": 1000, "runAsNonRoot": True}}}}}
        pod = json.loads(subprocess.run([os.path.join(PROGRAMS, "pod_of")], input=json.dumps(job), capture_output=True,
                                        text=True, timeout=30, check=True).stdout)
        del pod["metadata"]["ownerReferences"]   # the job does not exist, so the pod would be garbage-collected
        if command:
            pod["spec"]["containers"][0]["command"] = command
        path = f"{SPACE}/pods/{pod['metadata']['name']}"
        self.api.create(f"{SPACE}/pods", pod)
        wait_until(f"pod {name} to end", 120,
                   lambda: self.api.get(path)["status"].get("phase") in ("Succeeded", "Failed"), 0.2)
        return self.api.get(path)["status"], self.api.get(f"{path}/log?container=worker")

    def test_ranks(self):
        status, log = self.run_pod("ranks", USERS, ["/hvd/bin/hvdrun", "-np", "2", "--doctor=off", "/sum", "3"])
        self.assertEqual(status["phase"], "Succeeded", log)
        for rank in (0, 1):
            self.assertIn(f"[{rank}]<stdout>", log)
        self.assertEqual(status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"], 0)

    def test_shm(self):
        status, log = self.run_pod("shm", USERS, ["/hvd/bin/hvdrun", "-np", "1", "--doctor=off", "/bin/df", "-B1",
                                                  "--output=size", "/dev/shm"])
        self.assertEqual(status["phase"], "Succeeded", log)
        self.assertIn(str(128 << 20), log)   # half of the container's memory limit

    def test_no_glibc(self):
        status, log = self.run_pod("static", image.PAUSE)
        self.assertEqual(status["phase"], "Failed", log)
        ended = status["containerStatuses"][0]["state"]["terminated"]
        self.assertEqual(ended["exitCode"], 2)
        self.assertRegex(ended["message"], r"^hvd-agent: this image has no glibc \(.* is missing\): hvd needs an image "
                                           "with glibc 2.28 or later\n$")


if __name__ == "__main__":
    case.main("test_bundle", clusters.check_real)
