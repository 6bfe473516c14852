#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The supervisor of a cluster: the parent of all its processes. Started by cluster.py, one per cluster.

    keeper.py SETTING REPORT

SETTING is setting.json (plane.py); REPORT is the descriptor of a pipe to which it writes the result of the start as JSON.
It starts everything, writes FOLDER/ready.json, and waits for its owner's end, a signal, or commands on FOLDER/control
("stop NAME", "start NAME", "pid NAME", "end"). At the end it kills everything and removes the folder. If it is killed
itself, the kernel kills its children, and cluster.sweep() removes the rest, which it recognizes by the lock that this
process holds (inherited)."""
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time

import groups
import image
import plane
from api import Api, Refused, condition

STARTING = 120   # seconds for each step of the start
ENDING = 10
HERE = os.path.dirname(os.path.abspath(__file__))


class Ended(Exception):
    """The cluster must end: its owner has ended, or "end" was requested."""


class Keeper:
    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            self.setting = json.load(f)
        self.plane = plane.Plane(self.setting)
        self.folder = self.setting["folder"]
        self.name = os.path.basename(self.folder)
        self.running = {}    # {name: Popen}
        self.ended = set()   # names of processes that exited by themselves
        self.begin = time.monotonic()
        self.times = {}
        self.api = None
        os.makedirs(self.path("log"), exist_ok=True)
        self.owner = None
        # Signals arrive as bytes in a pipe that is polled.
        self.wake, wake_in = os.pipe()
        os.set_blocking(wake_in, False)
        signal.set_wakeup_fd(wake_in)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        self.control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.control.bind(self.path("control"))
        self.control.listen(8)

    def open_owner(self):
        if self.setting["owner"]:
            try:
                self.owner = os.pidfd_open(self.setting["owner"])
            except ProcessLookupError:
                raise Ended("the owner has ended already") from None

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def say(self, text):
        print(f"{time.monotonic() - self.begin:8.3f} {text}", flush=True)

    # ---- processes

    def commands(self):
        made = {"etcd": self.plane.etcd, "kube-apiserver": self.plane.apiserver,
                "kube-controller-manager": self.plane.controller_manager, "kube-scheduler": self.plane.scheduler}
        if self.setting["nodes"]["kwok"]:
            made["kwok"] = self.plane.kwok
        if self.setting["nodes"]["real"]:
            made["network"] = self.network
            made["node"] = self.node
        return made

    def network(self):
        return ["unshare", "--net", sys.executable, os.path.join(HERE, "network.py"), str(self.plane.net.number),
                str(os.getpid())]

    def node(self):
        space = f"--net=/proc/{self.running['network'].pid}/ns/net"
        return ["nsenter", space, "unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child",
                "--mount-proc", sys.executable, os.path.join(HERE, "node.py"), self.path("setting.json")]

    def start(self, name):
        """Starts a process that the kernel kills when this one ends."""
        command = self.commands()[name]()
        with open(self.path("log", name + ".log"), "ab") as log:
            self.running[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.folder, start_new_session=True)
        self.say(f"{name} is process {self.running[name].pid}")

    def stop(self, name):
        process = self.running.pop(name)
        process.kill()
        process.wait()
        self.say(f"{name} killed")

    def look_at_children(self):
        """Logs a process that exited by itself. Nothing else: a test may have killed it."""
        for name, process in list(self.running.items()):
            if process.poll() is not None:
                del self.running[name]
                self.ended.add(name)
                self.say(f"{name} ended by itself: {process.returncode}")

    # ---- waiting

    def turn(self, seconds):
        """Handles pending events. Raises Ended."""
        poll = select.poll()
        for fd in (self.wake, self.control.fileno(), self.owner):
            if fd is not None:
                poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll(None if seconds is None else seconds * 1000):
            if fd == self.owner:
                raise Ended("the owner has ended")
            if fd == self.wake:
                for number in os.read(self.wake, 64):
                    if number != signal.SIGCHLD:
                        raise Ended(signal.Signals(number).name)
                self.look_at_children()
            if fd == self.control.fileno():
                self.answer()

    def wait(self, what, question, pause=0.05):
        """Waits until question() is true. Raises TimeoutError, or at once if a process has exited by itself."""
        end = time.monotonic() + STARTING
        while not question():
            self.turn(pause)
            if self.ended:
                raise TimeoutError(f"{', '.join(self.ended)} ended while the cluster waited for {what}")
            if time.monotonic() > end:
                raise TimeoutError(f"waited {STARTING} s for {what}")
        self.times[what] = round(time.monotonic() - self.begin, 2)
        self.say(what)

    def answer(self):
        connection, _ = self.control.accept()
        connection.settimeout(5)
        try:
            word, _, name = connection.makefile().readline().strip().partition(" ")
            if word == "end":
                connection.detach()   # closes when this process exits, which is the reply
                raise Ended("asked for")
            connection.sendall((self.obey(word, name) + "\n").encode())
        except OSError as error:
            self.say(f"control: {error}")
        connection.close()

    def obey(self, word, name):
        if name not in self.commands():
            return f"error: no program {name!r} in this cluster"
        if word == "pid":
            return str(self.running[name].pid) if name in self.running else "error: it does not run"
        if word == "stop" and name in self.running:
            self.stop(name)
            return "ok"
        if word == "start" and name not in self.running:
            self.start(name)
            return "ok"
        return f"error: cannot {word} {name}"

    # ---- the start

    def start_real(self):
        """Creates the network first: the API server listens on an address of it."""
        image.write_pause(self.folder)
        groups.make(self.name)
        self.start("network")
        self.wait("the node's network", self.plane.net.is_there, 0.01)
        self.plane.net.make_outside()
        self.start("node")

    def run(self):
        self.plane.make_keys()
        if self.setting["nodes"]["real"]:
            self.start_real()
        self.start("etcd")
        self.wait("etcd's socket", lambda: os.path.exists(self.path("etcd.sock")), 0.02)
        self.start("kube-apiserver")
        self.api = Api(self.plane.server, self.plane.keys.ca_crt, self.plane.keys.tokens["admin"])
        self.wait("the API server", self.is_ready)
        with open(self.path("apiserver-is-ready"), "w", encoding="ascii"):
            pass
        self.start("kube-controller-manager")
        self.start("kube-scheduler")
        self.start_kwok()
        self.wait("a namespace that takes pods",
                  lambda: self.has("/api/v1/namespaces/default/serviceaccounts/default"))
        self.wait("all nodes Ready", self.nodes_are_ready)
        self.api.close()
        self.write_ready()

    def start_kwok(self):
        if not self.setting["nodes"]["kwok"]:
            return
        with open(self.path("stages.yaml"), "w", encoding="utf-8") as f:
            subprocess.run([self.setting["programs"]["stages"]], stdout=f, check=True, timeout=60)
        self.start("kwok")
        for number in range(self.setting["nodes"]["kwok"]):
            self.api.create("/api/v1/nodes", self.plane.kwok_node(number))

    def is_ready(self):
        try:
            return self.api.get("/readyz") == "ok"
        except (OSError, Refused):
            return False

    def has(self, path):
        try:
            return self.api.get(path)
        except Refused:
            return None

    def nodes_are_ready(self):
        nodes = self.api.get("/api/v1/nodes")["items"]
        wanted = self.setting["nodes"]["kwok"] + (1 if self.setting["nodes"]["real"] else 0)
        return sum(condition(node, "Ready") == "True" for node in nodes) >= wanted

    def write_ready(self):
        temporary = self.path("ready.json.new")
        with open(temporary, "w", encoding="utf-8") as f:
            json.dump({"keeper": os.getpid(), "server": self.plane.server, "seconds": self.times}, f)
        os.rename(temporary, self.path("ready.json"))

    # ---- the end

    def end(self):
        """Kills everything; nothing needs an orderly shutdown. Removes the folder last: while it exists, sweep() can finish
        the job."""
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait()
        if self.plane.net:
            self.plane.net.remove()
            if not groups.remove(self.name):
                self.say(f"control groups {self.name} are still in use")
        end = time.monotonic() + ENDING
        while os.path.isdir(self.folder) and time.monotonic() < end:
            shutil.rmtree(self.folder, ignore_errors=True)   # dying processes of the node may still write

    def logs(self, lines=12):
        """The ends of all logs, because the folder is removed."""
        parts = []
        for name in sorted(os.listdir(self.path("log"))):
            with open(self.path("log", name), encoding="utf-8", errors="replace") as f:
                last = f.read()[-20000:].strip().splitlines()[-lines:]
            parts.append(f"--- {name}\n" + "\n".join(line[:400] for line in last))
        return "\n".join(parts)


def main():
    def report(**what):
        with os.fdopen(int(sys.argv[2]), "w", encoding="utf-8") as pipe:
            json.dump(what, pipe)

    keeper, code = Keeper(sys.argv[1]), 1
    try:
        keeper.open_owner()
        keeper.run()
        report(ready=True)
        while True:
            keeper.turn(None)
    except Ended as reason:
        keeper.say(f"end: {reason}")
        code = 0
    except Exception as error:  # report any error and exit
        keeper.say(f"failed: {error!r}")
        if not os.path.exists(keeper.path("ready.json")):
            report(failed=f"{error}\n{keeper.logs()}")
    finally:
        keeper.end()
    return code


if __name__ == "__main__":
    sys.exit(main())
