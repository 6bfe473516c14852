#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""hvd-operator and a real kubelet: what it says of a worker that took too much memory is in the job's status.
timeout: 3000"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import case  # noqa: E402
import cluster as clusters  # noqa: E402
import image  # noqa: E402
import operators  # noqa: E402
from operators import Job, Operator  # noqa: E402

EATER = "hvd.test/eat:1"


class Real(operators.Installed):
    nodes, options_of_cluster = 0, {"real": True}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        program, archive = cls.cluster.path("eat"), cls.cluster.path("eat.tar")
        subprocess.run([os.environ.get("CC", "gcc"), "-static", "-O1", "-o", program,
                        os.path.join(clusters.HERE, "eat.c")], check=True, timeout=60)
        image.write_image(archive, EATER, {"/eat": program}, ["/eat"])
        image.load(cls.cluster, archive)
        cls.operator = Operator(cls.cluster, name="real").start().wait_ready()

    @classmethod
    def tearDownClass(cls):
        cls.operator.stop()
        super().tearDownClass()

    def test_out_of_memory(self):
        """The first process is killed, or one that it has started, as ranks are of agents: it is named."""
        for name, command in (("itself", ["/eat", "self"]), ("child", ["/eat"])):
            with self.subTest(name):
                container = {"name": "main", "image": EATER, "command": command,
                             "resources": {"limits": {"memory": "48Mi"}}}
                job = Job(self.cluster, name, 1, run={"backoffLimit": 0}, template={"spec": {
                    "containers": [container], "terminationGracePeriodSeconds": 1}})
                status = job.wait_phase("Failed", 120)
                first = status["firstFailure"]
                self.assertEqual((first["reason"], first["exitCode"], first["worker"]), ("OOMKilled", 137, 0))
                self.assertTrue(first["node"] and first["pod"] == f"{name}-0-0", first)
                self.assertIn("OOMKilled, exit code 137", job.condition("Failed")["message"])
                self.assertEqual((status["failures"], status["attemptsLeft"]), (1, 0))
                job.delete()
                job.wait_gone(120)


def needs():
    operators.check_program()
    clusters.check_real()


if __name__ == "__main__":
    case.main("test_operator_real", needs)
