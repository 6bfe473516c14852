#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 60 s, waiting
# timeout: 400
"""The coordinator plane of hvd-operator with real agents and ranks on this machine: they join, train, leave and are
killed; the operator is killed and replaced; strangers are refused."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import unittest
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from plane import AGENT, PROGRAMS, STEPS, Case, wait_for  # noqa: E402

LONG = (100000, 5)  # steps, milliseconds each: the test ends the program before


class Trains(Case):
    def test_from_first_pod_to_exit_codes(self):
        self.start_job("a", 2, 1, 4)
        pods = self.start_pods("a", 2, [STEPS, 1000, 5])
        facts = self.wait_size("a", 2)
        self.assertEqual((facts["ready"], facts["agents"], facts["epoch"]), (2, 2, 1))
        for pod in pods:
            self.assertEqual(pod.code(), 0, pod.text())
            self.assertIn("done 1000", pod.text())
        for pod in pods:
            pod.tell(over=True)
        facts = wait_for("the end", 5, lambda: self.plane.facts("a")["over"] and self.plane.facts("a"))
        self.assertEqual((facts["finished"], facts["code"], facts["failed"]), (True, 0, False))
        self.assertEqual(self.plane.counts()["losses"], 0)

    def test_ranks_see_nothing_of_the_operator(self):
        self.start_job("a", 1, 1, 2)
        pod = self.start_pod("a", 0, ["env"])
        self.assertEqual(pod.code(), 0)
        self.assertIsNone(re.search("HVD_(OPERATOR|TOKEN|POD|JOB_UID)", pod.text()), pod.text())
        self.assertIn("HVD_AGENT_FD=", pod.text())

    def test_two_slots_a_worker(self):
        self.start_job("a", 2, 1, 2, slots=2)
        pods = self.start_pods("a", 2, [STEPS, 1000, 5])
        self.wait_size("a", 4)
        self.assertEqual([pod.code() for pod in pods], [0, 0])
        self.assertRegex(pods[0].text(), r"\[1\]<stdout>: ?pid \d+ done 1000")

    def test_a_job_that_is_not_elastic(self):
        self.start_job("a", 2, 2, 2)
        pods = self.start_pods("a", 2, [STEPS, 100, 5])
        self.assertEqual([pod.code() for pod in pods], [0, 0])

    def test_pending_pods_do_not_hold_up_the_others(self):
        self.start_job("a", 3, 1, 3)
        self.start_pod("a", 0, [STEPS, *LONG])
        self.start_pod("a", 1, [STEPS, *LONG])
        self.plane.ask("pod", "a", "pending", "a-2", 2, False, False, False)
        begun = time.monotonic()
        wait_for("a world of 2", 20, lambda: self.plane.facts("a")["size"] == 2)
        self.assertLess(time.monotonic() - begun, 10)

    def test_the_program_fails(self):
        self.start_job("a", 2, 1, 2)
        mark = os.path.join(self.folder, "mark")
        pod = self.start_pod("a", 0, [STEPS, *LONG])
        bad = self.start_pod("a", 1, [STEPS, *LONG, mark])
        self.wait_size("a", 2)
        with open(mark, "w", encoding="ascii"):
            pass
        self.assertEqual(bad.code(), 7, bad.text())
        facts = wait_for("the failure", 5, lambda: self.plane.facts("a")["failed"] and self.plane.facts("a"))
        self.assertEqual((facts["first_code"], facts["first_worker"]), (7, 1))
        self.assertIn("exit", facts["first_text"])
        wait_for("the survivor", 5, lambda: self.plane.facts("a")["size"] == 1)
        self.assertIsNone(pod.process.poll())

    def test_the_doctor_looks_first(self):
        """The doctor's findings on this machine do not matter here, except that a failure starts no rank."""
        self.start_job("a", 1, 1, 2)
        pod = self.start_pod("a", 0, [STEPS, 10, 5], HVD_DOCTOR="fail")
        code = pod.code(60)
        failures = self.plane.facts("a")["failures"]
        refused = failures or "did not end within" in pod.text()
        self.assertEqual(code, 126 if refused else 0, pod.text())
        self.assertEqual("done 10" in pod.text(), not refused)

    def test_the_doctor_refuses(self):
        """A failure of the doctor, by a limit of 512 open files. The end of the pod's log, which the API server shows,
        has the reason and the fix."""
        self.start_job("a", 1, 1, 2)
        pod = self.start_pod("a", 0, [STEPS, 10, 5], through=("prlimit", "--nofile=512", "--"), HVD_DOCTOR="fail")
        self.assertEqual(pod.code(60), 126, pod.text())
        self.assertNotIn("done", pod.text())
        self.assertRegex(pod.text(), r"hvd-doctor: .*\(nofile-low\); fix: .")
        self.assertGreater(self.plane.facts("a")["failures"], 0, "the findings outlive the pod")
        pod.tell(over=True)
        well = self.start_pod("a", 0, [STEPS, *LONG])
        wait_for("a rank", 10, well.ranks)
        wait_for("the former pod's findings to be gone", 10, lambda: not self.plane.facts("a")["failures"])

    def test_the_doctor_looks_as_far_as_it_is_told(self):
        """At level 2 the doctor measures before ranks are started, whatever it finds. In a pid namespace, as in a pod:
        it does not measure beside running ranks, and other tests' ranks may run on this machine."""
        alone = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
        if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
            self.skipTest("a pid namespace of one's own takes root")
        for job, level in (("a", "1"), ("b", "2")):
            self.start_job(job, 1, 1, 2)
            with socket.create_server(("127.0.0.1", 0)) as taken:
                at = "127.0.0.1:%d" % taken.getsockname()[1]
            pod = self.start_pod(job, 0, [STEPS, *LONG], through=alone, HVD_DOCTOR="warn", HVD_DOCTOR_LEVEL=level,
                                 HVD_METRICS=at)
            wanted = 'id="memory-bandwidth"' if level == "2" else 'id="nofile-low"'
            wait_for("the doctor", 60, lambda: wanted in self.checks(at))
            wait_for("a step", 30, lambda: "step" in pod.text())
            self.assertEqual('id="memory-bandwidth"' in self.checks(at), level == "2")

    def checks(self, at):
        try:
            with urllib.request.urlopen(f"http://{at}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return ""
        return text if "hvd_doctor_check_status{" in text else ""

    def test_no_such_program(self):
        self.start_job("a", 1, 1, 2)
        self.assertEqual(self.start_pod("a", 0, ["/nowhere/train"]).code(), 127)


class Changes(Case):
    def setUp(self):
        super().setUp()
        self.start_job("a", 2, 1, 4)
        self.two = self.start_pods("a", 2, [STEPS, *LONG])
        self.wait_size("a", 2)
        self.wait_known(self.two)

    def test_grows_and_shrinks(self):
        ranks = [pod.ranks() for pod in self.two]
        self.start_job("a", 3, 1, 4)
        third = self.start_pod("a", 2, [STEPS, *LONG])
        self.wait_size("a", 3)
        self.start_job("a", 2, 1, 4)  # the last worker's ranks leave, at a boundary
        facts = self.wait_size("a", 2)
        self.assertRegex(facts["cause"], "scaled from 3 to 2|1 rank left as asked")
        wait_for("its ranks' end", 15, lambda: not third.ranks())
        time.sleep(0.3)     # time for the agent to end too early
        self.assertIsNone(third.process.poll(), "it waits for SIGTERM")
        third.evict()
        self.assertEqual(third.code(), 143, third.text())
        third.tell(deleting=True, over=True)
        self.assertEqual([pod.ranks() for pod in self.two], ranks, "no rank was started again")
        self.assertEqual(self.plane.facts("a")["size"], 2)

    def test_eviction_drains_and_is_replaced(self):
        before = self.plane.facts("a")["epoch"]
        self.two[1].evict()
        self.assertEqual(self.two[1].code(), 143, self.two[1].text())
        self.two[1].tell(deleting=True, over=True)
        facts = self.plane.facts("a")
        self.assertEqual((facts["size"], facts["epoch"] > before, facts["failed"]), (1, True, False))
        self.assertEqual(self.plane.counts()["losses"], 0)
        self.start_pod("a", 1, [STEPS, *LONG])
        self.wait_size("a", 2)

    def test_a_rank_is_killed(self):
        os.kill(self.two[0].ranks()[0], signal.SIGKILL)
        self.assertEqual(self.two[0].code(), 137)
        facts = wait_for("the survivor", 5, lambda: self.plane.facts("a")["size"] == 1 and self.plane.facts("a"))
        self.assertIn("signal 9", facts["cause"])
        self.assertLess(facts["ms"], 500)

    def test_a_pod_is_killed(self):
        self.two[1].kill()
        facts = wait_for("the survivor", 5, lambda: self.plane.facts("a")["size"] == 1 and self.plane.facts("a"))
        print(f"a pod was killed: the next epoch after {facts['ms']:.1f} ms: {facts['cause']}")
        self.assertLess(facts["ms"], 1000)
        self.start_pod("a", 1, [STEPS, *LONG])
        self.wait_size("a", 2)

    def test_below_min_waits(self):
        self.start_job("a", 2, 2, 4)
        self.two[1].kill()
        self.two[1].tell(over=True)
        facts = wait_for("waiting", 10, lambda: self.plane.facts("a")["state"] == "waiting" and self.plane.facts("a"))
        self.assertTrue(facts["waiting_for"])
        self.assertIsNone(self.two[0].process.poll())
        ranks = self.two[0].ranks()
        self.start_pod("a", 1, [STEPS, *LONG])
        self.wait_size("a", 2)
        self.assertEqual(self.two[0].ranks(), ranks, "its state stayed in memory")

    def test_the_job_is_over(self):
        self.plane.ask("forget", "a")
        for pod in self.two:
            pod.code(10)
            self.assertFalse(os.path.exists(f"/proc/{pod.process.pid}"))


class Operator(Case):
    def setUp(self):
        super().setUp()
        self.start_job("a", 3, 1, 4)
        self.three = self.start_pods("a", 3, [STEPS, *LONG], HVD_COORDINATOR_LOST_SECONDS="20")
        self.wait_size("a", 3)
        self.wait_known(self.three)

    def tell_all(self):
        self.start_job("a", 3, 1, 4, began=True)
        for pod in self.three:
            pod.tell(over=pod.process.poll() is not None)
        self.plane.ask("synced")

    def rejoined(self, n):
        wait_for("agents that come back", 20, lambda: self.plane.counts()["rejoins"] >= n
                 and not self.plane.facts("a")["rebuilding"])

    def test_is_killed_and_replaced(self):
        ranks = [pod.ranks() for pod in self.three]
        for _ in range(2):  # the second time the epochs have another term
            before = self.plane.facts("a")["epoch"]
            self.plane.kill()
            time.sleep(2)   # the agents find no operator, several times
            self.plane.start()
            self.tell_all()
            self.rejoined(3)
            facts = self.plane.facts("a")
            self.assertEqual((facts["size"], facts["epoch"]), (3, before))
            self.assertEqual([pod.ranks() for pod in self.three], ranks)
            os.kill(ranks.pop()[0], signal.SIGKILL)
            lost = self.three.pop()
            lost.code()
            lost.tell(over=True)
            wait_for("the survivors", 10, lambda: self.plane.facts("a")["size"] == len(self.three))
            self.three.append(self.start_pod("a", 2, [STEPS, *LONG], HVD_COORDINATOR_LOST_SECONDS="20"))
            self.wait_size("a", 3)
            self.wait_known(self.three)
            ranks.append(self.three[2].ranks())

    def test_a_pod_dies_while_it_is_away(self):
        """The API server does not know it yet. Agents whose ranks wait come back sooner than they otherwise would, and
        do not wait for the dead one until the window ends."""
        self.start_job("b", 3, 1, 4)
        pods = self.start_pods("b", 3, [STEPS, *LONG], HVD_REJOIN_JITTER_MS="30000")
        self.wait_size("b", 3)
        self.wait_known(pods)
        self.plane.kill()
        pods[2].kill()
        time.sleep(1.5)     # time for the other agents to find no operator
        self.plane.start()
        self.start_job("b", 3, 1, 4, began=True)
        for pod in pods:
            pod.tell()
        self.tell_all()
        facts = wait_for("the survivors", 10, lambda: self.plane.facts("b")["size"] == 2 and self.plane.facts("b"))
        self.assertIn("its agent has not come back to this operator", facts["cause"])

    def test_token_that_is_not_renewed_yet(self):
        """After a long outage the next operator does not accept the token of an agent, until the kubelet renews it."""
        self.start_job("d", 1, 1, 1)
        self.plane.ask("token", "sa-old", "d-0")
        pod = self.start_pod("d", 0, [STEPS, *LONG], uid="d-0", token="sa-old")
        self.wait_size("d", 1)
        rank = pod.ranks()
        self.plane.kill()
        self.plane.start()
        self.start_job("d", 1, 1, 1, began=True)
        self.tell_all()
        pod.tell()
        wait_for("a refusal", 20, lambda: self.plane.counts()["token"] > 0)
        time.sleep(2)   # time for the agent to end too early
        self.assertEqual(pod.ranks(), rank, pod.text())
        self.plane.ask("token", "sa-new", "d-0")
        pod.set_token("sa-new")
        self.wait_size("d", 1)
        self.assertEqual(pod.ranks(), rank, pod.text())

    def test_is_away_while_ranks_start(self):
        """A rank waits in hvd_init() for another one. The time in which nobody can tell it of others does not count."""
        self.start_job("c", 2, 2, 2)
        self.three.append(self.start_pod("c", 0, [STEPS, *LONG], HVD_START_TIMEOUT="8"))
        wait_for("a rank that waits", 10, lambda: '"state":"ready"' in str(self.plane.ask("status", "c")).replace(" ", ""))
        rank = self.three[3].ranks()
        self.plane.kill()
        time.sleep(9)   # longer than the rank's limit
        self.assertEqual(self.three[3].ranks(), rank, self.three[3].text())
        self.plane.start()
        self.start_job("c", 2, 2, 2, began=True)
        self.tell_all()
        self.three.append(self.start_pod("c", 1, [STEPS, *LONG], HVD_START_TIMEOUT="20"))
        self.wait_size("c", 2)
        self.assertEqual(self.three[3].ranks(), rank, self.three[3].text())

    def test_does_not_know_yet(self):
        """Agents that connect before the operator has heard of jobs and pods are not refused."""
        self.plane.kill()
        self.plane.start()
        time.sleep(2)   # time for agents to be refused, and to end
        self.assertEqual([pod.process.poll() for pod in self.three], [None] * 3)
        self.tell_all()
        self.rejoined(3)
        self.wait_size("a", 3)

    def test_never_comes_back(self):
        short = self.start_pod("a", 3, ["sleep", "1000"], HVD_COORDINATOR_LOST_SECONDS="2")
        self.start_job("a", 4, 1, 4)
        rank = wait_for("a rank", 10, short.ranks)[0]
        self.plane.kill()
        self.assertEqual(short.code(), 125)
        self.assertRegex(short.message(), r"^hvd-agent: operator-away: the operator has not answered for 2 s \(")
        self.assertFalse(os.path.exists(f"/proc/{rank}"), "no rank outlives its agent")
        self.assertIsNone(self.three[0].process.poll())

    def test_sigterm_while_it_is_away(self):
        self.plane.kill()
        self.three[2].process.send_signal(signal.SIGTERM)
        time.sleep(1)   # time for the agent to end too early
        self.assertIsNone(self.three[2].process.poll())
        self.plane.start()
        self.tell_all()
        self.assertEqual(self.three[2].code(), 143, self.three[2].text())
        wait_for("the others", 10, lambda: self.plane.facts("a")["size"] == 2)
        self.assertEqual(self.plane.counts()["losses"], 0)


class Refused(Case):
    def setUp(self):
        super().setUp()
        self.start_job("a", 2, 1, 4)
        self.start_job("b", 1, 1, 2)
        self.two = self.start_pods("a", 2, [STEPS, *LONG])
        self.before = self.wait_size("a", 2)
        self.key = self.plane.ask("key", "a")
        self.pod = self.two[0].uid
        self.path = f"/jobs/a/pods/{self.pod}/v1"

    def tearDown(self):
        facts = self.plane.facts("a")
        for name in ("epoch", "size", "agents", "failed"):
            self.assertEqual(facts[name], self.before[name], "nothing else is disturbed")
        self.assertEqual([pod.process.poll() for pod in self.two], [None, None])

    def check(self, want, words, *request):
        status, text = self.request(*request)
        self.assertEqual(status, want, text)
        self.assertIn(words, json.loads(text)["error"])

    def test_tokens(self):
        status = f"{self.path}/status"
        self.assertEqual(self.request("GET", status, self.key)[0], 200)
        self.check(401, "wrong or missing token", "GET", status, None)
        self.check(401, "not the key of job a", "GET", status, self.plane.ask("key", "b"))
        self.check(401, "not the key of job a", "GET", status, self.key[:-1])
        self.assertEqual(self.plane.counts()["token"], 3)

    def test_pods(self):
        self.check(404, "no running pod nobody", "GET", "/jobs/a/pods/nobody/v1/status", self.key)
        self.check(404, "no running job c", "GET", "/jobs/c/pods/x/v1/status", self.plane.ask("key", "c"))
        self.check(404, "want /jobs/UID/pods/UID/v1/", "GET", "/v1/status", self.key)
        join = {"agent": "somebody.1", "host": "h", "version": "0", "slots": 1, "pid": 1}
        self.check(403, "none of pod", "POST", f"{self.path}/join", self.key, json.dumps(join))
        other = self.two[1].uid
        self.check(403, "none of pod", "GET", f"{self.path}/events?agent={other}.1&wait=1", self.key)
        self.check(403, "none of pod", "POST", f"{self.path}/report", self.key,
                   json.dumps({"agent": other + ".1", "seq": 99, "ranks": []}))
        self.check(403, "cannot scale", "POST", f"{self.path}/scale", self.key, '{"np": 1}')
        self.check(403, "no host", "POST", f"{self.path}/drain", self.key, json.dumps({"host": self.two[1].name}))
        self.assertEqual(self.plane.counts()["pod"], 2)

    def test_bodies(self):
        self.check(413, "too long", "POST", f"{self.path}/report", self.key, "x" * (10 << 20))
        self.check(400, "report", "POST", f"{self.path}/report", self.key, '{"agent": 1}')
        self.check(400, "", "POST", f"{self.path}/join", self.key, "\xff{")
        self.assertEqual(self.plane.counts()["body"], 3)
        self.assertLess(int(self.plane.ask("memory")), 64 << 10)

    def test_key_of_a_finished_job(self):
        key = self.plane.ask("key", "b")
        pod = self.start_pod("b", 0, ["sleep", "1000"])
        wait_for("a rank", 10, pod.ranks)
        self.plane.ask("forget", "b")
        pod.code()
        wait_for("its end", 15, lambda: self.plane.counts()["jobs"] == 1)
        join = {"agent": pod.uid + ".2", "host": "h", "version": "0", "slots": 1, "pid": 1}
        status, text = self.request("POST", f"/jobs/b/pods/{pod.uid}/v1/join", key, json.dumps(join))
        self.assertIn(status, (404, 409), text)

    def test_service_account_tokens(self):
        self.start_job("b", 2, 1, 2)
        long = "sa-one." + "x" * 1500  # as long as those of Kubernetes
        self.plane.ask("token", long, "b-one")
        self.plane.ask("token", "sa-two", "b-two")
        one = self.start_pod("b", 0, ["sleep", "1000"], uid="b-one", token=long)
        wait_for("a rank", 10, one.ranks)
        self.assertEqual(self.plane.counts()["reviews"], 1, "it is asked once")
        thief = self.start_pod("b", 1, ["sleep", "1000"], uid="b-two", token=long)
        self.assertEqual(thief.code(), 125)
        self.assertRegex(thief.message(), "^hvd-agent: invalid-setting: .*does not accept")
        two = self.start_pod("b", 1, ["sleep", "1000"], uid="b-two", token="sa-two")
        wait_for("a rank", 10, two.ranks)
        self.plane.ask("token", "sa-two-next", "b-two")
        two.set_token("sa-two-next")

    def test_the_pod_lies_about_itself(self):
        message = self.two[0].end
        for change in ({"HVD_POD_UID": "a/b"}, {"HVD_JOB_UID": ""}, {"HVD_OPERATOR": "http://localhost:1"},
                       {"HVD_TOKEN_FILE": "/nowhere"}, {"HVD_DOCTOR": "perhaps"}, {"HVD_DOCTOR_LEVEL": "4"},
                       {"HVD_DRAIN_SECONDS": "x"}):
            env = dict(os.environ, HVD_OPERATOR="https://localhost:1", HVD_OPERATOR_CA="x", HVD_JOB_UID="j",
                       HVD_POD_UID="p", HVD_TOKEN_FILE=self.two[0].tokens, HVD_TERMINATION_MESSAGE_PATH=message)
            env.update(change)
            done = subprocess.run([AGENT, "pod", "--", "true"], env=env, capture_output=True, text=True, timeout=20)
            self.assertEqual(done.returncode, 125)
            self.assertIn("token file /nowhere" if "HVD_TOKEN_FILE" in change else next(iter(change)), done.stderr)
            self.assertRegex(self.two[0].message(), "^hvd-agent: invalid-setting: ")
        done = subprocess.run([AGENT, "pod", "--"], capture_output=True, text=True, timeout=20)
        self.assertEqual((done.returncode, "no command" in done.stderr), (125, True))


if __name__ == "__main__":
    unittest.main(verbosity=2)
