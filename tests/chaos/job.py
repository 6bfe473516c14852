# SPDX-License-Identifier: Apache-2.0
"""An elastic job under hvdrun as the chaos run sees it: its processes, its workers' records so far, and its
coordinator. Used by chaos.py, test_cases.py and the benchmark of elastic jobs."""
import ctypes
import glob
import http.client
import json
import os
import signal
import socket
import subprocess
import time

PR_SET_CHILD_SUBREAPER = 36
NAME = "chaos"  # of the job, for hvdrun attach


def adopt_orphans():
    """Makes this process the parent of all orphaned descendants, so that it finds them."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def stat_fields(pid):
    """The fields of /proc/PID/stat from the state on (field 3). None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="latin-1") as f:
            return f.read().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None


def descendants(root):
    """Processes below root, without zombies."""
    below = {}
    for name in os.listdir("/proc"):
        fields = stat_fields(name) if name.isdigit() else None
        if fields and fields[0] != "Z":
            below.setdefault(int(fields[1]), []).append(int(name))
    found, todo = [], [root]
    while todo:
        children = below.get(todo.pop(), [])
        found += children
        todo += children
    return found


class Worker:
    """One worker's record, read while it grows (check.py describes the lines)."""

    def __init__(self, path):
        self.path = path
        self.uid = os.path.basename(path).removesuffix(".jsonl")
        self.pid, self.started = (int(v) for v in self.uid.split("-"))
        self.offset = self.results = self.step = 0
        self.rank = self.size = self.epoch = None
        self.armed, self.works, self.ended = "", False, None
        self.place, self.dead = None, False  # dead: its last step has failed with -EOWNERDEAD (stages.c)
        self.outside = False  # it has called hvd_init(), and is not a member yet

    def alive(self):
        fields = stat_fields(self.pid)
        return fields is not None and int(fields[19]) == self.started and fields[0] not in "ZX"

    def stopped(self):
        fields = stat_fields(self.pid)
        return fields is not None and fields[0] in "Tt"

    def signal(self, number):
        if not self.alive():
            return False
        try:
            os.kill(self.pid, number)
            return True
        except ProcessLookupError:
            return False

    def read(self):
        with open(self.path, "rb") as f:
            f.seek(self.offset)
            text = f.read()
        whole = text.rfind(b"\n") + 1
        self.offset += whole
        for line in text[:whole].splitlines():
            if line.startswith(b'{"t": "op"'):
                self.results += 1
            else:
                self.note(json.loads(line))

    def note(self, row):
        kind = row["t"]
        if kind == "start":
            self.armed = row["armed"]
        elif kind == "doom":
            self.armed = kind
        elif kind == "hello":
            self.outside = True
        elif kind == "world":
            self.outside = False
            self.rank, self.size, self.epoch = row["rank"], row["size"], row["e"]
            self.place = row.get("place")
        elif kind == "step":
            self.works, self.step = True, row["step"]
        elif kind == "value":
            self.works, self.dead, self.step = True, False, row["step"]
            self.results += 1
        elif kind == "dead":
            self.dead = True
        elif kind in ("end", "left", "fail"):
            self.ended = row


class Control:
    """The coordinator's socket (core/member/README.md)."""

    def __init__(self, folder):
        self.folder = folder  # its XDG_RUNTIME_DIR

    def ask(self, method, path, body=None):
        """Returns (status, answer), or (0, None) without an answer."""
        for where in glob.glob(os.path.join(self.folder, "hvdrun-*")):
            try:
                with open(os.path.join(where, "token"), encoding="ascii") as f:
                    token = f.read().strip()
                link = http.client.HTTPConnection("job", timeout=5)
                link.sock = socket.socket(socket.AF_UNIX)
                link.sock.settimeout(5)
                link.sock.connect(os.path.join(where, "sock"))
                link.request(method, path, json.dumps(body) if body else None,
                             {"Authorization": f"Bearer {token}"})
                answer = link.getresponse()
                text = answer.read()
                link.close()
                return answer.status, json.loads(text) if text else None
            except (OSError, ValueError, http.client.HTTPException):
                continue
        return 0, None

    def status(self):
        return self.ask("GET", "/v1/status")[1]

    def scale(self, ranks):
        return self.ask("POST", "/v1/scale", {"np": ranks})


