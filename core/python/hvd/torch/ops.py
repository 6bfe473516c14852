# SPDX-License-Identifier: Apache-2.0
"""Collectives on torch tensors (CPU or CUDA).

Functions whose names end in "_" work in place and need contiguous tensors. Functions with "async" return a
handle for synchronize() and poll(); the others wait, and are differentiable unless they work in place
(autograd.py). All ranks must call the same operation with tensors of the same dtype, and of the same shape
unless the text says otherwise. `name` matches an operation between the ranks; operations without a name
match in the order of the calls. Functions that wait, and synchronize(), raise HorovodInternalError when a
rank was lost and the operation could not be repaired, and HvdError on other failures, such as tensors that
differ between ranks.

For tensors on a GPU, waiting means that the current stream waits. Work on that stream may use the result at
once; another stream has to wait for that stream first. If the operation fails after the call, a later call of
the package raises the error.
"""
import warnings

from .. import buffers
from .._lib import AVERAGE, SUM
from . import autograd
from ._collectives import (
    several,
    start_allgather,
    start_allreduce,
    start_alltoall,
    start_broadcast,
    start_reducescatter,
)
from ._request import flights, synchronize
from ._sparse import start_sparse_allreduce
from .compression import Compression
from .process_sets import global_process_set

#: Exported by hvd.torch and hvd.torch.mpi_ops, too.
__all__ = """
    allreduce allreduce_async allreduce_ allreduce_async_
    grouped_allreduce grouped_allreduce_async grouped_allreduce_ grouped_allreduce_async_
    sparse_allreduce_async allgather allgather_async grouped_allgather grouped_allgather_async
    broadcast broadcast_async broadcast_ broadcast_async_ alltoall alltoall_async
    reducescatter reducescatter_async grouped_reducescatter grouped_reducescatter_async barrier join
""".split()


def _scales(op, prescale, postscale):
    """The fields of a Request for a reduction."""
    if prescale == 0 or postscale == 0:
        raise ValueError("a scale factor must not be 0")
    return {"op": op, "prescale": prescale, "postscale": postscale}


def _allreduce_scales(average, op, prescale, postscale):
    """_scales() that also accepts Horovod's older `average` in place of `op`."""
    if average is None:
        op = AVERAGE if op is None else op
    elif op is None:
        warnings.warn("average is deprecated: use op=hvd.Average or op=hvd.Sum", DeprecationWarning, stacklevel=3)
        op = AVERAGE if average else SUM
    else:
        raise ValueError("give either average or op, not both")
    return _scales(op, prescale, postscale)


def _compressed(function, tensors, compression, name, scales, process_set):
    """A differentiable reduction of a tensor or a group, which is sent compressed."""
    tensors = several(tensors)
    if not tensors:
        return []
    travelling, contexts = zip(*(compression.compress(t) for t in tensors))
    results = function.apply(name, scales, process_set, *travelling)
    return [compression.decompress(r, c) for r, c in zip(results, contexts)]


# ---- allreduce ----------------------------------------------------------------------------------
# In all of them: op is Average (default), Sum, Min, Max, Product, for floating-point types Adasum, or for integers and
# bool BitAnd, BitOr or BitXor; average is the older form of op (True: Average, False: Sum). The tensor is multiplied by
# prescale_factor before the reduction and by postscale_factor after it.

# fmt: off
def allreduce_async(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                    process_set=global_process_set):
    """Reduces a tensor over the ranks into a new one of the same shape. Returns a handle for
    synchronize()."""
    scales = _allreduce_scales(average, op, prescale_factor, postscale_factor)
    return start_allreduce([tensor], name, scales, False, True, process_set)


def allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                     process_set=global_process_set):
    """Reduces a contiguous tensor over the ranks, in place. Returns a handle for synchronize()."""
    scales = _allreduce_scales(average, op, prescale_factor, postscale_factor)
    return start_allreduce([tensor], name, scales, True, True, process_set)


