# SPDX-License-Identifier: Apache-2.0
"""Allreduce of sparse COO tensors: the ranks' entries are gathered; together they are the sum.

start_sparse_allreduce() is for sparse_allreduce_async() (ops.py), SparseSum for DistributedOptimizer.
"""
import torch

from .. import _lib
from ._request import receive, submit, synchronize, usable


def _parts(tensor, op):
    """Returns indices (one row for each entry) and values. Raises ValueError unless the tensor can be
    reduced by op.
    """
    if op not in (_lib.AVERAGE, _lib.SUM):
        raise ValueError("a sparse tensor can only be summed or averaged")
    if tensor.layout is not torch.sparse_coo:
        raise ValueError(f"a sparse tensor in COO form is needed, got {tensor.layout}")
    return usable(tensor._indices().t()), usable(tensor._values())


def _whole(indices, values, shape, op, process_set):
    """The resulting sparse tensor; its indices are not coalesced."""
    if op == _lib.AVERAGE:
        values = values / process_set.size()
    return torch.sparse_coo_tensor(indices.t(), values, shape, device=values.device)


def start_sparse_allreduce(tensor, name, op, process_set):
    """Gathers indices and values as a group. Returns a handle for synchronize()."""
    indices, values = _parts(tensor, op)

    def finish(pending):
        (got_indices, _), (got_values, _) = receive(pending)
        return _whole(got_indices, got_values, tensor.shape, op, process_set)

    names = [name and f"sparse_allreduce.{name}.{part}" for part in ("indices", "values")]
    members = [(names[0], indices, None), (names[1], values, None)]
    return submit(_lib.ALLGATHER, members, finish, process_set)


class SparseSum:
    """A sparse gradient's sum or average in flight, in two steps, which either all ranks make or none.

    The values are gathered first, under `name` itself: if a rank has a dense gradient of that name, it
    calls allreduce, and all ranks get an error for the mismatch. The indices follow only if that succeeds.
    """

    def __init__(self, tensor, name, op, process_set):
        self.name, self.op, self.shape, self.process_set = name, op, tensor.shape, process_set
        self.indices, self.values = _parts(tensor, op)
        self.handle = self._gather(self.values, name)

    def _gather(self, tensor, name):
        return submit(_lib.ALLGATHER, [(name, tensor, None)], lambda pending: receive(pending)[0][0], self.process_set)

    def proceed(self):
        """Waits for the values, then starts gathering the indices."""
        self.values = synchronize(self.handle)
        self.handle = self._gather(self.indices, f"{self.name}.indices")

    def finish(self):
        """Waits for the indices. Returns the sum."""
        return _whole(synchronize(self.handle), self.values, self.shape, self.op, self.process_set)
