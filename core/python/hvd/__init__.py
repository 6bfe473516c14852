# SPDX-License-Identifier: Apache-2.0
"""hvd: collective operations for data-parallel training.

`import hvd.torch as hvd` is the interface for PyTorch. This module has what needs no framework: init(),
rank() and the like, and collectives on buffers (such as numpy arrays) and on objects.
"""
from ._lib import (
    ADASUM as Adasum,
    AVERAGE as Average,
    BAND as BitAnd,
    BOR as BitOr,
    BXOR as BitXor,
    MAX as Max,
    MIN as Min,
    PRODUCT as Product,
    SUM as Sum,
    HorovodInternalError,
    HvdError,
    RankLostError,
    lib as _library,
)
from . import elastic
from .buffers import allgather, allreduce, allreduce_, barrier, broadcast_, join
from .messages import irecv, isend, recv, send
from .objects import allgather_object, broadcast_object
from .process_sets import (
    ProcessSet,
    add_process_set,
    define_rule,
    find_process_set,
    form_process_set,
    global_process_set,
    known_process_sets,
    remove_process_set,
    split_process_set,
)
from .runner import run
from .world import *  # noqa: F401,F403


def version():
    """The version of libhvd as text."""
    return _library.hvd_version().decode()
