# SPDX-License-Identifier: Apache-2.0
"""Runs one job and reports how it ended.

Every process of a job has MARK with a value of its own in its environment, by which a process that outlives the job is
found in any session. Jobs that compute are niced, so that jobs that wait get the processor when they need it."""
import dataclasses
import glob
import os
import re
import signal
import subprocess
import time

MARK = "HVD_TEST_MARK"
KILL_AFTER = 60                 # seconds from a job's time limit to SIGKILL
LINGER = 10                     # seconds that processes of a job may outlive it
EXEC = 0.5                      # seconds for which a process with an unreadable environment is read again
NICE = 5
SKIPPED = 77                    # the exit code of a test that could not run here
# A sanitizer's report about any process of the job, even if its exit code is ignored.
REPORT = re.compile(rb"WARNING: ThreadSanitizer|ERROR: [A-Z][a-z]*Sanitizer|Sanitizer:DEADLYSIGNAL"
                    rb"|[0-9]: runtime error: ")


@dataclasses.dataclass
class Outcome:
    job: object
    verdict: str                # "ok", "skip" or "FAIL"
    why: str                    # of a failure
    log: str                    # path
    seconds: float = 0.0        # by the clock
    cpu: float = 0.0            # seconds of processor time of the job's processes that were waited for
    skips: list = dataclasses.field(default_factory=list)   # lines "SKIP: id: need: reason"


def environment(job, build, python, mark):
    """The job's environment. HVD_DOCTOR is off, so that results do not depend on this machine's health."""
    own = {**os.environ, "LC_ALL": "C", "HVD_DOCTOR": "off", "BUILD": build, "PY": python, MARK: mark}
    if job.sanitized():
        own["HVD_TEST_SANITIZED"] = "1"     # such a program keeps freed memory for a while
    return own


class Process:
    """A job that runs. run() is called by one thread, stop() by any."""

    def __init__(self, job, build, python):
        self.job, self.mark = job, f"{os.getpid()}.{os.urandom(4).hex()}.{re.sub('[^a-z0-9]', '_', job.label)}"
        self.log = os.path.join(build, "log", job.log_name())
        self.env = environment(job, build, python, self.mark)
        self.child = None

    def run(self):
        begin = time.monotonic()
        status, cpu = self.wait()
        outcome = self.judge(os.waitstatus_to_exitcode(status))
        outcome.seconds, outcome.cpu = time.monotonic() - begin, cpu
        return outcome

    def wait(self):
        """Starts the job and waits for its end. Returns its wait status and its processor time in seconds. timeout(1) is the
        parent of the job and sends signals to its whole process group."""
        command = ["timeout", f"--kill-after={KILL_AFTER}", str(self.job.limit), *self.job.command]
        if not self.job.waiting:
            command = ["nice", "-n", str(NICE), *command]
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env)
        _, status, used = os.wait4(self.child.pid, 0)
        self.child.returncode = os.waitstatus_to_exitcode(status)   # so that Popen does not wait for it again
        return status, used.ru_utime + used.ru_stime

    def stop(self):
        if self.child and self.child.returncode is None:
            os.kill(self.child.pid, signal.SIGTERM)

    def judge(self, code):
        outcome = Outcome(self.job, "ok", "", self.log)
        if code == SKIPPED:
            outcome.verdict = "skip"
        elif code in (124, 137, -signal.SIGKILL):
            outcome.verdict, outcome.why = "FAIL", f"timed out after {self.job.limit} s, or killed"
        elif code != 0:
            outcome.verdict, outcome.why = "FAIL", f"exit code {code}" if code > 0 else f"signal {-code}"
        littered = self.reap()
        with open(self.log, "rb") as f:
            text = f.read()
        if outcome.verdict != "FAIL" and littered:
            outcome.verdict, outcome.why = "FAIL", "left processes behind"
        if outcome.verdict != "FAIL" and REPORT.search(text):
            outcome.verdict, outcome.why = "FAIL", "a sanitizer reports something"
        outcome.skips = [line.decode(errors="replace") for line in text.splitlines() if line.startswith(b"SKIP: ")]
        if outcome.verdict == "skip" and not outcome.skips:
            outcome.skips = [f"SKIP: {self.job.label}: unknown: it does not say why"]
        return outcome

    def reap(self):
        """Ends processes that outlive the job, and names them in its log. Returns whether there were any."""
        begin = time.monotonic()
        while True:
            pids, unknown = marked(self.mark)
            waited = time.monotonic() - begin
            if not (pids and waited < LINGER or unknown and waited < EXEC):
                break
            time.sleep(0.1)
        with open(self.log, "ab") as log:
            for pid in pids:
                log.write(f"left behind: {pid} {name_of(pid)}\n".encode())
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        return bool(pids)


def marked(mark):
    """(processes with this mark in their environment, whether there are some whose environment cannot be seen now).

    A process in the middle of an exec has an empty environment for a moment. So have, for ever, zombies and threads of the
    kernel, which do not count."""
    want, found, unknown = f"{MARK}={mark}".encode(), [], False
    for path in glob.glob("/proc/[0-9]*"):
        try:
            with open(path + "/environ", "rb") as f:
                text = f.read()
            if want in text.split(b"\0"):
                found.append(int(path.split("/")[2]))
            elif not text:
                unknown = unknown or is_program(path)
        except OSError:     # it has ended, or belongs to another user
            pass
    return found, unknown


def is_program(path):
    with open(path + "/stat", "rb") as f:
        state, parent = f.read().rpartition(b") ")[2].split()[:2]
    return state != b"Z" and parent not in (b"0", b"2")


def name_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
