#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 60 s, waiting
# needs: kubernetes
"""hvd-operator with invalid and hostile input: malformed manifests (manifests.py), invalid changes, name conflicts, invalid
tokens and bodies. Everything is refused with a reason, and another job trains on meanwhile.
timeout: 3000"""
import base64
import json
import os
import ssl
import sys
import time
from collections import Counter

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import agents  # noqa: E402
import case  # noqa: E402
import manifests  # noqa: E402
from api import Refused, wait_until  # noqa: E402
from operators import SYSTEM, Job  # noqa: E402

JOBS = "/apis/hvd.dev/v1alpha1/namespaces/default/hvdjobs"
PODS = "/api/v1/namespaces/default/pods"


def post_too_much(test, path, token):
    """Posts a body that is too long until the refusal arrives, and returns how often it was posted, which is at least the
    number of refusals: the operator refuses it before its end and closes the connection, with which the sender may lose the
    answer; and on a busy machine a connection may end before the operator has read so much."""
    for count in range(1, 11):
        try:
            test.assertEqual(test.ask(path, token, "POST", "x" * (10 << 20)), 413)
            return count
        except (ConnectionError, ssl.SSLEOFError):
            time.sleep(0.2)
    return test.fail("10 connections broke before the status 413 arrived")


class Input(agents.Case):
    def setUp(self):
        super().setUp()
        self.good, self.kubelet = self.start_job("good", 2, 1000000, 20)
        self.wait("a world of two", 60, self.good, self.kubelet, lambda: 2 in self.worlds(self.kubelet))
        self.wait("its epoch", 30, self.good, self.kubelet, lambda: self.good.status().get("epoch") == 1)
        self.pids = {name: self.kubelet.of(name).pid for name in self.good.running()}

    def tearDown(self):
        """The other job has trained on, with the same ranks in the same epoch."""
        self.assertTrue(self.operator.alive(), self.operator.tail())
        status = self.good.status()
        self.assertEqual((status["phase"], status["epoch"], status["restarts"]), ("Running", 1, 0))
        self.assertEqual({name: self.kubelet.of(name).pid for name in self.good.running()}, self.pids)
        self.assertTrue(all(self.kubelet.of(name).poll() is None for name in self.pids))
        self.assertEqual(self.operator.metric("hvd_agents"), 2)

    def await_words(self, what, seconds, question):
        return self.wait(what, seconds, self.good, self.kubelet, question)

    # ---- manifests

    def create(self, job):
        """The API server's refusal; None: it accepts the object. Strict about unknown fields, like kubectl."""
        try:
            self.cluster.api.create(f"{JOBS}?fieldValidation=Strict", job)
        except Refused as error:
            self.assertLess(error.code, 500, error)
            return str(error)
        return None

    def test_malformed(self):
        sys.setrecursionlimit(20000)
        rows = manifests.all_of_them()
        taken, wrong, counts = {}, [], Counter()
        for name, job, how, want in rows:
            self.kubelet.turn()
            said = self.create(job)
            counts[how] += 1
            if (said is None) == (how == manifests.SCHEMA):
                wrong.append(f"{name}: want {how}, have {said}")
            elif said is not None and want not in said:
                wrong.append(f"{name}: no \"{want}\" in: {said}")
            if said is None:
                taken[job["metadata"]["name"]] = (name, how, want)
        self.assertEqual(wrong, [])
        self.assertGreaterEqual(sum(counts.values()), 200)
        self.assertGreaterEqual(min(counts[how] for how in (manifests.SCHEMA, manifests.CONDITION, manifests.PODS)), 30, counts)

        def silent():
            """{name: status} of the jobs that have not reported the expected reason yet."""
            items = self.cluster.api.get(JOBS)["items"]
            return {taken[i["metadata"]["name"]][0]: i.get("status", {}).get("message", "nothing") for i in items
                    if i["metadata"]["name"] in taken and not self.says(i, *taken[i["metadata"]["name"]][1:])}
        try:
            self.await_words("all to say why", 180, lambda: not silent())
        except TimeoutError:
            self.fail(json.dumps(silent(), indent=1))
        self.assertEqual(self.operator.metric("hvd_watch_unread_total"), 0)
        self.assertEqual(self.operator.metric("hvd_jobs_refused"), counts[manifests.CONDITION])
        # a valid job among them runs at once
        late = Job(self.cluster, "late", 1, cpu="100m")
        began = time.monotonic()
        self.await_words("a good one to run", 30, lambda: late.status().get("phase") == "Running")
        self.assertLess(time.monotonic() - began, 20)
        for name in [*taken, "late"]:
            self.cluster.api.delete(f"{JOBS}/{name}")
        self.await_words("all of them to be gone", 60, lambda: len(self.cluster.api.get(JOBS)["items"]) == 1)

    @staticmethod
    def says(job, how, want):
        status = job.get("status", {})
        valid = next((c for c in status.get("conditions", []) if c["type"] == "Valid"), {})
        if how == manifests.CONDITION:
            return valid.get("status") == "False" and want in valid["message"] and want in status["message"]
        ready = next((c for c in status.get("conditions", []) if c["type"] == "Ready"), {})
        refused = "the API server refuses a worker's pod" in ready.get("message", "")
        return want in ready.get("message", "") and refused == (how == manifests.PODS)

    def test_changes_that_cannot_be(self):
        for field, value, words in (("slotsPerWorker", 2, "slotsPerWorker cannot be changed"),
                                    ("keepPlaces", True, "keepPlaces"),
                                    ("gang", {"backend": "volcano"}, "gang.backend cannot be changed"),
                                    ("runPolicy", {"managedBy": "x/y"}, "managedBy cannot be changed"),
                                    ("workers", 3, "workers cannot be changed in a job without minWorkers"),
                                    ("template", {"spec": {"containers": []}}, "containers"),
                                    ("doctor", {"level": 9}, "level"), ("minWorkers", 5, "less than minWorkers")):
            with self.subTest(field), self.assertRaises(Refused) as refused:
                self.good.patch({field: value})
            self.assertEqual(refused.exception.code, 422)
            self.assertIn(words, str(refused.exception))
        container = self.good.get()["spec"]["template"]["spec"]["containers"][0]
        self.good.patch({"template": {"spec": {"containers": [{**container, "image": "another"}]}}})
        self.await_words("a word", 30, lambda: self.good.condition("Valid").get("reason") == "TemplateChanged")
        self.good.patch({"template": {"spec": {"containers": [container]}}})
        self.await_words("no word", 30, lambda: self.good.condition("Valid").get("status") == "True")

    # ---- objects of others

    def stranger(self, name, labels=None, owner=None):
        meta = {"name": name, "namespace": "default", "labels": labels or {}}
        if owner:
            meta["ownerReferences"] = [{**owner, "controller": True}]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta,
               "spec": {"containers": [{"name": "main", "image": "none"}], "terminationGracePeriodSeconds": 0}}
        return self.cluster.api.create(PODS, pod)["metadata"]["uid"]

    def test_pods_under_our_names(self):
        """Name conflicts: pods without owner, without owner but with our labels, of a ConfigMap with our labels, and of
        another HvdJob."""
        labels = {"hvd.dev/worker": "0", "hvd.dev/attempt": "0"}
        another = {"apiVersion": "hvd.dev/v1alpha1", "kind": "HvdJob", "name": "good", "uid": self.good.get()["metadata"]["uid"]}
        config = self.cluster.api.create("/api/v1/namespaces/default/configmaps",
                                         {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "holder"}})
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "holder", "uid": config["metadata"]["uid"]}
        cases = {"nobody": (None, None), "labelled": (labels, None), "owned": (labels, owner), "mixed": (labels, another)}
        uids = {}
        for name, (more, holder) in cases.items():
            uids[name] = self.stranger(f"{name}-0-0", {"hvd.dev/job": name, **more} if more else None, holder)
        jobs = [Job(self.cluster, name, 1, cpu="100m") for name in cases]
        for job in jobs:
            self.await_words(f"{job.name} to run", 60, lambda job=job: job.status().get("phase") == "Running")
            self.assertIn(f"{job.name}-0-1", job.running())
            self.assertEqual(job.status().get("restarts", 0), 0)
        for name, uid in uids.items():
            self.assertEqual(self.cluster.api.get(f"{PODS}/{name}-0-0")["metadata"]["uid"], uid)
            self.cluster.api.delete(f"{PODS}/{name}-0-0")
        for job in jobs:
            job.delete()
            job.wait_gone()

    def test_many_pods_under_our_names(self):
        """A gang of three runs though each of its workers' first two names is taken."""
        taken = [f"crowd-{worker}-{attempt}" for worker in range(3) for attempt in range(2)]
        for name in taken:
            self.stranger(name)
        job = Job(self.cluster, "crowd", 3, cpu="100m")
        self.await_words("it to run", 60, lambda: job.status().get("phase") == "Running")
        self.assertEqual(["crowd-0-2", "crowd-1-2", "crowd-2-2"], sorted(job.running()))
        job.delete()
        job.wait_gone()
        for name in taken:
            self.cluster.api.delete(f"{PODS}/{name}")

    def test_bytes_in_others_pods(self):
        """JSON that jansson cannot parse in an annotation of any pod must not stop the operator."""
        self.stranger("quiet")
        for number, value in enumerate(("\u0000", manifests.HOSTILE)):
            self.cluster.api.call("PATCH", f"{PODS}/quiet", {"metadata": {"annotations": {f"a{number}": value}}},
                                  kind="application/merge-patch+json")
        pod = sorted(self.good.running())[0]
        self.cluster.api.call("PATCH", f"{PODS}/{pod}", {"metadata": {"annotations": {"a": "\u0000"}}},
                              kind="application/merge-patch+json")
        job = Job(self.cluster, "after", 1, cpu="100m")
        self.await_words("a job after that to run", 30, lambda: job.status().get("phase") == "Running")
        self.assertEqual(self.operator.metric("hvd_watch_failures_total"), 0)
        job.delete()
        job.wait_gone()
        self.cluster.api.delete(f"{PODS}/quiet")

    # ---- requests from outsiders

    def token(self, pod, audience="hvd-operator"):
        meta = pod["metadata"]
        return self.cluster.api.create("/api/v1/namespaces/default/serviceaccounts/default/token", {
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": [audience], "expirationSeconds": 600,
                     "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}},
        })["status"]["token"]

    def test_tokens_and_bodies(self):
        pods = self.good.pods()
        first, second = (pods[name] for name in sorted(self.pids))
        path = f"/jobs/{self.good.get()['metadata']['uid']}/pods/{first['metadata']['uid']}/v1"
        other, kubelet = self.start_job("other", 1, 1000000, 20)
        self.wait("its agent", 60, other, kubelet, lambda: self.operator.metric("hvd_agents") == 3)
        theirs = other.pods()["other-0-0"]
        before = self.refused("token")
        for what, token in (("another pod's", self.token(second)), ("another job's", self.token(theirs)),
                            ("another audience's", self.token(first, "elsewhere"))):
            self.assertEqual(self.ask(f"{path}/status", token), 401, what)
        self.await_refused("token", before + 3)
        # a body that is too long, and one that is not JSON, with a valid token
        before, good = self.refused("body"), self.token(first)
        self.assertEqual(self.ask(f"{path}/status", good), 200)
        posts = post_too_much(self, f"{path}/report", good)
        self.assertEqual(self.ask(f"{path}/report", good, "POST", '{"agent": 7}'), 400)
        self.await_refused("body", before + 2, before + posts + 1)
        # the token of a finished job
        stolen, before = self.token(theirs), self.refused("pod")
        gone = f"/jobs/{other.get()['metadata']['uid']}/pods/{theirs['metadata']['uid']}/v1/status"
        other.delete()
        self.wait("its agent to go", 60, other, kubelet, lambda: self.operator.metric("hvd_agents") == 2)
        self.await_words("it to be refused", 30, lambda: self.ask(gone, stolen) == 404)
        wait_until("a refusal to be counted", 30, lambda: self.refused("pod") > before)


