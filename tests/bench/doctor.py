#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# doctor.py BUILD: measures a level-1 run of hvd-doctor: its duration and the program's peak memory (its probes are
# processes of their own). Called by make bench-doctor. Exit code 1 beyond 1 second or 20 MiB.
#
# The report goes to a pipe that is read late, so that the process still exists when all checks are done.
import fcntl
import json
import os
import statistics
import subprocess
import sys
import time

ROUNDS = 11


def peak(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))


def look(doctor):
    start = time.monotonic()
    with subprocess.Popen([doctor, "--json"], stdout=subprocess.PIPE) as p:
        fcntl.fcntl(p.stdout, fcntl.F_SETPIPE_SZ, 4096)
        first = os.read(p.stdout.fileno(), 1)
        seconds, kib = time.monotonic() - start, peak(p.pid)
        report = json.loads(first + p.stdout.read())
    return seconds, kib, len(report["checks"])


def main():
    looks = [look(os.path.join(sys.argv[1], "hvd-doctor")) for _ in range(ROUNDS)]
    seconds = statistics.median(s for s, _, _ in looks)
    kib = max(k for _, k, _ in looks)
    print(f"hvd-doctor: {looks[0][2]} checks in {seconds:.2f} s (median of {ROUNDS}), "
          f"{kib / 1024:.1f} MiB at most")
    return 0 if seconds < 1 and kib < 20 * 1024 else 1


sys.exit(main())