def grouped_allreduce_async(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                            postscale_factor=1.0, process_set=global_process_set):
    """allreduce_async() of several tensors, which are processed together once all ranks have all of them.
    Returns one handle; its result is a list."""
    scales = _allreduce_scales(average, op, prescale_factor, postscale_factor)
    return start_allreduce(tensors, name, scales, False, False, process_set)


def grouped_allreduce_async_(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                             postscale_factor=1.0, process_set=global_process_set):
    """Like grouped_allreduce_async(), in place."""
    scales = _allreduce_scales(average, op, prescale_factor, postscale_factor)
    return start_allreduce(tensors, name, scales, True, False, process_set)


def allreduce(tensor, average=None, name=None, compression=Compression.none, op=None,
              prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """Reduces a tensor over the ranks; returns a new tensor of the same shape. op: Average (default), Sum,
    Min, Max, Product, Adasum, BitAnd, BitOr or BitXor. compression: the type in which the tensor is sent."""
    scales = _allreduce_scales(average, op, prescale_factor, postscale_factor)
    return _compressed(autograd.Allreduce, [tensor], compression, name, scales, process_set)[0]


def allreduce_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
               process_set=global_process_set):
    """Reduces a contiguous tensor over the ranks in place; returns it. Not differentiable."""
    scales = _allreduce_scales(average, op, prescale_factor, postscale_factor)
    return synchronize(start_allreduce([tensor], name, scales, True, True, process_set))


