# SPDX-License-Identifier: Apache-2.0
"""Tensors on GPUs: their device and stream for the engine, and access to the engine's memory on a GPU. Other
modules use of torch.cuda only the GradScaler class (_scaler.py); a program without CUDA tensors never
initializes CUDA.

The engine starts an operation after the work that is queued on the request's stream at submission. When a
wait has returned, the current stream of that wait may use the results (_enqueued.py).

torch's caching allocator reuses the memory of a freed tensor for the next tensor of the same stream. A
tensor that another stream uses must therefore be kept alive until that stream is done, or be recorded on it
(used_here()).
"""
import contextlib
import ctypes
import warnings

import torch
from torch.utils.dlpack import from_dlpack

from .. import objects

HOST = -1, None  # place() of a tensor in host memory


def stream_of(ordinal):
    """The CUstream handle of the current stream on that GPU."""
    return torch.cuda.current_stream(ordinal).cuda_stream


# Gets the handle without creating a Stream object: this is called for every gradient of every step.
stream_of = getattr(torch._C, "_cuda_getCurrentRawStream", stream_of)


def need(tensor):
    """Raises ValueError unless the tensor is in host memory or on an NVIDIA GPU."""
    kind = tensor.device.type
    if kind != "cpu" and (kind != "cuda" or getattr(torch.version, "hip", None)):
        raise ValueError(f"a tensor on {tensor.device} is not supported: only CPU and CUDA tensors are")


def place(tensor):
    """(ordinal, stream): the tensor's GPU and the current stream there; HOST for a CPU tensor."""
    device = tensor.device
    return HOST if device.type == "cpu" else (device.index, stream_of(device.index))


_streams = {}  # our own streams, by GPU


@contextlib.contextmanager
def on_side_stream(tensor):
    """A context whose CUDA work runs on a stream of our own on the tensor's GPU. It starts after the work
    queued on the current stream, and does not delay that stream."""
    if tensor.device.type == "cpu":
        yield
        return
    ordinal = tensor.device.index
    if ordinal not in _streams:
        _streams[ordinal] = torch.cuda.Stream(ordinal)
    side = _streams[ordinal]
    side.wait_stream(torch.cuda.current_stream(ordinal))
    with torch.cuda.stream(side):
        yield


def used_here(tensor):
    """Records that the current stream uses a tensor that may have been allocated on another stream."""
    if tensor.device.type == "cuda":
        tensor.record_stream(torch.cuda.current_stream(tensor.device.index))


def settled(tensors, origin):
    """Hands results to the caller's current stream. origin: place() at the submission."""
    ordinal, stream = origin
    if ordinal >= 0 and stream_of(ordinal) != stream:
        for tensor in tensors:
            used_here(tensor)


class _Foreign(ctypes.Structure):
    """DLPack's DLManagedTensor: makes a tensor of memory that torch did not allocate, without numpy."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),  # 1: host memory, 2: CUDA
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


_foreign = {}  # {address: _Foreign} of tensors that still exist
_forget = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda at: _foreign.pop(at) and None)
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def foreign_bytes(address, length, device):
    """A uint8 tensor of the bytes at an address of that device. The caller keeps the memory alive."""
    kind, ordinal = (1, 0) if device.type == "cpu" else (2, device.index)
    shape = (ctypes.c_int64 * 1)(length)
    found = _Foreign(address, kind, ordinal, 1, 1, 8, 1, shape, None, 0, None, _forget)
    _foreign[ctypes.addressof(found)] = found
    return from_dlpack(_capsule(ctypes.addressof(found), b"dltensor", None))


def copied(address, shape, like):
    """Copies from an address on like's device, on a GPU with the current stream. Returns a new tensor of this
    shape, with like's dtype and device, and an event after the copy, or None if the copy is complete."""
    tensor = torch.empty(shape, dtype=like.dtype, device=like.device)  # the default device may be another one
    length = tensor.numel() * tensor.element_size()
    if like.device.type == "cpu":
        if length:
            ctypes.memmove(tensor.data_ptr(), address, length)
        return tensor, None
    if length:
        tensor.view(-1).view(torch.uint8).copy_(foreign_bytes(address, length, tensor.device))
    return tensor, torch.cuda.current_stream(like.device.index).record_event()


def near(kind, tensors):
    """The device of this kind ("cpu", "cuda") for a new tensor: that of one of the tensors, else the
    current one.
    """
    for tensor in tensors:
        if tensor.device.type == kind:
            return tensor.device
    return torch.device(kind)


def _moved(storage, move):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch 2 deprecates typed storages
        return getattr(storage, move)()


def _restored(storage):
    return _moved(storage, "cuda") if torch.cuda.is_available() else storage


def _reduce_storage(storage):
    """Reduce function for pickling storages: data from a GPU is restored on the receiver's current GPU,
    not on the GPU of the same number; without a GPU, in host memory."""
    if getattr(storage, "_untyped_storage", storage).is_cuda:
        return _restored, (_moved(storage, "cpu"),)
    return storage.__reduce_ex__(2)


objects.reducers.update(dict.fromkeys(torch._storage_classes, _reduce_storage))
