# SPDX-License-Identifier: Apache-2.0
"""Gradients whose memory backward may still read.

A parameter that has no gradient yet takes the first one that comes for its own, without a copy: autograd steals it
where nobody else has that tensor. But it may be a view: of x + p.unsqueeze(0), what p gets and what x gets may be the
same memory. A sum over the ranks in place there would change what backward is about to read for x, and where x is
another parameter, be done twice.

So a view is copied, unless it alone refers to its base, as Linear's gradient of its weight does: the base's count of
references tells. Where that cannot be read every view is copied.
"""
import ctypes

import torch

_ALONE = 2  # the view's reference, and the one of Python's object by which we ask


def _count(tensor):
    """What older torch has no method for: the count lies behind its object's table of functions."""
    return ctypes.c_size_t.from_address(tensor._cdata + ctypes.sizeof(ctypes.c_void_p)).value


def _counts(uses):
    """Whether it does, with this torch."""
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
    """From now on, memory that a parameter's first gradient shares with others is copied when it comes, on
    the stream that backward is on there."""

    @torch.utils.hooks.unserializable_hook
    def hook(grad):
        if param.grad is not None or not grad._is_view():
            return None
        return None if _TELLS and _uses(grad._base) == _ALONE else grad.clone()

    param.register_hook(hook)
