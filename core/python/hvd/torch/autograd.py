# SPDX-License-Identifier: Apache-2.0
"""Gradients through the collectives.

The rule: what backward() yields on a rank is the gradient of the sum, over the ranks, of what each
rank called backward() on. So every rank must take part in backward, in the same order. Operations
made by backward carry the forward's name with ".grad".
"""
from torch.autograd import Function

from .. import _lib
from ._collectives import (
    start_allgather,
    start_allreduce,
    start_alltoall,
    start_broadcast,
    start_reducescatter,
)
from ._request import synchronize


def _grad_name(name):
    return None if name is None else f"{name}.grad"


def _linear(scales):
    if scales["op"] not in (_lib.AVERAGE, _lib.SUM):
        raise NotImplementedError("only Sum and Average have a gradient here")


def _back(gradients, name, scales):
    """The gradients of inputs of an allreduce: the same operation on the gradients of outputs."""
    _linear(scales)
    return synchronize(start_allreduce(list(gradients), _grad_name(name), scales, False, False))


class Allreduce(Function):
    """One tensor."""

    @staticmethod
    def forward(ctx, tensor, name, scales):
        """Reduces."""
        ctx.name, ctx.scales = name, scales
        return synchronize(start_allreduce([tensor], name, scales, False, True))

    @staticmethod
    def backward(ctx, gradient):
        """Reduces."""
        return _back([gradient], ctx.name, ctx.scales)[0], None, None


class GroupedAllreduce(Function):
    """Several tensors."""

    @staticmethod
    def forward(ctx, name, scales, *tensors):
        """Reduces."""
        ctx.name, ctx.scales = name, scales
        return tuple(synchronize(start_allreduce(tensors, name, scales, False, False)))

    @staticmethod
    def backward(ctx, *gradients):
        """Reduces."""
        return None, None, *_back(gradients, ctx.name, ctx.scales)


def _mine(gradients, ctx):
    """Of the summed gradients of gathered tensors, the rows that came from this rank."""
    summed = _back(gradients, ctx.name, {"op": _lib.SUM, "prescale": 1.0, "postscale": 1.0})
    rank = _lib.check(_lib.lib.hvd_rank())
    return [
        s[sum(rows[:rank]) : sum(rows[: rank + 1])].reshape(shape)
        for s, rows, shape in zip(summed, ctx.rows, ctx.shapes)
    ]


class Allgather(Function):
    """One tensor."""

    @staticmethod
    def forward(ctx, tensor, name):
        """Gathers."""
        output, rows = synchronize(start_allgather([tensor], name, True, splits=True))
        ctx.name, ctx.rows, ctx.shapes = name, [rows], [tensor.shape]
        return output

    @staticmethod
    def backward(ctx, gradient):
        """Sums, and keeps this rank's rows."""
        return _mine([gradient], ctx)[0], None


class GroupedAllgather(Function):
    """Several tensors."""

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
        return None, *_mine(gradients, ctx)


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
        summed = _back([gradient], ctx.name, {"op": _lib.SUM, "prescale": 1.0, "postscale": 1.0})[0]
        if _lib.check(_lib.lib.hvd_rank()) != ctx.root_rank:
            summed.zero_()
        return summed, None, None


class Alltoall(Function):
    """One tensor."""

    @staticmethod
    def forward(ctx, tensor, splits, name):
        """Exchanges. Returns what was received and how many rows from each rank."""
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
        returned, _ = synchronize(start_alltoall(gradient, ctx.got, _grad_name(ctx.name)))
        return returned.reshape(ctx.shape), None, None


def _spread(gradients, ctx):
    """The gradients of inputs of a reducescatter: everybody's rows, scaled as the sum was."""
    _linear(ctx.scales)
    factor = ctx.scales["prescale"] * ctx.scales["postscale"]
    if ctx.scales["op"] == _lib.AVERAGE:
        factor /= _lib.check(_lib.lib.hvd_size())
    gathered = synchronize(start_allgather(gradients, _grad_name(ctx.name), False))
    return [g if factor == 1 else g * factor for g in gathered]


class Reducescatter(Function):
    """One tensor."""

    @staticmethod
    def forward(ctx, tensor, name, scales):
        """Reduces and keeps a share."""
        ctx.name, ctx.scales = name, scales
        return synchronize(start_reducescatter([tensor], name, scales, True))

    @staticmethod
    def backward(ctx, gradient):
        """Gathers."""
        return _spread([gradient], ctx)[0], None, None


class GroupedReducescatter(Function):
    """Several tensors."""

    @staticmethod
    def forward(ctx, name, scales, *tensors):
        """Reduces and keeps a share."""
        ctx.name, ctx.scales = name, scales
        return tuple(synchronize(start_reducescatter(tensors, name, scales, False)))

    @staticmethod
    def backward(ctx, *gradients):
        """Gathers."""
        return None, None, *_spread(gradients, ctx)
