# SPDX-License-Identifier: Apache-2.0
"""The name `horovod`, for scripts that import it. Opt-in:

    import hvd.horovod_alias
    hvd.horovod_alias.install()
    import horovod.torch as hvd
"""
import importlib
import sys


def install():
    """Registers the alias. A real horovod that is already imported is left alone: ImportError."""
    present = sys.modules.get("horovod")
    if present is not None and present.__name__ != "hvd":
        raise ImportError("horovod is already imported from " + str(getattr(present, "__file__", "?")))
    importlib.import_module("hvd.torch.mpi_ops")
    # Every module there is: one that was imported under both names would be there twice.
    for name, module in list(sys.modules.items()):
        if name == "hvd" or name.startswith("hvd."):
            sys.modules["horovod" + name[len("hvd") :]] = module
