#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 90 s, waiting
# needs: kubernetes
"""hvd-operator with faults around it: killed after each write, two operators, an API server that is down, rights for only
one namespace.
timeout: 3000"""
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import case  # noqa: E402
import operators  # noqa: E402
from api import Refused, wait_until  # noqa: E402
from operators import SYSTEM, Job, Operator  # noqa: E402

FAST = ("--lease-duration", "4", "--lease-renew", "3", "--lease-retry", "1")
LIVES_MAX = 80


class Faults(operators.Installed):
    nodes = 4

    def started(self, *more, **named):
        operator = Operator(self.cluster, *more, **named).start()
        self.addCleanup(lambda: operator.alive() and operator.kill())
        return operator

    def job(self, name, workers, **more):
        job = Job(self.cluster, name, workers, **more)
        self.addCleanup(lambda: job.get() and job.delete())
        return job

    def said(self, operator):
        """What it logs about the API server without -v."""
        return [line for line in operator.tail(10000).splitlines() if "warn: API server" in line]

    def lease(self):
        return self.cluster.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/hvd-operator")["spec"]


class Trouble(Faults):
    # ---- killed

    def live_until(self, what, done, *more):
        """Starts one operator after the other, each killed right after its first successful write, until done()."""
        lives = 0
        while not done():
            lives += 1
            self.assertLess(lives, LIVES_MAX, f"{what} has not come in {lives} lives")
            operator = self.started("--no-leader-election", *more, environment={"HVD_TEST_FAIL": "operator-wrote"})
            wait_until("the end of an operator, or of the work", 60, lambda: not operator.alive() or done(), 0.02)
            if operator.alive():
                operator.stop()
            else:
                self.assertEqual(operator.wait(), -signal.SIGKILL, operator.tail())
        return lives

    def test_killed_after_each_write(self):
        """A job's whole life: created, a worker fails, scaled up, scaled down, succeeded, deleted by its TTL. Nothing is
        counted twice, and no pod is created twice."""
        made = {}
        job = self.job("phoenix", 3, minWorkers=2, maxWorkers=5, run={"ttlSecondsAfterFinished": 1})

        def look():
            for name, pod in job.pods().items():
                self.assertEqual(made.setdefault(name, pod["metadata"]["uid"]), pod["metadata"]["uid"], name)
            return job.status()

        lives = self.live_until("running", lambda: look().get("phase") == "Running" and len(job.running()) == 3
                                and look().get("ready") == 3)
        self.assertGreater(lives, 4)   # status, three pods, status
        job.end_pod("phoenix-0-0", code=1)
        self.live_until("a new worker", lambda: look().get("ready") == 3 and "phoenix-0-1" in job.running())
        status = job.status()
        self.assertEqual((status["failures"], status["restarts"]), (1, 1))
        job.patch({"workers": 5})
        self.live_until("five workers", lambda: look().get("ready") == 5)
        job.patch({"workers": 2})
        self.live_until("two workers", lambda: look().get("ready") == 2 and len(job.pods(alive=True)) == 2)
        job.end_all()
        self.live_until("success", lambda: look().get("phase") in ("Succeeded", None))
        self.assertEqual(sorted(made), ["phoenix-0-0", "phoenix-0-1", "phoenix-1-0", "phoenix-2-0", "phoenix-3-0",
                                        "phoenix-4-0"])
        self.live_until("its end", lambda: not job.get())
        job.wait_gone()

    def test_killed_while_gangs_wait(self):
        """One gang fits: two never have nodes at the same time, at whatever write the operator is killed."""
        pair = [self.job(name, 3, cpu="6") for name in ("castor", "pollux")]

        def look():
            placed = [j.name for j in pair if any(p["spec"].get("nodeName") for p in j.pods(alive=True).values())]
            self.assertLess(len(placed), 2, placed)
            return [j for j in pair if j.status().get("phase") == "Running" and j.status().get("ready") == 3]

        self.live_until("one gang to run", look)
        first = look()[0]
        second = pair[1 - pair.index(first)]
        self.live_until("the other to wait", lambda: second.status().get("phase") == "Queued")
        self.assertEqual(second.pods(), {})
        first.end_all()
        self.live_until("the other to run", lambda: second.status().get("phase") == "Running")

    # ---- two operators

    def test_failover(self):
        """The leader is killed in the middle of its work: the other takes over when the lease expires, and no pod is
        created twice."""
        jobs = [self.job(f"over{i}", 2) for i in range(4)]
        pair = [self.started(*FAST, "--identity", name, name=name) for name in ("one", "two")]
        wait_until("a leader", 60, lambda: any(o.metric("hvd_leader") == 1 for o in pair))
        leader, other = sorted(pair, key=lambda o: o.metric("hvd_leader") != 1)
        wait_until("the other's metrics", 60, lambda: other.metric("hvd_leader") is not None)
        self.assertEqual(other.metric("hvd_leader"), 0)
        self.assertEqual(self.lease()["holderIdentity"], leader.name)
        jobs[0].wait_phase("Running")
        uids = {n: p["metadata"]["uid"] for j in jobs for n, p in j.pods().items()}
        term = self.lease()["leaseTransitions"]
        leader.kill()
        began = time.monotonic()
        last = self.job("after", 2)
        last.wait_phase("Running", 60)
        self.assertLess(time.monotonic() - began, 30)
        self.assertEqual(self.lease()["holderIdentity"], other.name)
        self.assertGreater(self.lease()["leaseTransitions"], term)
        for job in jobs:
            job.wait_phase("Running")
            self.assertEqual(len(job.pods()), 2)
            for name, pod in job.pods().items():
                self.assertEqual(uids.get(name, pod["metadata"]["uid"]), pod["metadata"]["uid"])
        self.assertEqual(other.metric("hvd_writes_total") > 0, True)

    def test_released_at_its_end(self):
        """SIGTERM: the other operator leads at once, without waiting for the lease to expire."""
        first = self.started("--identity", "first", name="first")   # with the default lease of 15 s
        wait_until("it to lead", 60, lambda: first.metric("hvd_leader") == 1)
        second = self.started("--identity", "second", name="second").wait_ready()
        self.assertEqual(second.metric("hvd_leader"), 0)
        began = time.monotonic()
        self.assertEqual(first.stop(), 0)
        wait_until("the other to lead", 10, lambda: second.metric("hvd_leader") == 1)
        self.assertLess(time.monotonic() - began, 8)

    def test_label_on_the_leaders_pod(self):
        """The leader's label, by which agents find it."""
        for name in ("pod-a", "pod-b"):
            self.cluster.api.create(f"/api/v1/namespaces/{SYSTEM}/pods", {
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                "spec": {"securityContext": {"runAsNonRoot": True, "runAsUser": 65532,
                                             "seccompProfile": {"type": "RuntimeDefault"}},
                         "containers": [{"name": "main", "image": "none",
                                         "securityContext": {"allowPrivilegeEscalation": False,
                                                             "capabilities": {"drop": ["ALL"]}}}]}})

        def label(name):
            pod = self.cluster.api.get(f"/api/v1/namespaces/{SYSTEM}/pods/{name}")
            return pod["metadata"].get("labels", {}).get("hvd.dev/leader")

        a = self.started(*FAST, name="pod-a", environment={"POD_NAME": "pod-a"})
        wait_until("its label", 60, lambda: label("pod-a") == "true")
        b = self.started(*FAST, name="pod-b", environment={"POD_NAME": "pod-b"}).wait_ready()
        self.assertIsNone(label("pod-b"))
        a.stop()
        wait_until("the other's label", 60, lambda: label("pod-b") == "true")
        self.assertIsNone(label("pod-a"))
        # killed, as with its node: the next leader removes the stale label, or else agents would dial both pods
        b.kill()
        self.assertEqual(label("pod-b"), "true")
        c = self.started(*FAST, name="pod-a2", environment={"POD_NAME": "pod-a"})
        wait_until("the next leader's label", 60, lambda: label("pod-a") == "true")
        wait_until("the stale label to go", 10, lambda: label("pod-b") is None)
        # killed and restarted in the same pod: the operator there removes the label itself
        self.cluster.api.call("PATCH", f"/api/v1/namespaces/{SYSTEM}/pods/pod-b",
                              {"metadata": {"labels": {"hvd.dev/leader": "true"}}}, kind="application/merge-patch+json")
        self.started("--lease", "hvd-operator", "--lease-duration", "60", "--lease-renew", "40", "--lease-retry", "20",
                     name="pod-b2", environment={"POD_NAME": "pod-b"})
        wait_until("the former leader's pod without", 60, lambda: label("pod-b") is None)
        self.assertEqual(label("pod-a"), "true")
        self.assertEqual(c.metric("hvd_leader"), 1)

    # ---- less rights

    def test_with_the_role_of_an_older_version(self):
        """It does not grant quotas, DaemonSets and namespaces: they do not count, and gangs still must fit."""
        newer = {"resourcequotas", "daemonsets", "namespaces"}
        path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/hvd-operator"
        rules = self.cluster.api.get(path)["rules"]
        less = [rule for rule in rules if not newer.intersection(rule["resources"])]
        self.assertEqual(len(less), len(rules) - len(newer))

        def grant(what):
            self.cluster.api.call("PATCH", path, {"rules": what}, kind="application/merge-patch+json")
        self.addCleanup(grant, rules)
        grant(less)
        account = ("--as", f"system:serviceaccount:{SYSTEM}:hvd-operator")
        for kind in newer:
            wait_until("the role", 30, lambda kind=kind: subprocess.run(
                [self.cluster.programs["kubectl"], "--kubeconfig", self.cluster.kubeconfig, "auth", "can-i", "list", kind,
                 "--all-namespaces", *account], capture_output=True, text=True, timeout=30, check=False).stdout.strip() == "no", 0.2)
        self.started("--no-leader-election").wait_ready()
        job = self.job("less", 2)
        job.wait_running(2)
        big = self.job("much", 9, cpu="7")
        wait_until("a word", 30, lambda: "of 9 workers fit now" in big.status().get("message", ""))
        job.delete()
        job.wait_gone()


    # ---- what it says when it cannot work

    def check_said(self, reason, **named):
        """One warning and /readyz name the reason. Returns the warning."""
        operator = self.started(**named)
        wait_until("a warning", 30, lambda: self.said(operator))
        (line,) = self.said(operator)
        self.assertIn(reason, line)
        code, page = operator.page("/readyz")
        self.assertEqual(code, 503)
        for what in (f"lease {SYSTEM}/hvd-operator: ", "hvdjobs: not read yet: ", "pods of jobs: not read yet: "):
            self.assertIn(what, page)
        self.assertIn(reason, page)
        self.assertEqual(operator.stop(), 0)
        return line

    def account(self, name, **changes):
        """A kubeconfig of the operator with another server or token."""
        path = operators.kubeconfig_of(self.cluster, self.cluster.path(name), server=changes.get("server"))
        if "token" in changes:
            with open(path, encoding="ascii") as f:
                config = json.load(f)
            config["users"][0]["user"]["token"] = changes["token"]
            with open(path, "w", encoding="ascii") as f:
                json.dump(config, f)
        return path

    def test_says_that_the_port_is_wrong(self):
        line = self.check_said("Connection refused", kubeconfig=self.account("port", server="https://127.0.0.1:1"))
        self.assertIn("https://127.0.0.1:1,", line)

    def test_says_that_its_token_is_invalid(self):
        self.check_said("401 Unauthorized", kubeconfig=self.account("token", token="nobody"))

    def test_says_that_it_has_no_rights(self):
        self.cluster.kubectl("create", "serviceaccount", "powerless")
        token = self.cluster.kubectl("create", "token", "powerless").strip()
        line = self.check_said('"system:serviceaccount:default:powerless" cannot', kubeconfig=self.account("rights", token=token))
        self.assertIn("403", line)