def grouped_allreduce(tensors, average=None, name=None, compression=Compression.none, op=None,
                      prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """allreduce() of several tensors, which are processed together once all ranks have all of them.
    Returns a list.
    """
    scales = _allreduce_scales(average, op, prescale_factor, postscale_factor)
    return _compressed(autograd.Allreduce, tensors, compression, name, scales, process_set)


def grouped_allreduce_(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                       postscale_factor=1.0, process_set=global_process_set):
    """grouped_allreduce() in place. Returns the list of tensors. Not differentiable."""
    scales = _allreduce_scales(average, op, prescale_factor, postscale_factor)
    tensors = several(tensors)
    return synchronize(start_allreduce(tensors, name, scales, True, False, process_set)) if tensors else []
# fmt: on


class _Callable(int):
    """A handle that can also be called to wait, as Horovod's sparse_allreduce_async() returns it."""

    def __call__(self):
        return synchronize(self)


def sparse_allreduce_async(tensor, name=None, op=None, process_set=global_process_set):
    """Reduces a sparse COO tensor by gathering the ranks' indices and values. op: Average (default) or Sum.

    Returns a handle for synchronize(). The result is a sparse tensor whose indices are not coalesced."""
    return _Callable(start_sparse_allreduce(tensor, name, AVERAGE if op is None else op, process_set))


# ---- allgather ----------------------------------------------------------------------------------


def allgather_async(tensor, name=None, process_set=global_process_set):
    """Concatenates the ranks' tensors along dimension 0, whose size may differ between ranks. Returns a
    handle.
    """
    return start_allgather([tensor], name, True, process_set)


def allgather(tensor, name=None, process_set=global_process_set):
    """Concatenates the ranks' tensors along dimension 0, whose size may differ between ranks; returns a
    new tensor.
    """
    return autograd.Allgather.apply(name, AVERAGE, process_set, tensor)[0]


def grouped_allgather_async(tensors, name=None, process_set=global_process_set):
    """allgather_async() of several tensors. Returns one handle; its result is a list."""
    return start_allgather(tensors, name, False, process_set)


def grouped_allgather(tensors, name=None, process_set=global_process_set):
    """allgather() of several tensors, which are processed together once all ranks have all of them.
    Returns a list.
    """
    tensors = several(tensors)
    return list(autograd.Allgather.apply(name, AVERAGE, process_set, *tensors)) if tensors else []


# ---- broadcast ----------------------------------------------------------------------------------


def broadcast_async(tensor, root_rank, name=None, process_set=global_process_set):
    """Copies root_rank's tensor to all ranks, as a new tensor. Returns a handle for synchronize()."""
    return start_broadcast(tensor, root_rank, name, False, process_set)


def broadcast_async_(tensor, root_rank, name=None, process_set=global_process_set):
    """Overwrites a contiguous tensor with root_rank's. Returns a handle for synchronize()."""
    return start_broadcast(tensor, root_rank, name, True, process_set)


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """Returns a copy of root_rank's tensor on all ranks."""
    return autograd.Broadcast.apply(tensor, root_rank, name, process_set)


def broadcast_(tensor, root_rank, name=None, process_set=global_process_set):
    """Overwrites a contiguous tensor with root_rank's; returns it. Not differentiable."""
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


# ---- alltoall -----------------------------------------------------------------------------------


def alltoall_async(tensor, splits=None, name=None, process_set=global_process_set):
    """Sends splits[r] rows of the tensor to rank r (equal numbers without splits), rows behind them to none. Returns a handle; its
    result is the received rows in the order of ranks, and a tensor with the number of rows from each rank."""
    return start_alltoall(tensor, splits, name, process_set)


def alltoall(tensor, splits=None, name=None, process_set=global_process_set):
    """Sends splits[r] rows of the tensor to rank r (equal numbers without splits), rows behind them to none. Returns the
    received rows in the order of ranks; if splits is given, also a tensor with the number of rows from each
    rank."""
    output, got = autograd.Alltoall.apply(tensor, splits, name, process_set)
    return output if splits is None else (output, got)


# ---- reducescatter ------------------------------------------------------------------------------


# fmt: off
def reducescatter_async(tensor, name=None, op=AVERAGE, process_set=global_process_set,
                        prescale_factor=1.0, postscale_factor=1.0):
    """Reduces a tensor and distributes its rows over the ranks. With n rows and size() ranks, each rank
    gets n // size() rows, the first n % size() ranks one more. Returns a handle; its result is this rank's
    rows."""
    scales = _scales(op, prescale_factor, postscale_factor)
    return start_reducescatter([tensor], name, scales, True, process_set)


def reducescatter(tensor, name=None, compression=Compression.none, op=AVERAGE,
                  process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    """Reduces a tensor and returns this rank's rows, distributed as in reducescatter_async()."""
    scales = _scales(op, prescale_factor, postscale_factor)
    return _compressed(autograd.Reducescatter, [tensor], compression, name, scales, process_set)[0]


def grouped_reducescatter_async(tensors, name=None, op=AVERAGE, process_set=global_process_set,
                                prescale_factor=1.0, postscale_factor=1.0):
    """reducescatter_async() of several tensors. Returns one handle; its result is a list."""
    scales = _scales(op, prescale_factor, postscale_factor)
    return start_reducescatter(tensors, name, scales, False, process_set)


def grouped_reducescatter(tensors, name=None, compression=Compression.none, op=AVERAGE,
                          process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    """reducescatter() of several tensors, which are processed together once all ranks have all of them.
    Returns a list.
    """
    scales = _scales(op, prescale_factor, postscale_factor)
    return _compressed(autograd.Reducescatter, tensors, compression, name, scales, process_set)
# fmt: on


# ---- others -------------------------------------------------------------------------------------


def barrier(process_set=global_process_set):
    """Returns when every rank of the process set has called it."""
    buffers.barrier(None, process_set)


def join(device=-1):
    """For a rank whose batches have run out before those of others: call it after the last step. Blocks until every rank
    has called it, and returns the rank that called it last. Meanwhile this rank takes part in what the others submit,
    also in its process sets, with an element that changes nothing: zeros for a sum, no rows for allgather and alltoall.
    An average still divides by the number of all ranks. The results of these operations are dropped on this rank. A
    broadcast from it fails on every rank that submits it. In Horovod joined ranks take part in allreduce alone, and
    give it zeros also for Min, Max and Product.

    No other thread may submit anything meanwhile. Raises RuntimeError between backward() and step(), HvdError when a
    rank has shut down without it (5 s after that), HorovodInternalError when a rank was lost. In an elastic job the
    ranks that are left go on instead; commit() on other ranks changes nothing while a rank is in this call.
    device: not used."""
    if any(flights):
        raise RuntimeError("join() between backward() and step(): call step() or synchronize() first")
    return buffers.join()
