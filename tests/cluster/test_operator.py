#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 50 s, waiting
# needs: kubernetes
"""hvd-operator on a real control plane, with exactly the rights of k8s/overlays/cluster: the life of a job.
timeout: 3000"""
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import case  # noqa: E402
import operators  # noqa: E402
from api import Refused, wait_until  # noqa: E402
from operators import SYSTEM  # noqa: E402


class Life(operators.Operated):
    nodes = 4   # of 8 processors each

    @staticmethod
    def uids(job):
        return [p["metadata"]["uid"] for p in job.pods().values()]

    # ---- ends

    def test_succeeds(self):
        job = self.job("succeeds", 3)
        job.wait_phase("Running")
        self.assertEqual(sorted(job.pods()), ["succeeds-0-0", "succeeds-1-0", "succeeds-2-0"])
        for pod in job.pods().values():
            owner = pod["metadata"]["ownerReferences"][0]
            self.assertEqual((owner["kind"], owner["name"], owner["controller"]), ("HvdJob", "succeeds", True))
        wait_until("ready 3", 30, lambda: job.status().get("ready") == 3)
        self.assertEqual(job.condition("Ready")["status"], "True")
        self.assertEqual(job.status()["observedGeneration"], job.get()["metadata"]["generation"])
        job.end_all()
        status = job.wait_phase("Succeeded")
        self.assertEqual(job.condition("Complete")["status"], "True")
        self.assertIn("completionTime", status)
        self.assertEqual(len(job.pods()), 3)   # their logs stay

    def test_fails_when_attempts_are_used_up(self):
        job = self.job("fails", 2, run={"backoffLimit": 1})
        job.wait_phase("Running")
        job.end_pod("fails-1-0", code=3)
        wait_until("the new workers", 60, lambda: len(job.running()) == 2 and "fails-1-0" not in job.running())
        self.assertEqual(job.status()["failures"], 1)
        self.assertEqual(job.status()["attemptsLeft"], 0)
        job.wait_phase("Running")
        job.end_pod(job.running()[0], code=4)
        status = job.wait_phase("Failed")
        first = status["firstFailure"]
        self.assertEqual((first["pod"], first["worker"], first["exitCode"]), ("fails-1-0", 1, 3))
        self.assertEqual(job.condition("Failed")["reason"], "BackoffLimitExceeded")
        wait_until("nothing to run any more", 60, lambda: not job.pods(alive=True))

    def test_rules_decide(self):
        """An exit code that the job ignores, and one that fails the job while attempts are left."""
        rules = [{"name": "node", "action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}},
                 {"name": "bug", "action": "FailJob", "onExitCodes": {"operator": "In", "values": [43]}}]
        job = self.job("ruled", 2, minWorkers=1, maxWorkers=2, run={"backoffLimit": 0, "failurePolicy": {"rules": rules}})
        job.wait_running(2)
        job.end_pod("ruled-1-0", code=42)
        wait_until("the new worker", 60, lambda: "ruled-1-1" in job.running())
        status = job.status()
        self.assertEqual((status["failures"], status["failureRule"]["name"]), (0, "node"))
        job.end_pod("ruled-0-0", code=43)
        status = job.wait_phase("Failed")
        self.assertEqual((status["failureRule"]["name"], status["failureRule"]["pod"]), ("bug", "ruled-0-0"))
        self.assertEqual(job.condition("Failed")["reason"], "FailurePolicy")
        self.assertIn('failed by the rule "bug" of runPolicy.failurePolicy: pod ruled-0-0: exit code 43 of container main',
                      status["message"])

    def test_out_of_memory_is_named(self):
        job = self.job("oom", 1, run={"backoffLimit": 0})
        job.wait_phase("Running")
        job.end_pod("oom-0-0", code=137, reason="OOMKilled")
        status = job.wait_phase("Failed")
        self.assertEqual((status["firstFailure"]["reason"], status["firstFailure"]["exitCode"]), ("OOMKilled", 137))
        self.assertIn("OOMKilled", status["message"])

    def test_deadline(self):
        job = self.job("deadline", 1)
        job.wait_phase("Running")
        job.patch({"runPolicy": {"activeDeadlineSeconds": 1}})    # set later, or the deadline might pass before it runs
        job.wait_phase("Failed")
        self.assertEqual(job.condition("Failed")["reason"], "DeadlineExceeded")
        wait_until("its pod to be gone", 60, lambda: not job.pods(alive=True))

    def test_deleted_after_its_time(self):
        job = self.job("ttl", 1, run={"ttlSecondsAfterFinished": 2})
        job.wait_phase("Running")
        job.end_all()
        job.wait_gone()

    # ---- what an administrator reads

    def said(self, job, reason):
        """The notes of all Events of that reason about the job."""
        items = self.cluster.api.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
        return sorted(e["note"] for e in items if e["regarding"].get("name") == job.name and e["reason"] == reason)

    def hold(self, job, name, finalizers):
        self.cluster.api.call("PATCH", f"{job.all_pods}/{name}", {"metadata": {"finalizers": finalizers}},
                              kind="application/merge-patch+json")

    def test_losses_have_events(self):
        job = self.job("told", 3, minWorkers=1, maxWorkers=3, run={"backoffLimit": 5})
        job.wait_running(3)
        job.end_pod("told-1-0", code=3)
        wait_until("worker 1's next pod", 60, lambda: "told-1-1" in job.running())
        failed = wait_until("the Event", 30, lambda: self.said(job, "WorkerFailed"))
        self.assertEqual(len(failed), 1)
        self.assertRegex(failed[0], r"^worker 1 \(pod told-1-0, node [^)]+\): Error, exit code 3; 4 of 5 attempts left$")
        wait_until("an eviction to be allowed", 30, lambda: ((job.budget() or {}).get("status", {})).get("disruptionsAllowed"))
        self.hold(job, "told-1-1", ["example.com/grace"])   # a real kubelet takes some seconds to end a pod
        job.evict("told-1-1")
        lost = wait_until("the Event", 30, lambda: self.said(job, "WorkerLost"))
        self.assertRegex(lost[0], r"^worker 1 \(pod told-1-1, node [^)]+\): EvictionByEvictionAPI; no attempt is used up$")
        self.hold(job, "told-1-1", None)
        self.assertEqual((job.status()["gangRestarts"], job.status()["failures"]), (0, 1))

    def test_refusals_have_events_and_log_lines(self):
        job = self.job("changed", 2)
        job.wait_phase("Running")
        template = job.get()["spec"]["template"]
        template["spec"]["nodeName"] = "nosuch"
        job.patch({"template": template})
        self.assertIn("kubernetes.io/hostname", wait_until("an Event", 30, lambda: self.said(job, "InvalidSpec"))[0])
        template["spec"]["nodeName"] = None
        template["spec"]["containers"][0]["command"] = ["other"]
        job.patch({"template": template})
        self.assertIn("is not applied", wait_until("an Event", 30, lambda: self.said(job, "TemplateChanged"))[0])
        wait_until("the message", 30, lambda: "2 of 2 workers run; the change of spec.template" in job.status()["message"])
        job.patch({"runPolicy": {"suspend": True}})
        job.wait_phase("Suspended")
        job.patch({"runPolicy": {"suspend": False}})
        job.wait_phase("Running")
        self.assertEqual((job.status()["gangRestarts"], job.status()["restarts"]), (1, 0))
        with open(self.operator.log, encoding="utf-8") as log:
            lines = [line for line in log if "info: job default/changed: " in line]
        for words in ("-> Running: 2 of 2 workers run", "InvalidSpec: spec.template.spec.nodeName", "TemplateChanged: ",
                      "Running -> Suspended: suspended", "Suspended -> Queued: "):
            self.assertTrue(any(words in line for line in lines), (words, lines))

    # ---- labels that somebody changes

    def relabel(self, of, name, **labels):
        changed = {f"hvd.dev/{key}": value for key, value in labels.items()}
        self.cluster.api.call("PATCH", of.all_pods + f"/{name}", {"metadata": {"labels": changed}},
                              kind="application/merge-patch+json")

    def test_worker_that_lost_its_labels_is_replaced(self):
        job = self.job("strayed", 3, minWorkers=1, maxWorkers=4)
        job.wait_running(3)
        cases = {"strayed-2-0": {"job": None}, "strayed-1-0": {"worker": "2"}, "strayed-0-0": {"job": "other"}}
        for number, (name, labels) in enumerate(cases.items()):
            uid = job.look(f"{job.all_pods}/{name}")["metadata"]["uid"]
            self.relabel(job, name, **labels)
            wait_until(f"a pod instead of {name}", 60, lambda name=name: name[:-1] + "1" in job.running())
            wait_until(f"{name} to be gone", 60, lambda name=name, uid=uid: (
                (job.look(f"{job.all_pods}/{name}") or {"metadata": {"uid": ""}})["metadata"]["uid"] != uid))
            self.assertEqual((job.status()["restarts"], job.status()["failures"]), (number + 1, 0))
        job.wait_running(3)
        writes = self.operator.metric("hvd_writes_total")
        time.sleep(3)
        self.assertLess(self.operator.metric("hvd_writes_total") - writes, 4)   # no loop
        self.assertEqual(sorted(job.running()), ["strayed-0-1", "strayed-1-1", "strayed-2-1"])

    def test_gang_with_a_lost_label_starts_again(self):
        """The new pods have other names, so only the cache of other pods shows the strayed one."""
        job = self.job("gang-strayed", 2)
        job.wait_phase("Running")   # while it is Starting, only the strayed worker would be replaced
        self.relabel(job, "gang-strayed-1-0", job=None)
        wait_until("both to run under new names", 60,
                   lambda: len(job.running()) == 2 and not any(name.endswith("-0") for name in job.running()))
        wait_until("the strayed pod to be gone", 60, lambda: job.look(f"{job.all_pods}/gang-strayed-1-0") is None)

    # ---- losses of an elastic job

    def test_elastic_worker_is_replaced(self):
        job = self.job("elastic", 3, minWorkers=2, maxWorkers=6)
        job.wait_running(3)
        before = {name: p["metadata"]["uid"] for name, p in job.pods().items()}
        job.end_pod("elastic-1-0", code=1)
        wait_until("worker 1 at its second attempt", 60, lambda: "elastic-1-1" in job.running())
        after = {name: p["metadata"]["uid"] for name, p in job.pods(alive=True).items()}
        for name in ("elastic-0-0", "elastic-2-0"):
            self.assertEqual(before[name], after[name])
        self.assertEqual(job.status()["restarts"], 1)

    def test_evicted_worker_costs_no_attempt(self):
        job = self.job("evicted", 2, minWorkers=1, maxWorkers=2)
        job.wait_running(2)
        job.wait_evictions(1)
        before = job.pods()["evicted-0-0"]["metadata"]["uid"]
        job.evict("evicted-0-0")
        wait_until("two workers again", 60, lambda: len(job.running()) == 2 and before not in self.uids(job))
        wait_until("its status", 30, lambda: job.status().get("ready") == 2)
        self.assertEqual(job.status().get("failures"), 0)
        self.assertEqual(job.status()["attemptsLeft"], 6)

    # ---- evictions

    def test_budget_of_an_elastic_job(self):
        """At minWorkers no training worker can be evicted; above that one can, and the job trains on."""
        job = self.job("bears", 2, minWorkers=2, maxWorkers=4)
        job.wait_running(2)
        job.wait_evictions(0)
        spec = job.budget()["spec"]
        self.assertEqual((spec["minAvailable"], spec["unhealthyPodEvictionPolicy"]), (2, "AlwaysAllow"))
        self.assertNotIn("maxUnavailable", spec)
        owner = job.budget()["metadata"]["ownerReferences"][0]
        self.assertEqual((owner["kind"], owner["name"], owner["controller"]), ("HvdJob", "bears", True))
        with self.assertRaises(Refused) as refused:
            job.evict("bears-0-0")
        self.assertEqual(refused.exception.code, 429)
        job.patch({"workers": 3})
        job.wait_running(3)
        job.wait_evictions(1)
        before = job.pods()["bears-0-0"]["metadata"]["uid"]
        job.evict("bears-0-0")
        wait_until("its replacement", 60, lambda: len(job.running()) == 3 and before not in self.uids(job))
        self.assertEqual(job.status()["failures"], 0)

    def test_budget_of_a_fixed_job(self):
        """One worker at a time can be evicted; one that is not ready always can."""
        job = self.job("stiff", 2)
        job.wait_running(2)
        job.wait_evictions(1)
        spec = job.budget()["spec"]
        self.assertEqual((spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"]), (1, "AlwaysAllow"))
        self.assertNotIn("minAvailable", spec)
        self.cluster.api.call("PATCH", f"{job.all_pods}/stiff-1-0/status", {"status": {"conditions": [
            {"type": "Ready", "status": "False"}]}}, kind="application/strategic-merge-patch+json")
        job.wait_evictions(0)
        with self.assertRaises(Refused) as refused:
            job.evict("stiff-0-0")
        self.assertEqual(refused.exception.code, 429)
        job.evict("stiff-1-0")

    def test_budget_follows_the_job(self):
        job = self.job("follows", 3, minWorkers=2, maxWorkers=4)
        wait_until("its budget", 60, job.budget)
        job.patch({"minWorkers": 1})
        wait_until("minAvailable 1", 30, lambda: job.budget()["spec"].get("minAvailable") == 1)
        job.patch({"minWorkers": 3, "maxWorkers": 3})
        wait_until("maxUnavailable 1", 30, lambda: job.budget()["spec"].get("maxUnavailable") == 1)
        self.assertNotIn("minAvailable", job.budget()["spec"])
        before = job.budget()["metadata"]["uid"]
        self.cluster.api.delete(job.budget_path)
        wait_until("another one", 30, lambda: job.budget() and job.budget()["metadata"]["uid"] != before)
        job.delete()
        job.wait_gone()
        wait_until("its budget to be gone", 60, lambda: not job.budget())

    def test_budget_that_is_somebodys(self):
        """Another object has the budget's name: the job trains without one, says so, and leaves the object alone."""
        theirs = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                  "metadata": {"name": "borrowed", "namespace": "default"},
                  "spec": {"maxUnavailable": "10%", "selector": {"matchLabels": {"app": "other"}}}}
        path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        self.cluster.api.create(path, theirs)
        job = self.job("borrowed", 2)
        job.wait_running(2)
        wait_until("a word about it", 60, lambda: "PodDisruptionBudget" in job.status()["message"])
        self.assertIn("already exists", job.status()["message"])
        self.assertEqual(job.budget()["spec"]["selector"], theirs["spec"]["selector"])
        self.assertNotIn("ownerReferences", job.budget()["metadata"])
        job.end_all()
        job.wait_phase("Succeeded")
        self.cluster.api.delete(f"{path}/borrowed")

    # ---- changes by users

    def test_suspended_and_resumed_twice(self):
        job = self.job("pause", 2)
        for _ in range(2):
            job.wait_phase("Running")
            job.patch({"runPolicy": {"suspend": True}})
            job.wait_phase("Suspended")
            self.assertEqual(job.condition("Suspended")["status"], "True")
            wait_until("no workers", 60, lambda: not job.pods(alive=True))
            job.patch({"runPolicy": {"suspend": False}})
        job.wait_phase("Running")
        job.wait_running(2)
        self.assertEqual(job.condition("Suspended")["status"], "False")

    def test_scaled_both_ways(self):
        job = self.job("scale", 2, minWorkers=1, maxWorkers=6)
        job.wait_running(2)
        stay = {name: p["metadata"]["uid"] for name, p in job.pods().items()}
        self.cluster.kubectl("scale", "hvdjob/scale", "--replicas=5")
        job.wait_running(5)
        wait_until("status.workers", 30, lambda: job.status().get("workers") == 5)
        self.cluster.kubectl("scale", "hvdjob/scale", "--replicas=2")
        job.wait_running(2)
        self.assertEqual(stay, {name: p["metadata"]["uid"] for name, p in job.pods(alive=True).items()})
        scale = self.cluster.api.get(job.path + "/scale")
        self.assertEqual(scale["status"]["selector"], "hvd.dev/job=scale")
        with self.assertRaises(subprocess.CalledProcessError):
            self.cluster.kubectl("scale", "hvdjob/scale", "--replicas=7")

    # ---- interference by others

    def test_quota(self):
        self.cluster.kubectl("create", "namespace", "small")
        self.cluster.kubectl("-n", "small", "create", "quota", "few", "--hard=pods=1")
        job = self.job("quota", 2, namespace="small")
        wait_until("the quota's word", 60, lambda: "quota few: pods 2 asked, 1 of 1 left" in job.status().get("message", ""))
        self.cluster.kubectl("-n", "small", "delete", "quota", "few")
        job.wait_phase("Running", 120)
        self.assertNotIn("quota", job.status()["message"])

    def test_template_that_the_server_refuses(self):
        container = {"name": "main", "image": "none", "command": ["x"], "imagePullPolicy": "Sometimes"}
        job = self.job("malformed", 1, template={"spec": {"containers": [container]}})
        wait_until("the server's word", 60, lambda: "imagePullPolicy" in job.status().get("message", ""))

    def test_managed_by_another(self):
        job = self.job("theirs", 1, run={"managedBy": "kueue.x-k8s.io/multikueue"})
        job2 = self.job("mine", 1)
        job2.wait_phase("Running")
        self.assertEqual((job.status(), job.pods()), ({}, {}))

    def lose(self, job, times):
        """Loses a running worker n times. After the n-th loss the job pauses for 2^(n - 1) s, minus up to 1 s since pods have
        whole seconds; after three losses that is long enough to observe."""
        for number in range(1, times + 1):
            job.end_pod(sorted(job.running())[0], code=1)
            if number < times:
                wait_until("the loss to be counted", 60, lambda: job.status().get("failures") == number)
                job.wait_phase("Running")
                job.wait_running(2)

    def test_deletion_in_every_phase(self):
        """Deleting a job in any phase leaves nothing behind."""
        for phase, more in (("Queued", {"cpu": "9", "gang": {"probeSeconds": 0}}),
                            ("Starting", {"cpu": "9", "gang": {"probeSeconds": 1}}),
                            ("Running", {}), ("Suspended", {"run": {"suspend": True}}),
                            ("Waiting", {"minWorkers": 2, "maxWorkers": 3}), ("Restarting", {}),
                            ("Completing", {}), ("Succeeded", {}), ("Failed", {"run": {"backoffLimit": 0}})):
            with self.subTest(phase):
                job = self.job("gone-" + phase.lower(), 2, **more)
                if phase in ("Waiting", "Restarting", "Completing", "Succeeded", "Failed"):
                    job.wait_phase("Running")
                    job.wait_running(2)
                    if phase in ("Completing", "Succeeded"):
                        job.end_pod(sorted(job.running())[0])
                    else:
                        self.lose(job, 3 if phase in ("Waiting", "Restarting") else 1)
                    if phase == "Succeeded":
                        job.end_all()
                job.wait_phase(phase)
                job.delete()
                job.wait_gone()

    # ---- messages, Events, metrics

    def test_events(self):
        job = self.job("talks", 1, run={"backoffLimit": 0})
        job.wait_phase("Running")
        job.end_pod("talks-0-0", code=5)
        job.wait_phase("Failed")
        wait_until("Events of its start and its failure", 30, lambda: {"Running", "Failed"} <= set(job.events()))
        reasons = job.events()
        self.assertEqual(reasons["Failed"]["type"], "Warning")
        self.assertIn("exit code 5", reasons["Failed"]["note"])
        self.assertLessEqual(max(len(e["note"]) for e in reasons.values()), 1024)

    def test_pages(self):
        job = self.job("counted", 1)
        job.wait_phase("Running")
        self.assertEqual(self.operator.page("/healthz"), (200, "ok\n"))
        self.assertEqual(self.operator.page("/readyz")[0], 200)
        self.assertEqual(self.operator.page("/elsewhere")[0], 404)
        status, text = self.operator.page("/metrics")
        self.assertEqual(status, 200)
        self.assertIn('hvd_jobs{phase="Running"} ', text)
        self.assertIn('hvd_api_requests_total{method="POST",code="201"}', text)
        self.assertIn("hvd_leader 1\n", text)
        for name in ("hvd_gang_wait_seconds_count", "hvd_gang_start_seconds_count", "hvd_reconcile_seconds_count",
                     "hvd_writes_total"):
            self.assertGreater(self.operator.metric(name), 0, name)

    def writes_in(self, seconds):
        before = self.operator.metric("hvd_writes_total")
        time.sleep(seconds)
        return self.operator.metric("hvd_writes_total") - before

    def test_quiet_when_nothing_happens(self):
        """Without changes the operator writes nothing and reconciles nothing."""
        job = self.job("still", 2)
        job.wait_phase("Running")
        wait_until("ready 2", 30, lambda: job.status().get("ready") == 2)

        def state():
            return job.get()["metadata"]["resourceVersion"], self.operator.metric("hvd_looks_total")

        def still():
            version, looks = state()
            quiet = self.writes_in(3) == 0
            version_now, looks_now = state()
            return quiet and version_now == version and looks_now - looks < 20

        # Events, budgets and jobs of other tests may need a while.
        wait_until("three seconds without a write and with fewer than 20 looks", 60, still)

    def test_monitoring(self):
        """The ServiceMonitor selects the operator's Service and one of its ports."""
        text = self.cluster.kubectl("kustomize", os.path.join(operators.ROOT, "k8s", "monitoring"))
        self.assertEqual(re.findall(r"^kind: (\w+)$", text, re.M), ["ConfigMap", "ServiceMonitor"])
        (port,), (name,) = (re.findall(pattern, text.split("ServiceMonitor")[1], re.M)
                            for pattern in (r"^    port: (\w+)$", r"app.kubernetes.io/name: ([\w-]+)$"))
        services = self.cluster.kubectl("get", "services", "-n", SYSTEM, "-l", f"app.kubernetes.io/name={name}",
                                        "-o", "jsonpath={.items[*].spec.ports[*].name}")
        self.assertIn(port, services.split())

    def test_rights(self):
        """What the operator's account may do, and what it may not."""
        account = f"--as=system:serviceaccount:{SYSTEM}:hvd-operator"

        def may(*what):
            try:
                return self.cluster.kubectl("auth", "can-i", *what, account, "-n", "default").strip() == "yes"
            except subprocess.CalledProcessError:   # "no" is exit code 1
                return False

        for what in (("create", "pods"), ("delete", "pods"), ("list", "nodes"), ("update", "hvdjobs", "--subresource=status"),
                     ("create", "poddisruptionbudgets.policy"), ("patch", "poddisruptionbudgets.policy")):
            self.assertTrue(may(*what), what)
        for what in (("create", "pods", "--subresource=exec"), ("list", "secrets"), ("watch", "secrets"), ("get", "secrets"),
                     ("create", "clusterroles"), ("update", "hvdjobs"), ("create", "hvdjobs"), ("delete", "nodes"),
                     ("update", "nodes"), ("*", "*"), ("escalate", "roles"), ("impersonate", "users"), ("delete", "poddisruptionbudgets.policy"),
                     ("create", "pods", "--subresource=eviction")):
            self.assertFalse(may(*what), what)


def needs():
    operators.check_program()


if __name__ == "__main__":
    case.main("test_operator", needs)
