# SPDX-License-Identifier: Apache-2.0
"""hvd.torch: data-parallel training with PyTorch.

    import hvd.torch as hvd

    hvd.init()
    torch.cuda.set_device(hvd.local_rank())  # with GPUs: one for each rank
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
"""
from .. import (  # noqa: F401
    Adasum,
    Average,
    HorovodInternalError,
    HvdError,
    RankLostError,
    Max,
    Min,
    BitAnd,
    BitOr,
    BitXor,
    Product,
    Sum,
    version,
)
from ..world import *  # noqa: F401,F403
from . import elastic  # noqa: F401
from ._request import poll, synchronize  # noqa: F401
from .compression import Compression  # noqa: F401
from .functions import (  # noqa: F401
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from .messages import irecv, isend, recv, send  # noqa: F401
from .ops import *  # noqa: F401,F403
from .optimizer import DistributedOptimizer  # noqa: F401
from .process_sets import (  # noqa: F401
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
from .sync_batch_norm import SyncBatchNorm  # noqa: F401
