# SPDX-License-Identifier: Apache-2.0
"""horovod.torch.sync_batch_norm"""
from hvd.torch.sync_batch_norm import SyncBatchNorm  # noqa: F401
