# SPDX-License-Identifier: Apache-2.0
"""The name `horovod`, for scripts that import it. Opt-in:

    import hvd.horovod_alias
    hvd.horovod_alias.install()
    import horovod.torch as hvd
"""
import importlib
import sys

_ALIASES = {
    "horovod": "hvd",
    "horovod.torch": "hvd.torch",
    "horovod.torch.mpi_ops": "hvd.torch.mpi_ops",
    "horovod.torch.compression": "hvd.torch.compression",
    "horovod.torch.functions": "hvd.torch.functions",
    "horovod.torch.optimizer": "hvd.torch.optimizer",
}


def install():
    """Registers the alias. A real horovod that is already imported is left alone: ImportError."""
    present = sys.modules.get("horovod")
    if present is not None and present.__name__ != "hvd":
        raise ImportError("horovod is already imported from " + str(getattr(present, "__file__", "?")))
    for alias, name in _ALIASES.items():
        sys.modules[alias] = importlib.import_module(name)
