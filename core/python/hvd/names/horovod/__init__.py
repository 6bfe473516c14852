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
for _name, _value in (
    ("JOIN_ALL", "0"),  # ranks in join() take part as Horovod's do
    ("ELASTIC_INTERRUPT", "1"),  # a change of the ranks begins the function of hvd.elastic.run() anew
):
    if f"HOROVOD_{_name}" not in os.environ:
        os.environ.setdefault(f"HVD_{_name}", _value)

from hvd.runner import run  # noqa: E402,F401

#: The version of Horovod whose interface this is. hvd's own is hvd.version().
__version__ = "0.28.1"