class Job:
    """hvdrun and its descendants. folder: the job's own, with the workers' records in folder/records."""

    def __init__(self, folder, argv, env=None, before=()):
        self.folder, self.records = folder, os.path.join(folder, "records")
        run = os.path.join(folder, "run")
        os.makedirs(self.records, exist_ok=True)
        os.makedirs(run, mode=0o700, exist_ok=True)
        self.workers = {}
        self.control = Control(run)
        self.log = open(os.path.join(folder, "hvdrun.log"), "ab")
        self.env = dict(os.environ, XDG_RUNTIME_DIR=run, HVD_DOCTOR="off", **(env or {}))
        self.before, self.hvdrun = before, argv[0]
        self.lost = False  # hvdrun was killed, and no other one was started yet
        self.process = self.run([argv[0], "--name", NAME, *argv[1:]])

    def run(self, argv):
        return subprocess.Popen([*self.before, *argv], env=self.env, stdin=subprocess.DEVNULL, stdout=self.log,
                                stderr=subprocess.STDOUT)

    def lose(self):
        """Kills hvdrun. False if it does not run."""
        if self.lost or self.process.poll() is not None:
            return False
        self.process.kill()
        self.process.wait()
        self.lost = True
        return True

    def attach(self):
        """Starts another hvdrun that takes the job over."""
        self.process = self.run([self.hvdrun, "attach", NAME])
        self.lost = False

    def ended(self):
        """hvdrun's exit code. None while it runs, or is about to be replaced."""
        return None if self.lost else self.process.poll()

    def look(self):
        """Reads new lines. Returns the number of results so far."""
        for path in glob.glob(os.path.join(self.records, "*.jsonl")):
            uid = os.path.basename(path).removesuffix(".jsonl")
            if uid != "events":
                self.workers.setdefault(uid, Worker(path))
        for worker in self.workers.values():
            worker.read()
        return sum(w.results for w in self.workers.values())

    def working(self):
        """Workers that live and have the state, in order of rank."""
        return sorted((w for w in self.workers.values() if w.works and not w.ended and w.alive()),
                      key=lambda w: (w.epoch, w.rank))

    def stop(self):
        with open(os.path.join(self.records, "stop"), "w", encoding="ascii"):
            pass

    def wait(self, seconds):
        """hvdrun's exit code. None if it still runs after so many seconds."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def end(self):
        """Ends everything that the job has left running. Returns the process ids of workers that still lived."""
        self.process.terminate()
        if self.wait(10) is None:
            self.process.kill()
            self.process.wait()
        left = []
        for _ in range(100):
            left = [w.pid for w in self.workers.values() if w.alive()]
            if not left:
                break
            time.sleep(0.05)
        for pid in left + descendants(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.log.close()
        return left


def stacks(job, path):
    """Writes the stacks of a hanging job's workers to the file path. The job's other processes are stopped meanwhile, so
    that they do not end a worker which is silent because a debugger has stopped it."""
    workers = [w.pid for w in job.workers.values() if w.alive()]
    for pid in descendants(os.getpid()):
        if pid not in workers:
            os.kill(pid, signal.SIGSTOP)
    with open(path, "a", encoding="utf-8") as f:
        for pid in workers:
            fields = stat_fields(pid)
            f.write(f"==== {pid} state {fields[0] if fields else 'gone'}\n")
            f.flush()
            try:
                subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 12"], stdout=f,
                               stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=30, check=False)
            except (OSError, subprocess.TimeoutExpired) as error:
                f.write(f"no stacks: {error}\n")
    for pid in descendants(os.getpid()):
        if pid not in workers:
            os.kill(pid, signal.SIGCONT)
