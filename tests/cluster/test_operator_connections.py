#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 120 s, waiting
# needs: kubernetes
"""hvd-operator's HTTP/2 connections to the API server: half-open ones, and ones that the server keeps closing with GOAWAY.
timeout: 1200"""
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import case  # noqa: E402
import operators  # noqa: E402
from api import wait_until  # noqa: E402
from operators import Job, Operator  # noqa: E402
from relay import Relay  # noqa: E402
from invariants import Invariants  # noqa: E402

SILENT_S = 100      # a watch without even a bookmark fails after that
PATIENCE_S = SILENT_S + 40
JOBS, ROUNDS, ENDED = 12, 20, 4     # jobs in a round; most rounds; connections that must be closed


class Connections(operators.Installed):
    nodes = 4
    # one request in fifty closes its connection: the API server's maximum
    options_of_cluster = {"more": {"kube-apiserver": ["--goaway-chance=0.02"]}}

    def setUp(self):
        self.relay = self.enterContext(Relay(self.cluster.ready["server"]))
        self.invariants = self.enterContext(Invariants(self.cluster))
        path = operators.kubeconfig_of(self.cluster, self.cluster.path(f"relay-{self.relay.port}.kubeconfig"),
                                       server=self.relay.address)
        self.operator = Operator(self.cluster, name=self._testMethodName, kubeconfig=path).start()
        self.addCleanup(lambda: self.operator.alive() and self.operator.stop())
        wait_until("it to lead", 60, lambda: self.operator.metric("hvd_leader") == 1)

    def job(self, name, workers, **more):
        job = Job(self.cluster, name, workers, **more)
        self.addCleanup(lambda: job.get() and job.delete())
        return job

    def test_half_open(self):
        """All connections become half-open at once. The operator keeps leading over new ones, and its caches recover when
        their watches have been silent for SILENT_S."""
        job = self.job("frozen", 2, minWorkers=1, maxWorkers=4)
        job.wait_running(2)
        term = self.invariants.transitions()
        # the server may just have closed the lease's connection, or that of the watches
        wait_until("both of its connections", 60, lambda: len(self.relay.work()) >= 2)
        self.relay.freeze()
        job.patch({"workers": 4})
        began = time.monotonic()
        try:
            job.wait_running(4, PATIENCE_S)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.operator.tail()}") from None
        self.assertGreater(time.monotonic() - began, 5)    # the connections really were half-open
        # on a machine so busy that no new connection is accepted for 5 s it may lead again, with a new term
        tail = self.operator.tail(100000)
        self.assertLessEqual(self.invariants.transitions(), term + ("Connection timed out" in tail), tail)
        self.assertGreater(self.operator.metric("hvd_watch_failures_total"), 0)
        self.assertEqual(self.invariants.wrong, [])

    def pass_through(self, prefix):
        """A round: jobs are created, run, succeed and are deleted."""
        jobs = [self.job(f"{prefix}-{i}", 3, cpu="500m", run={"ttlSecondsAfterFinished": 0}) for i in range(JOBS)]
        for job in jobs:
            job.wait_running(3, 120)
        for job in jobs:
            job.end_all()
        for job in jobs:
            job.wait_gone(120)

    def test_goaway(self):
        """Connections are closed again and again; no request is lost, no watch stays closed. The server picks requests at
        random, so the test runs rounds until it has closed enough connections."""
        enough = self.relay.accepted + ENDED
        for rounds in range(1, ROUNDS + 1):
            self.pass_through(f"away{rounds}")
            if self.relay.accepted >= enough:
                break
        self.assertGreaterEqual(self.relay.accepted, enough, "too few connections were ended")
        self.assertEqual(self.invariants.wrong, [])
        self.assertEqual(self.operator.metric("hvd_gang_wait_seconds_count"), rounds * JOBS)
        self.assertTrue(self.operator.alive())


def needs():
    operators.check_program()


if __name__ == "__main__":
    case.main("test_operator_connections", needs)
