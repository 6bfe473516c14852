# SPDX-License-Identifier: Apache-2.0
"""The same tests with tensors on a GPU, by HVD_TEST_GPU:

    fake   every tensor is one of GPU 0's: a driver of ours (tests/fake/cuda) takes all of the process's memory
           for its own. torch itself need not know any GPU.
    real   tensors are made on this rank's GPU where a test does not say otherwise.

Not set: tensors are in the host's memory.
"""
import contextlib
import ctypes
import os

import torch

from hvd.torch import _device

MODE = os.environ.get("HVD_TEST_GPU", "")


class _FakeDriver:
    """Loaded before anybody looks for libcuda.so.1: it has that soname."""

    def __init__(self, number):
        build = os.path.dirname(os.environ["HVD_LIBRARY"])
        # A GPU of its own for each rank, unless the test says otherwise.
        script = f"unified=1;uuid={0x40 + number};bus={7 + number}"
        os.environ["FAKE_CUDA"] = ";".join(filter(None, [os.environ.get("FAKE_CUDA"), script]))
        os.environ.setdefault("HVD_KERNELS", "/proc/self/exe")  # any file: the kernels are the fake's
        self.library = ctypes.CDLL(os.path.join(build, "tests", "fake", "cuda.so"), ctypes.RTLD_GLOBAL)
        self.context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.streams = [self._stream(), self._stream()]  # the program's, and one beside it
        self.callbacks = []

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

    def enqueue(self, stream, function):
        """Has the stream call function when it comes to it."""
        callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: function())
        self.callbacks.append(callback)
        with self.inside():
            self.call("cuLaunchHostFunc", stream, callback, None)


driver = None
_current = 0  # which of the fake driver's streams


def _fake_stream(ordinal):
    return driver.streams[_current].value


@contextlib.contextmanager
def beside():
    """Another stream is current in the block, as with torch.cuda.stream()."""
    global _current
    _current = 1
    try:
        yield
    finally:
        _current = 0


@contextlib.contextmanager
def _fake_beside(tensor):
    with beside():
        yield


def _number():
    """Of this process on its host; hvd.init() is still to come."""
    return int(os.environ.get("HVD_LOCAL_RANK") or os.environ.get("HVD_RANK") or 0)


def enter():
    """At the start of a rank, before hvd.init(), which may look for the driver."""
    global driver
    if MODE == "fake" and not driver:
        driver = _FakeDriver(_number())
        _device._stream_of = _fake_stream
        _device.place = lambda tensor: (0, _fake_stream(0))
        _device.on_side_stream = _fake_beside
    elif MODE == "real":
        torch.cuda.set_device(_number() % torch.cuda.device_count())
        torch.set_default_device("cuda")
        # Results are compared with those of other ways to compute them: no 10-bit mantissas.
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    elif MODE not in ("", "fake"):
        raise SystemExit(f"HVD_TEST_GPU={MODE}: want fake or real")


def late(tensor, value, seconds=0.05):
    """The tensor gets this value on the stream that is current, some time after this call has returned."""
    if MODE == "real":
        torch.cuda._sleep(int(seconds * 1.5e9))
        tensor.fill_(value)
        return
    import time

    def fill():
        time.sleep(seconds)
        tensor.fill_(value)

    driver.enqueue(driver.streams[_current], fill)
