# SPDX-License-Identifier: Apache-2.0
"""hvd: collective operations for data-parallel training.

`import hvd.torch as hvd` is the interface for PyTorch. This module has what needs no framework: who
this rank is, operations on buffers (numpy arrays among them) and on objects.
"""
from ._lib import (
    ADASUM as Adasum,
    AVERAGE as Average,
    MAX as Max,
    MIN as Min,
    PRODUCT as Product,
    SUM as Sum,
    HorovodInternalError,
    HvdError,
    lib as _library,
)
from .buffers import allgather, allreduce, allreduce_, barrier, broadcast_
from .objects import allgather_object, broadcast_object
from .world import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stats,
    stop_timeline,
)


def version():
    """The library's version."""
    return _library.hvd_version().decode()
