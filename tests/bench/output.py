# SPDX-License-Identifier: Apache-2.0
"""What a benchmark's program prints. Used by the programs of this folder."""
import datetime
import os
import subprocess
import sys


def output_of(argv, timeout=600, env=None, cwd=None):
    """Runs the program, with env added to the environment, and returns what it prints. Exits if it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False, cwd=cwd,
                          env={**os.environ, **(env or {})})
    if done.returncode != 0:
        where = f"{cwd}: " if cwd else ""
        sys.exit(f"{where}{' '.join(argv[:6])} ... ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def stamp(rounds):
    """Time, processors, load and rounds, for the head of a report."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return f"{now}  {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}, {rounds} rounds"
