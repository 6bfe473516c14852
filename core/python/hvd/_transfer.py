# SPDX-License-Identifier: Apache-2.0
"""Transfers an object and blocks of memory from one rank to some others. _state.py calls it on all ranks
when ranks have joined. The bytes go by all-to-all, so that ranks which neither send nor receive
exchange no payload. If all other ranks receive (at the start of a job) it is a broadcast. Large blocks
are sent from and received into their own memory; small ones are packed together.

When the source is lost during the transfer, transfer() returns False on the ranks that lack something, and
they receive from another rank.

A BackgroundTransfer does the same for blocks that are not needed at once, while the ranks go on.
"""
import collections
import ctypes
import errno
import functools
import pickle
from array import array

from . import _lib, buffers
from ._lib import HvdError, Result, check, dims, lib
from .objects import _try_dump
from .world import rank, size

CHUNK = 4 << 20  # bytes of small blocks in one operation: the extra memory that a transfer needs
LARGE = 64 << 20  # bytes of a large block in one operation
AHEAD = 2  # operations in flight

# Header of a transfer: 0: the source was lost; _FAILED: it could not pickle; else _SOME + length of the object.
_FAILED, _SOME = 1, 2

_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.restype, _view.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]


def memory(address, length):
    """A writable view of memory, which the caller keeps alive."""
    return _view(address, length, 0x200) if length else memoryview(bytearray())


def _cut(lengths):
    """Divides blocks of these lengths into chunks: lists of (block, begin, end). Large blocks have chunks
    of their own, small ones share chunks."""
    chunks, small, room = [], None, 0
    for block, length in enumerate(lengths):
        if length > CHUNK // 4:
            chunks += [[(block, begin, min(length, begin + LARGE))] for begin in range(0, length, LARGE)]
        elif length:
            if length > room:
                small, room = [], CHUNK
                chunks.append(small)
            small.append((block, 0, length))
            room -= length
    return chunks


def exchange(name, data, rows, into=None):
    """Starts an all-to-all of bytes, rows[r] of them to rank r. Returns what arrive() needs. The result is
    written to into, writable memory, if it fits."""
    handle, kept = buffers._submit(
        _lib.ALLTOALL, name, data, into, splits=dims(rows), output_rows=len(into) if into else 0
    )
    return handle, kept, into


def arrive(started, take):
    """Waits for an exchange(). take (or None) is called with the received bytes: with into itself if they
    are there."""
    handle, (_, target), into = started
    check(lib.hvd_wait(handle))
    try:
        if take:
            found = Result()
            check(lib.hvd_result(handle, ctypes.byref(found)))
            placed = target and found.data == ctypes.addressof(target) and found.shape[0] == len(into)
            take(into if placed else memory(found.data, found.shape[0]))
    finally:
        lib.hvd_release(handle)


class _Channel:
    """Sends chunks from one rank to the receivers."""

    def __init__(self, source, receivers, name="elastic.state"):
        self.source, self.receivers, self.name = source, receivers, name
        self.gives, self.takes = rank() == source, rank() in receivers
        self.all = len(receivers) == size() - 1
        self.complete = True  # everything so far has been received
        self.count = 0
        self.started = collections.deque()  # exchanges in flight, and the function that takes each result

    def carry(self, blocks, chunks):
        """Sends all chunks of the blocks (bytes-like; None on ranks that neither send nor receive) and
        waits."""
        try:
            for pieces in chunks:
                self.count += 1
                if self.all:
                    self._broadcast(blocks, pieces)
                else:
                    self._one_by_one(blocks, pieces, AHEAD)
        finally:
            self.arrive()

    def send(self, blocks, chunks):
        """Like carry(), but does not wait for the chunks; arrive() has to follow."""
        for pieces in chunks:
            self.count += 1
            self._one_by_one(blocks, pieces, None)

    def arrive(self):
        """Waits for everything in flight, also after a failure: the engine must not use memory that has
        been freed."""
        try:
            while self.started:
                arrive(*self.started.popleft())
        finally:
            for started, _ in self.started:
                lib.hvd_wait(started[0])
            self.started.clear()

    def _gather(self, blocks, pieces):
        if len(pieces) == 1:
            block, begin, end = pieces[0]
            return blocks[block][begin:end]
        return bytearray().join(blocks[block][begin:end] for block, begin, end in pieces)

    def _scatter(self, blocks, pieces, data):
        place = 0
        for block, begin, end in pieces:
            blocks[block][begin:end] = data[place : place + end - begin]
            place += end - begin

    def _broadcast(self, blocks, pieces):
        if self.gives or len(pieces) == 1:
            data = self._gather(blocks, pieces)
        else:
            data = bytearray(sum(end - begin for _, begin, end in pieces))
        try:
            buffers.broadcast_(data, self.source, f"{self.name}.{self.count}")
        except HvdError as reason:
            if reason.errno != errno.EOWNERDEAD:
                raise
            self.complete = False
            return
        if not self.gives and len(pieces) > 1:
            self._scatter(blocks, pieces, data)

    def _one_by_one(self, blocks, pieces, ahead):
        data = memoryview(self._gather(blocks, pieces) if self.gives else bytearray())
        for receiver in self.receivers:
            rows = [0] * size()
            rows[receiver] = len(data)
            into = take = None
            if receiver == rank():
                into = self._gather(blocks, pieces) if len(pieces) == 1 else None
                take = functools.partial(self._take, blocks, pieces, into)
            self.started.append((exchange(f"{self.name}.{self.count}.{receiver}", data, rows, into), take))
            if ahead is not None and len(self.started) > ahead:
                arrive(*self.started.popleft())

    def _take(self, blocks, pieces, into, data):
        if not pieces or len(data) != sum(end - begin for _, begin, end in pieces):
            self.complete = False  # the source was lost
        elif data is not into:
            self._scatter(blocks, pieces, data)


