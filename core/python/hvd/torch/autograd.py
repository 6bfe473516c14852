# SPDX-License-Identifier: Apache-2.0
"""Gradients through the collectives.

The rule: what backward() yields on a rank is the gradient of the sum, over the ranks, of what each
rank called backward() on. So every rank must take part in backward, in the same order. Operations
made by backward carry the forward's name with ".grad". Gradients have gradients themselves
(create_graph=True).
"""
import torch
from torch.autograd import Function

from .. import _lib
from ._collectives import (
    start_allgather,
    start_allreduce,
    start_alltoall,
    start_broadcast,
    start_reducescatter,
)
from ._request import need_tensor, synchronize


def _grad_name(name):
    return None if name is None else f"{name}.grad"


def _linear(scales):
    if scales["op"] not in (_lib.AVERAGE, _lib.SUM):
        raise NotImplementedError("only Sum and Average have a gradient here")


_SUM = {"op": _lib.SUM, "prescale": 1.0, "postscale": 1.0}


class Allreduce(Function):
    """One tensor, or several as a group. Returns a tuple, as all that take several."""

    @staticmethod
    def forward(ctx, name, scales, *tensors):
        """Reduces."""
        ctx.name, ctx.scales = name, scales
        return tuple(synchronize(start_allreduce(tensors, name, scales, False, False)))

    @staticmethod
    def backward(ctx, *gradients):
        """The same operation on the gradients."""
        _linear(ctx.scales)
        return None, None, *Allreduce.apply(_grad_name(ctx.name), ctx.scales, *gradients)


class Allgather(Function):
    """One tensor, or several as a group."""

    @staticmethod
    def forward(ctx, name, *tensors):
        """Gathers."""
        found = synchronize(start_allgather(tensors, name, False, splits=True))
        ctx.name, ctx.rows = name, [rows for _, rows in found]
        ctx.shapes = [t.shape for t in tensors]
        return tuple(output for output, _ in found)

    @staticmethod
    def backward(ctx, *gradients):
        """Sums, and keeps this rank's rows."""
        rank = _lib.check(_lib.lib.hvd_rank())
        summed = Allreduce.apply(_grad_name(ctx.name), _SUM, *gradients)
        mine = [
            s[sum(rows[:rank]) : sum(rows[: rank + 1])].reshape(shape)
            for s, rows, shape in zip(summed, ctx.rows, ctx.shapes)
        ]
        return None, *mine


class Broadcast(Function):
    """One tensor."""

    @staticmethod
    def forward(ctx, tensor, root_rank, name):
        """Broadcasts."""
        ctx.root_rank, ctx.name = root_rank, name
        return synchronize(start_broadcast(tensor, root_rank, name, False))

    @staticmethod
    def backward(ctx, gradient):
        """The sum on the root; nothing that the others had went anywhere."""
        summed = Allreduce.apply(_grad_name(ctx.name), _SUM, gradient)[0]
        if _lib.check(_lib.lib.hvd_rank()) != ctx.root_rank:
            # Zeros that still hang on the allreduce: its own gradient needs every rank.
            summed = summed.masked_fill(torch.ones((), dtype=torch.bool, device=summed.device), 0)
        return summed, None, None


class Alltoall(Function):
    """One tensor."""

    @staticmethod
    def forward(ctx, tensor, splits, name):
        """Exchanges. Returns what was received and how many rows from each rank."""
        need_tensor(tensor)
        ctx.name, ctx.shape = name, tensor.shape
        if splits is None:
            rows = tensor.shape[0] if tensor.dim() else 1
            ranks = _lib.check(_lib.lib.hvd_size())
            if rows % ranks:
                raise ValueError(f"alltoall without splits: {rows} rows for {ranks} ranks")
            splits = [rows // ranks] * ranks
        output, got = synchronize(start_alltoall(tensor, splits, name))
        ctx.got = got.tolist()
        ctx.mark_non_differentiable(got)
        return output, got

    @staticmethod
    def backward(ctx, gradient, _):
        """Sends the rows back."""
        returned, _ = Alltoall.apply(gradient, ctx.got, _grad_name(ctx.name))
        return returned.reshape(ctx.shape), None, None


class Reducescatter(Function):
    """One tensor, or several as a group."""

    @staticmethod
    def forward(ctx, name, scales, *tensors):
        """Reduces and keeps a share."""
        ctx.name, ctx.scales = name, scales
        return tuple(synchronize(start_reducescatter(tensors, name, scales, False)))

    @staticmethod
    def backward(ctx, *gradients):
        """Everybody's rows, scaled as the sum was."""
        _linear(ctx.scales)
        factor = ctx.scales["prescale"] * ctx.scales["postscale"]
        if ctx.scales["op"] == _lib.AVERAGE:
            factor /= _lib.check(_lib.lib.hvd_size())
        gathered = Allgather.apply(_grad_name(ctx.name), *gradients)
        return None, None, *[g if factor == 1 else g * factor for g in gathered]
