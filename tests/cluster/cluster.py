#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes cluster for a test or for experiments.

    with Cluster(kwok=20) as cluster:           # or real=True, gates={"GangScheduling": True}, ...
        cluster.kubectl("apply", "-f", "x.yaml")
        cluster.api.get("/api/v1/pods")

    cluster.py start [--kwok N] [--real] ...    prints the folder: for shell scripts, with --owner $$
    cluster.py stop FOLDER
    cluster.py up [--kwok N] [--real] / down    one that stays until down (make cluster, make cluster-down)
    cluster.py ask stop kube-apiserver          ends a program of it; start: starts it again; pid: prints its process

It ends when the process that started it (or --owner) ends, in any way; README.md says how. Raises binaries.Missing if
it cannot run here: skip with that reason."""
import argparse
import contextlib
import fcntl
import glob
import json
import os
import random
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import binaries
import groups
import network
import plane
from api import Api
from binaries import Missing

HERE = os.path.dirname(os.path.abspath(__file__))
STARTING = 300    # seconds until the supervisor must have reported; it has time-outs of its own
ENDING = 30
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
NODE_NEEDS = ("containerd", "ctr", "runc", "unshare", "nsenter", "ip", "iptables", "containerd-shim-runc-v2")
PREFIX = f"hvd-cluster-{os.getuid()}-"
UP = f"hvd-cluster-{os.getuid()}.up"


def say(text):
    print(f"cluster: {text}", file=sys.stderr, flush=True)


def parent_folder():
    return os.environ.get("TMPDIR") or "/tmp"


def free_port(address):
    """A free port below the range of ephemeral ports."""
    while True:
        port = random.randrange(10000, 30000)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind((address, port))
            return port


def check_real():
    """Raises Missing if a real node cannot run here."""
    if os.getuid() != 0:
        raise Missing("root", "a kubelet and containerd want to be root")
    for program in NODE_NEEDS:
        if not shutil.which(program):
            raise Missing(program, f"{program} is not installed (make deps)")
    if not os.path.exists("/usr/lib/cni/bridge"):
        raise Missing("cni", "no /usr/lib/cni/bridge: containernetworking-plugins is not installed (make deps)")
    probe = subprocess.run(["unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--mount-proc", "sh",
                            "-c", "mount -t tmpfs none /run && ip link add hvdtest type veth peer name hvdtest1"],
                           capture_output=True, text=True, timeout=30)
    if probe.returncode != 0:
        raise Missing("namespaces", f"no mount, pid and network namespaces here: {probe.stderr.strip()[:200]}")
    if not groups.writable():
        raise Missing("cgroups", f"no control groups under {groups.ROOT} that can be made")


class Failed(Exception):
    """The cluster did not start; the text ends with its programs' logs."""


