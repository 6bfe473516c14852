# SPDX-License-Identifier: Apache-2.0
"""torch's GradScaler beside a DistributedOptimizer: it looks at the ranks' combined gradients.

GradScaler looks for infinities and divides by its scale in one go, in place, which no version counter shows: in
unscale_(), or in its step() where that was not called, also for optimizers whose steps divide themselves. All of it
goes through one method, which waits for the gradients from here on. All ranks then find the same infinities.
"""
import functools

import torch

# Since torch 2.3 the first is the base of the second; before 1.10 there is no torch.amp.
_GradScaler = getattr(getattr(torch, "amp", None), "GradScaler", torch.cuda.amp.GradScaler)


def wait_for(kind):
    """For optimizers of this kind, GradScaler first has _hvd_combine() called."""
    unscale = _GradScaler._unscale_grads_

    @functools.wraps(unscale)
    def combined(self, optimizer, *args, **kwargs):
        if isinstance(optimizer, kind):
            optimizer._hvd_combine()
        return unscale(self, optimizer, *args, **kwargs)

    _GradScaler._unscale_grads_ = combined
