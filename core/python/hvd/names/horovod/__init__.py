# SPDX-License-Identifier: Apache-2.0
"""Horovod's modules and names, by hvd: `import horovod.torch as hvd` in a program written for Horovod 0.28 gets hvd.torch.

This folder's parent is put into Python's path by `hvdrun --horovod` or by hvd.horovod_alias.install(). Most modules here
only name what is in hvd; some add small helpers that only programs written for Horovod use.
"""
import importlib.util
import os
import sys

if importlib.util.find_spec("hvd") is None:  # hvd is not installed: this is its checkout or its bundle
    sys.path.append(os.path.abspath(os.path.join(__file__, *[os.pardir] * 4)))
if "HOROVOD_JOIN_ALL" not in os.environ:  # ranks in join() take part as Horovod's do: README.md, hvd.join()
    os.environ.setdefault("HVD_JOIN_ALL", "0")

from hvd.runner import run  # noqa: E402,F401

#: The version of Horovod whose interface this is. hvd's own is hvd.version().
__version__ = "0.28.1"