class Cluster:
    """kwok: number of simulated nodes, each with `capacity`; real: also a real node. gates: {feature: bool}. runtime: a
    list for --runtime-config. more: {program: [arguments]}. limit: requests per second of scheduler, controller
    manager and kubelet. owner: a process id, 0: none."""

    def __init__(self, kwok=0, real=False, gates=None, runtime=(), more=None, limit=5000, capacity=None, owner=None,
                 folder=None):
        self.want = {"nodes": {"kwok": kwok, "real": real}, "gates": gates or {}, "runtime": list(runtime),
                     "more": more or {}, "limit": limit,
                     "capacity": capacity or {"cpu": "8", "memory": "32Gi", "pods": "110"},
                     "owner": os.getpid() if owner is None else owner}
        self.folder = folder
        self.api = None
        self.programs = {}
        self.keeper = None
        self.ready = {}

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def path(self, *names):
        return os.path.join(self.folder, *names)

    @property
    def kubeconfig(self):
        return self.path("admin.kubeconfig")

    @property
    def ca(self):
        return self.path("keys", "ca.crt")

    # ---- start

    def start(self):
        """Takes seconds, or minutes if the programs must be built first."""
        nodes = self.want["nodes"]
        if nodes["real"]:
            check_real()
        names = [*CONTROL_PLANE, *(("kwok", "stages") if nodes["kwok"] else ()),
                 *(("kubelet", "kube-proxy") if nodes["real"] else ())]
        self.programs = binaries.find(names)
        sweep()
        begin = time.monotonic()
        lock = self.make_folder()
        with os.fdopen(lock), open(self.path("log", "keeper.log"), "wb") as log:
            self.write_setting()
            heard, tell = os.pipe()
            self.keeper = subprocess.Popen(
                [sys.executable, os.path.join(HERE, "keeper.py"), self.path("setting.json"), str(tell)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(lock, tell), start_new_session=True)
            os.close(tell)
        self.hear(heard)
        self.attach()
        self.ready["total"] = round(time.monotonic() - begin, 2)
        return self

    def make_folder(self):
        """Creates the folder with its lock, and renames it afterwards: a sweep never sees a folder without a lock."""
        if self.folder:
            os.mkdir(self.folder, 0o700)
        else:
            self.folder = tempfile.mkdtemp(prefix=PREFIX, dir=parent_folder())
        os.mkdir(self.path("log"))
        lock = os.open(self.path("lock.new"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.rename(self.path("lock.new"), self.path("lock"))
        return lock

    def write_setting(self):
        real = self.want["nodes"]["real"]
        number = network.free_number(random.randrange(256)) if real else None
        address = network.Network(number).host if real else plane.LOOPBACK
        setting = {**self.want, "folder": self.folder, "programs": self.programs, "address": address,
                   "port": 6443 if real else free_port(address), "network": number}
        with open(self.path("setting.json"), "w", encoding="utf-8") as f:
            json.dump(setting, f, indent=1)

    def hear(self, pipe):
        with os.fdopen(pipe, encoding="utf-8") as f:
            if not select.select([f], [], [], STARTING)[0]:
                self.keeper.kill()
                raise Failed(f"the cluster's keeper said nothing for {STARTING} s")
            text = f.read()
        answer = json.loads(text) if text else {"failed": "the cluster's keeper ended without a word"}
        if "failed" in answer:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.keeper.wait(ENDING)
            raise Failed(answer["failed"])

    def attach(self):
        """Attaches to a running cluster by its folder."""
        with open(self.path("ready.json"), encoding="utf-8") as f:
            self.ready = json.load(f)
        with open(self.path("setting.json"), encoding="utf-8") as f:
            setting = json.load(f)
        self.programs = setting["programs"]
        self.network = None if setting["network"] is None else network.Network(setting["network"])
        self.api = Api.from_kubeconfig(self.kubeconfig, self.ca)
        return self

    # ---- use

    def kubectl(self, *arguments, text=None, timeout=60):
        """Returns kubectl's standard output. Raises CalledProcessError with `stderr`."""
        done = subprocess.run([self.programs["kubectl"], "--kubeconfig", self.kubeconfig, *arguments], input=text,
                              capture_output=True, text=True, timeout=timeout, check=True)
        return done.stdout

    def ask(self, line):
        """Sends a command to the supervisor: "stop kube-apiserver", "start kube-apiserver", "pid etcd". Returns its
        reply; for "end" it is empty and comes when the supervisor has exited."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.settimeout(150)
            s.connect(self.path("control"))
            s.sendall((line + "\n").encode())
            answer = s.makefile().readline().strip()
        if answer.startswith("error"):
            raise RuntimeError(f"{line}: {answer}")
        return answer

    # ---- end

    def stop(self):
        """Ends the cluster; returns when nothing is left of it."""
        if self.api:
            self.api.close()
        if not self.folder or not os.path.isdir(self.folder):
            return
        with contextlib.suppress(OSError):
            self.ask("end")
        if self.keeper:
            self.keeper.wait(ENDING)
        end = time.monotonic() + ENDING
        while os.path.isdir(self.folder):
            sweep()   # in case the supervisor was killed
            if time.monotonic() > end:
                raise Failed(f"{self.folder} is still there {ENDING} s after it was told to end")
            time.sleep(0.02)


def sweep():
    """Removes the leftovers of clusters whose supervisor was killed: folders whose lock is free."""
    parent = parent_folder()
    for folder in [*glob.glob(os.path.join(parent, PREFIX + "*")), os.path.join(parent, UP)]:
        try:
            with open(os.path.join(folder, "lock"), encoding="ascii") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                say(f"removing what is left of {folder}")
                if os.getuid() == 0:
                    groups.remove(os.path.basename(folder))
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            pass   # in use, or being created


# ---- for people and shell scripts --------------------------------------------------------------------

def from_arguments(arguments, **more):
    gates = dict(word.split("=", 1) for word in arguments.gate)
    return Cluster(kwok=arguments.kwok, real=arguments.real,
                   gates={gate: on.lower() == "true" for gate, on in gates.items()}, runtime=arguments.runtime, **more)


def do_start(arguments):
    cluster = from_arguments(arguments, owner=arguments.owner)
    cluster.start()
    print(cluster.folder)


def do_stop(arguments):
    Cluster(folder=arguments.folder).stop()


def do_up(arguments):
    folder = os.path.join(parent_folder(), UP)
    sweep()
    if os.path.isdir(folder):
        say("one runs already (make cluster-down ends it)")
        cluster = Cluster(folder=folder).attach()
    else:
        say("starting: seconds, or 5 to 10 minutes when Kubernetes has to be built first")
        cluster = from_arguments(arguments, owner=0, folder=folder).start()
        say(f"ready after {cluster.ready['total']} s")
    print(f"export KUBECONFIG={cluster.kubeconfig}\nexport PATH={os.path.dirname(cluster.programs['kubectl'])}:$PATH\n"
          f"# {cluster.ready['server']}, certificate {cluster.ca}\n# logs: {cluster.path('log')}\n"
          "# then: kubectl get nodes; it ends with make cluster-down")


def do_ask(arguments):
    cluster = Cluster(folder=arguments.folder or os.path.join(parent_folder(), UP))
    try:
        print(cluster.ask(f"{arguments.word} {arguments.program}"))
    except FileNotFoundError:
        raise Failed(f"no cluster runs in {cluster.folder}") from None
    except RuntimeError as error:
        raise Failed(str(error)) from None


def do_down(_):
    sweep()
    cluster = Cluster(folder=os.path.join(parent_folder(), UP))
    if not os.path.isdir(cluster.folder):
        say("none runs")
    cluster.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    start, up = commands.add_parser("start"), commands.add_parser("up")
    for command in (start, up):
        command.add_argument("--kwok", type=int, default=0, metavar="N", help="simulated nodes")
        command.add_argument("--real", action="store_true", help="a real node: containerd and kubelet")
        command.add_argument("--gate", action="append", default=[], metavar="FEATURE=true")
        command.add_argument("--runtime", action="append", default=[], metavar="GROUP/VERSION=true")
    start.add_argument("--owner", type=int, required=True, metavar="PID", help="the process that it ends with")
    start.set_defaults(run=do_start)
    up.set_defaults(run=do_up)
    stop = commands.add_parser("stop")
    stop.add_argument("folder")
    stop.set_defaults(run=do_stop)
    commands.add_parser("down").set_defaults(run=do_down)
    ask = commands.add_parser("ask")
    ask.add_argument("--folder", help="of a cluster of start; default: that of make cluster")
    ask.add_argument("word", choices=("stop", "start", "pid"))
    ask.add_argument("program", help="kube-apiserver, kube-scheduler, kube-controller-manager, etcd, kwok, node")
    ask.set_defaults(run=do_ask)
    arguments = parser.parse_args()
    try:
        arguments.run(arguments)
    except Missing as missing:
        print(f"SKIP: cluster/{missing.need}: {missing.need}: {missing}")
        return 77
    except Failed as failed:
        say(str(failed))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
