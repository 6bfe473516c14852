# SPDX-License-Identifier: Apache-2.0
"""hvd-operator in a test: a process with exactly the rights of k8s/; and jobs for it."""
import base64
import json
import os
import signal
import subprocess
import sys
import time
import unittest
import urllib.request
from urllib.parse import urlsplit

import case
import cluster as clusters
from api import Refused, wait_until
from binaries import Missing

ROOT = os.path.dirname(os.path.dirname(clusters.HERE))
PROGRAM = os.environ.get("HVD_OPERATOR") or os.path.join(ROOT, os.environ.get("BUILD") or "build", "hvd-operator")
PLANE = os.path.join(os.path.dirname(PROGRAM), "hvd-plane")
SYSTEM = "hvd-system"
ENDING = 20
ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"    # /var/run is a link to /run
UNSHARE = ["unshare", *([] if os.getuid() == 0 else ["--map-root-user"]), "--mount"]
# In its own mount namespace: the folder of a pod's service account.
IN_A_POD = f'mount -t tmpfs none /run; mkdir -p {ACCOUNT}; mount --bind "$1" {ACCOUNT}; shift; exec "$@"'


def check_program():
    for program in (PROGRAM, PLANE):
        if not os.access(program, os.X_OK):
            raise Missing("operator", f"{program} is not built (make)")


def install(cluster, overlay="cluster"):
    """Applies CRD, account and rights as shipped, and the Deployment without pods."""
    if overlay != "cluster":
        cluster.kubectl("apply", "-k", os.path.join(ROOT, "k8s", "crd"))
        cluster.kubectl("create", "namespace", SYSTEM)
    cluster.kubectl("apply", "-k", os.path.join(ROOT, "k8s", "overlays", overlay))
    cluster.kubectl("-n", SYSTEM, "scale", "deployment/hvd-operator", "--replicas=0")
    wait_until("the CRD", 60, lambda: served(cluster))
    # The garbage collector looks for new kinds at its start, and then every 30 s.
    cluster.ask("stop kube-controller-manager")
    cluster.ask("start kube-controller-manager")


class Installed(unittest.TestCase):
    """A cluster of simulated nodes (or options_of_cluster) with the objects of `overlay`, but without the operator."""
    overlay, nodes, options_of_cluster = "cluster", 1, {}

    @classmethod
    def setUpClass(cls):
        cls.cluster = clusters.Cluster(kwok=cls.nodes, **cls.options_of_cluster).start()
        try:
            install(cls.cluster, cls.overlay)
        except BaseException:
            cls.cluster.stop()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()
        left = case.left_of(cls.cluster.folder)
        assert not left, f"left behind: {left}"

    def setUp(self):
        self.jobs = []

    def job(self, name, workers=1, **more):
        """A new job, which delete_jobs() deletes."""
        self.jobs.append(Job(self.cluster, name, workers, **more))
        return self.jobs[-1]

    def delete_jobs(self):
        for job in self.jobs:
            if job.get():
                job.delete()
        for job in self.jobs:
            job.wait_gone()


class Operated(Installed):
    """With an operator that runs during all tests of the class."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        try:
            cls.operator = Operator(cls.cluster, name=cls.__name__.lower()).start().wait_ready()
        except BaseException:
            cls.cluster.stop()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.operator.stop()
        if os.environ.get("HVD_KEEP_LOG"):
            print(cls.operator.tail(4000), file=sys.stderr)
        super().tearDownClass()

    def tearDown(self):
        self.assertTrue(self.operator.alive(), self.operator.tail())
        self.delete_jobs()


def served(cluster):
    try:
        return cluster.api.get("/apis/hvd.dev/v1alpha1/hvdjobs") is not None
    except Refused:
        return False


def kubeconfig_of(cluster, path, minutes=60, server=None):
    """A kubeconfig with a token of the operator's service account; server: another address than the cluster's."""
    token = cluster.kubectl("-n", SYSTEM, "create", "token", "hvd-operator", f"--duration={minutes}m").strip()
    with open(cluster.ca, "rb") as f:
        ca = base64.b64encode(f.read()).decode()
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "x",
              "clusters": [{"name": "x", "cluster": {"server": server or cluster.ready["server"],
                                                     "certificate-authority-data": ca}}],
              "users": [{"name": "x", "user": {"token": token}}],
              "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}]}
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as f:
        json.dump(config, f)
    return path


class Plane:
    """An hvd-plane process, which serves agents on `address` for the operator at `socket`."""

    def __init__(self, socket, address, log):
        self.socket, self.address, self.log = socket, address, log
        self.process = None

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", PLANE, "-v", "-v", "--socket", self.socket, "--agents-addr", self.address],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def end(self, how=signal.SIGTERM):
        """Ends it by that signal and returns its exit code."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(ENDING)
        assert code in (0, -signal.SIGKILL), f"hvd-plane ended with {code}"
        return code


