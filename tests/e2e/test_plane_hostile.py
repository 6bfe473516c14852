#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 30 s, waiting
# timeout: 200
"""Pods that try to use up the coordinator plane: connections that say nothing, handshakes that stop halfway, bodies that
trickle. Meanwhile the agents of another job train, join and are answered at once."""
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from plane import BUILD, STEPS, Case, wait_for  # noqa: E402

LONG = (100000, 5)          # steps, milliseconds each
ELSEWHERE = "127.0.0.2"     # the address of the hostile pod
QUICK = 2                   # seconds for a request of somebody else, on a busy machine: 0.1 on a quiet one
MB = 1 << 20


class Hostile(Case):
    def setUp(self):
        super().setUp()
        self.sockets = []
        self.addCleanup(lambda: [one.close() for one in self.sockets])
        self.start_job("good", 2, 1, 3)
        self.good = self.start_pods("good", 2, [STEPS, *LONG])
        self.before = self.wait_size("good", 2)
        self.start_job("bad", 1, 1, 1)
        self.plane.ask("pod", "bad", "bad-0", "bad-0", 0, True, False, False)
        self.key = self.plane.ask("key", "bad")
        self.context = ssl.create_default_context(cadata=json.loads(self.plane.ask("ca")))

    def connect(self, secure=False):
        plain = socket.create_connection(("127.0.0.1", self.plane.port), 20, (ELSEWHERE, 0))
        self.sockets.append(plain)
        if not secure:
            return plain
        self.sockets[-1] = self.context.wrap_socket(plain, server_hostname="localhost")
        return self.sockets[-1]

    def post(self, job="bad", pod="bad-0", length=4 * MB):
        """A connection that has sent the headers of a request with a body."""
        one = self.connect(secure=True)
        one.sendall(f"POST /jobs/{job}/pods/{pod}/v1/report HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n"
                    f"Authorization: Bearer {self.plane.ask('key', job)}\r\n\r\n".encode())
        return one

    def ended(self, one, seconds):
        """Whether the plane ends the connection within that time."""
        one.settimeout(seconds)
        try:
            return not one.recv(1)
        except TimeoutError:
            return False
        except OSError:
            return True

    def check_others(self, rounds=15):
        """The other job's requests, each on a connection of its own, and its long polls are answered at once; a pod
        joins."""
        key, path, worst = self.plane.ask("key", "good"), f"/jobs/good/pods/{self.good[0].uid}/v1", 0
        for _ in range(rounds):
            begun = time.monotonic()
            self.assertEqual(self.request("GET", f"{path}/status", key)[0], 200)
            worst = max(worst, time.monotonic() - begun)
        begun = time.monotonic()
        # 2 MB of spaces are no report, but the plane has received them all.
        self.assertEqual(self.request("POST", f"{path}/report", key, " " * (2 * MB))[0], 400)
        worst = max(worst, time.monotonic() - begun)
        self.assertLess(worst, QUICK)
        print(f"the slowest request of somebody else: {worst:.3f} s")

    def check_join(self):
        epoch = self.plane.facts("good")["epoch"]
        self.start_job("good", 3, 1, 3)
        self.start_pod("good", 2, [STEPS, *LONG])
        self.wait_size("good", 3)
        facts = self.plane.facts("good")
        self.assertEqual((facts["epoch"], facts["agents"], self.plane.counts()["losses"]), (epoch + 1, 3, 0))

    def test_half_open_handshakes(self):
        """600 connections of one address: a third says nothing, a third stops after the first bytes of the handshake, a
        third after the handshake."""
        hello = bytes.fromhex("1603010200010001fc0303")
        for i in range(600):
            if i % 3 < 2:
                one = self.connect()
                one.sendall(hello if i % 3 else b"")
                continue
            one = self.connect()
            raw, out = ssl.MemoryBIO(), ssl.MemoryBIO()
            try:
                self.context.wrap_bio(raw, out, server_hostname="localhost").do_handshake()
            except ssl.SSLWantReadError:
                one.sendall(out.read())
        first = self.sockets[0]
        self.check_others()
        self.check_join()
        self.assertTrue(self.ended(first, 15), "a connection that says nothing is closed")
        self.check_others(3)

    def test_trickled_bodies(self):
        """One pod begins bodies of 4 MB on as many connections as it gets, and then sends a byte a second."""
        bodies = [self.post() for _ in range(32)]
        for one in bodies:
            one.settimeout(0.2)
            try:
                one.sendall(b" " * (2 * MB))
            except (TimeoutError, OSError):
                pass
        begun = time.monotonic()
        self.check_others()
        # A connection too many is refused.
        extra = self.post(length=0)
        extra.settimeout(5)
        self.assertIn(b" 503 ", extra.recv(4096))
        self.check_join()
        for one in bodies:
            self.assertTrue(self.ended(one, max(0.1, 14 - (time.monotonic() - begun))), "its time for a body is over")
        memory = int(self.plane.ask("memory"))
        if not os.environ.get("HVD_TEST_SANITIZED"):
            self.assertLess(memory, 64 << 10)
        wait_for("room for its next request", 5, lambda: self.request("GET", "/jobs/bad/pods/bad-0/v1/status", self.key)[0]
                 == 200)

    def test_memory_of_bodies_is_shared(self):
        """Bodies of one pod take a share of the memory for all: it gets 503 for the rest, and other pods of its namespace
        and of its job still have room."""
        bodies = [self.post() for _ in range(12)]
        for one in bodies[:4]:
            one.sendall(b" " * (4 * MB - 1))
        for one in bodies[4:]:
            one.settimeout(3)
            try:
                one.sendall(b" " * (4 * MB))
            except OSError:
                pass
        answers = []
        for one in bodies[4:]:
            one.settimeout(3)
            try:
                answers.append(one.recv(4096))
            except OSError:
                answers.append(b"")
        self.assertTrue([a for a in answers if b" 503 " in a], answers)
        self.check_others()


class Watchdog(unittest.TestCase):
    def test_a_loop_that_stands_still(self):
        """A stopped process is one whose loop stands still. Without an operator the plane waits, and the watchdog is quiet."""
        with tempfile.TemporaryDirectory() as folder:
            plane = subprocess.Popen([os.path.join(BUILD, "hvd-plane"), "--socket", os.path.join(folder, "none"), "--watchdog",
                                      "2", "-v"], stderr=subprocess.PIPE, text=True)
            with self.assertRaises(subprocess.TimeoutExpired):
                plane.wait(3)
            plane.send_signal(signal.SIGSTOP)
            time.sleep(2.5)
            plane.send_signal(signal.SIGCONT)
            said = plane.communicate(timeout=10)[1]
            self.assertEqual(plane.returncode, 3)
            self.assertIn("waits for hvd-operator on", said)
            self.assertIn("stood still", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