def _announce(header, rounds):
    """Collective: the source's header and number of rounds, on every rank; zeros when the source was lost."""
    words = array("q", [header, rounds])
    buffers.allreduce_(words, "elastic.announce", _lib.MAX)
    return words


def transfer(source, receivers, pack, unpack):
    """Collective: transfers an object and blocks from source to receivers.

    pack(), called on the source, returns the object and a list of blocks (writable memoryviews of bytes).
    unpack(object), called on a receiver, returns as many blocks of the same lengths to receive into.
    Returns False on a receiver that lacks something because source was lost, True otherwise. Raises
    HvdError on all ranks when the source cannot pickle the object."""
    channel = _Channel(source, receivers)
    given, data, failure = [], bytearray(), None
    if channel.gives:
        thing, given = pack()
        data, failure = _try_dump((thing, [len(block) for block in given]))
        header = _FAILED if failure else _SOME + len(data)
        header, rounds = _announce(header, len(_cut([len(block) for block in given])))
    else:
        header, rounds = _announce(0, 0)
    if failure:
        raise failure
    if header == _FAILED:
        raise HvdError(f"elastic: rank {source} could not pickle its state; the error is in its output")
    if header == 0:
        return not channel.takes
    if channel.takes:
        data = bytearray(header - _SOME)
    channel.carry([memoryview(data)], _cut([header - _SOME]))
    if not channel.takes:
        channel.carry(given, _cut([len(block) for block in given]) if channel.gives else [[]] * rounds)
        return True
    if not channel.complete:  # the source was lost: only takes part in the other operations
        if not channel.all:
            channel.carry(None, [[]] * rounds)
        return False
    thing, lengths = pickle.loads(data)
    channel.carry(unpack(thing), _cut(lengths))
    return channel.complete


def rounds_of(blocks):
    """How many rounds a BackgroundTransfer of these blocks takes."""
    return len(_cut([len(block) for block in blocks]))


class BackgroundTransfer:
    """Transfers blocks from source to receivers while all ranks go on. Collective: every rank calls
    start(), and arrive() before the next boundary.

    blocks: on the source and the receivers, as many of the same lengths; they must not change until
    arrive() returns. rounds: rounds_of() the blocks, known to all ranks. Operations submitted after start()
    run after the transfer. Small blocks are copied, all of them when it starts."""

    def __init__(self, source, receivers, blocks, rounds):
        self._channel = _Channel(source, receivers, "elastic.later")
        takes_part = self._channel.gives or self._channel.takes
        self._blocks = blocks if takes_part else None
        self._chunks = _cut([len(block) for block in blocks]) if takes_part else [[]] * rounds
        self.ops = 0  # submitted by start()
        self.takes = self._channel.takes
        self.arrived = None  # whether this rank has received everything; None: not waited for yet

    def start(self):
        self.ops = len(self._chunks) * len(self._channel.receivers)
        self._channel.send(self._blocks, self._chunks)

    def arrive(self):
        """Waits for this rank's part. Returns arrived."""
        self._channel.arrive()
        self.arrived = self._channel.complete
        return self.arrived

    def drop(self):
        """Waits and ignores failures; after that the caller may change the blocks."""
        try:
            self._channel.arrive()
        except HvdError:
            pass  # the world has failed; the caller knows it