class Operator:
    """One operator process, and its hvd-plane if there are agents. `name`: of its log in the cluster's folder; `more`:
    arguments; `agents`: (host, port) at which the plane serves agents; `environment`: added to this process's;
    `kubeconfig`: instead of one with a token of its account; `account`: instead of a kubeconfig, a folder with what a
    kubelet mounts into a pod (token, ca.crt, namespace); `program`: of another version."""
    number = 0

    def __init__(self, cluster, *more, name=None, agents=None, environment=None, kubeconfig=None, account=None,
                 program=None):
        Operator.number += 1
        self.cluster, self.more, self.plane = cluster, more, None
        self.name = name or f"operator-{Operator.number}"
        self.environment, self.kubeconfig, self.account = environment or {}, kubeconfig, account
        self.program = program or PROGRAM
        self.log = cluster.path("log", self.name + ".log")
        self.port = clusters.free_port("127.0.0.1")
        self.process = None
        if agents:
            host, port = agents
            socket = cluster.path(f"plane-{Operator.number}")
            self.plane = Plane(socket, f"{host}:{port}", self.log)
            self.more = (*more, "--plane-socket", socket, "--agents-url", f"https://{host}:{port}")

    def access(self):
        """How it reaches the API server: a command in front of it, arguments, environment."""
        if self.account:
            server = urlsplit(self.cluster.ready["server"])
            return ([*UNSHARE, "sh", "-ec", IN_A_POD, "sh", self.account], [],
                    {"KUBERNETES_SERVICE_HOST": server.hostname, "KUBERNETES_SERVICE_PORT": str(server.port)})
        kubeconfig = self.kubeconfig or self.cluster.path("operator.kubeconfig")
        if not os.path.exists(kubeconfig):
            kubeconfig_of(self.cluster, kubeconfig)
        return [], ["--kubeconfig", kubeconfig], {}

    def start(self):
        before, arguments, environment = self.access()
        environment = {**os.environ, "POD_NAMESPACE": SYSTEM, **environment, **self.environment}
        environment.pop("KUBECONFIG", None)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *before, self.program, "-v", "-v", *arguments,
                 "--metrics-addr", f"127.0.0.1:{self.port}", *self.more],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        if self.plane:
            self.plane.start()
        return self

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Ends it as a kubelet does, and returns its exit code."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
        return self.wait()

    def kill(self):
        """Kills it with its plane, as the loss of their node does."""
        if self.plane:
            self.plane.end(signal.SIGKILL)
        self.process.kill()
        return self.wait()

    def wait(self, seconds=ENDING):
        try:
            code = self.process.wait(seconds)
            if self.plane:
                self.plane.end()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.name} has not ended within {seconds} s") from None
        assert code in (0, -signal.SIGKILL, -signal.SIGTERM), f"{self.name} ended with {code}:\n{self.tail()}"
        return code

    def alive(self):
        return self.process.poll() is None

    def tail(self, lines=60):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return "".join(f.readlines()[-lines:])

    def page(self, path):
        """(status, text) of a page; (0, error) without a response."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def metric(self, name, label=""):
        """The sum of a metric's values, of all or only those with that label (`code="409"`)."""
        _, text = self.page("/metrics")
        values = [float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                  if line.split("{")[0].split(" ")[0] == name and label in line]
        return sum(values) if values else None

    def wait_ready(self, seconds=60):
        wait_until(f"{self.name} to be ready", seconds, lambda: self.page("/readyz")[0] == 200)
        return self


def manifest(name, workers, cpu="1", namespace="default", gang=None, run=None, template=None, **spec):
    """The manifest of an HvdJob; gang back end gates by default."""
    container = {"name": "main", "image": "none", "command": ["train"], "resources": {"requests": {"cpu": cpu}}}
    return {"apiVersion": "hvd.dev/v1alpha1", "kind": "HvdJob", "metadata": {"name": name, "namespace": namespace},
            "spec": {"workers": workers, "gang": {"backend": "gates", **(gang or {})}, "runPolicy": run or {},
                     "template": template or {"spec": {"containers": [container],
                                                       "terminationGracePeriodSeconds": 1}}, **spec}}


