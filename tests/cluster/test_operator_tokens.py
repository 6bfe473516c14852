#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 110 s, waiting
# needs: kubernetes
"""hvd-operator whose credentials expire while it runs: a pod's token file that is replaced, in time or late, and a
credential plugin whose tokens expire. Jobs and the lease continue without a gap.
timeout: 1500"""
import json
import os
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import binaries  # noqa: E402
import case  # noqa: E402
import operators  # noqa: E402
import tokens  # noqa: E402
from api import wait_until  # noqa: E402
from operators import SYSTEM, Job, Operator  # noqa: E402
from invariants import Invariants  # noqa: E402

ROUNDS = 4
LIFE_S = 12          # of a token; the API server caches for 10 s that a token is valid
CACHED_S = 10
LEASE_GAP_S = 9      # a lease of 15 s is renewed every 2 s; the operator stops after 10 s without


class Account:
    """The folder that a kubelet mounts into a pod; replaced atomically by a symbolic link, as a kubelet does."""

    def __init__(self, cluster, name):
        self.folder, self.number = cluster.path(name), 0
        os.mkdir(self.folder)
        os.symlink(cluster.ca, os.path.join(self.folder, "ca.crt"))
        with open(os.path.join(self.folder, "namespace"), "w", encoding="ascii") as f:
            f.write(SYSTEM)
        os.symlink("..data/token", os.path.join(self.folder, "token"))

    def write(self, token):
        self.number += 1
        data, link = f"..{self.number}", os.path.join(self.folder, "..data")
        os.mkdir(os.path.join(self.folder, data))
        with open(os.path.join(self.folder, data, "token"), "w", encoding="ascii") as f:
            f.write(token)
        os.symlink(data, link + ".new")
        os.rename(link + ".new", link)


class Every:
    """Calls a function again and again in its own thread."""

    def __init__(self, seconds, call):
        self.seconds, self.call, self.ending = seconds, call, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        while not self.ending.wait(self.seconds):
            self.call()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        self.thread.join(30)


class Tokens(operators.Installed):
    nodes = 2

    def setUp(self):
        self.invariants = self.enterContext(Invariants(self.cluster))
        account = self.cluster.api.get(f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/hvd-operator")
        self.uid = account["metadata"]["uid"]

    def start(self, **named):
        self.operator = Operator(self.cluster, name=self._testMethodName, **named).start().wait_ready()
        self.addCleanup(lambda: self.operator.alive() and self.operator.stop())
        wait_until("it to lead", 60, lambda: self.operator.metric("hvd_leader") == 1 and self.invariants.renewals)

    def refused(self):
        return self.operator.metric("hvd_api_requests_total", 'code="401"') or 0

    def work(self, name, rounds, pause):
        """A job is scaled up every few seconds, each time without delay. The lease never has a gap."""
        job = Job(self.cluster, name, 1, minWorkers=1, maxWorkers=rounds)
        self.addCleanup(lambda: job.get() and job.delete())
        transitions = self.invariants.transitions()
        longest = 0
        for workers in range(1, rounds + 1):
            job.patch({"workers": workers})
            began = time.monotonic()
            wait_until(f"{workers} workers\n{self.operator.tail()}", 30, lambda: len(job.running()) == workers)
            longest = max(longest, time.monotonic() - began)
            time.sleep(pause)
        self.assertLess(longest, 10)
        self.assertEqual(self.invariants.wrong, [])
        self.assertEqual(self.invariants.transitions(), transitions, self.operator.tail())
        self.assertLess(self.invariants.longest_lease_gap(), LEASE_GAP_S, self.operator.tail())

    def check_refused(self, token):
        """Waits until the API server refuses the token."""
        def is_refused():
            review = self.cluster.api.create("/apis/authentication.k8s.io/v1/tokenreviews", {
                "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}})
            return not review["status"].get("authenticated")
        wait_until("the old token to be refused", 60, is_refused, 0.5)

    # ---- a pod's file

    def test_file_is_rewritten(self):
        """Replaced before the old token expires, as a kubelet does. The file is read again after a 401."""
        account = Account(self.cluster, "in-time")
        account.write(tokens.sign(self.cluster.folder, self.uid, LIFE_S))
        first = self.read(account)
        self.start(account=account.folder)
        with Every(LIFE_S / 2, lambda: account.write(tokens.sign(self.cluster.folder, self.uid, LIFE_S))):
            self.work("in-time", 2 * ROUNDS, (LIFE_S + CACHED_S) / 4)
            self.check_refused(first)
            self.assertGreater(self.refused(), 0)
            # Once per token, plus a few requests in flight: no endless retries.
            self.assertLess(self.refused(), 4 * account.number)

    def read(self, account):
        with open(os.path.join(account.folder, "token"), encoding="ascii") as f:
            return f.read()

    def test_revoked(self):
        """A token that is bound to a Secret; deleting the Secret revokes it, and the next token arrives late."""
        def bound(name):
            self.cluster.kubectl("-n", SYSTEM, "create", "secret", "generic", name)
            return self.cluster.kubectl("-n", SYSTEM, "create", "token", "hvd-operator", "--duration=10m",
                                        "--bound-object-kind=Secret", f"--bound-object-name={name}").strip()
        account = Account(self.cluster, "revoked")
        first = bound("first")
        account.write(first)
        self.start(account=account.folder)
        job = Job(self.cluster, "revoked", 1, minWorkers=1, maxWorkers=3)
        self.addCleanup(job.delete)
        job.wait_running(1)
        second = bound("second")
        self.cluster.kubectl("-n", SYSTEM, "delete", "secret", "first")
        self.check_refused(first)
        job.patch({"workers": 3})
        wait_until("requests that are refused", 30, lambda: self.refused() > 0)
        time.sleep(2)
        account.write(second)
        began = time.monotonic()
        job.wait_running(3, 20)
        self.assertLess(time.monotonic() - began, 15)
        wait_until("its lease", 20, lambda: self.operator.metric("hvd_leader") == 1)
        self.assertEqual(self.invariants.wrong, [])
        self.assertTrue(self.operator.alive())

    # ---- a plugin

    def test_plugin(self):
        """A slow plugin with short tokens: it is run early enough, and no request waits for it."""
        runs = self.cluster.path("runs")
        command = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": sys.executable,
                   "args": [os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokens.py"), self.cluster.folder,
                            self.uid, "16", "3", runs]}
        path = operators.kubeconfig_of(self.cluster, self.cluster.path("plugin.kubeconfig"))
        with open(path, encoding="ascii") as f:
            config = json.load(f)
        config["users"][0]["user"] = {"exec": command}
        with open(path, "w", encoding="ascii") as f:
            json.dump(config, f)
        self.start(kubeconfig=path)
        began = time.monotonic()
        self.work("plugin", 2 * ROUNDS, 5)
        with open(runs, encoding="ascii") as f:
            count = len(f.readlines())
        self.assertGreaterEqual(count, 3)
        self.assertLess(count, (time.monotonic() - began) / 5 + 2)
        self.assertEqual(self.refused(), 0)
        # no renewal of the lease waited for the plugin, which takes 3 s
        self.assertLess(self.invariants.longest_pause_of_renewals(), 2.4 + 2.5)


def needs():
    operators.check_program()
    probe = subprocess.run([*operators.UNSHARE, "sh", "-c", "mount -t tmpfs none /run"], capture_output=True, text=True,
                           timeout=30, check=False)
    if probe.returncode != 0:
        raise binaries.Missing("namespaces", f"no mount namespaces here: {probe.stderr.strip()[:200]}")


if __name__ == "__main__":
    case.main("test_operator_tokens", needs)
