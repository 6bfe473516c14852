# SPDX-License-Identifier: Apache-2.0
"""Differentiable collectives. Every rank must call backward(), in the same order. The operations of backward have the
forward's name with ".grad" appended. Second derivatives work (create_graph=True).

backward() computes the same gradients as Horovod. n is the number of ranks, G the gradients of all ranks for their results:

    allreduce                  the same allreduce of G. For Average and Sum that is the gradient of the sum of all ranks'
                               losses; for Min, Max and Product it is no gradient: hvd returns what Horovod returns
    alltoall                   G, sent back: the gradient of the sum of the losses
    allgather, broadcast       the average of G, of which each rank takes its rows, the root all: the gradient of the
                               average of the losses, so 1/n of that of their sum
    reducescatter              the rows of all ranks' G, gathered, for Sum times n: n times the gradient of the sum of the
                               losses, for Average and for Sum
"""
import torch
from torch.autograd import Function

from .. import _lib
from ..process_sets import checked
from ._collectives import (
    even_splits,
    start_allgather,
    start_allreduce,
    start_alltoall,
    start_broadcast,
    start_reducescatter,
)
from ._request import need_tensor, synchronize


def _grad_name(name):
    return None if name is None else f"{name}.grad"


def _plain(op):
    return {"op": op, "prescale": 1.0, "postscale": 1.0}


class Allreduce(Function):
    """Allreduce of a tensor or a group. Returns a tuple, as all functions here that take several tensors."""

    @staticmethod
    def forward(ctx, name, scales, process_set, *tensors):
        """Reduces the tensors over the ranks."""
        ctx.name, ctx.scales, ctx.process_set = name, scales, process_set
        return tuple(synchronize(start_allreduce(tensors, name, scales, False, False, process_set)))

    @staticmethod
    def backward(ctx, *gradients):
        """The same allreduce of the gradients."""
        return None, None, None, *Allreduce.apply(_grad_name(ctx.name), ctx.scales, ctx.process_set, *gradients)


class Allgather(Function):
    """Allgather of a tensor or a group. op: Average for Horovod's gradient, Sum for that of the sum of all losses."""

    @staticmethod
    def forward(ctx, name, op, process_set, *tensors):
        """Concatenates the ranks' tensors along dimension 0."""
        found = synchronize(start_allgather(tensors, name, False, process_set, splits=True))
        ctx.name, ctx.op, ctx.process_set, ctx.rows = name, op, process_set, [rows for _, rows in found]
        ctx.shapes = [t.shape for t in tensors]
        return tuple(output for output, _ in found)

    @staticmethod
    def backward(ctx, *gradients):
        """Combines the gradients by op and returns those of this rank's rows."""
        rank = ctx.process_set.rank()
        combined = Allreduce.apply(_grad_name(ctx.name), _plain(ctx.op), ctx.process_set, *gradients)
        mine = [
            g[sum(rows[:rank]) : sum(rows[: rank + 1])].reshape(shape)
            for g, rows, shape in zip(combined, ctx.rows, ctx.shapes)
        ]
        return None, None, None, *mine


class Broadcast(Function):
    """Broadcast of a tensor."""

    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        """Returns root_rank's tensor."""
        ctx.root_rank, ctx.name, ctx.process_set = root_rank, name, process_set
        return synchronize(start_broadcast(tensor, root_rank, name, False, process_set))

    @staticmethod
    def backward(ctx, gradient):
        """The average of the gradients on the root; zeros elsewhere, because other ranks' inputs are not used."""
        average = Allreduce.apply(_grad_name(ctx.name), _plain(_lib.AVERAGE), ctx.process_set, gradient)[0]
        if _lib.check(_lib.lib.hvd_rank()) != ctx.root_rank:
            # Zeros that depend on the allreduce in autograd's graph: the second derivative needs every rank.
            average = average.masked_fill(torch.ones((), dtype=torch.bool, device=average.device), 0)
        return average, None, None, None


class Alltoall(Function):
    """All-to-all of the rows of a tensor."""

    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        """Returns the received rows, and how many of them came from each rank."""
        need_tensor(tensor)
        ctx.name, ctx.process_set, ctx.shape = name, process_set, tensor.shape
        if splits is None:
            splits = even_splits(tensor.shape[0] if tensor.dim() else 1, checked(process_set).size())
        output, got = synchronize(start_alltoall(tensor, splits, name, process_set))
        ctx.got = got.tolist()
        ctx.mark_non_differentiable(got)
        return output, got

    @staticmethod
    def backward(ctx, gradient, _):
        """Sends the gradients of the rows back to where the rows came from."""
        returned, _ = Alltoall.apply(gradient, ctx.got, _grad_name(ctx.name), ctx.process_set)
        unsent = (ctx.shape[0] if ctx.shape else 1) - returned.shape[0]
        if unsent:
            returned = torch.cat([returned, returned.new_zeros(unsent, *ctx.shape[1:])])
        return returned.reshape(ctx.shape), None, None, None


class Reducescatter(Function):
    """Reduce-scatter of a tensor or a group."""

    @staticmethod
    def forward(ctx, name, scales, process_set, *tensors):
        """Reduces the tensors and returns this rank's rows."""
        ctx.name, ctx.scales, ctx.process_set = name, scales, process_set
        return tuple(synchronize(start_reducescatter(tensors, name, scales, False, process_set)))

    @staticmethod
    def backward(ctx, *gradients):
        """Gathers the gradients of all ranks' rows, scaled by the factors, and for Sum by the number of ranks."""
        factor = ctx.scales["prescale"] * ctx.scales["postscale"]
        if ctx.scales["op"] == _lib.SUM:
            factor *= ctx.process_set.size()
        gathered = Allgather.apply(_grad_name(ctx.name), _lib.AVERAGE, ctx.process_set, *gradients)
        return None, None, None, *[g if factor == 1 else g * factor for g in gathered]
