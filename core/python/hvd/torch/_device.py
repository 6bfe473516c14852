# SPDX-License-Identifier: Apache-2.0
"""Tensors on GPUs: where the engine finds them, on which stream they come about, and how its memory there
is read. Everything that this package asks of torch.cuda is here; a program without CUDA tensors never
starts it.

The engine begins an operation behind what its request's stream has to do at that moment. When a wait has
returned the results are in place, and any stream may use them.

Memory that a tensor leaves is given to the next tensor of the stream on which it was made. A tensor that
another stream works on is therefore either kept until that is done, or made known to it (used_here()).
"""
import contextlib
import ctypes
import warnings

import torch
from torch.utils.dlpack import from_dlpack

from .. import objects

HOST = -1, None  # the place of what is in the host's memory


def _stream_of(ordinal):
    """What the driver calls the stream that is current on that GPU."""
    return torch.cuda.current_stream(ordinal).cuda_stream


# The same without an object for it: every gradient of every step asks.
_stream_of = getattr(torch._C, "_cuda_getCurrentRawStream", _stream_of)


def need(tensor):
    """Raises unless it is in the host's memory or on a GPU of NVIDIA's."""
    kind = tensor.device.type
    if kind != "cpu" and (kind != "cuda" or getattr(torch.version, "hip", None)):
        raise ValueError(f"a tensor on {tensor.device} is not supported: only CPU and CUDA tensors are")


def place(tensor):
    """(ordinal, stream): the GPU that it is on, and the stream that is current there; or HOST."""
    device = tensor.device
    return HOST if device.type == "cpu" else (device.index, _stream_of(device.index))


_streams = {}  # of our own, by GPU and by what for


def _own_stream(ordinal, purpose):
    if (ordinal, purpose) not in _streams:
        _streams[ordinal, purpose] = torch.cuda.Stream(ordinal)
    return _streams[ordinal, purpose]


@contextlib.contextmanager
def beside(tensor):
    """What the block does on the tensor's GPU it does on a stream of our own, which is then current, behind
    what the one that is current now has to do. That one is not held up."""
    if tensor.device.type == "cpu":
        yield
        return
    side = _own_stream(tensor.device.index, "beside")
    side.wait_stream(torch.cuda.current_stream(tensor.device.index))
    with torch.cuda.stream(side):
        yield


def used_here(tensor):
    """The stream that is current works on a tensor which may have been made on another one."""
    if tensor.device.type == "cuda":
        tensor.record_stream(torch.cuda.current_stream(tensor.device.index))


def settled(tensors, origin):
    """Results are the caller's now. origin: the place() that their request was made for."""
    ordinal, stream = origin
    if ordinal >= 0 and _stream_of(ordinal) != stream:
        for tensor in tensors:
            used_here(tensor)


class _Foreign(ctypes.Structure):
    """DLManagedTensor of DLPack's: how memory of others becomes a tensor, without numpy."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),  # 1: the host's memory, 2: CUDA
        ("device", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),  # 1: unsigned
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ]


_foreign = {}  # by address: what torch still refers to
_forget = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda at: _foreign.pop(at) and None)
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def foreign_bytes(address, length, device):
    """A tensor of the bytes at an address of that device; it does not keep them alive."""
    kind, ordinal = (1, 0) if device.type == "cpu" else (2, device.index)
    shape = (ctypes.c_int64 * 1)(length)
    found = _Foreign(address, kind, ordinal, 1, 1, 8, 1, shape, None, 0, None, _forget)
    _foreign[ctypes.addressof(found)] = found
    return from_dlpack(_capsule(ctypes.addressof(found), b"dltensor", None))


def copied(address, shape, like):
    """A new tensor of this shape, of like's type and on its device, with what is at the address there. The
    memory has been read when it returns."""
    if like.device.type == "cpu":
        tensor = torch.empty(shape, dtype=like.dtype, device="cpu")  # there may be another default
        if tensor.numel():
            ctypes.memmove(tensor.data_ptr(), address, tensor.numel() * tensor.element_size())
        return tensor
    # On a stream of its own: there is nothing to wait for but the copy itself.
    side = _own_stream(like.device.index, "copied")
    with torch.cuda.stream(side):
        tensor = torch.empty(shape, dtype=like.dtype, device=like.device)
        if tensor.numel():
            data = foreign_bytes(address, tensor.numel() * tensor.element_size(), tensor.device)
            tensor.view(-1).view(torch.uint8).copy_(data)
    used_here(tensor)
    side.synchronize()
    return tensor


def near(kind, tensors):
    """The device of this kind ("cpu", "cuda") on which this rank keeps such tensors: that of one of them, else
    the current one."""
    for tensor in tensors:
        if tensor.device.type == kind:
            return tensor.device
    return torch.device(kind)


def _moved(storage, move):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch 2 is to lose storages that have a type
        return getattr(storage, move)()


def _arrived(storage):
    return _moved(storage, "cuda") if torch.cuda.is_available() else storage


def _leaving(storage):
    """In an object that goes to another rank: what was on a GPU arrives on the GPU that is current there, not
    on that of the same number; where there is none, in the host's memory."""
    if getattr(storage, "_untyped_storage", storage).is_cuda:
        return _arrived, (_moved(storage, "cpu"),)
    return storage.__reduce_ex__(2)


objects.travellers.update(dict.fromkeys(torch._storage_classes, _leaving))
