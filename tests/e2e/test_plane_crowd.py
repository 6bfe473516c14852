#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 30 s
# timeout: 400
"""The coordinator plane of hvd-operator with many simulated agents (tests/programs/agents_try): what a connected one
costs, and that none is lost when another operator takes over. HVD_TEST_CROWD agents: 200 by default, 2,000 in the strict
run."""
import json
import os
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from plane import PROGRAMS, Case  # noqa: E402

SANITIZED = bool(os.environ.get("HVD_TEST_SANITIZED"))
STRICT = os.environ.get("HVD_TEST_STRICT") == "1" and not SANITIZED
CROWD = int(os.environ.get("HVD_TEST_CROWD") or (2000 if STRICT else 200))
JOB = 500       # agents in a job
PROCESS = 1000  # agents in a process, each with a few descriptors
JITTER_MS = 10000 if CROWD >= 1000 else 2000


class Agents:
    """The processes with the simulated agents of some jobs."""

    def __init__(self, case, jobs, jitter_ms, ranks):
        lines = [f"{job} {pod} {case.plane.ask('key', job)}\n" for job, pods in jobs.items() for pod in pods]
        self.n, self.processes, self.waited = len(lines), [], {}
        ca = os.path.join(case.folder, "ca")
        with open(ca, "w", encoding="ascii") as file:
            file.write(json.loads(case.plane.ask("ca")))
        for first in range(0, self.n, PROCESS):
            path = os.path.join(case.folder, f"agents-{first}")
            with open(path, "w", encoding="ascii") as file:
                file.writelines(lines[first:first + PROCESS])
            command = [os.path.join(PROGRAMS, "agents_try"), f"https://localhost:{case.plane.port}", ca, path,
                       str(jitter_ms), str(int(ranks))]
            self.processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            if ranks:   # one process after the other: here the failover is the storm
                self.listen(self.processes[-1], "joined")
                self.listen(self.processes[-1], "trains")
        case.addCleanup(self.kill)

    def listen(self, process, word):
        """Waits until all agents of the process say the word. Returns their number and ms. Any other line is a failure."""
        said = process.stdout.readline().split(None, 2)
        assert said and said[0] == word, said
        return int(said[1]), int(said[2])

    def wait(self, word):
        """Waits until all agents say the word. Returns the longest time in ms."""
        said = [self.listen(process, word) for process in self.processes]
        assert sum(n for n, _ in said) == self.n, said
        return max(ms for _, ms in said)

    def end(self):
        """Returns the numbers of requests that were answered well, that failed, and of all requests."""
        for process in self.processes:
            process.stdin.close()
        lines = [process.stdout.read().split() for process in self.processes]
        assert all(len(line) == 6 for line in lines), lines     # else an agent was told of something at the end
        return [sum(int(line[i]) for line in lines) for i in (1, 3, 5)]

    def kill(self):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


class Crowd(Case):
    def begin_jobs(self, began=False):
        jobs = {}
        for first in range(0, CROWD, JOB):
            job, n = f"job-{first}", min(JOB, CROWD - first)
            self.start_job(job, n, 1, n, began=began)
            jobs[job] = [f"{job}-pod-{i}" for i in range(n)]
            for i, pod in enumerate(jobs[job]):
                self.plane.ask("pod", job, pod, f"{job}-{i}", i, True, False, False)
        self.plane.ask("synced")
        return jobs

    def test_agents_that_connect_at_once(self):
        """The cost of a connected agent: TLS, its long poll, its places in the roster."""
        jobs = self.begin_jobs()
        before = int(self.plane.ask("memory"))
        agents = Agents(self, jobs, 0, False)
        ms = agents.wait("joined")
        time.sleep(1)   # until all long polls are open
        each = (int(self.plane.ask("memory")) - before) / CROWD
        counts = self.plane.counts()
        time.sleep(2)   # each has asked again
        print(f"joined {CROWD} after {ms} ms; {each:.1f} KiB each; the slowest turn {counts['slowest_ms']:.1f} ms")
        self.assertEqual(counts["agents"], CROWD)
        if not SANITIZED:       # a sanitizer adds memory to each allocation
            self.assertLess(each, 24)
        self.assertLess(counts["slowest_ms"], 1000)
        self.assertEqual(agents.end()[1], 0)

    def test_nobody_is_lost_when_the_operator_is_replaced(self):
        """All agents have a rank that trains. Another operator takes all of them back, and no job gets a new epoch."""
        agents = Agents(self, jobs := self.begin_jobs(), JITTER_MS, True)
        before = {job: self.plane.facts(job) for job in jobs}
        self.plane.kill()
        time.sleep(3)   # all agents find no operator, and pause
        begun = time.monotonic()
        self.plane.start()
        self.begin_jobs(began=True)
        self.plane.counts()     # forgets the slowest turn so far
        agents.wait("back")
        back, slowest, most = time.monotonic() - begun, self.plane.counts()["slowest_ms"], self.memory("VmHWM")
        used = self.seconds()
        while any(self.plane.facts(job)["rebuilding"] for job in jobs):
            self.assertLess(time.monotonic() - begun, 120)
            time.sleep(0.1)
        time.sleep(1)   # time for agents to be told of something
        counts = self.plane.counts()
        print(f"failover of {CROWD} agents: back after {back:.1f} s and {used:.1f} s of its processor "
              f"time, lost {counts['losses']}, the slowest turn {slowest:.1f} ms, RSS {most / 1024:.0f} MiB at most, "
              f"{self.memory('VmRSS') / 1024:.0f} MiB now")
        self.assertEqual((counts["agents"], counts["rejoins"], counts["losses"]), (CROWD, CROWD, 0))
        for job, old in before.items():
            facts = self.plane.facts(job)
            for name in ("epoch", "size", "restarts", "agents", "ready"):
                self.assertEqual(facts[name], old[name], f"{name} of {job}")
        self.assertLess(slowest, 1000)
        self.assertEqual(agents.end()[1], 0)

    def seconds(self):
        """The plane's processor time."""
        with open(f"/proc/{self.plane.process.pid}/stat", encoding="ascii") as file:
            return sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")

    def memory(self, name):
        """In KiB."""
        with open(f"/proc/{self.plane.process.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(name))


if __name__ == "__main__":
    unittest.main(verbosity=2)
