# SPDX-License-Identifier: Apache-2.0
"""The world of an elastic job as a program sees it, and the commit in which it may change."""
import collections
import ctypes
import os

from ._lib import World, check, check_stay, lib

unsettled = []  # states of which a part is still being transferred


class HostsUpdatedInterrupt(RuntimeError):
    """The world has changed. Raised by commits only with run(interrupt=True) or HVD_ELASTIC_INTERRUPT=1,
    as in Horovod. skip_sync is not used."""

    def __init__(self, skip_sync=False):
        super().__init__("the world has changed")
        self.skip_sync = skip_sync


_World = collections.namedtuple("World", [name for name, _ in World._fields_[1:]])


def world():
    """The world as of the last commit, as a named tuple.

    epoch: its number. rank, size: of this rank. source: the rank that sends the state to joiners. joined,
    left: how many ranks did so in the last change. is_new: this rank has joined and has no state yet.
    elastic: whether the job is elastic. repair_ns: nanoseconds that the last repair after a loss took, 0 if
    there was none. waiting: this rank has not entered yet (see enter()); rank and size are those that it
    would have now.
    """
    found = World(size_of_struct=ctypes.sizeof(World))
    check(lib.hvd_world(ctypes.byref(found)))
    return _World(*(getattr(found, name) for name in _World._fields))


def commit():
    """Collective: a commit for programs without a state object. All ranks call it at the end of a step.

    Returns True when the world has changed. If ranks have joined (world().joined), the program then has to
    send them its state. Raises Left on a rank that was asked to leave.
    """
    for state in list(unsettled):
        state.settle()
    return check_stay(lib.hvd_commit()) == 1


def setting(name):
    """The value of HVD_NAME, or of HOROVOD_NAME, or None."""
    return os.environ.get("HVD_" + name) or os.environ.get("HOROVOD_" + name)
