# SPDX-License-Identifier: Apache-2.0
"""Messages between two ranks (hvd.messages) with tensors, on GPUs too. Ranks are those of the job. A message of a CUDA
tensor begins after the work that is on the current stream at the call. wait() waits on the host: then any stream may use
the tensor."""
import ctypes

from .. import messages
from ..process_sets import global_process_set
from . import _device
from ._collectives import _touched
from ._request import usable


def _bytes_of(tensor):
    """The memory of a contiguous tensor as a buffer, which does not keep it alive. On a GPU only its address and its
    length may be used."""
    count = tensor.numel() * tensor.element_size()
    return (ctypes.c_char * count).from_address(tensor.data_ptr()) if count else bytearray()


class InFlight:
    """A message that isend() or irecv() has submitted. Its tensor stays alive until the message has
    ended."""

    def __init__(self, tensor, peer, tag, process_set, receives):
        self._tensor, self._receives = usable(tensor, receives), receives
        direction = messages._RECV if receives else messages._SEND
        data, place = _bytes_of(self._tensor), _device.place(self._tensor)
        self._message = messages.InFlight(direction, data, peer, tag, process_set, place)
        self._message.hold(self._tensor)

    def done(self):
        """Whether it has ended. Does not wait."""
        return self._message.done()

    def wait(self):
        """Waits for its end. Returns the rank of the sender if it is a receive, else None. HvdError: it failed, or
        the message is smaller or larger than the tensor."""
        sender = self._message.wait()
        if self._receives:
            _touched(self._tensor)
        return sender


def isend(tensor, dst, tag=0, process_set=global_process_set):
    """Sends a tensor to rank dst. Returns an InFlight. Do not change the tensor before its wait() has returned."""
    return InFlight(tensor, dst, tag, process_set, False)


def irecv(tensor, src=None, tag=0, process_set=global_process_set):
    """Receives into a contiguous tensor from rank src; None: from any. Returns an InFlight."""
    return InFlight(tensor, src, tag, process_set, True)


def send(tensor, dst, tag=0, process_set=global_process_set):
    """Sends a tensor to rank dst, and waits until it may be changed. A large one, or one on a GPU, waits for the
    receiver."""
    isend(tensor, dst, tag, process_set).wait()


def recv(tensor, src=None, tag=0, process_set=global_process_set):
    """Receives into a contiguous tensor from rank src; None: from any. Returns the sender's rank."""
    return irecv(tensor, src, tag, process_set).wait()
