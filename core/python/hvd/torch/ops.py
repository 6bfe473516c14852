# SPDX-License-Identifier: Apache-2.0
"""The collectives on torch tensors: asynchronous ones first, then those that wait.

A name ending in "_" works in place. `name` matches an operation between the ranks; without one,
operations match in the order in which each rank makes them. Operations that wait are differentiable
(autograd.py).
"""
from .. import _lib
from .._lib import AVERAGE, SUM, check, check_stay, lib
from . import autograd
from ._collectives import (
    several,
    start_allgather,
    start_allreduce,
    start_alltoall,
    start_broadcast,
    start_reducescatter,
)
from ._request import synchronize
from ._sparse import start_sparse_allreduce
from .compression import Compression
from .process_sets import global_process_set, need_global

#: What hvd.torch and hvd.torch.mpi_ops pass on.
__all__ = """
    allreduce allreduce_async allreduce_ allreduce_async_
    grouped_allreduce grouped_allreduce_async grouped_allreduce_ grouped_allreduce_async_
    sparse_allreduce_async allgather allgather_async grouped_allgather grouped_allgather_async
    broadcast broadcast_async broadcast_ broadcast_async_ alltoall alltoall_async
    reducescatter reducescatter_async grouped_reducescatter grouped_reducescatter_async barrier join
""".split()


def _scales(op, prescale, postscale, process_set):
    """The fields of a request that reduces."""
    need_global(process_set)
    if prescale == 0 or postscale == 0:
        raise ValueError("a scale factor must not be 0")
    return {"op": op, "prescale": prescale, "postscale": postscale}


def _allreduce_scales(average, op, prescale, postscale, process_set):
    """_scales() with Horovod's older `average` beside `op`."""
    if average is None:
        op = AVERAGE if op is None else op
    elif op is None:
        op = AVERAGE if average else SUM
    else:
        raise ValueError("give either average or op, not both")
    return _scales(op, prescale, postscale, process_set)


def _compressed(function, tensors, compression, name, scales):
    """A differentiable reduction, alone or of a group, on tensors that travel compressed."""
    tensors = several(tensors)
    if not tensors:
        return []
    travelling, contexts = zip(*(compression.compress(t) for t in tensors))
    results = function.apply(name, scales, *travelling)
    return [compression.decompress(r, c) for r, c in zip(results, contexts)]


# ---- allreduce ----------------------------------------------------------------------------------
# In all of them: average is the older form of op (True: Average, False: Sum); the tensor is multiplied
# by prescale_factor before and by postscale_factor after.

# fmt: off
def allreduce_async(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                    process_set=global_process_set):
    """Reduces a tensor over the ranks into a new one. Returns a handle for synchronize()."""
    scales = _allreduce_scales(average, op, prescale_factor, postscale_factor, process_set)
    return start_allreduce([tensor], name, scales, False, True)


def allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                     process_set=global_process_set):
    """Reduces a contiguous tensor over the ranks, in place. Returns a handle."""
    scales = _allreduce_scales(average, op, prescale_factor, postscale_factor, process_set)
    return start_allreduce([tensor], name, scales, True, True)


def grouped_allreduce_async(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                            postscale_factor=1.0, process_set=global_process_set):
    """allreduce_async of several tensors that start together or not at all. One handle for them."""
    scales = _allreduce_scales(average, op, prescale_factor, postscale_factor, process_set)
    return start_allreduce(tensors, name, scales, False, False)


def grouped_allreduce_async_(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                             postscale_factor=1.0, process_set=global_process_set):
    """As grouped_allreduce_async, in place."""
    scales = _allreduce_scales(average, op, prescale_factor, postscale_factor, process_set)
    return start_allreduce(tensors, name, scales, True, False)


def allreduce(tensor, average=None, name=None, compression=Compression.none, op=None,
              prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """Reduces a tensor over the ranks into a new one: the average unless op says otherwise."""
    scales = _allreduce_scales(average, op, prescale_factor, postscale_factor, process_set)
    return _compressed(autograd.Allreduce, [tensor], compression, name, scales)[0]


def allreduce_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
               process_set=global_process_set):
    """allreduce in place. Not differentiable."""
    scales = _allreduce_scales(average, op, prescale_factor, postscale_factor, process_set)
    return synchronize(start_allreduce([tensor], name, scales, True, True))


