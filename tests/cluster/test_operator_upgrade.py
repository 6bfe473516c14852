#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 20 s, waiting
# needs: kubernetes
"""Upgrade and downgrade of the operator by one version (earlier.py) while jobs train, with the CRD and the rights of this
version. A pod gets agent and library of the version whose operator created it, as from that operator's bundle.
timeout: 1500"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import agents  # noqa: E402
import case  # noqa: E402
import earlier  # noqa: E402
from agents import Case  # noqa: E402

RULES = {"failurePolicy": {"rules": [{"name": "killed", "action": "Ignore",
                                      "onExitCodes": {"operator": "In", "values": [137]}}]}}
STEPS = 1000000    # more than a test lasts


class Upgrade(Case):
    nodes = 4

    def setUp(self):
        self.jobs = []    # (job, kubelet)
        self.port = agents.clusters.free_port("127.0.0.1")
        self.operator = None
        self.run_version("old")

    def run_version(self, version):
        """Ends the operator, and starts one of that version, which takes the lease."""
        self.bundle = earlier.build() if version == "old" else agents.BUILD
        if self.operator:
            self.operator.stop()
        self.operator = self.start_operator(version, os.path.join(self.bundle, "hvd-operator") if version == "old" else None)
        for _, kubelet in self.jobs:
            kubelet.bundle = self.bundle
        self.await_all("it to lead", lambda: self.operator.metric("hvd_leader") == 1)

    def await_all(self, what, question, seconds=60):
        """Waits while all kubelets work."""
        job, kubelet = self.jobs[0] if self.jobs else (None, None)
        if not job:
            agents.wait_until(what, seconds, question, 0.1)
        else:
            self.wait(what, seconds, job, kubelet, lambda: all(k.turn() for _, k in self.jobs) and question())

    def begin(self, name, **more):
        job, kubelet = self.start_job(name, 2, STEPS, 20, **more)
        kubelet.bundle = self.bundle
        self.jobs.append((job, kubelet))
        self.await_all(f"both ranks of {name} in a world of two", lambda: self.worlds(kubelet) == [2, 2])
        self.await_all("its epoch", lambda: job.status().get("epoch", 0) > 0)
        return job, kubelet

    def replace_operator(self, version):
        """Replaces the operator: no process ends, no world changes, nothing is counted, and all agents are back."""
        def state():
            return [(job.name, {name: kubelet.of(name).pid for name in job.running()}, self.worlds(kubelet),
                     job.status()["restarts"], job.status()["failures"]) for job, kubelet in self.jobs]

        def check():
            now = state()
            if now != before:
                notes = {job.name: [f"{event['reason']}: {event.get('note')}" for event in job.events().values()]
                         for job, _ in self.jobs}
                self.fail(f"after {version}: {now}, before it {before}; {notes}")
        before = state()
        switches = self.switches()
        self.run_version(version)
        self.await_all("all agents", lambda: self.operator.metric("hvd_agents") == sum(len(one[1]) for one in before))
        check()
        self.assertEqual(self.operator.metric("hvd_agent_losses_total"), 0)
        after = self.switches()
        self.assertEqual(after.keys(), switches.keys())
        self.await_all("steps of all ranks", lambda: all(n > after[pid] + 20 for pid, n in self.switches().items()))
        check()

    def switches(self):
        """{pid of a rank: how often it has slept, which it does in each step}."""
        found = {}
        for job, kubelet in self.jobs:
            for name in job.running():
                agent = kubelet.of(name).pid
                with open(f"/proc/{agent}/task/{agent}/children", encoding="ascii") as f:
                    for rank in f.read().split():
                        with open(f"/proc/{rank}/status", encoding="ascii") as status:
                            found[rank] = int(status.read().split("nonvoluntary")[0].split("voluntary_ctxt_switches:")[1])
        return found

    def kill_worker(self, job, kubelet, failures):
        """Kills a worker: it is replaced, and the world has two ranks again."""
        name, restarts = sorted(job.running())[-1], job.status()["restarts"]
        uid, worlds = job.pods()[name]["metadata"]["uid"], len(self.worlds(kubelet))
        kubelet.of(name).kill()
        # The survivor reports a world of one, unless the replacement came first; both report one of two.
        self.await_all("a world of two again", lambda: self.worlds(kubelet)[worlds:].count(2) >= 2)
        self.await_all("two workers", lambda: len(job.running()) == 2 and job.status()["ready"] == 2)
        self.assertNotIn(uid, [pod["metadata"]["uid"] for pod in job.pods(alive=True).values()])
        status = job.status()
        self.assertEqual((status["phase"], status["restarts"], status["failures"]), ("Running", restarts + 1, failures))

    def test_up_down_and_up(self):
        elastic = self.begin("elastic", minWorkers=1, maxWorkers=3)
        fixed, _ = self.begin("fixed")
        self.replace_operator("new")
        self.kill_worker(*elastic, failures=1)    # an agent of this version beside one of the earlier version
        ruled = self.begin("ruled", minWorkers=1, maxWorkers=2, run={**RULES, "drainPolicy": "Shrink"})
        self.kill_worker(*ruled, failures=0)
        self.assertEqual(ruled[0].status()["failureRule"]["name"], "killed")
        self.replace_operator("old")
        self.kill_worker(*ruled, failures=1)      # the earlier version knows no rules
        self.cluster.kubectl("scale", "hvdjob/elastic", "--replicas=3")
        self.await_all("a world of three", lambda: self.worlds(elastic[1]).count(3) == 3)
        self.replace_operator("new")
        self.kill_worker(*ruled, failures=1)
        status = fixed.status()
        self.assertEqual((status["phase"], status["restarts"], status["failures"]), ("Running", 0, 0))


def needs():
    agents.needs()
    earlier.build()


if __name__ == "__main__":
    case.main("test_operator_upgrade", needs)
