# SPDX-License-Identifier: Apache-2.0
"""The control groups below which a real node has its pods: one of the cluster's name in each hierarchy. They are the
only thing of a cluster that outlives its processes."""
import contextlib
import glob
import os
import time

ROOT = "/sys/fs/cgroup"


def hierarchies():
    """The mounted ones; with version 2 alone that is the root itself."""
    if os.path.exists(os.path.join(ROOT, "cgroup.controllers")):
        return [ROOT]
    return [path for path in glob.glob(os.path.join(ROOT, "*")) if os.path.ismount(path)]


def make(name):
    for top in hierarchies():
        os.makedirs(os.path.join(top, name), exist_ok=True)



def remove(name, seconds=10):
    """Waits for processes that are being killed. Says whether all is gone."""
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
    """Whether control groups can be made here at all."""
    name = f"hvd-cluster-probe-{os.getpid()}"
    try:
        make(name)
    except OSError:
        return False
    finally:
        remove(name, 1)
    return bool(hierarchies())
