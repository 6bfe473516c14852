#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 30 s, waiting
# needs: kubernetes
"""Nothing is left of a cluster when its owner is killed, its supervisor is killed, or it does not start.
timeout: 3000"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import case  # noqa: E402
import cluster as clusters  # noqa: E402
from api import wait_until  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))


def start(*options):
    """Starts a shell that owns a cluster, like a test in shell. Returns the shell and the cluster's folder."""
    script = f'f=$({HERE}/cluster.py start --owner $$ "$@") && echo "$f" && read -r _; {HERE}/cluster.py stop "$f"'
    owner = subprocess.Popen(["bash", "-c", script, "owner", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             text=True)
    folder = owner.stdout.readline().strip()
    if not folder:
        owner.wait()
        raise RuntimeError("the cluster has not started")
    return owner, folder


class End(unittest.TestCase):
    def setUp(self):
        self.owner = self.folder = None

    def tearDown(self):
        if self.owner:
            self.owner.kill()
            self.owner.wait()
            self.owner.stdin.close()
            self.owner.stdout.close()
        if self.folder:
            wait_until("nothing to be left", 30, lambda: not case.left_of(self.folder))

    def begin(self, *options):
        self.owner, self.folder = start(*options)
        self.assertGreaterEqual(len(case.processes(self.folder)), 5)

    def assert_gone(self):
        wait_until(f"all of {self.folder} to be gone", 30, lambda: not case.left_of(self.folder), 0.1)

    def test_asked(self):
        self.begin()
        self.owner.stdin.close()
        self.owner.wait(60)
        self.assertEqual(case.left_of(self.folder), [])   # stop returns when everything is gone

    def test_owner_killed(self):
        self.begin("--kwok", "1")
        self.owner.kill()
        self.assert_gone()

    def test_owner_killed_early(self):
        """The owner is killed during the start. The cluster's folder is not known yet, so the test sets the parent folder."""
        place = tempfile.mkdtemp(prefix="hvd-test-")
        self.addCleanup(shutil.rmtree, place)
        with mock.patch.dict(os.environ, TMPDIR=place):
            owner = subprocess.Popen(["bash", "-c", f"{HERE}/cluster.py start --owner $$; read -r _"],
                                     stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(owner.stdin.close)
        wait_until("a cluster that starts", 60, lambda: len(case.processes(place)) >= 3, 0.01)
        owner.kill()
        owner.wait()
        wait_until("all of it to be gone", 30, lambda: not os.listdir(place) and not case.processes(place), 0.1)

    def test_keeper_killed(self):
        """The kernel kills the supervisor's children; the next start of a cluster removes the folder."""
        self.begin()
        with open(os.path.join(self.folder, "ready.json"), encoding="utf-8") as f:
            os.kill(json.load(f)["keeper"], signal.SIGKILL)
        wait_until("its processes to be gone", 30, lambda: not case.processes(self.folder))
        self.assertTrue(os.path.isdir(self.folder))
        clusters.sweep()
        self.assert_gone()

    def test_does_not_start(self):
        """A program exits at once: the caller gets its log, and nothing is left."""
        cluster = clusters.Cluster(more={"kube-apiserver": ["--no-such-flag"]})
        with self.assertRaises(clusters.Failed) as caught:
            cluster.start()
        self.assertIn("no-such-flag", str(caught.exception))
        self.assertEqual(case.left_of(cluster.folder), [])


if __name__ == "__main__":
    case.main("test_end")
