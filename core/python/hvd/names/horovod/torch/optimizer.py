# SPDX-License-Identifier: Apache-2.0
"""horovod.torch.optimizer"""
from hvd.torch.optimizer import DistributedOptimizer  # noqa: F401
