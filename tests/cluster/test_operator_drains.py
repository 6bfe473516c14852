#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 60 s, waiting
# needs: kubernetes
"""hvd-operator beside other programs: those that write fields into the status of its jobs, and those that drain nodes.
timeout: 1200"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import case  # noqa: E402
import operators  # noqa: E402
from api import wait_until  # noqa: E402
from operators import Installed, Job, Operator  # noqa: E402

APPLY = "application/apply-patch+yaml"


class Beside(Installed):
    nodes = 3   # of 8 processors each

    def setUp(self):
        self.jobs = []
        self.operator = Operator(self.cluster).start().wait_ready()

    def tearDown(self):
        for job in self.jobs:
            if job.get():
                job.delete()
        for job in self.jobs:
            job.wait_gone()
        self.operator.stop()

    def job(self, name, workers=1, **more):
        self.jobs.append(Job(self.cluster, name, workers, **more))
        return self.jobs[-1]

    # ---- several writers of one status

    def write_status(self, job, manager, **fields):
        """Applies fields of the status as that field manager; others' stay."""
        self.cluster.api.call("PATCH", f"{job.path}/status?fieldManager={manager}", {
            "apiVersion": "hvd.dev/v1alpha1", "kind": "HvdJob",
            "metadata": {"name": job.name, "namespace": job.namespace}, "status": fields}, kind=APPLY)

    def test_status_of_several_writers(self):
        """Conditions of other types and unknown fields stay, also if they change while the operator writes; their owner can
        still remove them. Fields that the operator no longer has are removed."""
        job = self.job("shared", 2, minWorkers=1, maxWorkers=9)
        job.wait_running(2)
        for number in range(30):   # beside the operator, which writes for each change of the workers
            job.patch({"workers": 1 + number % 3})
            condition = {"type": "example.com/Billed", "status": "True", "reason": "Paid", "message": str(number),
                         "lastTransitionTime": "2026-01-01T00:00:00Z"}
            self.write_status(job, "billing", conditions=[condition], billing={"cents": number})
        job.patch({"workers": 3})
        job.wait_running(3)
        wait_until("its status", 30, lambda: job.status().get("ready") == 3)
        self.assertEqual(job.condition("example.com/Billed"), condition)
        self.assertEqual(job.status()["billing"], {"cents": 29})
        self.assertIn("startTime", job.status())
        self.write_status(job, "billing", billing={"euros": 1})
        job.patch({"runPolicy": {"suspend": True}})
        status = job.wait_phase("Suspended")
        self.assertNotIn("startTime", status)
        self.assertEqual(status["billing"], {"euros": 1})
        self.assertEqual(job.condition("example.com/Billed"), {})


def needs():
    operators.check_program()


if __name__ == "__main__":
    case.main("test_operator_drains", needs)
