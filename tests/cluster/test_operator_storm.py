#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 290 s, waiting
# needs: kubernetes
"""hvd-operator behind a proxy that injects faults of networks and servers: each fault alone, counted by proxy and operator,
and all together during whole lives of jobs. HVD_SEED=n repeats one storm, HVD_SEED=n,m,... several.
timeout: 3000"""
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import case  # noqa: E402
import cluster as clusters  # noqa: E402
import operators  # noqa: E402
from api import wait_until  # noqa: E402
from faults import LONG_S, Only, Several, Storm  # noqa: E402
from operators import Job, Operator  # noqa: E402
from proxy import Proxy  # noqa: E402
from invariants import Invariants  # noqa: E402

FAST = ("--lease-duration", "6", "--lease-renew", "4", "--lease-retry", "1")
SEEDS = [int(word) for word in (os.environ.get("HVD_SEED") or "1").split(",")]
PATIENCE = 150    # a silent watch is noticed after 100 s
# Characters of two, three and four bytes, so that watches are also cut within a character.
NOTE = "größer, 訓練 und 🚂"


class Case(operators.Installed):
    nodes = 4

    def setUp(self):
        self.proxy = Proxy(self.cluster).start()
        self.addCleanup(self.proxy.stop)
        self.invariants = self.enterContext(Invariants(self.cluster))

    def start(self, *more, agents=None):
        self.operator = Operator(self.cluster, *FAST, *more, name=self._testMethodName, agents=agents,
                                 kubeconfig=self.proxy.kubeconfig).start()
        self.addCleanup(lambda: self.operator.alive() and self.operator.stop())
        if os.environ.get("HVD_KEEP_LOG"):
            self.addCleanup(lambda: print(self.operator.tail(4000), file=sys.stderr))
        return self.operator

    def job(self, name, workers, **more):
        job = Job(self.cluster, name, workers, **more)
        job.api.call("PATCH", job.path, {"metadata": {"annotations": {"note": NOTE}}}, kind="application/merge-patch+json")
        self.addCleanup(lambda: job.get() and job.delete())
        return job

    def until(self, what, question, seconds=PATIENCE):
        try:
            return wait_until(what, seconds, question)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\nmet {dict(self.proxy.met)}\n{self.operator.tail(80)}") from None

    def until_running(self, job, workers):
        self.until(f"{workers} workers of {job.name}",
                   lambda: len(job.running()) == workers and job.status().get("ready") == workers
                   and job.status().get("phase") == "Running")

    def counted(self, name, label=""):
        return self.operator.metric(name, label) or 0

    def end_well(self, job):
        """Finishes a job's pods, and waits until its TTL has deleted everything."""
        job.end_all()
        self.until(f"nothing of {job.name}", lambda: not job.get() and not job.pods())
        self.until("its success to be seen", lambda: "Succeeded" in self.invariants.phases[job.name])

    def check_story(self):
        self.assertTrue(self.operator.alive(), self.operator.tail())
        self.assertEqual(self.invariants.wrong, [], self.operator.tail(200))


