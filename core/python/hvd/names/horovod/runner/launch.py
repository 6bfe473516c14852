# SPDX-License-Identifier: Apache-2.0
"""horovod.runner.launch: the program horovodrun."""
import os
import shutil
import sys


def run_commandline():
    """Becomes horovodrun, with this process's arguments."""
    beside = os.path.join(os.path.dirname(sys.executable), "horovodrun")
    path = beside if os.access(beside, os.X_OK) else shutil.which("horovodrun")
    if path is None:
        raise FileNotFoundError("horovodrun is neither beside python nor in PATH: install hvd, or set PATH")
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    run_commandline()
