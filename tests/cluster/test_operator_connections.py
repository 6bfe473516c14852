#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""hvd-operator's HTTP/2 connections to the API server: ones that go nowhere without a word, and ones that the server
asks to leave (GOAWAY), again and again.
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

SILENT_S = 100      # a watch without even a bookmark is given up
PATIENCE_S = SILENT_S + 40
JOBS, ROUNDS, ENDED = 12, 20, 4     # in a round; at most; connections that have to end


class Connections(operators.Installed):
    nodes = 4
    # every fiftieth request ends its connection: the most that the API server does
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
        """All of its connections at once. It goes on leading, over new ones, and the caches follow when their watches
        have been silent for too long."""
        job = self.job("frozen", 2, minWorkers=1, maxWorkers=4)
        job.wait_running(2)
        term = self.invariants.transitions()
        # the server may just have ended that of the lease, or that of the watches
        wait_until("both of its connections", 60, lambda: len(self.relay.work()) >= 2)
        self.relay.freeze()
        job.patch({"workers": 4})
        began = time.monotonic()
        try:
            job.wait_running(4, PATIENCE_S)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.operator.tail()}") from None
        self.assertGreater(time.monotonic() - began, 5)    # it was really cut off
        self.assertEqual(self.invariants.transitions(), term, self.operator.tail())
        self.assertGreater(self.operator.metric("hvd_watch_failures_total"), 0)
        self.assertEqual(self.invariants.wrong, [])

    def pass_through(self, prefix):
        """A round: jobs come, run, succeed and go."""
        jobs = [self.job(f"{prefix}-{i}", 3, cpu="500m", run={"ttlSecondsAfterFinished": 0}) for i in range(JOBS)]
        for job in jobs:
            job.wait_running(3, 120)
        for job in jobs:
            job.end_all()
        for job in jobs:
            job.wait_gone(120)

    def test_goaway(self):
        """Connections come and go; no request is lost, no watch ends for long. Which requests the server picks is its
        own luck, and a round has few of them: rounds until it has picked often enough."""
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