class Outage(Faults):
    """With a cluster of its own: garbage collector and scheduler come back about as long after the API server as it was
    away (measured: 61 s after a minute), since their watches back off."""

    def test_when_the_api_server_is_away(self):
        """The operator stops writing before its lease expires, keeps running, and continues afterwards."""
        operator = self.started(*FAST).wait_ready()
        job = self.job("survives", 2, minWorkers=1, maxWorkers=4)
        job.wait_phase("Running")
        job.wait_running(2)
        before = {name: p["metadata"]["uid"] for name, p in job.pods().items()}
        self.cluster.ask("stop kube-apiserver")
        wait_until("it to stop leading", 20, lambda: operator.metric("hvd_leader") == 0)
        self.assertEqual(operator.page("/healthz")[0], 200)
        # a restart of less than the lease's time is no reason; this is
        wait_until("it to be unready", 30, lambda: operator.page("/readyz")[0] == 503)
        self.assertIn("hvdjobs: Failed to connect", operator.page("/readyz")[1])
        wait_until("a word that it fails", 30, lambda: self.said(operator))    # the operator was unready a moment before
        self.cluster.ask("start kube-apiserver")
        wait_until("the API server", 120, lambda: self.answers("/readyz"))
        wait_until("it to lead again", 60, lambda: operator.metric("hvd_leader") == 1)
        operator.wait_ready(30)
        wait_until("a word that it works again", 120, lambda: any("works again" in line for line in self.said(operator)))
        began, ended = [[line for line in self.said(operator) if ("works again" in line) == end] for end in (False, True)]
        self.assertRegex(began[0], "Connection (refused|timed out)")   # the latter on a busy machine
        self.assertEqual((len([line for line in began if "refused" in line]), len(ended)), (1, 1), self.said(operator))
        job.wait_phase("Running")
        job.patch({"workers": 4})
        job.wait_running(4, 120)
        after = {name: p["metadata"]["uid"] for name, p in job.pods().items()}
        self.assertEqual(before, {name: uid for name, uid in after.items() if name in before})
        self.assertTrue(operator.alive())

    def answers(self, path):
        try:
            return self.cluster.api.get(path)
        except (OSError, Refused):
            return None


class Alone(Faults):
    """Rights for one namespace, without the right to list nodes."""
    overlay = "namespaced"

    def test_one_namespace(self):
        operator = self.started("--namespace", SYSTEM).wait_ready()
        other = self.job("elsewhere", 1)
        job = self.job("here", 2, namespace=SYSTEM)
        job.wait_phase("Running")
        job.wait_running(2)
        # The operator cannot know that this gang does not fit: it admits it, and rolls it back after the time-out.
        big = self.job("big", 2, cpu="9", namespace=SYSTEM, gang={"timeoutSeconds": 3})
        big.wait_phase("Starting")
        wait_until("a roll-back", 60, lambda: big.status().get("rollbacks", 0) > 0)
        self.assertEqual(other.status(), {})
        for word in ("403", "401"):
            self.assertEqual([line for line in operator.page("/metrics")[1].splitlines() if f'code="{word}"' in line],
                             [])


def needs():
    operators.check_program()


if __name__ == "__main__":
    case.main("test_operator_faults", needs)
