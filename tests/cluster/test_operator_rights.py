#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 40 s, waiting
# needs: kubernetes
"""The operator's account has exactly the listed rights in each overlay of k8s/, according to the API server; and so have
tenants.
timeout: 900"""
import os
import subprocess
import sys
import unittest

import yaml

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import case  # noqa: E402
import cluster as clusters  # noqa: E402
import operators  # noqa: E402
from api import Api, Refused, wait_until  # noqa: E402
from operators import SYSTEM  # noqa: E402

# {(group, resource, name or ""): verbs}; without rights that every account has.
JOBS = {
    ("hvd.dev", "hvdjobs", ""): "delete get list watch",
    ("hvd.dev", "hvdjobs/status", ""): "get patch update",
    ("hvd.dev", "hvdjobs/finalizers", ""): "update",
    ("", "pods", ""): "create delete get list patch watch",
    ("", "resourcequotas", ""): "list watch",
    ("events.k8s.io", "events", ""): "create patch",
    ("policy", "poddisruptionbudgets", ""): "create list patch watch",
    **{(group, "podgroups", ""): "create get list watch"
       for group in ("scheduling.k8s.io", "scheduling.x-k8s.io", "scheduling.volcano.sh")},
}
CLUSTER = {("", "nodes", ""): "list watch", ("", "namespaces", ""): "list watch", ("apps", "daemonsets", ""): "list watch",
           ("authentication.k8s.io", "tokenreviews", ""): "create"}
OWN = {
    ("coordination.k8s.io", "leases", ""): "create",
    ("coordination.k8s.io", "leases", "hvd-operator"): "get update",
    ("", "pods", ""): "get patch",
    ("", "secrets", ""): "create",
    ("", "secrets", "hvd-operator-ca"): "get update",
}
OVERLAYS = {
    "cluster": {namespace: {**JOBS, **CLUSTER} for namespace in ("default", "kube-system", SYSTEM)},
    "restricted-network": {namespace: {**JOBS, **CLUSTER} for namespace in ("default", SYSTEM)},
    "namespaced": {"default": {}, "kube-system": {}, SYSTEM: JOBS},
}    # and OWN in the operator's namespace
# Requests that must be refused, each tried: (method, path, body).
NEVER = (
    ("GET", "/api/v1/secrets", None),
    ("GET", "/api/v1/namespaces/default/secrets", None),
    ("GET", f"/api/v1/namespaces/{SYSTEM}/secrets", None),
    ("GET", f"/api/v1/namespaces/{SYSTEM}/secrets/elsewhere", None),
    ("GET", "/api/v1/namespaces/default/configmaps", None),
    ("POST", f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/hvd-operator/token", {
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}),
    ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "more"}}),
    ("POST", "/apis/hvd.dev/v1alpha1/namespaces/default/hvdjobs", operators.manifest("mine", 1)),
    ("DELETE", "/api/v1/nodes/kwok-0", None),
    ("POST", "/api/v1/namespaces/default/pods/none/exec?command=sh", None),
    ("POST", "/api/v1/namespaces/default/pods/none/eviction", {
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "none", "namespace": "default"}}),
)


def joined(*tables):
    """Adds up the rules of several roles for the same resource."""
    merged = {}
    for table in tables:
        for key, verbs in table.items():
            merged.setdefault(key, set()).update(verbs.split())
    return merged


def expected(overlay, namespace):
    table = OVERLAYS[overlay][namespace]
    return joined(table, OWN) if namespace == SYSTEM else joined(table)


