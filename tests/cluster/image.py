# SPDX-License-Identifier: Apache-2.0
"""Container images without a registry or builder: a tar file in the layout of `docker save`, with one layer of the given
programs, for `ctr images import`."""
import hashlib
import io
import json
import os
import subprocess
import tarfile

import case

PAUSE = "hvd.test/pause:1"   # not "latest", which a kubelet would pull
HERE = os.path.dirname(os.path.abspath(__file__))


def add(archive, name, data, mode=0o644):
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))


def write_image(path, name, programs, entry_point, user=""):
    """programs: {path in the image: local file}, statically linked. user: the image's user, "": root."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        for inside, outside in programs.items():
            with open(outside, "rb") as f:
                add(archive, inside.lstrip("/"), f.read(), 0o755)
    layer = layer.getvalue()
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    config = json.dumps({
        "architecture": machine, "os": "linux", "config": {"Entrypoint": entry_point, "User": user},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]}}).encode()
    config_name = hashlib.sha256(config).hexdigest() + ".json"
    with tarfile.open(path, "w") as archive:
        add(archive, config_name, config)
        add(archive, "layer.tar", layer)
        add(archive, "manifest.json", json.dumps(
            [{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]).encode())


def write_pause(folder):
    """Builds pause.c and writes its image to FOLDER/pause.tar."""
    program = os.path.join(folder, "pause")
    subprocess.run([os.environ.get("CC", "gcc"), "-static", "-Os", "-o", program, os.path.join(HERE, "pause.c")],
                   check=True, timeout=60)
    write_image(os.path.join(folder, "pause.tar"), PAUSE, {"/pause": program}, ["/pause"])


def load(cluster, path):
    """Imports the image at path on the cluster's real node, which has its own /run."""
    (kubelet, *_) = [pid for pid, line in case.processes(cluster.folder).items() if "kubelet" in line]
    subprocess.run(["nsenter", f"--target={kubelet}", "--mount", "ctr", "--address", "/run/containerd/containerd.sock",
                    "--namespace", "k8s.io", "images", "import", path], check=True, timeout=120, capture_output=True)
