# SPDX-License-Identifier: Apache-2.0
"""Makes torch's GradScaler wait for the combined gradients of a DistributedOptimizer.

GradScaler searches gradients for infinities and unscales them in place, without changing their version
counters. It does so in unscale_(), or in its step() if unscale_() was not called, also for fused optimizers
that unscale in their own step. All of these call one method, which is patched here to wait for the combined
gradients first. So all ranks find the same infinities.
"""
import functools

import torch

# Since torch 2.3 torch.cuda.amp.GradScaler derives from torch.amp.GradScaler; torch < 1.10 has no torch.amp.
_GradScaler = getattr(getattr(torch, "amp", None), "GradScaler", torch.cuda.amp.GradScaler)


def wait_for(kind):
    """Patches GradScaler to call _hvd_combine() first, for optimizers of this class."""
    unscale = _GradScaler._unscale_grads_

    @functools.wraps(unscale)
    def combined(self, optimizer, *args, **kwargs):
        if isinstance(optimizer, kind):
            optimizer._hvd_combine()
        return unscale(self, optimizer, *args, **kwargs)

    _GradScaler._unscale_grads_ = combined
