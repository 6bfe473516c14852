# SPDX-License-Identifier: Apache-2.0
"""horovod.torch.mpi_ops"""
from hvd import world
from hvd.torch import (  # noqa: F401
    Adasum,
    Average,
    HorovodInternalError,
    Max,
    Min,
    Product,
    ProcessSet,
    Sum,
    add_process_set,
    global_process_set,
    ops,
    poll,
    remove_process_set,
    synchronize,
)
from hvd.torch.ops import *  # noqa: F401,F403
from hvd.world import *  # noqa: F401,F403
from horovod.common.util import get_average_backwards_compatibility_fun
from horovod.common.util import check_installed_version, gloo_built, gpu_available, num_rank_is_power_2  # noqa: F401

from .compression import Compression  # noqa: F401

__all__ = [
    *ops.__all__,
    *world.__all__,
    *"Adasum Average HorovodInternalError Max Min Product ProcessSet Sum add_process_set global_process_set poll".split(),
    *"remove_process_set synchronize".split(),
]


class _Operations:
    Average, Sum = Average, Sum


handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_Operations)


def gloo_enabled():
    """Whether the job runs without MPI: see gloo_built()."""
    return not world.mpi_enabled()
