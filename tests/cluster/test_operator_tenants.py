#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 160 s, waiting
# needs: kubernetes
"""hvd-operator where several tenants share a cluster, on a real control plane: quotas, refused pods, priorities and
preemption, probes, shares."""
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import case  # noqa: E402
import operators  # noqa: E402
from api import wait_until  # noqa: E402
from operators import Operator  # noqa: E402

NODES = 4   # of 8 processors each
SPREAD = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
    {"weight": 1, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}}]}}


def template(cpu="1", **spec):
    container = {"name": "main", "image": "none", "command": ["train"], "resources": {"requests": {"cpu": cpu}}}
    return {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1, **spec}}


class Tenants(operators.Installed):
    nodes = NODES

    def operator(self, *more):
        one = Operator(self.cluster, *more).start().wait_ready()
        self.addCleanup(self.end, one)
        return one

    def end(self, operator):
        self.delete_jobs()
        operator.stop()
        if os.environ.get("HVD_KEEP_LOG"):
            print(operator.tail(4000), file=sys.stderr)

    def namespace(self, name):
        try:
            self.cluster.kubectl("create", "namespace", name)
        except subprocess.CalledProcessError:
            pass   # of another test

    def says(self, job, words, seconds=60):
        try:
            wait_until(f"job {job.name} to say {words}", seconds, lambda: words in job.status().get("message", ""))
        except TimeoutError as error:
            raise TimeoutError(f"{error}; it says {job.status().get('message')}") from None

    def notes(self, job, reason):
        """The texts of all Events with this reason about the job."""
        items = self.cluster.api.get(f"/apis/events.k8s.io/v1/namespaces/{job.namespace}/events")["items"]
        return [e["note"] for e in items if e["regarding"].get("name") == job.name and e["reason"] == reason]

    def wait_note(self, job, reason, words):
        wait_until(f"an Event {reason} of {job.name} with {words}", 20,
                   lambda: any(words in note for note in self.notes(job, reason)))

    def quota(self, namespace, name, hard):
        self.cluster.kubectl("-n", namespace, "create", "quota", name, f"--hard={hard}")
        path = f"/api/v1/namespaces/{namespace}/resourcequotas/{name}"
        wait_until("the quota to count", 60, lambda: self.cluster.api.get(path).get("status", {}).get("used"))
        return path

    def webhook(self, namespace):
        """A webhook for the pods of that namespace, which is down: the API server answers 500."""
        path, name = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", "down"
        self.cluster.api.create(path, {
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": name},
            "webhooks": [{"name": "down.hvd.dev", "clientConfig": {"url": "https://127.0.0.1:1/"}, "sideEffects": "None",
                          "admissionReviewVersions": ["v1"], "failurePolicy": "Fail", "timeoutSeconds": 1,
                          "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                          "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
                                     "operations": ["CREATE"]}]}]})
        self.addCleanup(lambda: self.gone or self.cluster.api.delete(f"{path}/{name}"))
        self.gone = False
        return f"{path}/{name}"

    def test_webhook_that_is_down(self):
        """Dry runs without a verdict: the jobs say so, the operator does not spin, and other tenants' jobs run."""
        operator = self.operator()
        self.namespace("hooked")
        self.cluster.kubectl("label", "namespace", "hooked", "pod-security.kubernetes.io/enforce=restricted")
        refused = self.job("refused", namespace="hooked")
        self.says(refused, 'violates PodSecurity "restricted')
        path = self.webhook("hooked")
        down = self.job("down", namespace="hooked")
        self.says(down, "the API server cannot say whether it accepts a worker's pod: ")
        self.assertIn("failed calling webhook", down.status()["message"])
        self.job("free").wait_running(1)
        time.sleep(5)    # the refused job is asked again
        before = operator.metric("hvd_reconcile_seconds_count")
        time.sleep(3)
        self.assertLess(operator.metric("hvd_reconcile_seconds_count") - before, 100)
        self.cluster.kubectl("label", "namespace", "hooked", "pod-security.kubernetes.io/enforce-")
        self.cluster.api.delete(path)
        self.gone = True
        down.wait_running(1)
        refused.wait_running(1)

    def test_quotas_and_refusals(self):
        """A gang that quota, policy or a typing error keep from its pods holds nothing, and says why."""
        self.operator()
        for name in ("small", "strict"):
            self.namespace(name)
        self.cluster.kubectl("label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted")
        quota = self.quota("small", "few", "requests.cpu=20,pods=30")
        over = self.job("over", 4, cpu="6", namespace="small")
        strict = self.job("privileged", 4, cpu="6", namespace="strict")
        typo = self.job("typo", 4, template=template("6", terminationGracePeriod=1))
        self.says(over, "quota few: requests.cpu 24 asked, 20 of 20 left; the job can never start: its minWorkers ask for "
                        "24, and the quota allows at most 20")
        self.says(strict, 'violates PodSecurity "restricted')
        self.says(typo, 'unknown field "spec.terminationGracePeriod"')
        # Another one in the same namespace, and one that needs the whole cluster.
        small = self.job("inside", 2, cpu="6", namespace="small")
        small.wait_running(2)
        small.end_all()
        small.wait_phase("Succeeded")
        whole = self.job("whole", 4, cpu="8")
        whole.wait_running(4)
        for job in (over, strict, typo):
            self.assertEqual((job.pods(), job.status()["phase"]), ({}, "Queued"), job.name)
        whole.end_all()
        whole.wait_phase("Succeeded")
        self.cluster.api.call("PATCH", quota, {"spec": {"hard": {"requests.cpu": "30"}}},
                              kind="application/merge-patch+json")
        over.wait_running(4)

    def test_quota_that_comes_free(self):
        """Jobs of which not even one pod passes the quota are asked about again when it has room, not after a backoff."""
        self.operator()
        self.namespace("tight")
        self.quota("tight", "few", "requests.cpu=10")
        first = self.job("first", 2, cpu="4", namespace="tight")
        first.wait_running(2)
        later = [self.job(f"later{i}", 2, cpu="4", namespace="tight") for i in range(3)]
        for job in later:
            self.says(job, "quota few: requests.cpu 8 asked, 2 of 10 left")
            self.assertEqual(job.condition("Admitted")["reason"], "QuotaExceeded")
        time.sleep(17)   # refused dry runs are repeated after 5 s, 10 s, then 20 s
        first.delete()
        # The quota may be free for some milliseconds only.
        wait_until("the quota to be free", 30, lambda: [job for job in later if job.pods()] or self.cluster.api.get(
            "/api/v1/namespaces/tight/resourcequotas/few")["status"]["used"]["requests.cpu"] != "8")
        wait_until("one of the others to run", 6, lambda: [job for job in later if len(job.running()) == 2])
        for job in later:
            self.wait_note(job, "Queued", "quota few: requests.cpu 8 asked")
            self.assertNotIn("has not answered", " ".join(self.notes(job, "Queued")))

    def test_events_of_a_waiting_job(self):
        """Each Event names the reason at that time, also of a job that comes back to the queue."""
        self.operator()
        self.namespace("talks")
        path = self.quota("talks", "few", "pods=1")
        job = self.job("talks", NODES + 1, cpu="8", namespace="talks", gang={"probeSeconds": 0})
        self.wait_note(job, "Queued", "quota few: pods 5 asked, 1 of 1 left; the job can never start")
        self.cluster.api.call("PATCH", path, {"spec": {"hard": {"pods": "50"}}}, kind="application/merge-patch+json")
        wait_until("the reason NoRoom", 20, lambda: job.condition("Admitted")["reason"] == "NoRoom")
        wait_until("an Event without the quota", 20, lambda: [n for n in self.notes(job, "Queued") if "quota" not in n])
        job.patch({"runPolicy": {"suspend": True}})
        job.wait_phase("Suspended")
        job.patch({"runPolicy": {"suspend": False}})
        job.wait_phase("Queued")
        self.says(job, "4 of 5 workers fit now")
        for note in self.notes(job, "Queued"):
            self.assertRegex(note, "^4 of 5 workers fit now")

    def test_refused_after_admission(self):
        """A policy that the dry run does not meet: the room of the gang is free again at once, not after its time-out."""
        self.operator()
        for path, body in (
                ("validatingadmissionpolicies", {
                    "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "no-third"},
                    "spec": {"matchConstraints": {"resourceRules": [{
                        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]},
                        "validations": [{"expression": "!object.metadata.?name.orValue('').startsWith('third-2-')",
                                         "message": "no third worker"}]}}),
                ("validatingadmissionpolicybindings", {
                    "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "no-third"},
                    "spec": {"policyName": "no-third", "validationActions": ["Deny"]}})):
            root = f"/apis/admissionregistration.k8s.io/v1/{path}"
            self.cluster.api.create(root, {"apiVersion": "admissionregistration.k8s.io/v1", **body})
            self.addCleanup(self.cluster.api.delete, f"{root}/no-third")
        pods = "/api/v1/namespaces/default/pods?dryRun=All"
        wait_until("the policy", 60, lambda: self.refuses(pods, {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "third-2-x"}, **template()}))
        self.says(self.job("third", 4, cpu="8"), "no third worker")
        other = self.job("other", 4, cpu="8")
        other.wait_running(4)
        third = self.jobs[0]
        self.assertGreater(third.status()["refusals"], 0)
        self.assertIn("no third worker", third.status()["refusal"])

    def refuses(self, path, body):
        try:
            self.cluster.api.create(path, body)
            return False
        except operators.Refused:
            return True

    def priorities(self):
        for name, value in (("low", 1), ("high", 100)):
            try:
                self.cluster.api.create("/apis/scheduling.k8s.io/v1/priorityclasses", {
                    "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value})
            except operators.Refused:
                pass   # of another test

    def test_priority_and_preemption(self):
        """Elastic gangs shrink, then whole gangs go, and both come back when there is room again."""
        self.operator()
        self.priorities()
        elastic = self.job("elastic", 2, minWorkers=1, maxWorkers=2, template=template("8", priorityClassName="low"))
        fixed = self.job("fixed", 2, template=template("8", priorityClassName="low"))
        elastic.wait_running(2)
        fixed.wait_running(2)
        later = self.job("later", 1, cpu="8", gang={"probeSeconds": 0})
        self.says(later, "0 of 1 workers fit now")
        high = self.job("high", 1, template=template("8", priorityClassName="high"))
        high.wait_running(1)
        elastic.wait_running(1)
        self.assertEqual((elastic.status()["phase"], elastic.status()["failures"]), ("Running", 0))
        self.assertEqual(len(fixed.running()), 2)
        higher = self.job("higher", 2, template=template("8", priorityClassName="high"))
        higher.wait_running(2)
        self.says(fixed, "workers fit now")
        self.assertEqual((fixed.status()["preemptedBy"], fixed.status()["failures"]), ("default/higher", 0))
        self.assertEqual((len(elastic.running()), len(fixed.running()), later.status()["phase"]), (1, 0, "Queued"))
        for job in (high, higher):
            job.end_all()
            job.wait_phase("Succeeded")
        fixed.wait_running(2)   # `later` is younger, but of no priority: it is after the elastic one's growth
        self.assertNotIn("preemptedBy", fixed.wait_phase("Running"))

    def test_elastic_gang_gives_up_what_is_needed(self):
        """One worker of three beyond minWorkers, that on the node which the other gang can use."""
        self.operator()
        self.priorities()
        elastic = self.job("elastic", NODES, minWorkers=1, maxWorkers=NODES, template=template("8", priorityClassName="low"))
        elastic.wait_running(NODES)
        first = next(p for name, p in elastic.pods().items() if name.startswith("elastic-1-"))
        node = first["spec"]["nodeName"]
        high = self.job("high", 1, template=template("8", priorityClassName="high", nodeSelector={
            "kubernetes.io/hostname": node}))
        high.wait_running(1)
        self.assertEqual(len(elastic.running()), NODES - 1)
        self.wait_note(elastic, "Preempted", "gives up 1 worker to job default/high, which has a higher priority")
        self.assertNotIn(node, [p["spec"].get("nodeName") for p in elastic.pods(alive=True).values()])
        self.assertEqual((elastic.status()["failures"], elastic.status()["phase"]), (0, "Running"))
        self.assertNotIn("claimTime", high.wait_phase("Running"))

    def test_pod_that_does_not_end(self):
        """Its room counts as about to be free until 30 s after its deletionTimestamp. Then both jobs name it."""
        self.operator()
        self.priorities()
        low = self.job("low", NODES, template=template("8", priorityClassName="low"))
        low.wait_running(NODES)
        path, merge = f"{low.all_pods}/low-0-0", "application/merge-patch+json"
        self.cluster.api.call("PATCH", path, {"metadata": {"finalizers": ["example.com/stuck"]}}, kind=merge)
        self.addCleanup(self.loosen, path, merge)
        node = self.cluster.api.get(path)["spec"]["nodeName"]
        high = self.job("high", NODES, template=template("8", priorityClassName="high"), gang={"probeSeconds": 0})
        self.says(high, "its room is being made free: waits for workers of other jobs to end")
        named = f"low-0-0 on node {node} should have ended by "
        self.says(high, f"pod default/{named}")
        self.assertIn(f"{NODES - 1} of {NODES} workers fit now", high.status()["message"])
        self.says(low, f"pod {named}")
        self.assertIn("delete the Node if it is lost", low.status()["message"])
        self.loosen(path, merge)
        high.wait_running(NODES)

    def loosen(self, path, merge):
        try:
            self.cluster.api.call("PATCH", path, {"metadata": {"finalizers": None}}, kind=merge)
        except operators.Refused:
            pass   # it is gone

    def test_preemption_after_a_restart(self):
        """An operator that has not made the dry run of a running job judges the job by its pods."""
        first = self.operator()
        self.priorities()
        self.namespace("defaults")
        self.cluster.api.create("/api/v1/namespaces/defaults/limitranges", {
            "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "requests"},
            "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "8"}}]}})
        container = {"name": "main", "image": "none", "command": ["train"]}
        low = self.job("default-requests", NODES, namespace="defaults", template={
            "spec": {"containers": [container], "priorityClassName": "low", "terminationGracePeriodSeconds": 1}})
        low.wait_running(NODES)
        first.stop()
        self.operator()
        self.job("high", 1, template=template("8", priorityClassName="high")).wait_running(1)
        self.assertEqual(low.status()["preemptedBy"], "default/high")

    def test_nobody_is_preempted_for_a_gang_over_quota(self):
        self.operator()
        self.priorities()
        self.namespace("poor")
        self.quota("poor", "few", "pods=1")
        low = self.job("low", 4, template=template("8", priorityClassName="low"))
        low.wait_running(4)
        before = sorted(p["metadata"]["uid"] for p in low.pods().values())
        high = self.job("high", 2, namespace="poor", template=template("8", priorityClassName="high"))
        self.says(high, "quota few: pods 2 asked, 1 of 1 left")
        self.assertEqual(before, sorted(p["metadata"]["uid"] for p in low.pods(alive=True).values()))

    def test_probes_and_shares(self):
        """A gang in probe delays only its own namespace; a namespace gets no more than its share."""
        self.operator("--namespace-share", "50", "--gang-timeout-max", "600")
        for name in ("one", "two"):
            self.namespace(name)
        stuck = self.job("stuck", 1, namespace="one", template=template("1", affinity=SPREAD, nodeSelector={"no": "such"}),
                         gang={"probeSeconds": 1, "timeoutSeconds": 3600})
        stuck.wait_phase("Starting")
        behind = self.job("behind", 1, namespace="one", gang={"probeSeconds": 0}, template=template(
            "1", affinity=SPREAD, nodeSelector={"no": "such"}))
        self.says(behind, "0 of 1 workers fit now")
        beside = self.job("beside", 2, namespace="two", template=template("8", affinity=SPREAD))
        beside.wait_running(2)
        more = self.job("more", 1, namespace="two", cpu="4")
        self.says(more, "may hold 50 % of the cluster's cpu, and with this job those of two would hold more: 4 asked, 16 "
                        "held, 16 allowed")
        self.assertEqual(more.pods(), {})
        beside.end_all()
        more.wait_running(1)

    def test_one_tenant_with_many_jobs(self):
        """A single job of another namespace is next, however many older ones wait."""
        self.operator()
        for name in ("many", "single"):
            self.namespace(name)
        first = self.job("first", 4, cpu="8", namespace="many")
        first.wait_running(4)
        crowd = [self.job(f"crowd{i}", 4, cpu="8", namespace="many", gang={"probeSeconds": 0}) for i in range(20)]
        for job in crowd:
            self.says(job, "0 of 4 workers fit now")
        single = self.job("single", 4, cpu="8", namespace="single", gang={"probeSeconds": 0})
        self.says(single, "0 of 4 workers fit now")
        first.end_all()
        single.wait_running(4)
        self.assertEqual([job.status()["phase"] for job in crowd], ["Queued"] * 20)


def needs():
    operators.check_program()


if __name__ == "__main__":
    case.main("test_operator_tenants", needs)
