# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the cluster: skips in the form that tests/run.py expects, and a search for leftovers."""
import glob
import os
import sys
import time
import unittest

import binaries
import groups


class Timed(unittest.TextTestResult):
    """Prints how long each test took."""
    def startTest(self, test):
        super().startTest(test)
        self.begin = time.monotonic()

    def stopTest(self, test):
        self.stream.writeln(f"    {time.monotonic() - self.begin:.1f} s")
        super().stopTest(test)


class Runner(unittest.TextTestRunner):
    resultclass = Timed


def main(name, needs=lambda: None):
    """Runs the file's tests, or prints why they cannot run and exits with 77. `needs` raises binaries.Missing."""
    try:
        needs()
        binaries.find(["kubectl"])   # here, so that no test's time-out counts a first build
    except binaries.Missing as missing:
        print(f"SKIP: cluster/{name}/{missing.need}: {missing.need}: {missing}")
        sys.exit(77)
    unittest.main(verbosity=2, module="__main__", testRunner=Runner)


def processes(word):
    """{pid: command line} of processes with `word` in their command line."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as f:
                line = f.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in line:
            found[int(path.split("/")[2])] = line[:200]
    return found


def same_namespace(pid):
    """The processes in pid's pid namespace."""
    def space(one):
        try:
            return os.readlink(f"/proc/{one}/ns/pid")
        except OSError:
            return None
    wanted = space(pid)
    return [int(one) for one in os.listdir("/proc") if one.isdigit() and wanted and space(one) == wanted]


def left_of(folder):
    """Descriptions of everything that is left of a cluster; empty if it has ended completely."""
    name = os.path.basename(folder)
    left = [f"process {pid}: {line}" for pid, line in processes(folder).items()]
    left += [folder] if os.path.exists(folder) else []
    left += [path for top in groups.hierarchies() for path in glob.glob(os.path.join(top, name))]
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        left += [line.strip() for line in f if folder in line]
    return left