class Each(Case):
    """One kind of fault at a time."""

    def live(self, name):
        """A short life with every kind of request: three workers, four, one fails, success, TTL."""
        job = self.job(name, 3, minWorkers=1, maxWorkers=5, run={"ttlSecondsAfterFinished": 0})
        self.until_running(job, 3)
        job.patch({"workers": 4})
        self.until_running(job, 4)
        job.end_pod(f"{name}-1-0", code=1)
        self.until("the failure's count", lambda: job.status().get("restarts") == 1)
        self.until_running(job, 4)
        status = job.status()
        self.assertEqual((status["failures"], status["restarts"], status["attemptsLeft"]), (1, 1, 5))
        self.end_well(job)
        self.assertEqual(self.invariants.pods_of(name), [f"{name}-0-0", f"{name}-1-0", f"{name}-1-1", f"{name}-2-0",
                                                      f"{name}-3-0"])
        # one gang was admitted and ran, once
        self.assertEqual(self.counted("hvd_gang_wait_seconds_count"), 1)
        self.assertEqual(self.counted("hvd_gang_start_seconds_count"), 1)
        self.check_story()

    def meet(self, kind, times, meant=lambda asked: True):
        """A life with that fault, which must have happened. Returns how often it happened."""
        self.proxy.plan = Only(kind, times, meant)
        self.start()
        self.live(kind.replace("_", "-"))
        self.assertGreater(self.proxy.met[kind], 0, dict(self.proxy.numbers))
        self.assertEqual(set(self.proxy.met), {kind})
        return self.proxy.met[kind]

    @staticmethod
    def of(*resources):
        return lambda asked: asked.resource in resources

    @staticmethod
    def watches(*resources):
        return lambda asked: asked.watch and asked.resource in resources

    # ---- responses

    def test_conflict(self):
        met = self.meet("conflict", 12, self.of("pods", "hvdjobs"))
        self.assertEqual(met, 12)
        self.assertEqual(self.counted("hvd_api_requests_total", 'code="409"'), met)

    def test_conflict_of_a_lease(self):
        """After repeated conflicts on the lease the operator retries at the pace of candidates, and leads in the end."""
        began = time.monotonic()
        met = self.meet("conflict", 6, self.of("leases"))
        self.assertEqual(met, 6)
        self.assertGreater(self.proxy.what[-1].at - began, 1.5)    # two pauses of a second, plus or minus a fifth

    def test_throttled(self):
        met = self.meet("throttled", 12)
        self.assertEqual(self.counted("hvd_api_throttled_total"), met)
        self.assertEqual(self.counted("hvd_api_requests_total", 'code="429"'), met)

    def test_error(self):
        met = self.meet("error", 25)
        self.assertEqual(self.counted("hvd_api_requests_total", 'code="500"'), met)

    def test_unavailable(self):
        met = self.meet("unavailable", 25)
        self.assertEqual(self.counted("hvd_api_requests_total", 'code="503"'), met)

    def test_lost(self):
        """The write is executed, but the response is lost."""
        self.meet("lost", 20, lambda asked: asked.write and asked.resource in ("pods", "hvdjobs"))

    def test_reset(self):
        self.meet("reset", 25)

    def test_slow(self):
        self.meet("slow", 8)

    # ---- watches

    def test_expired(self):
        """410 as the status of a watch: the cache is listed again."""
        met = self.meet("expired", 6, self.watches("pods", "hvdjobs", "nodes"))
        self.assertEqual(self.counted("hvd_watch_expired_total"), met)
        self.assertEqual(self.counted("hvd_api_requests_total", 'code="410"'), met)

    def test_expired_event(self):
        """410 as an event of a watch that began with 200."""
        met = self.meet("expired_event", 6, self.watches("pods", "hvdjobs"))
        self.assertEqual(self.counted("hvd_watch_expired_total"), met)

    def test_not_found(self):
        met = self.meet("not_found", 8, self.watches("pods", "hvdjobs"))
        self.assertEqual(self.counted("hvd_api_requests_total", 'code="404"'), met)
        self.assertGreaterEqual(self.counted("hvd_watch_failures_total"), met)

    def torn(self, kind):
        met = self.meet(kind, 8, self.watches("pods", "hvdjobs"))
        opened = sum(self.counted(f"hvd_watch_{name}_total") for name in ("restarts", "streams", "lists"))
        self.assertGreaterEqual(opened, met + 4)    # four caches

    def test_torn_line(self):
        self.torn("torn_line")

    def test_torn_utf8(self):
        self.torn("torn_utf8")

    def test_torn_bytes(self):
        self.torn("torn_bytes")

    def test_split(self):
        self.meet("split", 1000, self.watches("pods", "hvdjobs", "nodes"))

    def test_twice(self):
        self.meet("twice", 1000, self.watches("pods", "hvdjobs", "nodes"))


    def test_what_takes_long(self):
        """Retry-After longer than a request's time-out when a pod is created; and a silent watch of jobs, which is replaced
        after 100 s. (Storms also drop bookmarks.)"""
        self.proxy.plan = Several(
            Only("throttled_long", 1, lambda asked: asked.write and asked.resource == "pods"),
            Only("silent", 1, lambda asked: asked.resource == "hvdjobs" and "sendInitialEvents" in asked.query))
        self.start()
        job = self.job("long", 1, minWorkers=1, maxWorkers=2)
        self.until_running(job, 1)
        asked_for = next(met.at for met in self.proxy.what if met.fault == "throttled_long")
        self.assertGreater(self.proxy.last["POST", "pods"] - asked_for, LONG_S - 1)
        job.patch({"workers": 2})
        self.until_running(job, 2)
        self.until("the silence to be noticed", lambda: self.counted("hvd_watch_failures_total", 'cache="hvdjobs"') > 0)
        self.assertEqual((self.proxy.met["silent"], self.proxy.met["throttled_long"]), (1, 1))
        job.delete()
        job.wait_gone()
        self.check_story()


class Keys(Case):
    """Rights for one namespace: the operator's Secret and a job's."""
    overlay = "namespaced"

    def test_conflicts_of_secrets(self):
        """409 Conflict does not mean that the Secret exists: no pod is created before its job's Secret."""
        self.proxy.plan = Only("conflict", 6, lambda asked: asked.write and asked.resource == "secrets")
        port = clusters.free_port("127.0.0.1")
        self.start("--namespace", operators.SYSTEM, agents=("127.0.0.1", port))
        self.until("the operator's own", lambda: self.proxy.met["conflict"] == 6)
        self.proxy.plan = Only("conflict", 4, lambda asked: asked.write and asked.resource == "secrets")
        job = self.job("keyed", 1, namespace=operators.SYSTEM)
        self.until("a pod", job.pods)
        secrets = self.cluster.api.get(f"/api/v1/namespaces/{operators.SYSTEM}/secrets?labelSelector=hvd.dev%2Fjob%3Dkeyed")
        self.assertEqual(len(secrets["items"]), 1)
        self.assertEqual(self.proxy.met["conflict"], 10)
        self.check_story()


class Storms(Case):
    def live(self, job, name):
        """All events of a job's life."""
        self.until_running(job, 3)
        job.patch({"workers": 5})
        self.until_running(job, 5)
        job.patch({"workers": 2})
        self.until_running(job, 2)
        job.end_pod(f"{name}-0-0", code=1)
        self.until("a new worker", lambda: f"{name}-0-1" in job.running())
        self.until_running(job, 2)
        self.assertEqual(job.status()["failures"], 1)
        for _ in range(2):
            job.patch({"runPolicy": {"suspend": True}})
            self.until("no workers", lambda: job.status().get("phase") == "Suspended" and not job.pods(alive=True))
            job.patch({"runPolicy": {"suspend": False}})
            self.until_running(job, 2)
        self.assertEqual(job.status()["restarts"], 1)

    def storm(self, seed):
        self.proxy.plan = Storm(seed)
        self.start()
        name = f"storm{seed}"
        job = self.job(name, 3, minWorkers=1, maxWorkers=5, run={"ttlSecondsAfterFinished": 1})
        self.live(job, name)
        self.end_well(job)
        self.check_story()

    def test_whole_life(self):
        for seed in SEEDS:
            with self.subTest(seed):
                self.storm(seed)
                self.operator.stop()


def needs():
    operators.check_program()


if __name__ == "__main__":
    case.main("test_operator_storm", needs)
