# SPDX-License-Identifier: Apache-2.0
"""Submits torch tensors to the library, and keeps them alive until the operations have finished.

Used by _collectives.py, _sparse.py and optimizer.py. From submit() to synchronize() the table of pending
operations holds references to the tensors, even if the program drops its own; after it _enqueued.py does.
"""
import ctypes
import errno
import time

import torch

from .. import _lib
from .._lib import REQUEST_BYTES, InvalidArgumentError, Request, check, check_stay, dims, lib, name_bytes
from ..process_sets import request_set
from ..world import at_shutdown, holders
from . import _device, _enqueued

DTYPES = {
    torch.uint8: _lib.UINT8,
    torch.int8: _lib.INT8,
    torch.int16: _lib.INT16,
    torch.int32: _lib.INT32,
    torch.int64: _lib.INT64,
    torch.float16: _lib.FLOAT16,
    torch.float32: _lib.FLOAT32,
    torch.float64: _lib.FLOAT64,
    torch.bool: _lib.BOOL,
    torch.bfloat16: _lib.BFLOAT16,
}
if hasattr(torch, "uint16"):  # torch >= 2.3
    DTYPES[torch.uint16] = _lib.UINT16
if hasattr(torch, "float8_e4m3fn"):  # torch >= 2.1; only moved: the library refuses to combine them
    DTYPES[torch.float8_e4m3fn] = _lib.FLOAT8_E4M3FN
    DTYPES[torch.float8_e5m2] = _lib.FLOAT8_E5M2


class Pending:
    """An operation, or a group of them, that was submitted and not yet waited for."""

    __slots__ = ("handles", "names", "inputs", "outputs", "place", "finish")

    def __init__(self, handles, names, inputs, outputs, place, finish):
        self.handles, self.names = handles, names  # of the library, one for each tensor
        self.inputs, self.outputs = inputs, outputs  # tensors, kept alive
        self.place = place  # device and stream of the first tensor
        self.finish = finish  # called with this object; waits for the operations and returns the result


_pending = {}
_latest = {}  # by name: handle and time of its last operation that was not waited for
_CYCLE_NS = 1_000_000
_dropped = set()  # handles that nobody had waited for at shutdown()
flights = []  # of optimizers: lists of gradients in flight, kept even after the optimizer was deleted


def _drop():
    _dropped.update(_pending)
    _pending.clear()
    _latest.clear()


at_shutdown.append(_drop)
holders += [_pending, flights]


def need_tensor(tensor):
    """Raises TypeError unless the argument is a tensor."""
    if not torch.is_tensor(tensor):
        raise TypeError(f"a tensor is needed, got {type(tensor).__name__}")


def usable(tensor, in_place=False):
    """Returns a contiguous tensor whose memory the library can use: this one, or a copy if the operation
    is not in place. Raises TypeError or ValueError for tensors that are not supported."""
    need_tensor(tensor)
    if tensor.layout is not torch.strided:
        raise ValueError(f"a {tensor.layout} tensor is not supported here (see sparse_allreduce_async)")
    if tensor.dtype not in DTYPES:
        raise ValueError(f"tensors of type {tensor.dtype} are not supported")
    _device.need(tensor)
    if tensor.is_contiguous():
        return tensor
    if in_place:
        raise ValueError(
            f"a tensor of shape {tuple(tensor.shape)} and strides {tensor.stride()} is not contiguous, "
            "which an operation in place needs: use tensor.contiguous() or the operation without _"
        )
    return tensor.detach().contiguous()


def describe(request, kind, name, tensor, output, **fields):
    """Fills a Request for tensors from usable(). output: a tensor or None. Returns _device.place() of the
    input.
    """
    request.kind = kind
    request.name = name_bytes(name)
    request.input = tensor.data_ptr() or None
    request.output = None if output is None else output.data_ptr() or None
    request.dtype = DTYPES[tensor.dtype]
    request.ndim = tensor.dim()
    request.shape = dims(tensor.shape)
    request.device, request.stream = place = _device.place(tensor)
    for field, value in fields.items():
        setattr(request, field, value)
    return place