def grouped_allreduce(tensors, average=None, name=None, compression=Compression.none, op=None,
                      prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """allreduce of several tensors that start together or not at all. Returns a list."""
    scales = _allreduce_scales(average, op, prescale_factor, postscale_factor, process_set)
    return _compressed(autograd.Allreduce, tensors, compression, name, scales)


def grouped_allreduce_(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                       postscale_factor=1.0, process_set=global_process_set):
    """grouped_allreduce in place."""
    scales = _allreduce_scales(average, op, prescale_factor, postscale_factor, process_set)
    tensors = several(tensors)
    return synchronize(start_allreduce(tensors, name, scales, True, False)) if tensors else []
# fmt: on


class _Callable(int):
    """A handle that may also be called, as Horovod's sparse_allreduce_async returns."""

    def __call__(self):
        return synchronize(self)


def sparse_allreduce_async(tensor, name=None, op=None, process_set=global_process_set):
    """Reduces a sparse COO tensor: the ranks' indices and values are gathered. Sum or Average.

    Returns a handle; the result is sparse, its indices not coalesced."""
    need_global(process_set)
    return _Callable(start_sparse_allreduce(tensor, name, AVERAGE if op is None else op))


# ---- allgather ----------------------------------------------------------------------------------


def allgather_async(tensor, name=None, process_set=global_process_set):
    """The ranks' tensors one after the other along dimension 0, which may differ. A handle."""
    need_global(process_set)
    return start_allgather([tensor], name, True)


def allgather(tensor, name=None, process_set=global_process_set):
    """The ranks' tensors one after the other along dimension 0, which may differ between ranks."""
    need_global(process_set)
    return autograd.Allgather.apply(name, tensor)[0]


def grouped_allgather_async(tensors, name=None, process_set=global_process_set):
    """allgather_async of several tensors. One handle for them."""
    need_global(process_set)
    return start_allgather(tensors, name, False)


def grouped_allgather(tensors, name=None, process_set=global_process_set):
    """allgather of several tensors that start together or not at all. Returns a list."""
    need_global(process_set)
    tensors = several(tensors)
    return list(autograd.Allgather.apply(name, *tensors)) if tensors else []


# ---- broadcast ----------------------------------------------------------------------------------


def broadcast_async(tensor, root_rank, name=None, process_set=global_process_set):
    """root_rank's tensor, on every rank, as a new tensor. Returns a handle."""
    need_global(process_set)
    return start_broadcast(tensor, root_rank, name, False)


def broadcast_async_(tensor, root_rank, name=None, process_set=global_process_set):
    """Overwrites a contiguous tensor with root_rank's. Returns a handle."""
    need_global(process_set)
    return start_broadcast(tensor, root_rank, name, True)


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """root_rank's tensor, on every rank, as a new tensor."""
    need_global(process_set)
    return autograd.Broadcast.apply(tensor, root_rank, name)


def broadcast_(tensor, root_rank, name=None, process_set=global_process_set):
    """Overwrites a contiguous tensor with root_rank's."""
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


# ---- alltoall -----------------------------------------------------------------------------------


def alltoall_async(tensor, splits=None, name=None, process_set=global_process_set):
    """Sends splits[r] rows of the tensor to rank r (equal shares without splits). A handle; its result
    is the received rows in the order of the ranks, with splits also how many came from each."""
    need_global(process_set)
    return start_alltoall(tensor, splits, name)


def alltoall(tensor, splits=None, name=None, process_set=global_process_set):
    """Sends splits[r] rows of the tensor to rank r. Returns what was received; with splits also how
    many rows came from each rank."""
    need_global(process_set)
    output, got = autograd.Alltoall.apply(tensor, splits, name)
    return output if splits is None else (output, got)


# ---- reducescatter ------------------------------------------------------------------------------


# fmt: off
def reducescatter_async(tensor, name=None, op=AVERAGE, process_set=global_process_set,
                        prescale_factor=1.0, postscale_factor=1.0):
    """Reduces a tensor and shares out its rows: the first size % ranks ranks get one row more. Returns
    a handle; its result is this rank's rows."""
    scales = _scales(op, prescale_factor, postscale_factor, process_set)
    return start_reducescatter([tensor], name, scales, True)


def reducescatter(tensor, name=None, compression=Compression.none, op=AVERAGE,
                  process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    """Reduces a tensor and returns this rank's share of its rows."""
    scales = _scales(op, prescale_factor, postscale_factor, process_set)
    return _compressed(autograd.Reducescatter, [tensor], compression, name, scales)[0]


def grouped_reducescatter_async(tensors, name=None, op=AVERAGE, process_set=global_process_set,
                                prescale_factor=1.0, postscale_factor=1.0):
    """reducescatter_async of several tensors. One handle for them."""
    scales = _scales(op, prescale_factor, postscale_factor, process_set)
    return start_reducescatter(tensors, name, scales, False)


def grouped_reducescatter(tensors, name=None, compression=Compression.none, op=AVERAGE,
                          process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    """reducescatter of several tensors that start together or not at all. Returns a list."""
    scales = _scales(op, prescale_factor, postscale_factor, process_set)
    return _compressed(autograd.Reducescatter, tensors, compression, name, scales)
# fmt: on


# ---- others -------------------------------------------------------------------------------------


def barrier(process_set=global_process_set):
    """Returns when every rank has called it."""
    need_global(process_set)
    check_stay(lib.hvd_enter())
    check(lib.hvd_barrier(None))


def join(device=-1):
    """Not there yet: ranks with less data than others cannot leave early."""
    raise NotImplementedError("join is not supported yet: give every rank the same number of batches")


