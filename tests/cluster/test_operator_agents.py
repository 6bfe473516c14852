#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 340 s, waiting
# needs: kubernetes
"""hvd-operator as the coordinator of real agents, which dial it over TLS with tokens that the API server reviews, and of
real ranks that train (agents.py).
timeout: 3000"""
import base64
import concurrent.futures
import contextlib
import os
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import agents  # noqa: E402
import case  # noqa: E402
import operators  # noqa: E402
from agents import Case  # noqa: E402
from api import Api, Refused, wait_until  # noqa: E402
from operators import Job  # noqa: E402
from invariants import Invariants  # noqa: E402

AWAY_S = 60


class Alone(Case):
    """Rights for one namespace: no token reviews, each job has its own key."""
    overlay, options = "namespaced", ("--namespace", operators.SYSTEM)

    def test_trains_with_a_key(self):
        job, kubelet = self.start_job("keyed", 2, 20, 100, namespace=operators.SYSTEM)
        self.wait("a world of two", 60, job, kubelet, lambda: 2 in self.worlds(kubelet))
        self.wait("success", 120, job, kubelet, lambda: job.status().get("phase") == "Succeeded")
        secrets = f"/api/v1/namespaces/{operators.SYSTEM}/secrets?labelSelector=hvd.dev%2Fjob%3Dkeyed"
        self.assertEqual(len(self.cluster.api.get(secrets)["items"]), 1)
        job.delete()
        job.wait_gone()
        wait_until("its key to be gone", 30, lambda: not self.cluster.api.get(secrets)["items"])


