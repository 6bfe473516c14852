# SPDX-License-Identifier: Apache-2.0
"""Runs the same tests with tensors on a GPU. HVD_TEST_GPU chooses it:

    fake   every tensor is on GPU 0: the fake driver (tests/fake/cuda) treats all of the process's memory as its own.
           torch needs no GPU support. What torch does is not on a stream, so hvd_wait_stream() also makes the
           host wait for the stream (except within ahead()).
    real   tensors are created on this rank's GPU, unless the test chooses another device.

Not set: tensors are in host memory.
"""
import contextlib
import ctypes
import os
import time

import torch

from hvd import _lib
from hvd.torch import _device

MODE = os.environ.get("HVD_TEST_GPU", "")


class _FakeDriver:
    """The fake driver, loaded before anything else looks for libcuda.so.1: it has that soname."""

    def __init__(self, number):
        build = os.path.dirname(os.environ["HVD_LIBRARY"])
        # Each rank has a GPU of its own, unless the test chooses otherwise.
        script = f"unified=1;uuid={0x40 + number};bus={7 + number}"
        os.environ["FAKE_CUDA"] = ";".join(filter(None, [os.environ.get("FAKE_CUDA"), script]))
        os.environ.setdefault("HVD_KERNELS", "/proc/self/exe")  # any file, because the kernels are the fake's
        self.library = ctypes.CDLL(os.path.join(build, "tests", "fake", "cuda.so"), ctypes.RTLD_GLOBAL)
        self.context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.streams = [self._stream(), self._stream()]  # the program's stream, and another one
        self.callbacks = []
        self.ahead = False  # whether the program leaves the stream behind when it has made it wait
        self.control = (ctypes.c_void_p * 9).in_dll(self.library, "fake_cuda_control")  # control.h
        self.stall = ctypes.CFUNCTYPE(None, ctypes.c_bool)(self.control[5])
        self.breaks = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_uint)(self.control[3])
        self.mend = ctypes.CFUNCTYPE(None, ctypes.c_int)(self.control[4])
        self.capture = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint)(self.control[7])
        self.wait_stream = _lib.lib.hvd_wait_stream
        _lib.lib.hvd_wait_stream = self._wait_stream

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        assert code == 0, f"{name}: {code}"

    @contextlib.contextmanager
    def inside(self):
        self.call("cuCtxPushCurrent_v2", self.context)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def _stream(self):
        stream = ctypes.c_void_p()
        with self.inside():
            self.call("cuStreamCreateWithPriority", ctypes.byref(stream), 1, 0)
        return stream

    def _wait_stream(self, handle, stream):
        code = self.wait_stream(handle, stream)
        if not self.ahead:
            self.reach(stream)
        return code

    def reach(self, stream):
        """Returns when the stream has done all its work."""
        with self.inside():
            while self.library.cuStreamQuery(ctypes.c_void_p(stream)) == NOT_READY:
                time.sleep(0.0001)

    def enqueue(self, stream, function):
        """Makes the stream call function when it reaches it."""
        callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: function())
        self.callbacks.append(callback)
        with self.inside():
            self.call("cuLaunchHostFunc", stream, callback, None)


NOT_READY = 600  # CUDA_ERROR_NOT_READY
driver = None
_current = 0  # index of the fake driver's current stream


def _fake_stream(ordinal):
    return driver.streams[_current].value


@contextlib.contextmanager
def beside():
    """Makes another stream current in the block, like torch.cuda.stream()."""
    global _current
    _current = 1
    try:
        yield
    finally:
        _current = 0


@contextlib.contextmanager
def ahead():
    """A block in which torch's work is on the current stream (the test puts it there, by enqueue()), as with a real
    GPU, and the device stands still."""
    driver.ahead = True
    driver.stall(True)
    try:
        yield
    finally:
        driver.stall(False)
        driver.ahead = False
        driver.reach(driver.streams[_current].value)


@contextlib.contextmanager
def _fake_beside(tensor):
    with beside():
        yield


def _number():
    """This process's local rank, before hvd.init()."""
    return int(os.environ.get("HVD_LOCAL_RANK") or os.environ.get("HVD_RANK") or 0)


def enter():
    """Prepares a rank before hvd.init(), which may look for the driver."""
    global driver
    if MODE == "fake" and not driver:
        driver = _FakeDriver(_number())
        _device.stream_of = _fake_stream
        _device.place = lambda tensor: (0, _fake_stream(0))
        _device.on_side_stream = _fake_beside
    elif MODE == "real":
        torch.cuda.set_device(_number() % torch.cuda.device_count())
        torch.set_default_device("cuda")
        # Results are compared with other ways to compute them, so 10-bit mantissas are not allowed.
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    elif MODE not in ("", "fake"):
        raise SystemExit(f"HVD_TEST_GPU={MODE}: want fake or real")


def enqueue(function):
    """Makes the fake driver's current stream call function when it reaches it."""
    driver.enqueue(driver.streams[_current], function)


def late(tensor, value, seconds=0.05):
    """Gives the tensor this value on the current stream, some time after this call has returned."""
    if MODE == "real":
        torch.cuda._sleep(int(seconds * 1.5e9))
        tensor.fill_(value)
        return

    def fill():
        time.sleep(seconds)
        tensor.fill_(value)

    enqueue(fill)
