#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 20 s
# needs: kubernetes
"""The operator's fit test against kube-scheduler: in seeded random clusters the number of workers that the operator says
fit is the number that kube-scheduler binds, also before the pods of DaemonSets exist. HVD_SEED=n takes another seed.
timeout: 900"""
import json
import os
import random
import subprocess
import sys
import time
import unittest
from collections import Counter

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import case  # noqa: E402
import cluster as clusters  # noqa: E402
import operators  # noqa: E402
from api import Refused, condition, wait_until  # noqa: E402
from binaries import Missing  # noqa: E402

PROGRAM = os.path.join(operators.ROOT, os.environ.get("BUILD") or "build", "tests", "programs", "fit_of")
CASES = 60
SEED = 5
DAEMONS = "daemons"    # the namespace of all DaemonSets: without a LimitRange, which the operator does not apply to their templates
GPU = [f"x.test/mig-{number}" for number in range(40)]    # more names than the operator once could count


class Maker:
    """Random objects of one case. Nodes of a case are chosen by a label, so that cases do not meet."""

    def __init__(self, dice, number):
        self.dice, self.name = dice, f"case-{number}"
        self.gpus = dice.sample(GPU, 2)
        self.zones = [f"{self.name}-{zone}" for zone in "xyz"]    # anti-affinity of one case does not reach the others
        self.runtime = None

    def namespace(self):
        return {"metadata": {"name": self.name, "labels": {"team": self.dice.choice("ab")} if self.maybe(70) else {}}}

    def maybe(self, percent):
        return self.dice.randrange(100) < percent

    def node(self, number):
        dice, name = self.dice, f"{self.name}-n{number}"
        offers = {"cpu": f"{dice.randrange(3000, 12000)}m", "memory": f"{dice.randrange(3, 13)}Gi", "pods": str(dice.randrange(5, 15)),
                  "ephemeral-storage": f"{dice.randrange(2, 20)}Gi", "hugepages-2Mi": f"{dice.randrange(4, 16) * 64}Mi"}
        offers.update({gpu: str(dice.randrange(3, 12)) for gpu in self.gpus if self.maybe(90)})
        taints = [{"key": "t", "value": dice.choice("ab"), "effect": dice.choice(("NoSchedule", "PreferNoSchedule"))}]
        return {"metadata": {"name": name, "labels": {"case": self.name, "host": name, "zone": dice.choice(self.zones), "size": str(dice.randrange(9)),
                                                      **({"vm": "yes"} if self.maybe(70) else {})}},
                "spec": {"taints": taints if self.maybe(35) else [], "unschedulable": self.maybe(8)},
                "status": {"allocatable": offers, "capacity": offers,
                           "conditions": [{"type": "Ready", "status": "True", "reason": "x", "message": "x"}]}}

    def amounts(self, some=70, most=1100):
        dice, requests = self.dice, {}
        if self.maybe(some):
            requests["cpu"] = dice.choice((f"{dice.randrange(100, most)}m", f"{dice.randrange(100, most)}m", "0.3"))
        if self.maybe(some):
            requests["memory"] = dice.choice((f"{dice.randrange(100, most)}Mi", "3e8", "0.5Gi"))
        if self.maybe(some - 60):
            requests["ephemeral-storage"] = f"{dice.randrange(1, 5)}Gi"
        return requests

    def resources(self, most):
        requests, limits = self.amounts(most=most), {}
        if self.maybe(25) and "cpu" in requests:
            limits["cpu"] = requests.pop("cpu")
        if self.maybe(20):
            limits[self.dice.choice(self.gpus)] = str(self.dice.randrange(1, 3))
        if self.maybe(10):
            limits["hugepages-2Mi"] = f"{self.dice.randrange(1, 3) * 64}Mi"
            requests.setdefault("memory", "64Mi")
        return {"requests": requests, "limits": limits}

    def container(self, name, ports=10, most=1100, **more):
        dice = self.dice
        container = {"name": name, "image": "none", "command": ["x"], "resources": self.resources(most), **more}
        if self.maybe(ports):
            number = 7000 + dice.randrange(2)
            container["ports"] = [{"containerPort": number, "hostPort": number, "protocol": dice.choice(("TCP", "TCP", "TCP", "UDP")),
                                   "hostIP": dice.choice(("", "", "0.0.0.0", "10.0.0.1", "10.0.0.2"))}]
        return container

    def spec(self, ports, most=1100):
        spec = {"containers": [self.container("a", ports, most)], "terminationGracePeriodSeconds": 0}
        if self.maybe(25):
            spec["containers"].append(self.container("b", 0, most))
        if self.maybe(50):
            spec["initContainers"] = [self.container(f"i{number}", 0, **({"restartPolicy": "Always"} if self.maybe(50) else {}))
                                      for number in range(self.dice.randrange(1, 5))]
        if self.maybe(12):    # pod-level requests are at least the containers' sum
            spec["resources"] = {"requests": {"cpu": f"{self.dice.randrange(6700, 7500)}m", "memory": "8Gi"}, "limits": {}}
        elif self.maybe(10):
            spec["resources"] = {"limits": {"cpu": "20", "memory": "40Gi"}}
        if self.maybe(10):
            spec["hostNetwork"] = True
            for container in spec["containers"]:
                container.pop("ports", None)
            if self.maybe(50):
                spec["containers"][0]["ports"] = [{"containerPort": 7000}]
        return spec

    def keeps_away(self):
        """Required anti-affinity, sometimes against this case's workers."""
        dice = self.dice
        selector = dice.choice(({"matchLabels": {"app": "work"}}, {"matchLabels": {"app": "other"}}, {},
                                {"matchExpressions": [{"key": "app", "operator": dice.choice(("In", "NotIn")),
                                                       "values": ["work", "x"]}]},
                                {"matchExpressions": [{"key": "hvd.dev/job", "operator": dice.choice(("Exists", "DoesNotExist"))}]}))
        where = dice.choice(({}, {"namespaces": [self.name]}, {"namespaces": ["default"]},
                             {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.name}}},
                             *({"namespaceSelector": one} for one in (
                                 {}, {"matchLabels": {"team": dice.choice("ab")}},
                                 {"matchExpressions": [{"key": "team", "operator": dice.choice(("Exists", "DoesNotExist"))}]},
                                 {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}))))
        return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": dice.choice(("host", "zone", "missing")), "labelSelector": selector, **where}]}}

    def pod(self, number, node):
        spec = {**self.spec(30), "nodeName": node}
        spec.pop("resources", None if not self.maybe(50) else "none")
        if self.maybe(20):
            spec["affinity"] = self.keeps_away()
        return {"metadata": {"name": f"p{number}", "namespace": self.name, "labels": {"app": "here"}}, "spec": spec}

    def daemonset(self, number):
        """Its pods are small, so that most find room beside the others."""
        dice, name = self.dice, f"{self.name}-{number}"
        spec = {"containers": [self.container("a", 15, 500)], "nodeSelector": {"case": self.name}}
        if self.maybe(30):
            spec["initContainers"] = [self.container("i", 0, 500, **({"restartPolicy": "Always"} if self.maybe(50) else {}))]
        if self.maybe(25):
            spec["nodeSelector"]["vm"] = "yes"
        if self.maybe(50):
            spec["tolerations"] = [dice.choice(({"operator": "Exists"}, {"key": "t", "value": dice.choice("ab")}))]
        if self.maybe(10):
            spec["affinity"] = self.keeps_away()
        if self.maybe(25):
            wanted = dice.choice(({"key": "zone", "operator": dice.choice(("In", "NotIn")), "values": dice.sample(self.zones, 2)},
                                  {"key": "vm", "operator": dice.choice(("Exists", "DoesNotExist"))},
                                  {"key": "size", "operator": dice.choice(("Gt", "Lt")), "values": ["5"]}))
            spec.setdefault("affinity", {})["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [wanted]}]}}
        return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"daemon": name}}, "template": {
            "metadata": {"labels": {"daemon": name, "of": self.name}}, "spec": spec}}}

    def resized(self):
        """The status of a pod whose first container is being resized in place."""
        amounts = self.amounts(90)
        status = {"containerStatuses": [{"name": "a", "image": "none", "imageID": "", "ready": False, "restartCount": 0,
                                         "resources": {"requests": amounts}, "allocatedResources": self.amounts(90)}]}
        if self.maybe(40):
            status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
        return status

    def job(self):
        spec = {**self.spec(20, 600), "nodeSelector": {"case": self.name}}
        if self.maybe(20):
            spec["tolerations"] = [{"key": "t", "operator": "Exists"}]
        if self.runtime:
            spec["runtimeClassName"] = self.name
        return {"metadata": {"name": "job", "namespace": self.name, "uid": self.name},
                "spec": {"workers": 12, "template": {"metadata": {"labels": {"app": "work"}}, "spec": spec}}}

    def limit_range(self):
        if not self.maybe(30):
            return None
        return {"metadata": {"name": "defaults", "namespace": self.name}, "spec": {"limits": [
            {"type": "Container", "defaultRequest": {"cpu": "400m", "memory": "300Mi"},
             "default": {"memory": "9Gi", **({"ephemeral-storage": "5Gi"} if self.maybe(30) else {})}}]}}

    def runtime_class(self):
        if not self.maybe(25):
            return None
        self.runtime = {"metadata": {"name": self.name}, "handler": "x", "overhead": {"podFixed": {"cpu": "350m", "memory": "100Mi"}}}
        if self.maybe(70):
            self.runtime["scheduling"] = {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "t", "value": "a"}]}
        return self.runtime