class Keys(agents.Case):
    """Rights for one namespace: agents use their job's key, from a Secret."""
    overlay, options = "namespaced", ("--namespace", SYSTEM)

    def key_of(self, job):
        path = f"/api/v1/namespaces/{SYSTEM}/secrets/hvd-key-{job.get()['metadata']['uid']}"
        return base64.b64decode(self.cluster.api.get(path)["data"]["token"]).decode()

    def test_keys(self):
        job, kubelet = self.start_job("good", 2, 1000000, 20, namespace=SYSTEM)
        self.wait("a world of two", 60, job, kubelet, lambda: 2 in self.worlds(kubelet))
        self.wait("its budget, with these rights", 30, job, kubelet, job.budget)
        short, kubelet2 = self.start_job("short", 1, 20, 20, namespace=SYSTEM)
        self.wait("its pod", 60, short, kubelet2, lambda: short.pods())
        key, uid = self.key_of(short), short.get()["metadata"]["uid"]
        pod = short.pods()["short-0-0"]["metadata"]["uid"]
        self.wait("its end", 60, short, kubelet2, lambda: kubelet.turn() and short.status().get("phase") == "Succeeded")
        mine = f"/jobs/{job.get()['metadata']['uid']}/pods/{job.pods()['good-0-0']['metadata']['uid']}/v1"
        before = self.refused("token"), self.refused("pod"), self.refused("body")
        self.assertEqual(self.ask(f"{mine}/status", key), 401)
        self.await_refused("token", before[0] + 1)
        join = json.dumps({"agent": f"{pod}.2", "host": "h", "version": "0", "slots": 1, "pid": 1})
        self.wait("the stolen key to open nothing", 30, job, kubelet,
                  lambda: self.ask(f"/jobs/{uid}/pods/{pod}/v1/join", key, "POST", join) == 404)
        wait_until("a refusal to be counted", 30, lambda: self.refused("pod") > before[1])
        posts = post_too_much(self, f"{mine}/report", self.key_of(job))
        self.await_refused("body", before[2] + posts)
        self.assertEqual((job.status()["phase"], job.status()["restarts"], self.operator.metric("hvd_agents")),
                         ("Running", 0, 2))

    def test_secret_that_is_somebodys(self):
        """A foreign Secret has the name of the job's: agents are refused, and the job says so."""
        job, kubelet = self.start_job("robbed", 1, 20, 20, namespace=SYSTEM, run={"suspend": True, "backoffLimit": 0})
        job.wait_phase("Suspended")
        self.cluster.api.create(f"/api/v1/namespaces/{SYSTEM}/secrets", {
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"hvd-key-{job.get()['metadata']['uid']}"},
            "stringData": {"token": "hvd-job-key:guessed"}})
        job.patch({"runPolicy": {"suspend": False}})
        self.wait("its end", 90, job, kubelet, lambda: job.status().get("phase") == "Failed")
        self.assertIn("refused this agent: HTTP 401", job.condition("Failed")["message"])
        wait_until("a refusal to be counted", 30, lambda: self.refused("token") > 0)

    def test_keys_of_the_operator_that_are_none(self):
        """A foreign Secret has the name of the operator's: /readyz says so; when it is deleted, the operator is ready."""
        path = f"/api/v1/namespaces/{SYSTEM}/secrets"
        wait_until("its keys", 30, lambda: self.operator.metric("hvd_leader") == 1)
        self.operator.stop()
        self.cluster.api.delete(f"{path}/hvd-operator-ca")
        self.cluster.api.create(path, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hvd-operator-ca"},
                                       "stringData": {"ca.crt": "x", "ca.key": "y", "secret": "z"}})
        self.operator = self.start_operator("agents-keyless")
        wait_until("a word about it", 30, lambda: "hvd-operator-ca" in self.operator.page("/readyz")[1])
        self.assertEqual(self.operator.page("/readyz")[0], 503)
        self.cluster.api.delete(f"{path}/hvd-operator-ca")
        wait_until("it to make its own", 90, lambda: self.operator.page("/readyz")[0] == 200)
        job = Job(self.cluster, "after", 1, namespace=SYSTEM)
        job.wait_phase("Running")
        job.delete()
        job.wait_gone()


if __name__ == "__main__":
    case.main("test_operator_input", agents.needs)
