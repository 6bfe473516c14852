# SPDX-License-Identifier: Apache-2.0
"""Builds operator, agent and library of the earlier version, for tests of upgrades. The file EARLIER has its commit; the
sources come from this checkout's history. The programs are kept in ${HVD_CACHE:-~/.cache/hvd}/earlier-COMMIT."""
import fcntl
import glob
import os
import shutil
import subprocess
import tempfile
import time

from binaries import Missing, cache_folder, say

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILT = ("hvd-operator", "hvd-agent", "libhvd.so")
SECONDS = 900


def commit():
    with open(os.path.join(HERE, "EARLIER"), encoding="ascii") as f:
        return f.read().strip()


def git(*arguments, **more):
    # safe.directory: a checkout in a container often belongs to another user
    return subprocess.run(["git", "-c", f"safe.directory={ROOT}", "-C", ROOT, *arguments], capture_output=True, timeout=60, **more)


def check_history(name):
    try:
        known = git("cat-file", "-e", f"{name}^{{commit}}").returncode == 0
    except FileNotFoundError:
        known = False
    if not known:
        raise Missing("history", f"the earlier version ({name[:12]}) is not in this checkout's history")


def make(name, folder):
    with tempfile.TemporaryDirectory(prefix="hvd-earlier-") as source:
        archive = git("archive", name, check=True).stdout
        subprocess.run(["tar", "x", "-C", source], input=archive, check=True, timeout=60)
        environment = {k: v for k, v in os.environ.items()
                       if k not in ("BUILD", "SAN", "CFLAGS", "LDFLAGS", "MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES")}
        done = subprocess.run(["make", "-j2", "NVCC=", *(f"build/{one}" for one in BUILT)], cwd=source, env=environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
        if done.returncode != 0:
            raise RuntimeError(f"the earlier version does not build:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        fresh = tempfile.mkdtemp(prefix="earlier.", dir=cache_folder())
        for path in (*glob.glob(f"{source}/build/libhvd.so*"), *(f"{source}/build/{one}" for one in BUILT[:2])):
            shutil.copy2(path, fresh)
        os.chmod(fresh, 0o755)
        os.rename(fresh, folder)


def build():
    """The folder of the earlier version's programs. Raises Missing."""
    name = commit()
    folder = os.path.join(cache_folder(), f"earlier-{name[:12]}")
    with open(os.path.join(cache_folder(), "earlier.lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(folder):
            check_history(name)
            begin = time.monotonic()
            make(name, folder)
            say(f"the earlier version: built in {time.monotonic() - begin:.0f} s")
        for old in glob.glob(os.path.join(cache_folder(), "earlier[-.]*")):
            if old != folder and os.path.isdir(old):
                shutil.rmtree(old, ignore_errors=True)
    return folder