def decided(pod):
    return pod["spec"].get("nodeName") or condition(pod, "PodScheduled") == "False"


class Fit(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = clusters.Cluster().start()
        cls.api = cls.cluster.api

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()
        left = case.left_of(cls.cluster.folder)
        assert not left, f"left behind: {left}"

    def items(self, path):
        return self.api.get(path)["items"]

    def make_namespaces(self, makers):
        for namespace in [maker.namespace() for maker in makers] + [{"metadata": {"name": DAEMONS}}]:
            self.api.create("/api/v1/namespaces", namespace)
        names = [DAEMONS, *(maker.name for maker in makers)]
        wait_until("service accounts", 60, lambda: set(names) <= {one["metadata"]["namespace"] for one in self.items(
            "/api/v1/serviceaccounts")})
        # It would taint nodes without a kubelet, and delete pods without owner.
        self.cluster.ask("stop kube-controller-manager")

    def make_node(self, node):
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        self.api.create("/api/v1/nodes", node)
        self.api.call("PATCH", path, {"spec": {"taints": node["spec"]["taints"]}}, kind="application/merge-patch+json")
        self.api.call("PATCH", f"{path}/status", {"status": node["status"]}, kind="application/merge-patch+json")

    def make(self, maker):
        limits, runtime, number = maker.limit_range(), maker.runtime_class(), 0
        if limits:
            self.api.create(f"/api/v1/namespaces/{maker.name}/limitranges", limits)
        if runtime:
            self.api.create("/apis/node.k8s.io/v1/runtimeclasses", runtime)
        for one in range(maker.dice.randrange(3)):
            self.api.create(f"/apis/apps/v1/namespaces/{DAEMONS}/daemonsets", maker.daemonset(one))
        for one in range(maker.dice.randrange(1, 3)):
            node = maker.node(one)
            self.make_node(node)
            for _ in range(maker.dice.randrange(4)):
                self.make_pod(maker, maker.pod(number, node["metadata"]["name"]))
                number += 1

    def make_pod(self, maker, pod):
        path = f"/api/v1/namespaces/{maker.name}/pods"
        self.api.create(path, pod)
        if maker.maybe(50):
            self.api.call("PATCH", f"{path}/{pod['metadata']['name']}/status", {"status": maker.resized()},
                          kind="application/merge-patch+json")

    def dry_run(self, maker, pod):
        """The pod with all defaults; None if the API server refuses it: a LimitRange may raise the containers' sum above the
        pod-level requests."""
        try:
            return self.api.call("POST", f"/api/v1/namespaces/{maker.name}/pods?dryRun=All", pod)
        except Refused as refused:
            self.assertIn("aggregate container requests", str(refused))
            return None

    def say(self, jobs, runs=(), daemons=True, namespaces=True):
        """The operator's answers. runs: what dry runs of one worker of each job returned. daemons, namespaces: it may list them."""
        state = {"nodes": self.items("/api/v1/nodes"), "pods": self.items("/api/v1/pods"), "jobs": jobs, "dryRuns": list(runs),
                 "daemonSets": self.items("/apis/apps/v1/daemonsets") if daemons else [],
                 "namespaces": self.items("/api/v1/namespaces") if namespaces else []}
        done = subprocess.run([PROGRAM], input=json.dumps(state), capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def fits(self, *arguments, **options):
        return [answer["fits"] for answer in self.say(*arguments, **options)]

    def daemon_pods(self):
        """The pods of all DaemonSets, once the controller has made them and the scheduler has decided on all."""
        for one in self.items("/apis/apps/v1/daemonsets"):
            status = one["status"]
            if status.get("observedGeneration") != 1 or status["currentNumberScheduled"] < status["desiredNumberScheduled"]:
                return None
        pods = self.items(f"/api/v1/namespaces/{DAEMONS}/pods")
        return pods if all(map(decided, pods)) else None

    def run_daemons(self):
        """Lets the DaemonSet controller make its pods. Returns the names of cases with such a pod that found no node."""
        program, log = self.cluster.programs["kube-controller-manager"], self.cluster.path("log", "daemons.log")
        with open(log, "wb") as out, subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", program, f"--kubeconfig={self.cluster.kubeconfig}", "--secure-port=0",
                 "--controllers=daemonset-controller", "--leader-elect=false", "--kube-api-qps=5000", "--kube-api-burst=5000"],
                stdout=out, stderr=out) as controller:
            try:
                pods = wait_until("the DaemonSets' pods", 60, self.daemon_pods, pause=0.3)
            finally:
                controller.kill()
        self.assertGreater(len(pods), CASES / 2)
        return {pod["metadata"]["labels"]["of"] for pod in pods if not pod["spec"].get("nodeName")}

    def check_daemons(self, makers, jobs, runs):
        """What the operator foresees is what it sees once the DaemonSets' pods are there, neither less nor twice."""
        without, foreseen = self.fits(jobs, runs, daemons=False), self.fits(jobs, runs)
        late = self.run_daemons()
        there, twice = self.fits(jobs, runs, daemons=False), self.fits(jobs, runs)
        rows = [row for row in zip(makers, without, foreseen, there, twice) if row[0].name not in late]
        wrong = [f"{maker.name}: {before} foreseen, {after} fit, {again} with the DaemonSets"
                 for maker, _, before, after, again in rows if not before == after == again]
        self.assertEqual(wrong, [])
        self.assertGreater(sum(row[1] != row[2] for row in rows), 2)    # DaemonSets take room

    def bound(self):
        """{namespace: number of workers with a node}, once the scheduler has decided on all."""
        workers = self.items("/api/v1/pods?labelSelector=hvd.dev/job")
        if not all(map(decided, workers)):
            return None
        return Counter(pod["metadata"]["namespace"] for pod in workers if pod["spec"].get("nodeName"))

    def test_as_the_scheduler(self):
        seed = int(os.environ.get("HVD_SEED") or SEED)
        makers = [Maker(random.Random(seed * 1000 + number), number) for number in range(CASES)]
        self.make_namespaces(makers)
        for maker in makers:
            self.make(maker)
        jobs = [maker.job() for maker in makers]
        time.sleep(1)    # the scheduler's and the API server's informers
        runs = [self.dry_run(maker, answer["pods"][0]) for maker, answer in zip(makers, self.say(jobs))]
        self.check_daemons(makers, jobs, runs)
        # Without DaemonSets, as once their pods have had their time: some never find a node.
        answers = self.say(jobs, runs, daemons=False)
        unknown = self.fits(jobs, runs, daemons=False, namespaces=False)
        fewer = [answer["fits"] - fits for answer, fits in zip(answers, unknown)]
        self.assertGreaterEqual(min(fewer), 0)    # labels that are not known count as those that match
        if seed == SEED:
            self.assertGreater(max(fewer), 0)
        for maker, answer, run in zip(makers, answers, runs):
            self.assertIsNone(answer["unjudged"])
            answer["made"] = run is not None
            for pod in answer["pods"] if run else ():
                self.api.create(f"/api/v1/namespaces/{maker.name}/pods", pod)
        bound = wait_until("the scheduler", 60, self.bound, pause=0.5)
        wrong = [f"{maker.name}: {answer['fits']} fit, {bound[maker.name]} have a node: {answer['why']}"
                 for maker, answer in zip(makers, answers) if answer["made"] and answer["fits"] != bound[maker.name]]
        self.assertEqual(wrong, [], f"HVD_SEED={seed}")
        counts = Counter(answer["fits"] for answer in answers if answer["made"])
        self.assertGreater(sum(counts[fits] for fits in range(1, 12)), 10, counts)
        self.assertGreater(counts[0], 2, counts)


def needs():
    if not os.access(PROGRAM, os.X_OK):
        raise Missing("programs", f"{PROGRAM} is not built (make tests-bin)")


if __name__ == "__main__":
    case.main("test_operator_fit", needs)
