# SPDX-License-Identifier: Apache-2.0
"""Enqueued operations: a stream of the GPU waits for them, and the host continues.

hvd_wait() for such an operation is called later. It reports a failure, and frees the operation's name. free()
calls it before the name is submitted again, settle() once the operation has ended, finish() before this rank
leaves the job. Until then the engine may use the tensors, so this module holds references to them. In elastic
jobs, and where tensors go through the host's memory, operations have ended before a wait returns.

Any thread may call these functions.
"""
import collections
import ctypes
import threading

from .._lib import HvdError, Result, check, error, lib
from ..world import at_shutdown, before_shutdown, holders
from . import _device

_operations = collections.OrderedDict()  # {name, or handle without a name: _Operation}, oldest first
_lock = threading.RLock()  # held while _operations changes


class _Operation:
    __slots__ = ("handle", "tensors", "gathered", "copy")

    def __init__(self, handle, tensors, gathered=False, copy=None):
        self.handle, self.tensors = handle, tensors
        self.gathered, self.copy = gathered, copy  # whether there is a result to release, after this event

    def has_ended(self):
        """Whether end() would not wait."""
        return lib.hvd_poll(self.handle) != 0 and (self.copy is None or self.copy.query())

    def end(self):
        """Waits for the operation and releases it. Raises if it has failed."""
        check(lib.hvd_wait(self.handle))
        if self.gathered:
            if self.copy is not None:
                self.copy.synchronize()
            lib.hvd_release(self.handle)


def _remember(name, operation):
    with _lock:
        _operations[name or operation.handle] = operation


def _await(ordinal, handle):
    """Makes the current stream of that GPU wait for an operation. Returns False if it cannot wait."""
    return ordinal >= 0 and lib.hvd_wait_stream(handle, _device.stream_of(ordinal)) == 0


def wait(ordinal, tensors, handle, name):
    """Waits for an operation whose result is in a tensor of the program. On a GPU the current stream waits; in
    host memory (ordinal -1) the operation has finished on return. Raises if it is known to have failed.
    tensors: what must be kept alive."""
    if _await(ordinal, handle) and lib.hvd_poll(handle) == 0:
        _remember(name, _Operation(handle, tensors))
        return
    code = lib.hvd_wait(handle)
    if code:
        raise error(code)


def receive(ordinal, tensors, handle, name, like):
    """wait() for an allgather or alltoall. Returns what it has received, as a tensor with like's dtype and
    device, and the number of rows from each rank."""
    found = Result()
    if not _await(ordinal, handle):
        check(lib.hvd_wait(handle))
    code = lib.hvd_result(handle, ctypes.byref(found))
    if code:
        check(lib.hvd_wait(handle))  # raises the operation's own error
        raise error(code)
    operation = _Operation(handle, tensors, True)
    try:
        tensor, operation.copy = _device.copied(found.data, found.shape[: found.ndim], like)
        return tensor, found.splits[: found.ranks]
    finally:
        if ordinal < 0:
            operation.end()
        else:
            _remember(name, operation)


def free(*names):
    """Called before operations of these names are submitted: waits for the enqueued ones of these names, then
    calls settle(). Raises if one of all these operations has failed."""
    if not _operations:
        return
    for name in names:
        with _lock:
            operation = _operations.pop(name, None)
        if operation is not None:
            operation.end()
    settle()


def settle():
    """Releases operations that have ended. Does not wait. Raises if one of them has failed."""
    with _lock:
        while _operations:
            name, operation = next(iter(_operations.items()))
            if not operation.has_ended():
                return
            try:
                operation.end()
            finally:  # not earlier: free() must find the name while it is in use
                _operations.pop(name, None)


def finish():
    """Waits for all operations, also after one has failed; then raises the first failure."""
    failure = None
    while _operations:
        with _lock:
            operation = _operations.popitem(last=False)[1] if _operations else None
        try:
            if operation is not None:
                operation.end()
        except HvdError as reason:
            failure = failure or reason
    if failure:
        raise failure


before_shutdown.append(finish)
at_shutdown.append(_operations.clear)
holders.append(_operations)
