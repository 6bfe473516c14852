# SPDX-License-Identifier: Apache-2.0
"""Collectives on objects with a buffer: numpy arrays, array.array, bytearray, memoryview.

numpy is not needed. Arrays of ml_dtypes' bfloat16 are possible, and of its float8_e4m3fn and float8_e5m2 in
broadcast and allgather, but not in allreduce. Buffers must be contiguous and in C order (ValueError otherwise).
New results are numpy arrays if the argument is one, memoryviews otherwise. Without a name, operations match in the order of the
calls on each rank. All of them raise HorovodInternalError when a rank is lost and the operation cannot be
repaired, and HvdError on other failures.
"""
import ctypes

from . import _lib
from ._lib import REQUEST_BYTES, Request, Result, check, check_stay, dims, lib, name_bytes
from .process_sets import checked, global_process_set, request_set

_FORMATS = {"?": _lib.BOOL, "e": _lib.FLOAT16, "f": _lib.FLOAT32, "d": _lib.FLOAT64}
_SIGNED = {1: _lib.INT8, 2: _lib.INT16, 4: _lib.INT32, 8: _lib.INT64}
_UNSIGNED = {1: _lib.UINT8, 2: _lib.UINT16}
# Types of the package ml_dtypes. numpy gives no buffer of them, so that they are seen as unsigned integers.
_NAMED = {"bfloat16": _lib.BFLOAT16, "float8_e4m3fn": _lib.FLOAT8_E4M3FN, "float8_e5m2": _lib.FLOAT8_E5M2}


def _named(data):
    """The library's number of an array's type, if it is one of _NAMED, else None."""
    return _NAMED.get(str(getattr(data, "dtype", "")))


def _dtype(view):
    code = view.format.lstrip("@=<|")
    if code in _FORMATS:
        return _FORMATS[code]
    table = _SIGNED if code in tuple("bhilqn") else _UNSIGNED if code in tuple("BHILQNc") else {}
    if view.itemsize not in table:
        raise ValueError(f"elements of format {view.format!r} are not supported")
    return table[view.itemsize]


def _view(data, writable):
    view = memoryview(data if _named(data) is None else data.view(f"u{data.dtype.itemsize}"))
    if not view.c_contiguous:
        raise ValueError(f"the buffer of shape {view.shape} is not contiguous")
    if writable and view.readonly:
        raise ValueError("the buffer is read-only")
    return view


def _memory(view):
    """A view's bytes as a ctypes object, which keeps them alive. A read-only view is copied, because
    Python does not give its address."""
    if view.nbytes == 0:
        return None
    if view.readonly:
        return (ctypes.c_char * view.nbytes).from_buffer_copy(view.cast("B"))
    return ctypes.c_char.from_buffer(view)


def _address(memory):
    return None if memory is None else ctypes.addressof(memory)


def _like(data, shape, source):
    """Allocates a result of source's element type: a numpy array if data is one. Returns (result, view of
    it).
    """
    if type(data).__module__.partition(".")[0] == "numpy":
        import numpy

        fresh = numpy.empty(shape, dtype=data.dtype)
        return fresh, _view(fresh, True)
    count = 1
    for extent in shape:
        count *= extent
    if not shape or 0 in shape:
        flat = memoryview(bytearray(count * source.itemsize)).cast(source.format)
        return flat, flat
    fresh = memoryview(bytearray(count * source.itemsize)).cast(source.format, tuple(shape))
    return fresh, fresh


def _submit(kind, name, view, output, dtype=None, **fields):
    """Submits one operation. dtype: if it is not that of the view. Returns its handle, and objects that must be kept alive until it has
    finished."""
    shape = dims(view.shape)
    memory = _memory(view)
    target = memory if output is view else None if output is None else _memory(output)
    request = Request(
        kind=kind,
        name=name_bytes(name),
        input=_address(memory),
        output=_address(target),
        dtype=_dtype(view) if dtype is None else dtype,
        ndim=view.ndim,
        shape=shape,
        device=-1,
        **fields,
    )
    handle = ctypes.c_int64()
    check_stay(lib.hvd_submit_sized(ctypes.byref(request), REQUEST_BYTES, 1, ctypes.byref(handle)))
    return handle.value, (memory, target)


def _run(kind, name, view, output, **fields):
    """Submits one operation and waits for it. Returns its handle."""
    handle, kept = _submit(kind, name, view, output, **fields)
    code = lib.hvd_wait(handle)
    del kept
    check(code)
    return handle


def allreduce_(data, name=None, op=_lib.AVERAGE, process_set=global_process_set):
    """Reduces a buffer over the ranks, in place. Returns it. op: Average, Sum, Min, Max, Product, Adasum,
    BitAnd, BitOr or BitXor."""
    view = _view(data, True)
    _run(_lib.ALLREDUCE, name, view, view, dtype=_named(data), op=op, set=request_set(process_set))
    return data


def allreduce(data, name=None, op=_lib.AVERAGE, process_set=global_process_set):
    """Reduces a buffer over the ranks into a new one of the same shape. op as in allreduce_()."""
    source = _view(data, False)
    result, output = _like(data, source.shape, source)
    _run(_lib.ALLREDUCE, name, source, output, dtype=_named(data), op=op, set=request_set(process_set))
    return result


def broadcast_(data, root_rank, name=None, process_set=global_process_set):
    """Overwrites a buffer with that of root_rank (a rank of the job), which has the same shape. Returns it."""
    view = _view(data, True)
    root = checked(process_set).number_of(root_rank)
    _run(_lib.BROADCAST, name, view, view, dtype=_named(data), root=root, set=request_set(process_set))
    return data


def allgather(data, name=None, process_set=global_process_set):
    """Concatenates the ranks' buffers along the first dimension, whose size may differ between ranks."""
    source = _view(data, False)
    handle = _run(_lib.ALLGATHER, name, source, None, dtype=_named(data), set=request_set(process_set))
    try:
        found = Result()
        check(lib.hvd_result(handle, ctypes.byref(found)))
        result, output = _like(data, found.shape[: found.ndim], source)
        if output.nbytes:
            ctypes.memmove(_address(_memory(output)), found.data, output.nbytes)
        return result
    finally:
        lib.hvd_release(handle)


def join():
    """For a rank whose data has run out before that of others. Blocks until every rank of the job has called it, and
    returns the rank that called it last. Meanwhile this rank takes part in what the others submit, also in its process
    sets, with an element that changes nothing: zeros for a sum, ones for a product, no rows for allgather and alltoall.
    An average still divides by the number of all ranks. The results of these operations are dropped on this rank. A
    broadcast from it fails on every rank that submits it.

    No other thread may submit anything meanwhile. Raises HvdError when a rank has shut down without it (5 s after that),
    HorovodInternalError when a rank was lost. In an elastic job the ranks that are left go on instead; commit() on other
    ranks changes nothing while a rank is in this call."""
    check_stay(lib.hvd_enter())
    last = lib.hvd_join()
    check(min(last, 0))
    return last


def barrier(name=None, process_set=global_process_set):
    """Returns when every rank, or every rank of the process set, has called it."""
    check_stay(lib.hvd_enter())
    number = request_set(process_set)
    if number == 0:
        check(lib.hvd_barrier(name_bytes(name)))
        return
    request = Request(kind=_lib.BARRIER, name=name_bytes(name), device=-1, set=number)
    handle = ctypes.c_int64()
    check(lib.hvd_submit_sized(ctypes.byref(request), REQUEST_BYTES, 1, ctypes.byref(handle)))
    check(lib.hvd_wait(handle.value))
