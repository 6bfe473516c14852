#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs tests, several at a time, and prints how each ended. Called by make.

    run.py [--alone] BUILD TEST...

A TEST is a program under BUILD, a script (*.sh, *.py), or a step LABEL=COMMAND. A test that computes gets a core, tests that
mostly wait run beside it (tests/runner/job.py: the line "takes:" in a test's head). With --alone one test runs at a time,
for tests that share a GPU. After its time limit ("timeout:" in its head) a test and everything that it started is ended.
Exit code 77 means skipped. A test fails if it leaves a process behind, or if its log has a sanitizer's report, whatever its
exit code.

Lines "SKIP: id: need: reason" are collected. With HVD_TEST_STRICT=1 a skip that tests/SKIPS does not allow is a failure,
and so is a lane (unit, multi, e2e ...) that uses its budget of tests/BUDGETS and a third, times the slowness of the machine
(tests/runner/yardstick.py). Logs stay in BUILD/log, times in BUILD/log/times. The last line is the result."""
import argparse
import os
import queue
import signal
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from runner.job import ROOT, jobs  # noqa: E402
from runner.process import Process  # noqa: E402
from runner.report import Report  # noqa: E402
from runner.schedule import Schedule  # noqa: E402
from runner.yardstick import Yardstick  # noqa: E402

WAITING = 1.5                   # waiting jobs for each core: with more, their own time limits fail on a slow machine


class Run:
    def __init__(self, build, words, alone):
        self.build, self.python = build, os.environ.get("PY") or "/usr/bin/python3"
        work = jobs(words, build, self.python)
        cores = len(os.sched_getaffinity(0))
        self.schedule = Schedule(work, 1, 0) if alone else Schedule(work, cores, int(WAITING * cores))
        self.report = Report(work, os.environ.get("HVD_TEST_STRICT") == "1", lambda text: print(text, flush=True),
                             Yardstick().slowness)
        self.ends, self.processes = queue.SimpleQueue(), set()

    def start(self, job):
        process = Process(job, self.build, self.python)
        self.processes.add(process)
        threading.Thread(target=lambda: self.ends.put((process, process.run())), daemon=True).start()

    def all(self):
        while True:
            while job := self.schedule.next():
                self.start(job)
            if not self.processes:
                break
            process, outcome = self.ends.get()
            self.processes.discard(process)
            self.report.line(outcome)
            self.report.stranded(outcome.job, self.schedule.ended(outcome.job, outcome.verdict == "ok"))
        self.report.save(os.path.join(self.build, "log", "times"))
        return self.report.end()

    def stop(self):
        """Ends the running tests, and everything that they started."""
        for process in self.processes:
            process.stop()
        while self.processes:
            self.processes.discard(self.ends.get()[0])


def interrupted(number, _frame):
    raise KeyboardInterrupt(number)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("build")
    parser.add_argument("tests", nargs="*")
    args = parser.parse_args()
    os.chdir(ROOT)
    os.makedirs(os.path.join(args.build, "log"), exist_ok=True)
    run = Run(args.build, args.tests, args.alone)
    signal.signal(signal.SIGTERM, interrupted)
    try:
        sys.exit(0 if run.all() else 1)
    except KeyboardInterrupt:
        print("interrupted: ending the tests that run", flush=True)
        run.stop()
        sys.exit(130)


if __name__ == "__main__":
    main()