class Job:
    """An HvdJob on the API server."""

    def __init__(self, cluster, name, workers=1, namespace="default", **more):
        self.api, self.name, self.namespace = cluster.api, name, namespace
        self.cluster = cluster
        self.jobs = f"/apis/hvd.dev/v1alpha1/namespaces/{namespace}/hvdjobs"
        self.path = f"{self.jobs}/{name}"
        self.all_pods = f"/api/v1/namespaces/{namespace}/pods"
        self.budget_path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}"
        self.api.create(self.jobs, manifest(name, workers, namespace=namespace, **more))

    def look(self, path):
        """The object at path; None if it does not exist."""
        try:
            return self.api.get(path)
        except Refused as error:
            if error.code == 404:
                return None
            raise

    def get(self):
        return self.look(self.path)

    def status(self):
        return (self.get() or {}).get("status", {})

    def condition(self, kind):
        for one in self.status().get("conditions", []):
            if one["type"] == kind:
                return one
        return {}

    def patch(self, spec):
        self.api.call("PATCH", self.path, {"spec": spec}, kind="application/merge-patch+json")

    def delete(self):
        self.api.delete(self.path)

    def pods(self, alive=False):
        """{name: pod}; alive: only those that are neither finished nor being deleted."""
        items = self.api.get(f"{self.all_pods}?labelSelector=hvd.dev%2Fjob%3D{self.name}")["items"]
        return {p["metadata"]["name"]: p for p in items
                if not alive or (p["status"].get("phase") not in ("Succeeded", "Failed")
                                 and "deletionTimestamp" not in p["metadata"])}

    def running(self):
        return [name for name, p in self.pods(alive=True).items() if p["status"].get("phase") == "Running"]

    def wait_phase(self, phase, seconds=60):
        try:
            return wait_until(f"job {self.name} to be {phase}", seconds,
                              lambda: self.status().get("phase") == phase and self.status())
        except TimeoutError as error:
            raise TimeoutError(f"{error}; it is {self.status().get('phase')}: {self.status().get('message')}; "
                               f"pods {self.describe()}") from None

    def describe(self):
        return {name: (p["status"].get("phase"), p["spec"].get("nodeName")) for name, p in self.pods().items()}

    def wait_running(self, count, seconds=60):
        try:
            return wait_until(f"{count} workers of {self.name} to run", seconds, lambda: len(self.running()) == count)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; {self.status().get('message')}; pods {self.describe()}") from None

    def end_pod(self, name, code=0, reason=None, message=None):
        """Sets a pod's status as a kubelet does when its program has exited."""
        state = {"terminated": {"exitCode": code, "reason": reason or ("Error" if code else "Completed"),
                                "finishedAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}}
        if message:
            state["terminated"]["message"] = message
        status = {"phase": "Failed" if code else "Succeeded",
                  "containerStatuses": [{"name": "main", "image": "none", "imageID": "", "ready": False,
                                         "restartCount": 0, "state": state}]}
        self.api.call("PATCH", f"{self.all_pods}/{name}/status", {"status": status},
                      kind="application/merge-patch+json")

    def budget(self):
        return self.look(self.budget_path)

    def wait_evictions(self, allowed, seconds=60):
        """Waits until the disruption controller allows that many evictions."""
        def counted():
            budget = self.budget() or {}
            status = budget.get("status", {})
            return (status.get("observedGeneration") == budget.get("metadata", {}).get("generation")
                    and status.get("disruptionsAllowed") == allowed)
        wait_until(f"{allowed} evictions of {self.name} to be allowed", seconds, counted)

    def evict(self, name):
        self.api.create(f"{self.all_pods}/{name}/eviction", {
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": name, "namespace": self.namespace}})

    def events(self):
        """{reason: the last Event with it} about this job."""
        items = self.api.get(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")["items"]
        return {e["reason"]: e for e in items if e["regarding"].get("name") == self.name
                and e["regarding"]["kind"] == "HvdJob"}

    def note(self, reason, words):
        """Waits until the last Event with this reason has these words: Events are written later than what they are about."""
        wait_until(f"an Event {reason} of job {self.name} that says {words}", 30,
                   lambda: words in self.events().get(reason, {}).get("note", ""), 0.2)

    def end_all(self, code=0):
        for name in self.running():
            self.end_pod(name, code)

    def wait_gone(self, seconds=60):
        wait_until(f"job {self.name} and its pods to be gone", seconds, lambda: not self.get() and not self.pods())
