# SPDX-License-Identifier: Apache-2.0
"""Sparse COO tensors are gathered, not reduced: the sum of all ranks' is the entries of all.

start_sparse_allreduce() is sparse_allreduce_async's (ops.py), SparseSum DistributedOptimizer's.
"""
import torch

from .. import _lib
from .._lib import lib
from ._request import received, submit, synchronize, usable, wait


def _parts(tensor, op):
    """Indices, a row an entry, and values of a tensor that can be summed."""
    if op not in (_lib.AVERAGE, _lib.SUM):
        raise ValueError("a sparse tensor can be summed or averaged only")
    if tensor.layout is not torch.sparse_coo:
        raise ValueError(f"a sparse tensor in COO form is needed, got {tensor.layout}")
    return usable(tensor._indices().t()), usable(tensor._values())


def _whole(indices, values, shape, op):
    """The result, its indices not coalesced."""
    if op == _lib.AVERAGE:
        values = values / lib.hvd_size()
    return torch.sparse_coo_tensor(indices.t(), values, shape, device=values.device)


def start_sparse_allreduce(tensor, name, op):
    """Gathers indices and values together. Returns a handle for synchronize()."""
    indices, values = _parts(tensor, op)

    def finish(handles):
        wait(handles, gathered=True)
        got_indices, _ = received(handles[0], indices)
        got_values, _ = received(handles[1], values)
        return _whole(got_indices, got_values, tensor.shape, op)

    names = [name and f"sparse_allreduce.{name}.{part}" for part in ("indices", "values")]
    return submit(_lib.ALLGATHER, [(names[0], indices, None), (names[1], values, None)], finish)


class SparseSum:
    """A gradient's sum or average under way, in two steps that every rank takes, or none.

    The values travel first, under `name` itself: a rank whose tensor of that name is dense reduces it,
    and so every rank hears that they differ. The indices follow where the values were accepted."""

    def __init__(self, tensor, name, op):
        self.name, self.op, self.shape = name, op, tensor.shape
        self.indices, self.values = _parts(tensor, op)
        self.handle = self._gather(self.values, name)

    @staticmethod
    def _gather(tensor, name):
        def finish(handles):
            wait(handles, gathered=True)
            return received(handles[0], tensor)[0]

        return submit(_lib.ALLGATHER, [(name, tensor, None)], finish)

    def proceed(self):
        """Waits for the values, then sends the indices."""
        self.values = synchronize(self.handle)
        self.handle = self._gather(self.indices, f"{self.name}.indices")

    def finish(self):
        """Waits for the indices. Returns the sum."""
        return _whole(synchronize(self.handle), self.values, self.shape, self.op)
