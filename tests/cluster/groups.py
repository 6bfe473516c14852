# SPDX-License-Identifier: Apache-2.0
"""The control groups of a real node's pods: one with the cluster's name in each hierarchy. Nothing else of a node
outlives its processes."""
import contextlib
import glob
import os
import time

ROOT = "/sys/fs/cgroup"


def hierarchies():
    """The mounted hierarchies; with version 2 only the root itself."""
    if os.path.exists(os.path.join(ROOT, "cgroup.controllers")):
        return [ROOT]
    return [path for path in glob.glob(os.path.join(ROOT, "*")) if os.path.ismount(path)]


def make(name):
    for top in hierarchies():
        os.makedirs(os.path.join(top, name), exist_ok=True)



def remove(name, seconds=10):
    """Removes the groups; waits for processes that are being killed. True: all are gone."""
    end = time.monotonic() + seconds
    tops = [os.path.join(top, name) for top in hierarchies()]
    while any(os.path.isdir(top) for top in tops):
        for top in tops:
            for folder, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def writable():
    """Can control groups be created here?"""
    name = f"hvd-cluster-probe-{os.getpid()}"
    try:
        make(name)
    except OSError:
        return False
    finally:
        remove(name, 1)
    return bool(hierarchies())
