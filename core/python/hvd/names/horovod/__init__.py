# SPDX-License-Identifier: Apache-2.0
"""Horovod's modules and names, by hvd: `import horovod.torch as hvd` in a program written for Horovod 0.28 gets hvd.torch.

This folder's parent is put into Python's path by `hvdrun --horovod` or by hvd.horovod_alias.install(). Most modules here
only name what is in hvd; some add small helpers that only programs written for Horovod use.
"""
import os

from horovod.runner import run  # noqa: F401

if "HOROVOD_JOIN_ALL" not in os.environ:  # ranks in join() take part as Horovod's do: README.md, hvd.join()
    os.environ.setdefault("HVD_JOIN_ALL", "0")

#: The version of Horovod whose interface this is. hvd's own is hvd.version().
__version__ = "0.28.1"
