# SPDX-License-Identifier: Apache-2.0
"""horovod.torch: hvd.torch under Horovod's names."""
from . import elastic  # noqa: F401
from .compression import Compression  # noqa: F401
from .functions import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters  # noqa: F401
from .mpi_ops import *  # noqa: F401,F403
from .optimizer import DistributedOptimizer  # noqa: F401
from .sync_batch_norm import SyncBatchNorm  # noqa: F401


def _check_has_gpu():
    import torch

    return torch.cuda.is_available()