class Crowd(Case):
    """Many agents without ranks (HVD_TEST_CROWD, 200 by default), which all use their job's key."""
    crowd = int(os.environ.get("HVD_TEST_CROWD") or "200")
    overlay, options, space = "namespaced", ("--namespace", operators.SYSTEM), operators.SYSTEM
    nodes = crowd // 100 + 1

    def test_lease_beside_a_crowd(self):
        """All agents connect at once, lose their operator, and rejoin the next one at once: no renewal of the lease is
        delayed by a second."""
        job = Job(self.cluster, "crowd", self.crowd, namespace=self.space, cpu="10m", minWorkers=1,
                  maxWorkers=self.crowd, doctor={"policy": "off"})
        wait_until("all pods", 60 + self.crowd / 5, lambda: len(job.running()) == self.crowd, 1)
        with Invariants(self.cluster, operators.SYSTEM) as invariants:
            with subprocess.Popen(self.arguments(job), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as crowd:
                self.addCleanup(crowd.kill)
                self.assertIn(f"joined {self.crowd} ", said := crowd.stdout.readline(), self.operator.tail())
                wait_until("renewals", 30, lambda: len(invariants.renewals) >= 3)
                self.operator.kill()
                self.operator = self.start_operator("crowd-next")
                self.assertIn(f"back {self.crowd} ", crowd.stdout.readline(), self.operator.tail())
                wait_until("all of them again", 120, lambda: self.operator.metric("hvd_agents") == self.crowd, 0.5)
                self.assertEqual(self.operator.metric("hvd_agent_losses_total"), 0)
                term = invariants.transitions()
                wait_until("renewals", 30, lambda: sum(renewal[1] == term for renewal in invariants.renewals) > 4)
                crowd.terminate()
            late, pause = self.operator.metric("hvd_lease_late_seconds"), invariants.longest_pause_of_renewals()
            print(f"{said.strip()}; {len(invariants.renewals)} renewals of the lease: at most {late:.3f} s late, "
                  f"at most {pause:.2f} s between two, with the API server's response times")
            self.assertEqual(term, invariants.renewals[0][1] + 1)    # only the killed operator lost the lease
            self.assertLess(late, 1)

    def tokens(self, pods):
        """The token of each of these pods: the key of their job."""
        secrets = f"/api/v1/namespaces/{operators.SYSTEM}/secrets?labelSelector=hvd.dev%2Fjob%3Dcrowd"
        key = self.cluster.api.get(secrets)["items"][0]["data"]["token"]
        return [base64.b64decode(key).decode().strip()] * len(pods)

    def arguments(self, job):
        """The command line of agents_try."""
        secret = f"/api/v1/namespaces/{operators.SYSTEM}/secrets/hvd-operator-ca"
        ca = self.cluster.api.get(secret)["data"]["ca.crt"]
        uid, pods = job.get()["metadata"]["uid"], [pod["metadata"] for pod in job.pods().values()]
        lines = "".join(f"{uid} {pod['uid']} {token}\n" for pod, token in zip(pods, self.tokens(pods)))
        paths = []
        for name, text in (("ca", base64.b64decode(ca)), ("agents", lines.encode())):
            paths.append(self.cluster.path(f"crowd-{name}"))
            with open(paths[-1], "wb") as f:
                f.write(text)
        return [agents.CROWD, f"https://127.0.0.1:{self.port}", *paths, "1000", "0"]


class CrowdWithTokens(Crowd):
    """The same, but each has a token of its own pod, which the API server reviews again for the next operator."""
    overlay, options, space = "cluster", (), "default"

    def tokens(self, pods):
        def token(pod):
            with contextlib.closing(Api.from_kubeconfig(self.cluster.kubeconfig, self.cluster.ca)) as api:
                return agents.bound_token(api, pod, "hvd-operator")

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            return list(pool.map(token, pods))


class Away(Case):
    def test_api_server_is_away_for_a_minute(self):
        """Ranks train on during the whole outage; afterwards no pod exists twice, and the job can be scaled."""
        job, kubelet = self.start_job("minute", 2, 1000000, 20, minWorkers=1, maxWorkers=3)
        self.wait("both in a world of two", 60, job, kubelet, lambda: self.worlds(kubelet) == [2, 2])
        self.wait("its epoch", 30, job, kubelet, lambda: job.status().get("epoch", 0) > 0)
        pids = {name: kubelet.of(name).pid for name in job.running()}
        uids = {name: pod["metadata"]["uid"] for name, pod in job.pods().items()}
        before, status = self.worlds(kubelet), job.status()
        self.cluster.ask("stop kube-apiserver")
        time.sleep(AWAY_S)
        self.assertEqual({pid for pid in pids.values() if os.path.exists(f"/proc/{pid}")}, set(pids.values()), kubelet.logs())
        self.assertEqual(self.operator.metric("hvd_leader"), 0)
        self.cluster.ask("start kube-apiserver")
        wait_until("the API server", 120, self.is_there)
        wait_until("it to lead again", 60, lambda: self.operator.metric("hvd_leader") == 1)
        self.wait("its agents", 60, job, kubelet, lambda: self.operator.metric("hvd_agents") == 2)
        self.assertEqual(self.worlds(kubelet), before, kubelet.logs())
        self.assertEqual({name: kubelet.of(name).pid for name in job.running()}, pids)
        self.assertEqual({name: pod["metadata"]["uid"] for name, pod in job.pods().items()}, uids)
        self.cluster.kubectl("scale", "hvdjob/minute", "--replicas=3")
        self.wait("a world of three", 90, job, kubelet, lambda: 3 in self.worlds(kubelet))
        after = job.status()
        self.assertEqual((after["restarts"], after["failures"]), (status["restarts"], status["failures"]),
                         f"{after}\n{kubelet.logs()}\n{self.operator.tail(200)}")
        self.assertEqual(len(job.pods()), 3)

    def is_there(self):
        try:
            return self.cluster.api.get("/readyz")
        except (OSError, Refused):
            return None


class Agents(Case):
    def test_trains(self):
        """A job succeeds: every agent joined, and the status has the epoch."""
        job, kubelet = self.start_job("trains", 3, 20, 100)
        self.wait("an epoch", 60, job, kubelet, lambda: job.status().get("epoch", 0) > 0)
        self.wait("a world of three", 60, job, kubelet, lambda: 3 in self.worlds(kubelet))
        self.wait("its joins", 5, job, kubelet, lambda: self.operator.metric("hvd_agent_joins_total") == 3)
        self.wait("success", 120, job, kubelet, lambda: job.status().get("phase") == "Succeeded")
        self.assertEqual(self.operator.metric("hvd_agents_refused_total"), 0)

    def test_grows_and_survives(self):
        job, kubelet = self.start_job("grows", 2, 100000, 20, minWorkers=1, maxWorkers=4)
        self.wait("a world of two", 60, job, kubelet, lambda: 2 in self.worlds(kubelet))
        epoch = job.status().get("epoch", 0)
        self.cluster.kubectl("scale", "hvdjob/grows", "--replicas=3")
        self.wait("a world of three", 60, job, kubelet, lambda: 3 in self.worlds(kubelet))
        self.wait("another epoch", 30, job, kubelet, lambda: job.status().get("epoch", 0) > epoch)
        # one worker is killed with all its processes: the others train on, and it is replaced
        name = sorted(job.running())[1]
        before = len(self.worlds(kubelet))
        os.killpg(kubelet.of(name).pid, signal.SIGKILL)
        self.wait("its replacement in a world of three", 90, job, kubelet,
                  lambda: 3 in self.worlds(kubelet)[before:] and len(job.running()) == 3)
        self.assertEqual(job.status()["restarts"], 1)
        # the log has one line for each epoch
        lines = [line.split("epoch ")[1] for line in self.operator.tail(100000).splitlines()
                 if "job default/grows: epoch " in line]
        self.assertEqual([int(line.split(",")[0]) for line in lines], list(range(1, len(lines) + 1)))
        self.assertRegex(lines[0], r"^1, 2 members: grows-0-0 grows-1-0")
        self.assertRegex("\n".join(lines), r"\d, 3 members: grows-0-0 grows-1-0 grows-2-0; .")
        self.assertIn("; scaled from 2 to 3 ranks", "\n".join(lines))

    def test_leave_a_node_that_ends(self):
        """The workers on a node that an autoscaler deletes leave in one epoch, the others train on in the same processes, and
        all are replaced on other nodes. No failure is counted."""
        def change(path, **parts):
            self.cluster.api.call("PATCH", path, parts, kind="application/merge-patch+json")

        def places():
            return {name: pod["spec"].get("nodeName") for name, pod in job.pods().items()}

        def epochs():
            return [set(members.split()) for members in
                    re.findall(r"job default/moves: epoch \d+, \d+ members: ([^;\n]*)", self.operator.tail(100000))]
        job, kubelet = self.start_job("moves", 4, 1000000, 1, minWorkers=1, maxWorkers=4)
        self.wait("a world of four", 60, job, kubelet,
                  lambda: 4 in self.worlds(kubelet) and job.status().get("ready") == 4)
        nodes = list(places().values())
        node = max(nodes, key=nodes.count)   # two workers at least, because there are three nodes
        leave, stay = ({name for name, place in places().items() if (place == node) == there} for there in (True, False))
        pids = {name: kubelet.of(name).pid for name in stay}
        ends = {name: kubelet.of(name) for name in leave}
        for name in leave:   # KWOK deletes pods at once; a kubelet waits for the end of their processes
            change(f"{job.all_pods}/{name}", metadata={"finalizers": ["example.com/running"]})
        self.addCleanup(change, f"/api/v1/nodes/{node}", spec={"taints": None})
        change(f"/api/v1/nodes/{node}", spec={"taints": [
            {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}]})
        self.wait("the workers to end", 60, job, kubelet, lambda: all(p.poll() is not None for p in ends.values()))
        for name in leave:
            change(f"{job.all_pods}/{name}", metadata={"finalizers": None})
        self.wait("an epoch of four on other nodes", 60, job, kubelet,
                  lambda: len(epochs()[-1]) == 4 and not leave & epochs()[-1] and node not in places().values())
        self.assertEqual({name: kubelet.of(name).pid for name in stay}, pids)
        log = [line for line in self.operator.tail(100000).splitlines() if "moves" in line]
        self.assertLessEqual({len(leave & members) for members in epochs()}, {0, len(leave)}, (epochs(), log))
        self.assertEqual(job.status()["failures"], 0)

    def test_waits_for_ranks(self):
        """A pod runs but its agent does not join: kubectl describe says what the others wait for."""
        job, kubelet = self.start_job("waits", 2, 20, 100)
        kubelet.held.add("waits-1-0")
        self.wait("the roster's words", 60, job, kubelet,
                  lambda: "waiting for ranks to begin with: 1 of 2 ready" in job.condition("Ready").get("message", ""))
        self.assertIn("waiting for ranks to begin with: 1 of 2 ready", self.cluster.kubectl("describe", "hvdjob/waits"))
        kubelet.held.clear()
        self.wait("a world of two", 60, job, kubelet, lambda: 2 in self.worlds(kubelet))
        self.wait("no word of it", 30, job, kubelet, lambda: "waiting for" not in job.status().get("message", ""))

    def test_doctor_refuses(self):
        """Each pod may open only 512 files: no rank starts, and the job's message says why and what to do."""
        job, kubelet = self.start_job("sick", 1, 20, 100, doctor={"policy": "fail", "level": 1}, run={"backoffLimit": 0})
        kubelet.through = ("prlimit", "--nofile=512", "--")
        self.wait("its end", 90, job, kubelet, lambda: job.status().get("phase") == "Failed")
        status = job.status()
        found = {f["id"]: f for f in status["findings"]}
        self.assertEqual((found["nofile-low"]["status"], found["nofile-low"]["pods"], found["nofile-low"]["podCount"]),
                         ("fail", ["sick-0-0"], 1))
        self.assertTrue(found["nofile-low"]["fix"])
        self.assertEqual((status["firstFailure"]["reason"], status["firstFailure"]["exitCode"], status["attemptsLeft"]),
                         ("DoctorRefused", 126, 0))
        self.assertIn("fix: ", status["firstFailure"]["message"])
        told = self.cluster.kubectl("describe", "hvdjob/sick")
        for word in ("nofile-low", "DoctorRefused", "BackoffLimitExceeded"):
            self.assertIn(word, told)
        wait_until("an Event", 30, lambda: "DoctorRefused" in job.events())
        event = job.events()["DoctorRefused"]
        self.assertEqual(event["type"], "Warning")
        self.assertIn("sick-0-0", event["note"])
        self.assertNotIn("step", kubelet.logs())

    def test_doctor_warns(self):
        """The same with the policy warn: the job trains, and its status has the findings."""
        job, kubelet = self.start_job("warned", 2, 100000, 20, doctor={"policy": "warn"}, minWorkers=1, maxWorkers=2)
        kubelet.through = ("prlimit", "--nofile=512", "--")
        self.wait("a world of two", 60, job, kubelet, lambda: 2 in self.worlds(kubelet))
        self.wait("what was found in both", 60, job, kubelet,
                  lambda: any(f["id"] == "nofile-low" and f["podCount"] == 2 for f in job.status().get("findings", [])))
        self.assertNotIn("refuses", job.status()["message"])
        self.assertEqual(job.status()["phase"], "Running")

    def test_operator_is_killed(self):
        """The operator is replaced: ranks train on, and the same agents join the next one."""
        job, kubelet = self.start_job("calm", 2, 100000, 20, minWorkers=1, maxWorkers=3)
        self.wait("a world of two", 60, job, kubelet, lambda: 2 in self.worlds(kubelet))
        pids = {name: kubelet.of(name).pid for name in job.running()}
        self.operator.kill()
        time.sleep(1)
        self.operator = self.start_operator("agents-next")
        self.wait("its agents", 60, job, kubelet, lambda: self.operator.metric("hvd_agents") == 2)
        self.assertEqual({name: kubelet.of(name).pid for name in job.running()}, pids)
        self.assertTrue(all(kubelet.of(name).poll() is None for name in pids))
        self.cluster.kubectl("scale", "hvdjob/calm", "--replicas=3")
        self.wait("a world of three", 90, job, kubelet, lambda: 3 in self.worlds(kubelet))

    def test_away_for_longer_than_a_job_allows(self):
        """All seven agents of a job with a limit give up: one disruption, and no failure of the job. A job without a limit
        trains on."""
        limited, its = self.start_job("limited", 7, 100000, 20, env={"HVD_COORDINATOR_LOST_SECONDS": "5"})
        patient, other = self.start_job("patient", 2, 100000, 20)
        self.wait("a world of seven", 60, limited, its, lambda: 7 in self.worlds(its))
        self.wait("a world of two", 60, patient, other, lambda: 2 in self.worlds(other))
        pods, pids = limited.pods(), {name: other.of(name).pid for name in patient.running()}
        before = len(self.worlds(its))
        self.operator.kill()
        wait_until("all seven to give up", 60, lambda: all(its.of(name).poll() == 125 for name in pods))
        for pod in pods.values():
            self.assertRegex(its.message(pod), "^hvd-agent: operator-away: the operator has not answered for 5 s")
        self.operator = self.start_operator("agents-after")
        self.wait("a world of seven again", 120, limited, its, lambda: 7 in self.worlds(its)[before:])
        status = limited.status()
        self.assertEqual((status["phase"], status["failures"], status["losses"], status["attemptsLeft"]),
                         ("Running", 0, 1, 6), status)
        self.assertNotIn("firstFailure", status)
        limited.note("AgentEnded", "operator-away")
        self.wait("the agents of the other job", 60, patient, other, lambda: self.operator.metric("hvd_agents") == 9)
        self.assertEqual({name: other.of(name).pid for name in patient.running()}, pids)
        self.assertEqual(patient.status()["restarts"], 0)

    def test_spec_becomes_invalid(self):
        """The CRD allows the change, the operator does not: the job trains on, also under the next operator."""
        job, kubelet = self.start_job("edited", 2, 100000, 20, minWorkers=1, maxWorkers=3)
        self.wait("a world of two", 60, job, kubelet, lambda: 2 in self.worlds(kubelet))
        self.wait("its epoch", 30, job, kubelet, lambda: job.status().get("epoch") == 1)
        pids = {name: kubelet.of(name).pid for name in job.running()}
        self.cluster.api.call("PATCH", job.path, {"spec": {"template": {"spec": {"volumes": [
            {"name": "hvd-mine", "emptyDir": {}}]}}}}, kind="application/merge-patch+json")
        self.wait("the reason", 30, job, kubelet, lambda: job.condition("Valid").get("status") == "False")
        self.operator.kill()
        self.operator = self.start_operator("agents-of-an-invalid-job")
        self.wait("its agents", 60, job, kubelet, lambda: self.operator.metric("hvd_agents") == 2)
        self.assertIn("reserved for the operator", job.condition("Valid")["message"])
        # a rank dies: the other one trains on
        os.killpg(pids.pop("edited-1-0"), signal.SIGKILL)
        self.wait("a world of one", 60, job, kubelet, lambda: 1 in self.worlds(kubelet))
        self.assertEqual(kubelet.of("edited-0-0").pid, pids["edited-0-0"])
        self.assertIsNone(kubelet.of("edited-0-0").poll())

    def test_operator_is_killed_while_ranks_start(self):
        """One of two agents has joined, and no world is formed yet: the next operator takes the agent back."""
        job, kubelet = self.start_job("early", 2, 100000, 20)
        kubelet.held.add("early-1-0")
        self.wait("its agent", 60, job, kubelet, lambda: self.operator.metric("hvd_agents") == 1)
        first = kubelet.of("early-0-0")
        self.wait("its rank", 30, job, kubelet, lambda: "1 of 2 ready" in job.condition("Ready").get("message", ""))
        self.operator.kill()
        self.operator = self.start_operator("agents-of-an-early-job")
        self.wait("its agent again", 60, job, kubelet, lambda: self.operator.metric("hvd_agents") == 1)
        kubelet.held.clear()
        self.wait("a world of two", 60, job, kubelet, lambda: 2 in self.worlds(kubelet))
        self.assertIsNone(first.poll())
        self.assertEqual((job.status()["restarts"], job.status()["failures"]), (0, 0))

    def test_strangers_are_refused(self):
        """Requests without a token, with another audience's, and with another pod's are refused."""
        job, kubelet = self.start_job("private", 1, 100000, 20)
        self.wait("its agent", 60, job, kubelet, lambda: self.operator.metric("hvd_agents") == 1)
        uid, pod = job.get()["metadata"]["uid"], job.pods()["private-0-0"]["metadata"]["uid"]
        path = f"/jobs/{uid}/pods/{pod}/v1/status"
        account = "/api/v1/namespaces/default/serviceaccounts/default/token"

        def token(audience):
            return self.cluster.api.create(account, {
                "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                "spec": {"audiences": [audience], "expirationSeconds": 600}})["status"]["token"]

        for words in (None, "guessed", token("elsewhere"), token("hvd-operator")):
            self.assertIn(self.ask(path, words), (401, 403), words)
        wait_until("a refusal to be counted", 30, lambda: self.refused("token") > 0)
        self.assertEqual(self.operator.metric("hvd_agents"), 1)


if __name__ == "__main__":
    case.main("test_operator_agents", agents.needs)
