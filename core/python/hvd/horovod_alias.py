# SPDX-License-Identifier: Apache-2.0
"""Lets programs that import `horovod` use hvd. `hvdrun --horovod` does it for a program as it is; in a program:

    import hvd.horovod_alias
    hvd.horovod_alias.install()
    import horovod.torch as hvd
"""
import os
import sys

#: The folder that has the package horovod (names/horovod).
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "names")


def install():
    """Makes `import horovod` find hvd's package of that name, also in Python programs that this one starts. Raises ImportError
    when another horovod is imported already."""
    present = sys.modules.get("horovod")
    if present is not None and not (getattr(present, "__file__", None) or "").startswith(FOLDER):
        raise ImportError(
            f"horovod is already imported from {getattr(present, '__file__', '?')}: "
            "call install() before the first import"
        )
    if FOLDER not in sys.path:
        sys.path.insert(0, FOLDER)
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if FOLDER not in inherited:
        os.environ["PYTHONPATH"] = os.pathsep.join([FOLDER] + [path for path in inherited if path])
