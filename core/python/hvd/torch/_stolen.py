# SPDX-License-Identifier: Apache-2.0
"""Copies gradients whose memory backward may still read.

If a parameter has no gradient yet, autograd "steals" the first one without a copy, provided that it has no
other reference. But the gradient may be a view: for x + p.unsqueeze(0), the gradients of p and of x may
share memory. An allreduce in place would then change what backward is about to read for x; and if x is a
parameter, too, the memory would be reduced twice.

So a view is copied, unless it holds the only reference to its base, as Linear's weight gradient does. The
base's reference count shows this; with versions of torch in which the count cannot be read, every view is
copied.
"""
import ctypes

import torch

_ALONE = 2  # references to the base: the view's, and that of the Python object through which we ask


def _count(tensor):
    """The reference count, for older torch without _use_count(): it follows the pointer to the C++
    object's vtable.
    """
    return ctypes.c_size_t.from_address(tensor._cdata + ctypes.sizeof(ctypes.c_void_p)).value


def _counts(uses):
    """Whether uses() returns the right counts with this version of torch."""
    base = torch.empty(1, device="cpu")
    found = [uses(base)]
    views = []
    for _ in range(2):
        views.append(base.view(1))
        found.append(uses(base))
    return found == [1, _ALONE, _ALONE + 1]


_uses = getattr(torch.Tensor, "_use_count", _count)
_TELLS = _counts(_uses)


def keep_apart(param):
    """Registers a hook that copies a parameter's first gradient if other tensors may share its memory. The
    copy is made on backward's current stream."""

    @torch.utils.hooks.unserializable_hook
    def hook(grad):
        if param.grad is not None or not grad._is_view():
            return None
        return None if _TELLS and _uses(grad._base) == _ALONE else grad.clone()

    param.register_hook(hook)
