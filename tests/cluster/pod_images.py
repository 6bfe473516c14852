# SPDX-License-Identifier: Apache-2.0
"""Images for pods that train on a real node: the bundle, and a program with the libraries that it loads."""
import os
import subprocess

import image

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("BUILD") or "build")
USER = "65532:65532"
PROGRAMS = os.path.join(BUILD, "tests", "programs")


def bundle_name():
    with open(os.path.join(ROOT, "core", "include", "hvd.h"), encoding="utf-8") as f:
        return "localhost/hvd-bundle:" + f.read().split('#define HVD_VERSION "')[1].split('"')[0]


def loaded(*programs):
    """{path: path} of the libraries that the programs load, and of those that newer glibcs have only as stubs; without
    libhvd.so."""
    said = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True, timeout=30).stdout
    lines = said.splitlines()
    words = {word for line in lines for word in line.split() if word.startswith("/") and not word.endswith(":")}
    files = {word for word in words if "libhvd" not in word}
    folder = os.path.dirname(next(word for word in files if word.endswith("/libc.so.6")))
    files |= {os.path.join(folder, name) for name in ("libpthread.so.0", "libdl.so.2", "libm.so.6")}
    return {name: name for name in files}


def bundle():
    """{path in the image: file} of build/bundle."""
    top = os.path.join(BUILD, "bundle")
    return {os.path.join(folder, name)[len(top):]: os.path.join(folder, name)
            for folder, _, names in os.walk(top) for name in names}


def load(cluster, name, files):
    """Makes an image of files, with the same user as the real training image, and imports it on the node."""
    path = cluster.path("image.tar")
    image.write_image(path, name, files, ["/none"], USER)
    image.load(cluster, path)
    os.unlink(path)
