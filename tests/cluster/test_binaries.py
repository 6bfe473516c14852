#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 10 s, waiting
# needs: kubernetes
"""binaries.py: the key of a build, KUBEBUILDER_ASSETS, and the message without Go. Builds nothing."""
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import binaries  # noqa: E402


class Binaries(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hvd-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = {**os.environ, "HVD_CACHE": self.folder}
        self.environment.pop("KUBEBUILDER_ASSETS", None)

    def write(self, path, text, mode=0o755):
        path = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def test_key_is_of_the_sources(self):
        module = shutil.copytree(binaries.MODULE, os.path.join(self.folder, "kube"))
        with mock.patch.object(binaries, "MODULE", module):
            before = binaries.key()
            self.assertEqual(before, binaries.key())
            with open(os.path.join(module, "go.sum"), "a", encoding="ascii") as f:
                f.write("\n")
            self.assertNotEqual(before, binaries.key())

    def test_one_that_is_there_is_used(self):
        with mock.patch.dict(os.environ, self.environment, clear=True):
            built = os.path.join(self.folder, "kube-" + binaries.key())
            os.mkdir(built)
            self.assertEqual(binaries.find(["kubectl"]), {"kubectl": os.path.join(built, "kubectl")})

    def test_assets_come_first(self):
        assets = os.path.join(self.folder, "assets")
        etcd = self.write("assets/etcd", "#!/bin/sh\n")
        self.write("assets/kubectl", "no program", stat.S_IRUSR)
        with mock.patch.dict(os.environ, {**self.environment, "KUBEBUILDER_ASSETS": assets}, clear=True):
            self.assertEqual(binaries.find(["etcd"]), {"etcd": etcd})
            if os.getuid() != 0:   # root cannot execute a file without any x bit either
                self.assertFalse(os.access(os.path.join(assets, "kubectl"), os.X_OK))
            with mock.patch.object(binaries, "build", return_value="/built"):
                self.assertEqual(binaries.find(["etcd", "kubectl"]), {"etcd": etcd, "kubectl": "/built/kubectl"})

    def test_no_go_is_a_skip(self):
        """An old Go in PATH, and an empty package index."""
        self.write("bin/go", "#!/bin/sh\necho go version go1.19.8 linux/amd64\n")
        environment = {**self.environment, "PATH": os.path.join(self.folder, "bin") + ":/usr/bin:/bin",
                       "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": self.folder}
        done = subprocess.run([sys.executable, binaries.__file__], env=environment, capture_output=True, text=True,
                              timeout=120)
        self.assertEqual(done.returncode, 77, done.stderr)
        self.assertRegex(done.stdout, r"^SKIP: cluster/binaries/go: go: no Go 1\.26 here")
        self.assertEqual([name for name in os.listdir(self.folder) if name.endswith(".new")], [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
