#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""hvd on a real Kubernetes node, as for a user: applies k8s/ with the images of `make images`, then
k8s/examples/mnist.yaml with two workers. While the job trains, it is scaled to four and to three and the program of one
worker is killed (SIGKILL); then it trains to its end. Prints what happens, when, and how long each change took.

    demo.py BUILD [--epochs 60] [--keep-log]

Exit code 0: the job succeeded, and only the killed worker restarted."""
import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
import case  # noqa: E402
from api import Api, Refused, condition, wait_until  # noqa: E402
from binaries import Missing  # noqa: E402
from cluster import Cluster, free_port  # noqa: E402

SYSTEM, JOB = "hvd-system", "mnist"
JOBS = "/apis/hvd.dev/v1alpha1/namespaces/default/hvdjobs"
PODS = f"/api/v1/namespaces/default/pods?labelSelector=hvd.dev%2Fjob%3D{JOB}"
PATIENCE = 300    # seconds for each step
IMAGES = ("operator", "bundle", "example")


class Clock:
    def __init__(self):
        self.begin = time.monotonic()

    def say(self, text):
        print(f"{time.monotonic() - self.begin:7.2f} s  {text}", flush=True)


class Follower(threading.Thread):
    """Prints each change of the job's status, like kubectl get -w."""

    def __init__(self, cluster, clock):
        super().__init__(daemon=True)
        self.api = Api.from_kubeconfig(cluster.kubeconfig, cluster.ca)   # this thread's own connection
        self.clock, self.ended, self.last = clock, threading.Event(), None

    def look(self):
        with contextlib.suppress(Refused, OSError):
            job = self.api.get(f"{JOBS}/{JOB}")
            s = job.get("status", {})
            now = (s.get("phase"), s.get("ready", 0), job["spec"]["workers"], s.get("epoch", 0), s.get("restarts", 0),
                   s.get("message", ""))
            if now != self.last:
                self.clock.say("job   {}: {} of {} ready, epoch {}, {} restarts  {}".format(*now))
            self.last = now

    def run(self):
        while not self.ended.wait(0.05):
            self.look()

    def stop(self):
        self.ended.set()
        self.join()
        self.look()


