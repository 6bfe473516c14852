#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 200 s, waiting
# needs: kubernetes
"""hvd-operator and hvd-plane as two processes: each is killed alone while a job trains; and what a plane can do that somebody
has taken over."""
import hashlib
import hmac
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time

import agents
import case
import operators
from api import wait_until


class Speaker:
    """The plane's end of the socket."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(path)
        self.heard = b""

    def send(self, *messages):
        for message in messages:
            text = json.dumps(message).encode()
            self.socket.sendall(struct.pack("<I", len(text)) + text)

    def messages(self):
        """What has come so far."""
        found, at = [], 0
        while len(self.heard) >= at + 4:
            (size,) = struct.unpack_from("<I", self.heard, at)
            if len(self.heard) < at + 4 + size:
                break
            found.append(json.loads(self.heard[at + 4:at + 4 + size]))
            at += 4 + size
        return found

    def wait_for(self, kind, count=1):
        while sum(m["type"] == kind for m in self.messages()) < count:
            got = self.socket.recv(65536)
            assert got, "the operator has ended the connection"
            self.heard += got
        return [m for m in self.messages() if m["type"] == kind]

    def ended(self):
        """Reads until the operator ends the connection."""
        try:
            while got := self.socket.recv(65536):
                self.heard += got
        except ConnectionResetError:
            pass
        return True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


def facts(job, **more):
    return {"type": "facts", "job": job, "there": True, "rebuilding": False, "state": "running", "epoch": 7, "size": 2,
            "target": 2, "agents": 2, "readyWorkers": 2, "restarts": 0, "anyFinished": False, "allFinished": False,
            "exitCode": 0, "repairMs": 0.0, "batchesPerS": 0.0, "bytesPerS": 0.0, "findingCount": 0, "failureCount": 0,
            "findingsLeftOut": 0, "waitingFor": "", "lastChange": {"at": 0, "ms": 0.0, "cause": ""},
            "firstFailure": {"known": False, "rank": 0, "worker": 0, "code": 0, "text": ""}, "findings": [], **more}


class Plane(agents.Case):
    def train(self, name):
        job, kubelet = self.start_job(name, 2, 1000000, 20, minWorkers=1, maxWorkers=4)
        self.wait("a world of two", 60, job, kubelet, lambda: 2 in self.worlds(kubelet))
        self.wait("its agents", 30, job, kubelet, lambda: self.operator.metric("hvd_agents") == 2)
        return job, kubelet, {name: kubelet.of(name).pid for name in job.running()}

    def check(self, job, kubelet, pids):
        """The same ranks train, and the job can be scaled."""
        self.wait("its agents again", 60, job, kubelet, lambda: self.operator.metric("hvd_agents") == 2)
        self.assertEqual({name: kubelet.of(name).pid for name in job.running()}, pids)
        epoch = job.status()["epoch"]
        job.patch({"workers": 3})
        self.wait("a world of three", 60, job, kubelet, lambda: 3 in self.worlds(kubelet))
        self.wait("a later epoch", 30, job, kubelet, lambda: job.status()["epoch"] > epoch)
        self.assertEqual((job.status()["phase"], job.status()["restarts"]), ("Running", 0))

    def test_plane_is_killed(self):
        job, kubelet, pids = self.train("plane")
        self.operator.plane.end(signal.SIGKILL)
        wait_until("not ready", 10, lambda: "hvd-plane has not connected" in self.operator.page("/readyz")[1])
        self.operator.plane.start()
        self.operator.wait_ready()
        self.check(job, kubelet, pids)

    def test_operator_is_killed(self):
        """The plane stops serving at once, and serves the next operator on the same socket."""
        job, kubelet, pids = self.train("operator")
        plane, self.operator.plane = self.operator.plane, None
        self.operator.kill()

        def listens():
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", self.port)) == 0
        wait_until("the port to be closed", 5, lambda: not listens(), 0.05)
        self.assertIsNone(plane.process.poll())
        self.operator.start()
        self.operator.plane = plane
        self.check(job, kubelet, pids)

    def test_taken_over(self):
        """A plane that somebody has taken over gets neither the CA's key nor a job's, and cannot hold up the operator. It
        can lie about the jobs that it serves, until the next plane."""
        job, kubelet, pids = self.train("lied")
        path, uid = self.operator.plane.socket, job.get()["metadata"]["uid"]
        self.operator.plane.end(signal.SIGKILL)
        wait_until("not ready", 10, lambda: self.operator.page("/readyz")[0] == 503)
        with Speaker(path) as taken:
            (config,) = taken.wait_for("config")
            self.assertEqual(set(config), {"type", "certificate", "key", "term", "gatherMs", "reviews"})
            taken.send({"type": "listening", "port": self.port})
            (told,) = taken.wait_for("job")
            keys = self.authority()
            secret = hmac.new(keys["secret"], b"hvd job key 1:" + uid.encode(), hashlib.sha256).hexdigest()
            self.assertEqual(told["keyHash"], hashlib.sha256(f"hvd1.{secret}".encode()).hexdigest())
            for hidden in (keys["ca.key"].splitlines()[1], secret.encode(), keys["secret"], keys["secret"].hex().encode()):
                self.assertNotIn(hidden, taken.heard)
            taken.send(facts("no such job"), facts(uid, waitingFor="a lie"))
            self.wait("the lie", 10, job, kubelet, lambda: "a lie" in job.status().get("message", ""))
            # more reviews than it may have in flight, and other messages as fast as they are taken
            count = 3000
            for i in range(count):
                taken.send({"type": "review", "id": i + 1, "token": "x" * 1000},
                           facts(uid, waitingFor=f"{i} {'y' * 400}"))
            answers = taken.wait_for("reviewed", count)
            self.assertFalse([a for a in answers if a["known"]])
        self.assertLess(self.operator.metric("hvd_lease_late_seconds"), 2)
        self.assertEqual({name: kubelet.of(name).pid for name in job.running()}, pids)
        for wrong in (b"\xff\xff\xff\xff", b"\x02\0\0\0[]", struct.pack("<I", 19) + b'{"type":"anything"}'):
            with Speaker(path) as taken:
                taken.wait_for("config")
                taken.socket.sendall(wrong)
                self.assertTrue(taken.ended())
        self.assertTrue(self.operator.alive())
        self.operator.plane.start()
        self.check(job, kubelet, pids)

    def token(self, pod, namespace):
        """A token for the plane, bound to the pod."""
        meta = pod["metadata"]
        return self.cluster.api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token", {
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": ["hvd-operator"], "expirationSeconds": 600,
                     "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}}}
        )["status"]["token"]

    def test_forged_labels(self):
        """A pod of another namespace with the name and all labels of a job's pod, and the leader's label. (If it names the
        job as its owner, too, the garbage collector deletes it.)"""
        job, kubelet, pids = self.train("forged")
        mine = next(iter(job.pods().values()))
        self.cluster.kubectl("create", "namespace", "elsewhere")
        self.addCleanup(self.cluster.kubectl, "delete", "namespace", "elsewhere", "--wait=false")
        wait_until("its account", 30, lambda: "default" in self.cluster.kubectl("-n", "elsewhere", "get", "serviceaccounts"))
        meta = {"name": mine["metadata"]["name"], "namespace": "elsewhere",
                "labels": {**mine["metadata"]["labels"], "app.kubernetes.io/name": "hvd-operator", "hvd.dev/leader": "true"}}
        theirs = self.cluster.api.create("/api/v1/namespaces/elsewhere/pods", {
            "apiVersion": "v1", "kind": "Pod", "metadata": meta,
            "spec": {"containers": [{"name": "main", "image": "none"}]}})
        uid, token = job.get()["metadata"]["uid"], self.token(theirs, "elsewhere")
        for pod, want in ((theirs, 404), (mine, 401)):
            path = f"/jobs/{uid}/pods/{pod['metadata']['uid']}/v1"
            join = json.dumps({"agent": f"{pod['metadata']['uid']}.1", "host": "h", "version": "0", "slots": 1, "pid": 1})
            self.assertEqual(self.ask(f"{path}/status", token), want)
            self.assertEqual(self.ask(f"{path}/join", token, "POST", join), want)
        self.assertEqual(self.operator.metric("hvd_agents"), 2)
        self.assertEqual((job.status()["phase"], job.status()["restarts"], len(job.pods())), ("Running", 0, 2))
        self.assertEqual({name: kubelet.of(name).pid for name in job.running()}, pids)

    def test_other_users_are_refused(self):
        if os.getuid() != 0:
            self.skipTest("another user's process needs root")
        code = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.settimeout(10); " \
               "sys.exit(len(s.recv(1)))"
        self.operator.wait_ready()
        self.operator.plane.end()
        # With the group of the socket, so that only the operator's own check can refuse it.
        command = ["setpriv", "--reuid=65534", "--regid=0", "--clear-groups", sys.executable, "-c", code,
                   os.path.basename(self.operator.plane.socket)]
        folder = os.path.dirname(self.operator.plane.socket)
        os.chmod(folder, os.stat(folder).st_mode | 0o011)
        subprocess.run(command, cwd=folder, check=True, timeout=30)
        self.assertIn("refused a process of user 65534", self.operator.tail())

    def test_second_plane_is_refused(self):
        self.operator.wait_ready()
        begun = time.monotonic()
        with Speaker(self.operator.plane.socket) as second:
            self.assertTrue(second.ended())
        self.assertLess(time.monotonic() - begun, 10)
        self.assertEqual(self.operator.page("/readyz")[0], 200)


class Missing(agents.Case):
    """Operators whose planes do not start. The leader gives up after 3 s; a lease lasts 4 s."""
    options = ("--plane-timeout", "3", "--lease-duration", "4", "--lease-renew", "3", "--lease-retry", "1")

    def lease(self):
        return self.cluster.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{operators.SYSTEM}/leases/hvd-operator")

    def warnings(self, holder):
        items = self.cluster.api.get(f"/apis/events.k8s.io/v1/namespaces/{operators.SYSTEM}/events")["items"]
        return [e for e in items if e["reason"] == "PlaneMissing" and e["note"].startswith(holder)
                and e["regarding"]["uid"] == self.lease()["metadata"]["uid"]]

    def leads(self, operator):
        return operator.metric("hvd_leader") == 1

    def test_another_operator_leads(self):
        """The plane of the leader does not come back: another operator serves the agents, and the same ranks train. A plane
        that is restarted in time changes nothing."""
        job, kubelet = self.start_job("taken", 2, 1000000, 20, minWorkers=1, maxWorkers=4)
        self.wait("a world of two", 60, job, kubelet, lambda: 2 in self.worlds(kubelet))
        pids, first = {name: kubelet.of(name).pid for name in job.running()}, self.operator
        second = self.start_operator("second")
        wait_until("its plane", 30, lambda: second.metric("hvd_plane_connected") == 1)
        holder = self.lease()["spec"]["holderIdentity"]
        first.plane.end(signal.SIGKILL)
        time.sleep(1)
        first.plane.start()
        first.wait_ready()
        time.sleep(4)
        self.assertEqual(self.lease()["spec"]["holderIdentity"], holder)
        first.plane.end(signal.SIGKILL)
        begun = time.monotonic()
        wait_until("the other operator to lead", 15, lambda: self.leads(second))
        self.assertTrue(2.5 < time.monotonic() - begun < 10)
        self.operator = second
        self.wait("its agents", 60, job, kubelet, lambda: second.metric("hvd_agents") == 2)
        self.assertEqual({name: kubelet.of(name).pid for name in job.running()}, pids)
        self.assertTrue(first.alive() and not self.leads(first))
        (event,) = wait_until("the Event", 10, lambda: self.warnings(holder))
        self.assertEqual(event["type"], "Warning")
        self.assertIn("hvd-plane has not connected", event["note"])
        # It does not take the lease back at once when that is free, and then it does.
        second.kill()
        time.sleep(5)
        self.assertFalse(self.leads(first))
        wait_until("it leads again", 20, lambda: self.leads(first))

    def test_a_plane_that_comes_back(self):
        """Regression: both operators have missed their planes while they led. The one whose plane has been started again
        waited as long for a free lease as the one without, which took the lease back each time, for ever longer."""
        first, second = self.operator.wait_ready(), self.start_operator("second")
        wait_until("its plane", 30, lambda: second.metric("hvd_plane_connected") == 1)
        first.plane.end(signal.SIGKILL)
        wait_until("the other operator to lead", 20, lambda: self.leads(second))
        first.plane.start()
        wait_until("its plane", 10, lambda: first.metric("hvd_plane_connected") == 1)
        before = self.lease()["spec"]["leaseTransitions"]
        second.plane.end(signal.SIGKILL)
        wait_until("the other operator to stop", 15, lambda: not self.leads(second))
        wait_until("the first one to lead", 15, lambda: self.leads(first))
        self.assertEqual(self.lease()["spec"]["leaseTransitions"] - before, 1)
        first.wait_ready()

    def test_a_plane_that_never_listens(self):
        """It is connected, but serves nobody: the operator gives up as without a plane. It is the only operator, so it goes
        on with jobs a little later."""
        self.operator.wait_ready()
        self.operator.plane.end(signal.SIGKILL)
        wait_until("not ready", 10, lambda: self.operator.page("/readyz")[0] == 503)
        with Speaker(self.operator.plane.socket) as mute:
            mute.wait_for("config")
            holder = self.lease()["spec"]["holderIdentity"]
            wait_until("it to give up", 10, lambda: not self.leads(self.operator), 0.1)
            self.assertTrue(mute.ended())
            wait_until("the Event", 10, lambda: any("does not listen" in e["note"] for e in self.warnings(holder)))
        job, _ = self.start_job("mute", 1)
        wait_until("a pod", 20, job.pods)

    def test_all_planes_are_missing(self):
        """Two operators without planes: jobs are reconciled nevertheless, and the lease changes hands ever more rarely. The
        first plane that comes serves the agents."""
        job, kubelet = self.start_job("lone", 1, 1000000, 20, minWorkers=1, maxWorkers=4)
        self.wait("a world", 60, job, kubelet, lambda: 1 in self.worlds(kubelet))
        second = self.start_operator("second")
        both = (self.operator, second)
        wait_until("its plane", 30, lambda: second.metric("hvd_plane_connected") == 1)
        for operator in both:
            operator.plane.end(signal.SIGKILL)
        before, led = self.lease()["spec"]["leaseTransitions"], set()
        for workers in (2, 3):
            end = time.monotonic() + 20
            job.patch({"workers": workers})
            while time.monotonic() < end:
                led |= {operator.name for operator in both if self.leads(operator)}
                time.sleep(0.2)
            self.assertEqual(len(job.pods(alive=True)), workers)
        changes = self.lease()["spec"]["leaseTransitions"] - before
        self.assertTrue(2 <= changes <= 6, changes)   # each operator leads for 3, 6, 12 ... s, with 4 s in between
        self.assertTrue(led)
        second.plane.start()
        self.operator = second
        self.wait("a world of three", 90, job, kubelet, lambda: 3 in self.worlds(kubelet))
        self.assertEqual(job.status()["restarts"], 0)


class Certificates(agents.Case):
    """The certificate of the plane is valid for 6 s, and the certificate authority is replaced every 8 s."""
    options = ("--certificate-life", "6", "--ca-life", "8")

    def served(self):
        return ssl.get_server_certificate(("127.0.0.1", self.port))

    def refuse(self, refuse):
        """Takes away the right to change the Secret, or gives it back."""
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{operators.SYSTEM}/roles/hvd-operator-own"
        role = self.cluster.api.get(path)
        for rule in role["rules"]:
            if "hvd-operator-ca" in rule.get("resourceNames", []):
                rule["verbs"] = ["get"] if refuse else ["get", "update"]
        self.cluster.api.call("PUT", path, role)

    def warnings(self):
        items = self.cluster.api.get(f"/apis/events.k8s.io/v1/namespaces/{operators.SYSTEM}/events")["items"]
        return [e for e in items if e["reason"] == "AuthorityNotReplaced"]

    def test_authority_that_is_not_replaced(self):
        """The operator may not write the Secret any more: an Event on the Lease says so, once. Predecessors that no pod needs
        are dropped once it may."""
        self.operator.wait_ready()
        wait_until("a rotation", 40, lambda: "cross.crt" in self.authority())
        self.refuse(True)
        self.addCleanup(self.refuse, False)
        ca = self.authority()["ca.crt"]
        (event,) = wait_until("the Event", 40, self.warnings)
        self.assertEqual((event["type"], event["regarding"]["kind"]), ("Warning", "Lease"))
        self.assertIn("hvd-operator-ca", event["note"])
        self.assertIn("from then on no agent can connect", event["note"])
        time.sleep(5)
        self.assertEqual(len(self.warnings()), 1)
        self.assertNotIn("series", event)
        self.assertEqual(self.authority()["ca.crt"], ca)
        self.refuse(False)
        wait_until("a rotation", 40, lambda: self.authority()["ca.crt"] != ca)
        self.assertEqual(self.authority()["cross.crt"].count(b"BEGIN"), 1)

    def test_rotation_while_a_job_trains(self):
        job, kubelet = self.start_job("long", 2, 1000000, 20, minWorkers=1, maxWorkers=4)
        self.wait("a world of two", 60, job, kubelet, lambda: 2 in self.worlds(kubelet))
        pids, first, served = {name: kubelet.of(name).pid for name in job.running()}, self.authority(), {self.served()}
        self.wait("two rotations", 60, job, kubelet,
                  lambda: served.add(self.served()) or self.authority().get("cross.crt", b"").count(b"BEGIN") == 2)
        now = self.authority()
        self.wait("a third certificate", 20, job, kubelet, lambda: served.add(self.served()) or len(served) > 2)
        self.assertEqual(now["secret"], first["secret"])
        self.assertIn(first["ca.crt"], now["old.crt"])
        self.assertNotIn(first["ca.key"].splitlines()[1], b"".join(now.values()), "the key of the first CA is destroyed")
        # Open connections stayed; nobody had to join again.
        self.assertEqual(self.operator.metric("hvd_agent_rejoins_total"), 0)
        self.assertEqual(self.operator.metric("hvd_agent_losses_total"), 0)
        # Agents that trust the first CA connect anew, to a plane with a certificate of the third.
        self.operator.plane.end(signal.SIGKILL)
        self.operator.plane.start()
        self.wait("its agents again", 60, job, kubelet, lambda: self.operator.metric("hvd_agents") == 2)
        job.patch({"workers": 3})
        self.wait("a world with a pod of the newest CA", 60, job, kubelet, lambda: 3 in self.worlds(kubelet))
        self.assertEqual({name: kubelet.of(name).pid for name in job.running() if name in pids}, pids)
        # The next operator takes over with what is stored.
        self.operator.kill()
        self.operator = self.start_operator("rotated")
        self.wait("all agents at the next operator", 90, job, kubelet, lambda: self.operator.metric("hvd_agents") == 3)
        self.assertEqual((job.status()["phase"], job.status()["restarts"]), ("Running", 0))
        self.assertGreater(self.operator.metric("hvd_ca_expires_seconds"), time.time() + 9 * 365 * 86400)
        self.assertLess(self.operator.metric("hvd_certificate_expires_seconds"), time.time() + 7)


if __name__ == "__main__":
    case.main("test_operator_plane", agents.needs)
