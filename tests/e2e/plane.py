# SPDX-License-Identifier: Apache-2.0
"""Helpers for the tests of the coordinator plane: the plane as a process (tests/programs/plane_try), and pods as
processes: build/hvd-agent with the environment of a pod's container."""
import contextlib
import http.client
import json
import os
import re
import signal
import ssl
import subprocess
import tempfile
import time
import unittest

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
AGENT = os.path.join(BUILD, "hvd-agent")
PROGRAMS = os.path.join(BUILD, "tests", "programs")
STEPS = os.path.join(PROGRAMS, "steps")


def wait_for(what, seconds, look):
    """Waits until look() returns something true, and returns it. what: what is waited for, for the error."""
    until = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > until:
            raise AssertionError(f"waited {seconds} s for {what}; last: {found!r}")
        time.sleep(0.02)


class Plane:
    """One operator's plane. kill() and start() again are another operator with the same Secret."""

    def __init__(self, folder):
        self.keys = os.path.join(folder, "keys")
        self.term = 0
        self.port = 0
        self.process = None
        self.start()

    def start(self):
        self.term += 1
        self.process = subprocess.Popen([os.path.join(PROGRAMS, "plane_try"), self.keys, str(self.term),
                                         str(self.port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("port "), f"plane_try did not start: {line!r}"
        self.port = int(line.split()[1])

    def ask(self, *words):
        self.process.stdin.write(" ".join(str(int(w) if isinstance(w, bool) else w) for w in words) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().rstrip("\n")
        assert not answer.startswith("error"), f"{words}: {answer}"
        return answer

    def facts(self, job):
        return json.loads(self.ask("facts", job))

    def counts(self):
        return json.loads(self.ask("counts"))

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def end(self):
        """Ends in order, with all that it holds freed."""
        self.process.stdin.close()
        code = self.process.wait(20)
        self.process.stdout.close()
        return code


class Pod:
    """The only container of a pod. through: a command that becomes the agent."""

    def __init__(self, case, job, worker, command, uid=None, name=None, token=None, through=(), **env):
        self.case, self.job, self.worker = case, job, worker
        self.uid = uid or f"{job}-pod-{worker}-{len(case.pods)}"
        self.name = name or f"{job}-{worker}-{len(case.pods)}"
        self.tokens = os.path.join(case.folder, f"token-{self.uid}")
        self.set_token(token or case.plane.ask("key", job))
        self.log = os.path.join(case.folder, f"log-{self.name}")
        self.end = os.path.join(case.folder, f"end-{self.name}")    # the kubelet makes this file
        with open(self.end, "w", encoding="utf-8"):
            pass
        surroundings = {k: v for k, v in os.environ.items() if not k.startswith(("HVD_POD", "HVD_JOB"))}
        surroundings.update(HVD_OPERATOR=f"https://localhost:{case.plane.port}",
                            HVD_OPERATOR_CA=json.loads(case.plane.ask("ca")), HVD_TOKEN_FILE=self.tokens,
                            HVD_JOB_UID=job, HVD_JOB_NAME=job, HVD_JOB_NAMESPACE="default", HVD_POD_UID=self.uid,
                            HVD_POD_NAME=self.name, HVD_DOCTOR="off", HVD_REJOIN_JITTER_MS="1000",
                            HVD_TERMINATION_MESSAGE_PATH=self.end)
        surroundings.update(env)
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([*through, AGENT, "pod", "--", *map(str, command)], env=surroundings,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True)
        case.pods.append(self)

    def set_token(self, token):
        with open(self.tokens + ".new", "w", encoding="utf-8") as file:
            file.write(token + "\n")
        os.rename(self.tokens + ".new", self.tokens)

    def tell(self, bound=True, deleting=False, over=False):
        self.case.plane.ask("pod", self.job, self.uid, self.name, self.worker, bound, deleting, over)

    def ranks(self):
        """Process ids of this agent's ranks."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]

    def text(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def message(self):
        """The termination message."""
        with open(self.end, encoding="utf-8") as file:
            return file.read()

    def code(self, seconds=60):
        return self.process.wait(seconds)

    def evict(self):
        """Does what the kubelet does at an eviction."""
        self.tell(deleting=True)
        self.process.send_signal(signal.SIGTERM)

    def kill(self):
        """A node that is switched off: no process reports anything."""
        pids = self.ranks()
        self.process.kill()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # the end of their agent may have ended them
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


class Case(unittest.TestCase):
    def run(self, result=None):
        self.result = result
        return super().run(result)

    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory(prefix="hvd-plane-")
        self.folder = self.tmp.name
        self.pods = []
        self.plane = Plane(self.folder)
        self.plane.ask("synced")
        self.addCleanup(self.finish)

    def finish(self):
        failed = any(case is self for case, _ in self.result.failures + self.result.errors)
        for pod in self.pods:
            if pod.process.poll() is None:
                pod.kill()
            if failed:
                print(f"---- {pod.name}: code {pod.process.returncode}\n{pod.text()}")
        code = self.plane.end() if self.plane.process.poll() is None else 0
        self.tmp.cleanup()
        self.assertEqual(code, 0, "the plane's own end")

    def start_job(self, job, workers, least, most, slots=1, began=False):
        self.plane.ask("job", job, job, workers, least, most, slots, began)

    def start_pod(self, job, worker, command, **kwargs):
        pod = Pod(self, job, worker, command, **kwargs)
        pod.tell()
        return pod

    def start_pods(self, job, n, command, **kwargs):
        """All workers are known and have a node before the first agent connects."""
        for i in range(n):
            self.plane.ask("pod", job, f"{job}-{i}", f"{job}-{i}", i, True, False, False)
        return [self.start_pod(job, i, command, uid=f"{job}-{i}", name=f"{job}-{i}", **kwargs) for i in range(n)]

    def wait_size(self, job, size, seconds=20):
        def look():
            facts = self.plane.facts(job)
            return facts if facts["size"] == size and facts["state"] == "running" else None
        try:
            return wait_for(f"a world of {size}", seconds, look)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.plane.facts(job)}\n{self.plane.ask('status', job)}") from late

    def wait_known(self, pods, seconds=20):
        """Waits until these workers, which run STEPS, are in the world of all of them. The operator knows it before the
        ranks do."""
        wait_for("ranks that know it", seconds, lambda: all(
            re.findall(r" world (\d+) ", pod.text())[-1:] == [str(len(pods))] for pod in pods))

    def request(self, method, path, token, body=None):
        """Asks like a stranger with curl. Returns status and text."""
        context = ssl.create_default_context(cadata=json.loads(self.plane.ask("ca")))
        connection = http.client.HTTPSConnection("localhost", self.plane.port, timeout=20, context=context)
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {token}"} if token else {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()
