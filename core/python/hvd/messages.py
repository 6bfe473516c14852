# SPDX-License-Identifier: Apache-2.0
"""Messages between two ranks: the bytes of buffers (numpy arrays, bytearrays, memoryviews), by tag.

    if hvd.rank() == 0:
        hvd.send(array, 1)
    elif hvd.rank() == 1:
        sender = hvd.recv(array)            # overwrites array; from any rank

Messages from one rank to another one with equal tags are received in the order in which they were sent. Ranks are those of
the job, also in a process set. A message has exactly the bytes of the buffer that receives it.

In an elastic job only messages with a rank that is lost fail (HvdError with errno.EOWNERDEAD). Between ranks that stay each
message comes exactly once, also if it is sent before commit() and received after it.
"""
import ctypes
import errno
import operator

from ._lib import Arrival, HvdError, Message, check, lib
from .buffers import _address, _memory, _view
from .process_sets import checked, global_process_set, request_set
from .world import at_shutdown

_SEND, _RECV, _ANY = 0, 1, -1


_dropped = []  # (handle, memory) of messages whose InFlight is gone before they have ended
at_shutdown.append(_dropped.clear)


def _forget_ended():
    """Looks at each of them once. Each is taken out first, since other threads may look at the same time."""
    for _ in range(len(_dropped)):
        try:
            message = _dropped.pop(0)
        except IndexError:
            return
        if lib.hvd_poll(message[0]) == 0:
            _dropped.append(message)
        else:
            lib.hvd_release(message[0])


def _int32(what, value):
    """The value, of which ctypes would silently take the low 32 bits."""
    if not hasattr(value, "__index__"):
        raise TypeError(f"{what} should be an integer, got {value!r}")
    if not -(2**31) <= operator.index(value) < 2**31:
        raise ValueError(f"{what} {value} does not fit into 32 bits")
    return value


class InFlight:
    """A message that isend() or irecv() has submitted. Its buffer stays alive until the message has ended, also if this
    object is dropped."""

    def __init__(self, direction, data, peer, tag, process_set, place=(-1, None)):
        self._handle = ctypes.c_int64(0)
        self._set, self._failure = process_set, None
        if direction == _SEND and peer is None:
            raise ValueError("a message is sent to a rank, not to None")
        if peer is not None and _int32("a rank", peer) < 0:
            raise ValueError(f"there is no rank {peer}")
        checked(process_set)
        _forget_ended()
        self._arrival = Arrival()
        view = _view(data, direction == _RECV)
        memory = _memory(view)
        self._bytes, self._kept = view.nbytes, (data, memory, self._arrival)  # what the library reads and writes
        message = Message(
            direction=direction,
            peer=_ANY if peer is None else _int32("rank", process_set.number_of(peer)),
            tag=_int32("tag", tag),
            set=request_set(process_set),
            device=place[0],
            data=_address(memory),
            bytes=self._bytes,
            ret_arrival=ctypes.pointer(self._arrival) if direction == _RECV else None,
            stream=place[1],
        )
        code = lib.hvd_exchange_sized(ctypes.byref(message), ctypes.sizeof(message), 1, ctypes.byref(self._handle))
        check(code)
        self._receives = direction == _RECV

    def __del__(self):
        if self._handle.value and lib.hvd_initialized():
            _dropped.append((self._handle.value, self._kept))

    def hold(self, owner):
        """Keeps the owner of the buffer's memory alive, too."""
        self._kept = (owner, self._kept)

    def done(self):
        """Whether it has ended. Does not wait."""
        return self._handle.value == 0 or check(lib.hvd_poll(self._handle)) == 1

    def wait(self):
        """Waits for its end. Returns the rank of the sender if it is a receive, else None. The second call returns
        the same at once. HvdError: it failed, or the message is smaller or larger than the buffer."""
        handle, self._handle = self._handle, ctypes.c_int64(0)
        if handle.value:
            code = lib.hvd_wait(handle)
            self._kept = None
            try:
                check(code)
            except HvdError as failure:
                self._failure = failure
        if self._failure:
            raise self._failure
        if not self._receives:
            return None
        sender = self._set.ranks[self._arrival.peer]
        if self._arrival.bytes != self._bytes:
            text = f"the message of rank {sender} has {self._arrival.bytes} bytes, and the buffer {self._bytes}"
            raise HvdError(text, errno.EMSGSIZE)
        return sender


def isend(data, dst, tag=0, process_set=global_process_set):
    """Sends a buffer to rank dst. Returns an InFlight. Do not change the buffer before its wait() has returned."""
    return InFlight(_SEND, data, dst, tag, process_set)


def irecv(data, src=None, tag=0, process_set=global_process_set):
    """Receives into a buffer from rank src; None: from any rank of the set. Returns an InFlight."""
    return InFlight(_RECV, data, src, tag, process_set)


def send(data, dst, tag=0, process_set=global_process_set):
    """Sends a buffer to rank dst, and waits until it may be changed. A large one waits for the receiver."""
    isend(data, dst, tag, process_set).wait()


def recv(data, src=None, tag=0, process_set=global_process_set):
    """Receives into a buffer from rank src; None: from any. Returns the sender's rank."""
    return irecv(data, src, tag, process_set).wait()
