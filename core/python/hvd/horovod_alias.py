# SPDX-License-Identifier: Apache-2.0
"""Lets scripts that import `horovod` use hvd. Opt-in:

    import hvd.horovod_alias
    hvd.horovod_alias.install()
    import horovod.torch as hvd
"""
import importlib
import sys


def install():
    """Makes `import horovod` return hvd. Raises ImportError when a real horovod is imported already."""
    present = sys.modules.get("horovod")
    if present is not None and present.__name__ != "hvd":
        raise ImportError(
            f"horovod is already imported from {getattr(present, '__file__', '?')}: "
            "call install() before the first import"
        )
    importlib.import_module("hvd.torch.mpi_ops")
    # All loaded modules are aliased, so that none is imported a second time under the other name.
    for name, module in list(sys.modules.items()):
        if name == "hvd" or name.startswith("hvd."):
            sys.modules["horovod" + name[len("hvd") :]] = module
