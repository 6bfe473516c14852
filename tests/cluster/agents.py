# SPDX-License-Identifier: Apache-2.0
"""Real agents and ranks for an operator in a test. The nodes are simulated: the test acts as their kubelets and runs each
pod's command itself."""
import base64
import http.client
import json
import os
import signal
import ssl
import subprocess
import time

import binaries
import cluster as clusters
import operators
from api import Refused, wait_until
from operators import ROOT, Job, Operator

BUILD = os.path.join(ROOT, os.environ.get("BUILD") or "build")
AGENT = os.path.join(BUILD, "hvd-agent")
STEPS = os.path.join(BUILD, "tests/programs/steps")
CROWD = os.path.join(BUILD, "tests/programs/agents_try")


def needs():
    operators.check_program()
    for program in (AGENT, CROWD, STEPS):
        if not os.access(program, os.X_OK):
            raise binaries.Missing("programs", f"{program} is not built (make all tests-bin)")


def bound_token(api, meta, audience):
    """A token of the service account "default" that is bound to the pod with this metadata."""
    return api.create(f"/api/v1/namespaces/{meta['namespace']}/serviceaccounts/default/token", {
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": [audience], "expirationSeconds": 3600,
                 "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}}},
    )["status"]["token"]


class Kubelet:
    """A kubelet without images and volumes: runs the first container's command of each pod of a job that has a node, with
    its environment, and reports its exit code and the end of its log. It gets tokens from the API server, like a
    kubelet."""

    def __init__(self, job):
        self.job, self.processes, self.said = job, {}, set()
        self.through, self.held = (), set()    # a command in front of the agent's; pods that must not start
        self.bundle = BUILD    # the folder of agent and library that new pods get
        self.folder = job.cluster.path(f"pods-{job.name}-{job.get()['metadata']['uid']}")
        os.makedirs(self.folder, exist_ok=True)

    def token(self, pod):
        """The token that a kubelet would put into the projected volume."""
        meta = pod["metadata"]
        volume = next(v for v in pod["spec"]["volumes"] if v["name"] == "hvd-token")
        if "secret" in volume:
            path = f"/api/v1/namespaces/{meta['namespace']}/secrets/{volume['secret']['secretName']}"
            text = base64.b64decode(self.job.api.get(path)["data"]["token"]).decode()
        else:
            text = bound_token(self.job.api, meta, volume["projected"]["sources"][0]["serviceAccountToken"]["audience"])
        name = os.path.join(self.folder, f"token-{meta['name']}")
        with open(name, "w", encoding="ascii") as f:
            f.write(text)
        return name

    def message_file(self, pod):
        path = os.path.join(self.folder, f"{pod['metadata']['name']}.end")
        with open(path, "a", encoding="utf-8"):
            pass
        return path

    def message(self, pod):
        """The termination message of a pod that has failed, by the policy FallbackToLogsOnError."""
        with open(self.message_file(pod), encoding="utf-8") as f:
            return f.read() or self.log(pod)[-1000:]

    def environment(self, pod):
        meta = pod["metadata"]
        fields = {"metadata.uid": meta["uid"], "metadata.name": meta["name"]}
        own = {e["name"]: e["value"] if "value" in e else fields[e["valueFrom"]["fieldRef"]["fieldPath"]]
               for e in pod["spec"]["containers"][0]["env"]}
        own["HVD_TOKEN_FILE"] = self.token(pod)
        own["HVD_TERMINATION_MESSAGE_PATH"] = self.message_file(pod)
        own.pop("HVD_METRICS", None)    # all nodes are one machine, where the port is taken
        if self.bundle != BUILD:
            own["LD_LIBRARY_PATH"] = self.bundle
        return {**{k: v for k, v in os.environ.items() if not k.startswith("HVD_")}, "HVD_REJOIN_JITTER_MS": "500", **own}

    def start(self, pod):
        command = pod["spec"]["containers"][0]["command"]
        assert command[:3] == ["/hvd/bin/hvd-agent", "pod", "--"], command
        with open(os.path.join(self.folder, f"{pod['metadata']['name']}.log"), "ab") as log:
            return subprocess.Popen([*self.through, os.path.join(self.bundle, "hvd-agent"), *command[1:]], env=self.environment(pod), stdin=subprocess.DEVNULL,
                                    stdout=log, stderr=log, start_new_session=True)

    def turn(self):
        """Starts the agents of new pods and reports those that have ended, once. Returns True, so that it can be part of a
        condition."""
        pods = {p["metadata"]["uid"]: p for p in self.job.pods(alive=True).values()}
        for uid, pod in pods.items():
            if pod["metadata"]["name"] in self.held:
                continue
            if uid not in self.processes and pod["status"].get("phase") == "Running":
                self.processes[uid] = self.start(pod)
        for uid, process in self.processes.items():
            if uid not in pods and process.poll() is None and uid not in self.said:
                process.send_signal(signal.SIGTERM)
                self.said.add(uid)
            if uid in pods and process.poll() is not None and uid not in self.said:
                code = process.returncode
                self.said.add(uid)
                try:
                    self.job.end_pod(pods[uid]["metadata"]["name"], code if code >= 0 else 128 - code,
                                     message=self.message(pods[uid]) if code else None)
                except Refused as error:    # it was deleted meanwhile
                    if error.code != 404:
                        raise
        return True

    def of(self, name):
        return self.processes[self.job.pods()[name]["metadata"]["uid"]]

    def stop(self):
        for process in self.processes.values():
            if process.poll() is None:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            process.wait()

    def log(self, pod):
        with open(os.path.join(self.folder, f"{pod['metadata']['name']}.log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def logs(self):
        text = ""
        for name in sorted(os.listdir(self.folder)):
            if name.endswith(".log"):
                with open(os.path.join(self.folder, name), encoding="utf-8", errors="replace") as f:
                    text += f"---- {name}\n{f.read()[-3000:]}"
        return text


class Case(operators.Installed):
    nodes, options = 3, ()

    def setUp(self):
        self.port = clusters.free_port("127.0.0.1")
        self.operator = self.start_operator("agents-" + self._testMethodName)

    def start_operator(self, name, earlier=None):
        """earlier: the program of an earlier version, which serves the agents itself."""
        old = ("--agents-addr", f"127.0.0.1:{self.port}", "--agents-url", f"https://127.0.0.1:{self.port}")
        operator = Operator(self.cluster, *self.options, *(old if earlier else ()), name=name, program=earlier,
                            agents=None if earlier else ("127.0.0.1", self.port)).start()
        self.addCleanup(lambda: operator.alive() and operator.stop())
        return operator

    def start_job(self, name, workers, *arguments, doctor=None, env=None, **more):
        """env: {name: value} of the template's container."""
        container = {"name": "main", "image": "none", "command": [STEPS, *map(str, arguments)],
                     "resources": {"requests": {"cpu": "1"}},
                     "env": [{"name": key, "value": value} for key, value in (env or {}).items()]}
        job = Job(self.cluster, name, workers, doctor=doctor or {"policy": "off"},
                  template={"spec": {"containers": [container], "terminationGracePeriodSeconds": 10}}, **more)
        kubelet = Kubelet(job)
        self.addCleanup(kubelet.stop)
        self.addCleanup(job.wait_gone)    # so that the next job of this name gets new pods
        self.addCleanup(lambda: job.get() and job.delete())
        return job, kubelet

    def wait(self, what, seconds, job, kubelet, question):
        try:
            return wait_until(what, seconds, lambda: kubelet.turn() and question(), 0.1)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; {json.dumps(job.status(), indent=1)}\n{kubelet.logs()}\n"
                               f"{self.operator.tail()}") from None

    def worlds(self, kubelet):
        """Numbers of ranks, in the order in which ranks reported them."""
        return [int(line.split(" world ")[1].split()[0]) for line in kubelet.logs().splitlines() if " world " in line]

    def authority(self):
        """What the Secret with the operator's certificate authority holds, name -> bytes. Waits until the operator has made it."""
        path = f"/api/v1/namespaces/{operators.SYSTEM}/secrets?fieldSelector=metadata.name%3Dhvd-operator-ca"
        data = wait_until("the operator's Secret", 60, lambda: self.cluster.api.get(path)["items"])[0]["data"]
        return {name: base64.b64decode(value) for name, value in data.items()}

    def ask(self, path, token, method="GET", body=None):
        """Status of a request to the coordinator from an outsider, who has the CA of the pods."""
        context = ssl.create_default_context(cadata=self.authority()["ca.crt"].decode())
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        end = time.monotonic() + 30
        while True:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=20, context=context)
            try:
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                answer.read()
                if answer.status != 503 or time.monotonic() > end:    # 503 while the token is being reviewed
                    return answer.status
            finally:
                connection.close()
            time.sleep(0.2)

    def refused(self, cause):
        """Number of requests that were refused for that cause, as of the plane's last report."""
        name = f'hvd_agents_refused_total{{cause="{cause}"}} '
        return sum(float(line.split()[-1]) for line in self.operator.page("/metrics")[1].splitlines() if line.startswith(name))

    def await_refused(self, cause, least, most=None):
        """The plane reports refusals a moment later. More than `most` (None: than `least`) are an error."""
        wait_until(f"{least:.0f} requests that are refused for their {cause}", 30, lambda: self.refused(cause) >= least)
        self.assertLessEqual(self.refused(cause), most or least)
