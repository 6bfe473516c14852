# SPDX-License-Identifier: Apache-2.0
"""Brings an object and blocks of memory from one rank to some others. elastic.py calls it when ranks have
joined, on all ranks at once. The ranks that neither give nor take send and receive nothing: the bytes go
by all-to-all with no rows for them. When everybody else takes (the start of a job) it is a broadcast.
A large block is read and written where it lies; small ones are packed together.

The rank that gives may die on the way: then bring() says so on those that lack something, and they take
from another one.

A Delivery is the same for blocks that are not needed at once: it goes on beside whatever the ranks do.
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

CHUNK = 4 << 20  # bytes of small blocks in one operation: what it costs in memory beside the state itself
LARGE = 64 << 20  # bytes of a large block in one operation
AHEAD = 2

_FAILED, _SOME = 1, 2  # what the length of the pickled object begins with

_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.restype, _view.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]


def memory(address, length):
    """A writable view of memory; it does not keep it alive."""
    return _view(address, length, 0x200) if length else memoryview(bytearray())


def _cut(lengths):
    """Blocks of these lengths in chunks: lists of (block, begin, end). Large ones have chunks of their own,
    small ones travel together."""
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
    """Starts an all-to-all of bytes, rows[r] of them to rank r. The result is for arrive(); it goes to into,
    writable memory, when that has room for it."""
    handle, kept = buffers._submit(
        _lib.ALLTOALL, name, data, into, splits=dims(rows), output_rows=len(into) if into else 0
    )
    return handle, kept, into


def arrive(started, take):
    """Waits for an exchange(); take, if any, sees what has come: the into of the exchange itself when it is
    all there."""
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


class _Road:
    """From one rank to the receivers, a chunk at a time."""

    def __init__(self, source, receivers, name="elastic.state"):
        self.source, self.receivers, self.name = source, receivers, name
        self.gives, self.takes = rank() == source, rank() in receivers
        self.all = len(receivers) == size() - 1
        self.complete = True  # everything has come so far
        self.count = 0
        self.started = collections.deque()  # exchanges, and who takes their results

    def carry(self, blocks, chunks):
        """Moves all chunks of the blocks (bytes-like; on ranks that neither give nor take: None)."""
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
        """The same, without waiting; arrive() is to follow."""
        for pieces in chunks:
            self.count += 1
            self._one_by_one(blocks, pieces, None)

    def arrive(self):
        """Waits for all that is under way, also after a failure: the engine must not work on memory that
        is no more."""
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
            self.complete = False  # the source is dead
        elif data is not into:
            self._scatter(blocks, pieces, data)


def _announce(lead, rounds):
    """What the source says of the transfer, on every rank; zeros when it has died."""
    words = array("q", [lead, rounds])
    buffers.allreduce_(words, "elastic.announce", _lib.MAX)
    return words


def bring(source, receivers, pack, unpack):
    """Collective. pack(), on the source: an object and a list of blocks (writable memoryviews of bytes).
    unpack(object), on a receiver: the blocks to fill, as many and as long. Returns whether this rank has
    all that it should have; when not, source has died."""
    road = _Road(source, receivers)
    given, data, failure = [], bytearray(), None
    if road.gives:
        thing, given = pack()
        data, failure = _try_dump((thing, [len(block) for block in given]))
        lead = _FAILED if failure else _SOME + len(data)
        lead, rounds = _announce(lead, len(_cut([len(block) for block in given])))
    else:
        lead, rounds = _announce(0, 0)
    if failure:
        raise failure
    if lead == _FAILED:
        raise HvdError(f"elastic: rank {source} could not pickle its state")
    if lead == 0:
        return not road.takes
    if road.takes:
        data = bytearray(lead - _SOME)
    road.carry([memoryview(data)], _cut([lead - _SOME]))
    if not road.takes:
        road.carry(given, _cut([len(block) for block in given]) if road.gives else [[]] * rounds)
        return True
    if not road.complete:  # take part in the rest all the same
        if not road.all:
            road.carry(None, [[]] * rounds)
        return False
    thing, lengths = pickle.loads(data)
    road.carry(unpack(thing), _cut(lengths))
    return road.complete


def rounds_of(blocks):
    """How many rounds a Delivery of these blocks takes."""
    return len(_cut([len(block) for block in blocks]))


class Delivery:
    """Blocks from source to receivers, while all ranks go on. Collective: every rank starts it, and has it
    arrive before the next boundary. blocks: of the source and the receivers, as many and as long; they stay
    as they are until it has arrived. rounds: rounds_of() them, known to all. What the engine is given
    after start() comes after it. Small blocks are copied on the way, all of them at once."""

    def __init__(self, source, receivers, blocks, rounds):
        self._road = _Road(source, receivers, "elastic.later")
        takes_part = self._road.gives or self._road.takes
        self._blocks = blocks if takes_part else None
        self._chunks = _cut([len(block) for block in blocks]) if takes_part else [[]] * rounds
        self.ops = 0  # submitted by start()
        self.takes = self._road.takes
        self.arrived = None  # has all come that this rank should have; None: not waited for yet

    def start(self):
        self.ops = len(self._chunks) * len(self._road.receivers)
        self._road.send(self._blocks, self._chunks)

    def arrive(self):
        """Waits for this rank's part. Returns arrived."""
        self._road.arrive()
        self.arrived = self._road.complete
        return self.arrived

    def drop(self):
        """Waits, whatever comes of it: the blocks are the caller's again."""
        try:
            self._road.arrive()
        except HvdError:
            pass  # the world is broken, as the caller knows
