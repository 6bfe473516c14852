# SPDX-License-Identifier: Apache-2.0
"""hvd.torch: data-parallel training with PyTorch.

    import hvd.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
"""
from .. import (  # noqa: F401
    Adasum,
    Average,
    HorovodInternalError,
    HvdError,
    Max,
    Min,
    Product,
    Sum,
    allgather_object,
    broadcast_object,
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
    version,
)
from ._request import poll, synchronize  # noqa: F401
from .compression import Compression  # noqa: F401
from .functions import broadcast_optimizer_state, broadcast_parameters  # noqa: F401
from .ops import (  # noqa: F401
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    join,
    reducescatter,
    reducescatter_async,
    sparse_allreduce_async,
)
from .optimizer import DistributedOptimizer  # noqa: F401
from .process_sets import (  # noqa: F401
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from .sync_batch_norm import SyncBatchNorm  # noqa: F401