class Rights(unittest.TestCase):
    def rules(self, api, namespace):
        """The result of SelfSubjectRulesReview, without the reviews that every account may create."""
        review = api.create("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace}})
        found = {}
        for rule in review["status"]["resourceRules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for name in rule.get("resourceNames") or [""]:
                        found.setdefault((group, resource, name), set()).update(rule["verbs"])
        for one in ("selfsubjectaccessreviews", "selfsubjectrulesreviews"):
            found.pop(("authorization.k8s.io", one, ""), None)
        found.pop(("authentication.k8s.io", "selfsubjectreviews", ""), None)
        return found

    def check(self, overlay):
        with clusters.Cluster(kwok=1) as cluster:
            operators.install(cluster, overlay)
            token = cluster.kubectl("-n", SYSTEM, "create", "token", "hvd-operator").strip()
            api = Api(cluster.ready["server"], cluster.ca, token)
            for namespace in OVERLAYS[overlay]:
                with self.subTest(namespace):
                    self.assertEqual(self.rules(api, namespace), expected(overlay, namespace))
            for method, path, body in NEVER:
                with self.subTest(f"{method} {path}"):
                    with self.assertRaises(Refused) as refused:
                        api.call(method, path, body)
                    self.assertEqual(refused.exception.code, 403, str(refused.exception))
            api.close()
        left = case.left_of(cluster.folder)
        self.assertEqual(left, [])

    def may(self, cluster, user, verb, what, namespace="default"):
        resource, _, part = what.partition("/")    # kubectl reads hvdjobs/status as a job called "status"
        done = subprocess.run([cluster.programs["kubectl"], "--kubeconfig", cluster.kubeconfig, "-n", namespace, "auth", "can-i",
                               verb, resource, *([f"--subresource={part}"] if part else []), "--as", user],
                              capture_output=True, text=True, timeout=30, check=False)
        return {"yes": True, "no": False}[done.stdout.strip()]

    def test_images_and_options_stand_in_one_place(self):
        """kubectl kustomize: an overlay that sets images reaches both containers and the image of the bundle, and its patch
        adds options to the operator's."""
        kubectl = clusters.binaries.find(["kubectl"])["kubectl"]
        text = subprocess.run([kubectl, "kustomize", os.path.join(operators.ROOT, "k8s", "overlays", "site")],
                              capture_output=True, text=True, timeout=60, check=True).stdout
        (deployment,) = [d for d in yaml.safe_load_all(text) if d["kind"] == "Deployment"]
        self.assertNotIn("localhost/", text)
        first, second = deployment["spec"]["template"]["spec"]["containers"]
        variables = {one["name"]: one.get("value") for one in first["env"]}
        registry, version = "registry.example.com/hvd-", first["image"].rpartition(":")[2]
        self.assertEqual((first["image"], second["image"], variables["HVD_BUNDLE_IMAGE"]),
                         (f"{registry}operator:{version}", f"{registry}operator:{version}", f"{registry}bundle:{version}"))
        self.assertEqual(first["args"][-2:], ["--namespace-share=40", "--drain-limit=600"])
        self.assertIn("--plane-uid=65533", first["args"])

    def test_tenants(self):
        """Users with Kubernetes' own roles in a namespace: what they may do with jobs there."""
        read, write = {"get", "list", "watch"}, {"create", "update", "patch", "delete"}
        with clusters.Cluster(kwok=1) as cluster:
            operators.install(cluster)
            for role in ("admin", "edit", "view"):
                cluster.kubectl("create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}")
            wait_until("the roles to be extended", 30, lambda: self.may(cluster, "view", "get", "hvdjobs"), 0.2)
            for role in ("admin", "edit", "view"):
                verbs = read | write if role != "view" else read
                for verb in sorted(read | write):
                    self.assertEqual(self.may(cluster, role, verb, "hvdjobs"), verb in verbs, (role, verb))
                self.assertFalse(self.may(cluster, role, "create", "hvdjobs", "kube-system"))
                self.assertTrue(self.may(cluster, role, "get", "hvdjobs/status"))
                for verb in ("update", "patch"):
                    self.assertFalse(self.may(cluster, role, verb, "hvdjobs/status"), role)
                    self.assertEqual(self.may(cluster, role, verb, "hvdjobs/scale"), role != "view", role)
            self.assertFalse(self.may(cluster, "nobody", "get", "hvdjobs"))

    def test_cluster(self):
        self.check("cluster")

    def test_restricted_network(self):
        self.check("restricted-network")

    def test_namespaced(self):
        self.check("namespaced")


if __name__ == "__main__":
    case.main("test_operator_rights")