def _need_new(names):
    """Raises InvalidArgumentError if an operation of one of these names was submitted less than 1 ms ago (Horovod's cycle) and
    nobody has waited for it. It is raised even if that operation has ended already, so that a program with this fault always
    fails, not now and then."""
    now = time.monotonic_ns()
    for name in names:
        handle, since = _latest.get(name, (None, 0))
        if handle in _pending and now - since < _CYCLE_NS:
            raise InvalidArgumentError(f"{name}: an operation of this name is in flight; wait for it first", errno.EEXIST)


def submit(kind, members, finish, process_set, **fields):
    """Submits operations of one kind; several form a group.

    members: a list of (name, input, output or None). finish: as in Pending. Returns a handle (int) for
    poll() and synchronize()."""
    number = request_set(process_set)
    names = [name and f"{number}:{name}" if number else name for name, _, _ in members]
    _need_new(names)
    _enqueued.free(*names)
    count = len(members)
    requests = (Request * count)()
    handles = (ctypes.c_int64 * count)()
    places = [
        describe(request, kind, name, tensor, output, set=number, **fields)
        for request, (name, tensor, output) in zip(requests, members)
    ]
    check_stay(lib.hvd_submit_sized(requests, REQUEST_BYTES, count, handles))
    inputs = [tensor for _, tensor, _ in members]
    outputs = [output for _, _, output in members if output is not None]
    return remember(Pending(list(handles), names, inputs, outputs, places[0], finish))


def remember(pending):
    """Registers a Pending for poll() and synchronize(). Returns its handle."""
    handle = pending.handles[0]
    _pending[handle] = pending
    for name in pending.names:
        if name:
            _latest[name] = handle, time.monotonic_ns()
    _dropped.discard(handle)
    return handle


def _each(pending, take):
    """Calls take for every operation, also after one has failed. Then raises the first failure, or returns
    the results."""
    failure, results = None, []
    for handle, name, tensor in zip(pending.handles, pending.names, pending.inputs):
        try:
            results.append(take(handle, name, tensor))
        except Exception as reason:
            failure = failure or reason
    if failure:
        raise failure
    return results


def wait(pending):
    """Waits for operations whose results are in their outputs: on a GPU, the current stream waits."""
    ordinal, _ = pending.place
    _each(pending, lambda handle, name, _: _enqueued.wait(ordinal, pending, handle, name))


def receive(pending):
    """Waits like wait() for allgathers or alltoalls. Returns for each operation the received tensor and the
    number of rows from each rank."""
    ordinal, _ = pending.place
    return _each(pending, lambda *operation: _enqueued.receive(ordinal, pending, *operation))


def poll(handle):
    """Returns True when synchronize(handle) will not block. Raises ValueError for an unknown handle."""
    pending = _pending.get(handle)
    if pending is None:
        raise ValueError(f"{handle!r} is not the handle of an operation in flight; wait for each only once")
    return all(check(lib.hvd_poll(h)) for h in pending.handles)


def synchronize(handle):
    """Waits for an asynchronous operation and returns its result. For an alltoall that is a pair: the received rows, and the
    number of rows from each rank. Returns None for a handle that was waited for already. For tensors on a GPU, the current stream waits,
    and the result may be used by work on that stream.

    Raises HorovodInternalError when a rank was lost and the operation could not be repaired, HvdError on other
    failures, ValueError for an operation that was in flight at shutdown(). If an operation on a GPU fails after this call, a later
    call of the package raises the error."""
    _enqueued.settle()
    pending = _pending.pop(handle, None)
    if pending is None:
        if not isinstance(handle, int):
            raise ValueError(f"{handle!r} is not the handle of an operation")
        if handle in _dropped:
            raise ValueError(f"{handle!r} is the handle of an operation that was in flight at shutdown()")
        return None
    for name in pending.names:
        _latest.pop(name, None)
    result = pending.finish(pending)
    _device.settled(pending.outputs, pending.place)
    return result
