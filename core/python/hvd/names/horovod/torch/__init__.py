# SPDX-License-Identifier: Apache-2.0
"""horovod.torch: hvd.torch under Horovod's name."""
from hvd.torch import *  # noqa: F401,F403
from hvd.torch import HorovodInternalError  # noqa: F401

from . import elastic  # noqa: F401


def _check_has_gpu():
    import torch

    return torch.cuda.is_available()