class Demo:
    def __init__(self, build, cluster, clock):
        self.build, self.cluster, self.clock, self.api = build, cluster, clock, cluster.api

    def in_node(self, *command, timeout=PATIENCE):
        """Runs a command in the mount and pid namespaces of the node."""
        (kubelet, *_) = [pid for pid, line in case.processes(self.cluster.folder).items() if "kubelet" in line]
        return subprocess.run(["nsenter", f"--target={kubelet}", "--mount", "--pid", *command], check=True,
                              timeout=timeout, capture_output=True, text=True).stdout

    def ctr(self, *arguments):
        return self.in_node("ctr", "--address", "/run/containerd/containerd.sock", "--namespace", "k8s.io", *arguments)

    def load_images(self):
        for name in IMAGES:
            path = os.path.join(self.build, "images", f"hvd-{name}.tar")
            if not os.path.exists(path):
                raise Missing("images", f"there is no {path} (make images)")
            self.ctr("images", "import", os.path.abspath(path))
            self.clock.say(f"image hvd-{name} is on the node")

    def install(self):
        """Installs the operator as the README says. The cluster has no DNS, so agents get the address of the Service."""
        self.cluster.kubectl("apply", "-k", os.path.join(ROOT, "k8s"))
        service = self.api.get(f"/api/v1/namespaces/{SYSTEM}/services/hvd-operator")["spec"]["clusterIP"]
        arguments = "/spec/template/spec/containers/0/args/-"
        patch = json.dumps([{"op": "add", "path": arguments, "value": value}
                            for value in ("-v", "--agents-url", f"https://{service}:7443")])
        self.cluster.kubectl("-n", SYSTEM, "patch", "deployment/hvd-operator", "--type=json", "-p", patch)
        self.clock.say("kubectl apply -k k8s/")
        wait_until("a ready operator", PATIENCE, lambda: self.operators() == 2)
        self.clock.say("two operators are ready")

    def operators(self):
        """Number of operator pods if all are ready, one of them leads, and none is from before the patch; else 0."""
        items = self.api.get(f"/api/v1/namespaces/{SYSTEM}/pods")["items"]
        new = ["--agents-url" in str(p["spec"]["containers"][0].get("args")) for p in items]
        leads = any("hvd.dev/leader" in p["metadata"]["labels"] for p in items)
        return len(items) if all(new) and leads and all(condition(p, "Ready") == "True" for p in items) else 0

    def apply_job(self, epochs):
        with open(os.path.join(ROOT, "k8s", "examples", "mnist.yaml"), encoding="utf-8") as f:
            text = f.read().replace("  workers: 4\n", "  workers: 2\n")
        text = re.sub(r'--epochs, "\d+"', f'--epochs, "{epochs}"', text)
        text = re.sub(r'--pace, "\d+"', '--pace, "1"', text)
        self.cluster.kubectl("apply", "-f", "-", text=text)
        self.clock.say("kubectl apply -f mnist.yaml, with 2 workers")

    def status(self):
        return self.api.get(f"{JOBS}/{JOB}").get("status", {})

    def wait_training(self, workers, epoch):
        """Waits until all workers are ready in a later epoch, and returns its number."""
        def there():
            s = self.status()
            if s.get("phase") in ("Failed", "Succeeded"):
                raise AssertionError(f"the job is {s['phase']} too early: {s.get('message')}")
            return s.get("ready") == workers and s.get("epoch", 0) > epoch and s.get("workers") == workers and s
        return wait_until(f"{workers} workers that train", PATIENCE, there)["epoch"]

    def look_at_page(self):
        """Reads the page's JSON of the job through kubectl port-forward, like a user."""
        port = free_port("127.0.0.1")
        with subprocess.Popen(["setpriv", "--pdeathsig", "KILL", self.cluster.programs["kubectl"], "--kubeconfig",
                               self.cluster.kubeconfig, "-n", SYSTEM, "port-forward", "service/hvd-operator",
                               f"{port}:8080"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as forward:
            try:
                def ask():
                    with contextlib.suppress(urllib.error.URLError, ConnectionError):
                        with urllib.request.urlopen(f"http://localhost:{port}/v1/jobs/default/{JOB}", timeout=10) as answer:
                            page = json.load(answer)
                            return page if page["complete"] else None
                page = wait_until("the page", 60, ask)
            finally:
                forward.terminate()
        assert page["leads"] and page["roster"], page
        self.clock.say(f"page  {page['members']['ok']} workers train, {page['roster']['batchesPerS']:.0f} batches/s, "
                       f"epochs {[e['epoch'] for e in page['epochs']]}")

    def scale(self, workers, epoch):
        self.cluster.kubectl("scale", f"hvdjob/{JOB}", f"--replicas={workers}")
        self.clock.say(f"kubectl scale hvdjob/{JOB} --replicas={workers}")
        return self.wait_training(workers, epoch)

    def kill_one(self, epoch):
        """Kills the training program of the first worker with SIGKILL; its agent lives and reports it."""
        pod = next(p for p in self.api.get(PODS)["items"] if condition(p, "Ready") == "True")
        container = pod["status"]["containerStatuses"][0]["containerID"].split("//")[1]
        pids = [int(line.split()[0]) for line in self.ctr("tasks", "ps", container).splitlines()[1:]]
        victim = next(pid for pid in sorted(pids) if "digits" in self.in_node("cat", f"/proc/{pid}/cmdline")
                      and "hvd-agent" not in self.in_node("cat", f"/proc/{pid}/cmdline"))
        self.in_node("kill", "-KILL", str(victim))
        self.clock.say(f"kill -9 of the program in pod {pod['metadata']['name']}")
        return self.wait_training(3, epoch)

    def finish(self):
        s = wait_until("the job's end", PATIENCE,
                       lambda: self.status().get("phase") in ("Succeeded", "Failed") and self.status())
        return s

    def logs(self):
        """The last log lines of each existing worker."""
        for pod in self.api.get(PODS)["items"]:
            name = pod["metadata"]["name"]
            with contextlib.suppress(Refused, OSError):
                text = self.api.get(f"/api/v1/namespaces/default/pods/{name}/log?container=worker&tailLines=4")
                print(f"---- {name}: {pod['status'].get('phase')}\n{text}")

    def run(self, epochs):
        self.load_images()
        self.install()
        follower = Follower(self.cluster, self.clock)
        self.apply_job(epochs)
        follower.start()
        try:
            epoch = self.wait_training(2, 0)
            time.sleep(3)
            self.look_at_page()
            epoch = self.scale(4, epoch)
            time.sleep(3)
            epoch = self.scale(3, epoch)
            time.sleep(3)
            self.kill_one(epoch)
            return self.finish()
        finally:
            follower.stop()
            self.logs()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--keep-log", action="store_true", help="the operators' logs, printed at the end")
    arguments = parser.parse_args()
    clock = Clock()
    try:
        with Cluster(real=True) as cluster:
            clock.say("a Kubernetes cluster with one real node")
            demo = Demo(arguments.build, cluster, clock)
            try:
                s = demo.run(arguments.epochs)
            finally:
                if arguments.keep_log:
                    print(cluster.kubectl("-n", SYSTEM, "logs", "-l", "app.kubernetes.io/name=hvd-operator", "--tail=-1",
                                          "--prefix"))
    except Missing as missing:
        print(f"SKIP: cluster-demo: {missing.need}: {missing}")
        return 77
    ok = s["phase"] == "Succeeded" and s.get("restarts") == 1
    print(f"cluster-demo: {'ok' if ok else 'FAILED'} phase={s['phase']} epoch={s.get('epoch')} "
          f"restarts={s.get('restarts')} seconds={time.monotonic() - clock.begin:.0f}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
