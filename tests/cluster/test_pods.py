#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 6 s, waiting
# needs: kubernetes
"""A real API server accepts the pods that the operator makes: in a namespace that enforces pod security "restricted", with
the QoS class of their template, and within a quota.
timeout: 3000"""
import copy
import json
import os
import subprocess
import sys
import unittest

import yaml

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import case  # noqa: E402
import cluster as clusters  # noqa: E402
from api import Refused, wait_until  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
POD_OF = os.path.join(ROOT, os.environ.get("BUILD", "build"), "tests", "programs", "pod_of")
SPACES = ("restricted", "baseline", "privileged")
ORDINARY = {"runAsNonRoot": True, "runAsUser": 1000}


def job(**spec):
    """A minimal HvdJob with this pod spec."""
    container = {"name": "worker", "image": "localhost/any:1", "command": ["python3", "train.py"]}
    container.update(spec.pop("container", {}))
    return {"metadata": {"name": "digits", "uid": "f9a2f5c2-5df4-4b4b-9d6a-3c1c2b7b0c11", "namespace": "default"},
            "spec": {"template": {"spec": {"containers": [container], **spec}}}}


def example(name):
    with open(os.path.join(ROOT, "k8s", "examples", name), encoding="utf-8") as f:
        read = yaml.safe_load(f)
    read["metadata"].update(uid="f9a2f5c2-5df4-4b4b-9d6a-3c1c2b7b0c11")
    return read


class Pods(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = clusters.Cluster().start()
        cls.api = cls.cluster.api
        for space in SPACES:
            cls.api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {
                "name": space, "labels": {"pod-security.kubernetes.io/enforce": space}}})
        for space in SPACES:   # pods need the default service account, which a controller creates
            wait_until(f"the account of {space}", 60, lambda at=space: "default" in [
                item["metadata"]["name"]
                for item in cls.api.get(f"/api/v1/namespaces/{at}/serviceaccounts")["items"]])

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()
        left = case.left_of(cls.cluster.folder)
        assert not left, f"left behind: {left}"

    def make(self, a_job, space, *options):
        """The job's pod as the API server would store it (dry run)."""
        a_job = copy.deepcopy(a_job)
        a_job["metadata"]["namespace"] = space
        pod = subprocess.run([POD_OF, *options], input=json.dumps(a_job), capture_output=True, text=True, timeout=30,
                             check=True).stdout
        return self.api.create(f"/api/v1/namespaces/{space}/pods?dryRun=All&fieldValidation=Strict", json.loads(pod))

    def test_the_example_is_restricted(self):
        for options in ([], ["--mount"]):
            pod = self.make(example("mnist.yaml"), "restricted", *options)
            self.assertEqual(pod["spec"]["containers"][0]["command"][:3], ["/hvd/bin/hvd-agent", "pod", "--"])

    def test_an_ordinary_user_is_enough(self):
        self.make(job(securityContext=ORDINARY), "restricted")
        self.make(job(container={"securityContext": ORDINARY}), "restricted")

    def test_only_the_template_is_refused(self):
        """A template that runs as root is refused for that, never for what the operator adds."""
        with self.assertRaises(Refused) as caught:
            self.make(job(securityContext={"runAsUser": 0}), "restricted")
        self.assertEqual(caught.exception.code, 403)
        self.assertIn('container \\"worker\\"', str(caught.exception))
        self.assertNotIn("hvd-", str(caught.exception).split("violates")[1])
        self.make(job(securityContext={"runAsUser": 0}), "baseline")

    def test_class_of_service(self):
        exact = {"cpu": "1", "memory": "1Gi"}
        for resources, name in (({}, "BestEffort"), ({"requests": exact}, "Burstable"),
                                ({"requests": exact, "limits": exact}, "Guaranteed")):
            pod = self.make(job(container={"resources": resources}), "privileged")
            self.assertEqual(pod["status"]["qosClass"], name)

    def test_quota(self):
        """A quota that requires limits of every container and just fits the template."""
        amounts = {"cpu": "1", "memory": "1Gi"}
        hard = {f"{part}.{kind}": amount for part in ("requests", "limits") for kind, amount in amounts.items()}
        self.api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "quota"}})
        self.api.create("/api/v1/namespaces/quota/resourcequotas", {
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "all"}, "spec": {"hard": hard}})
        path = "/api/v1/namespaces/quota"
        wait_until("the quota to count", 60, lambda: self.api.get(f"{path}/resourcequotas/all").get(
            "status", {}).get("used"))
        wait_until("the account", 60, lambda: self.api.get(f"{path}/serviceaccounts")["items"])
        self.make(job(container={"resources": {"requests": amounts, "limits": amounts}}), "quota")
        with self.assertRaises(Refused) as caught:   # proves that the quota is enforced
            limits = {"cpu": "2", "memory": "1Gi"}
            self.make(job(container={"resources": {"requests": amounts, "limits": limits}}), "quota")
        self.assertEqual(caught.exception.code, 403)


if __name__ == "__main__":
    case.main("test_pods")
