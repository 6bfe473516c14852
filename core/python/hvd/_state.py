# SPDX-License-Identifier: Apache-2.0
"""The state of an elastic program: saved and restored in memory, and sent to joiners. The text of hvd.elastic
explains how a program uses it."""
import copy
import functools
import os
import pickle
import sys
import zlib
from array import array

from . import _lib, _membership, _transfer, buffers
from ._lib import HvdError
from .sampler import ElasticSampler
from .world import enter, rank, size, stats

_TRIES = 16  # attempts to send the state to joiners: one more each time the sending rank is lost


def _call_site():
    """A hash of the call stack outside this package: of file names and line numbers."""
    frame, lines = sys._getframe(1), []
    while frame:
        module = frame.f_globals.get("__name__", "")
        if module != "hvd" and not module.startswith("hvd."):
            lines.append((os.path.basename(frame.f_code.co_filename), frame.f_lineno))
        frame = frame.f_back
    return zlib.crc32(repr(lines).encode()) + 1


class State:
    """The training state of a program. Derived classes implement save(), restore() and sync().

    bcast_object and get_rank are ignored; they are there for programs written for Horovod.
    """

    def __init__(self, bcast_object=None, get_rank=None):
        self._reset_callbacks, self._resize_callbacks = [], []
        self._size = None  # size() when the callbacks were last called
        self._interrupt = (_membership.setting("ELASTIC_INTERRUPT") or "0") not in ("0", "false")

    def register_reset_callbacks(self, callbacks):
        """Registers functions without arguments that are called when the world has changed. They run on
        the ranks that were in the world before, and on a joiner whose rank() or size() changed when it
        entered. rank() and size() are the new ones then; joiners receive the state as it is after these
        calls. The functions must not use collective operations."""
        self._reset_callbacks.extend(callbacks)

    def register_resize_callbacks(self, callbacks):
        """Like register_reset_callbacks, for functions of (old size, new size) that are called when these
        differ, for instance to scale a learning rate (scale_lr) or a batch."""
        self._resize_callbacks.extend(callbacks)

    def _enter(self):
        """Enters the world at the others' next boundary, if this rank is waiting. If its rank or size
        changes thereby, calls the callbacks, which rebuild what depends on them. Returns whether it was
        waiting."""
        if not _membership.world().waiting:
            return False
        before = rank(), size()
        enter()
        if (rank(), size()) != before:
            self._size = before[1]
            self.on_reset()
        return True

    def on_reset(self):
        """Calls the reset callbacks, and the resize callbacks if the size has changed."""
        old, self._size = self._size, size()
        for callback in self._reset_callbacks:
            callback()
        if old not in (None, self._size):
            for callback in self._resize_callbacks:
                callback(old, self._size)

    def reset(self):
        """Called by run() after restore(), when this process has joined a new world, and by the sync() of
        ObjectState at the start of a job."""

    def commit(self):
        """Collective: saves a copy of the state in memory, to which run() returns when repair is
        impossible, and lets ranks join and leave. check_host_updates() omits the copy and is cheap
        enough for every step.

        Raises Left on a rank that was asked to leave."""
        self._boundary(True)

    def check_host_updates(self):
        """Collective: lets ranks join and leave, without saving a copy of the state. Raises Left as
        commit() does.
        """
        self._boundary(False)

    def _boundary(self, save):
        if self._enter():
            self.sync()
            return
        if save:
            self.save()
        if _membership.commit():
            self._adapt()

    def _adapt(self):
        if self._interrupt:
            raise _membership.HostsUpdatedInterrupt()
        self.on_reset()
        self.sync()

    def settle(self):
        """Collective: completes what sync() has begun. Does nothing in classes whose sync() is complete."""

    def save(self):
        """Saves a copy of the state in memory."""
        raise NotImplementedError()

    def restore(self):
        """Restores the saved copy."""
        raise NotImplementedError()

    def sync(self):
        """Collective: sends the newest state to the ranks that have none or an older one. At the start of
        a job all ranks get that of rank 0."""
        raise NotImplementedError()


class ObjectState(State):
    """A state of values that can be pickled, and of ElasticSamplers. Each keyword argument becomes an
    attribute.

    A program without run() must call sync() before the first step: joiners wait in it for the state.
    """

    def __init__(self, bcast_object=None, get_rank=None, **kwargs):
        self._samplers = {n: v for n, v in kwargs.items() if isinstance(v, ElasticSampler)}
        self._attributes = [n for n in kwargs if n not in self._samplers]
        for name, value in kwargs.items():
            setattr(self, name, value)
        super().__init__(bcast_object, get_rank)
        self._version = 0  # how often the state was saved by commit(), plus 1; 0: not synchronized yet
        self._saved_version = 0  # _version of the saved copy; 0 until the first commit() of this rank
        self._elastic = None  # whether the job is elastic; None: not asked yet
        self._changed = False  # the world has changed and the samplers are not repartitioned yet
        self._place = 0  # the call site of the commit that changed the world; 0: none since sync()
        # Until a joiner's first commit: the call site of the commit at which it joined, and its _mark() then.
        self._arrived = None
        self._later, self._delivery = [], None  # blocks that follow, and their BackgroundTransfer
        ObjectState.save(self)

    def _values(self):
        return {name: getattr(self, name) for name in self._attributes}

    def save(self):
        self._saved = copy.deepcopy(self._values())
        self._saved_samplers = {n: s.shared() for n, s in self._samplers.items()}
        self._is_saved = True

    def restore(self):
        """Restores the saved copy. A joiner that has not saved yet keeps its state: a rank that has a copy
        sends it the state again."""
        if self._is_saved:
            self._restore()
        self._version = self._saved_version
        self._changed, self._place, self._arrived = False, 0, None
        self._end_delivery()

    def _restore(self):
        for name, value in copy.deepcopy(self._saved).items():
            setattr(self, name, value)
        for name, sampler in self._samplers.items():
            sampler.adopt(self._saved_samplers[name], sampler.progress()[0])

    def reset(self):
        for sampler in self._samplers.values():
            sampler.reset()
        self._elastic = None

    # ---- a boundary -----------------------------------------------------------------------------

    def _boundary(self, save):
        if self._enter():
            self.sync()
            return
        if self._just_arrived():
            if save:
                self.save()
            return
        self.settle()
        self._agree()
        self._version = max(self._version, 1)
        if save:
            self.save()
            self._version += 1
            self._saved_version = self._version
        if _membership.commit():
            self._changed, self._place = True, _call_site()
            self._adapt()
            return
        for sampler in self._samplers.values():
            sampler.unchanged()

    def _agree(self):
        """Collective: distributes the samplers' reports of all ranks. A rank whose report is in the sum
        has reached this commit. All survivors get the same sum."""
        if not self._samplers:
            return
        if self._elastic is None:
            self._elastic = _membership.world().elastic
        words = [word for sampler in self._samplers.values() for word in sampler.report()]
        ranks, width = size(), len(words)
        reports = array("q", words * ranks)  # in a fixed job all ranks are as far as this one
        if self._elastic:
            reports = array("q", bytes(8 * width * ranks))
            reports[rank() * width : (rank() + 1) * width] = array("q", words)
            buffers.allreduce_(reports, f"elastic.told.{width}.{ranks}", _lib.SUM)
        for i, sampler in enumerate(self._samplers.values()):
            sampler.agree([tuple(reports[r * width + 2 * i : r * width + 2 * i + 2]) for r in range(ranks)])

    def _adapt(self):
        if self._interrupt:
            for sampler in self._samplers.values():
                sampler.rewind()
        super()._adapt()

    def _mark(self):
        """A mark of this rank's progress: it changes with every operation and every change of the state."""
        done = [(s.epoch, s.report()) for s in self._samplers.values()]
        ops = stats()["submitted"] - (self._delivery.ops if self._delivery else 0)
        return ops, done, zlib.crc32(pickle.dumps(self._values()))

    def _just_arrived(self):
        """Whether a joiner's first commit is the very boundary at which it has joined. So it is in a
        program that commits at the beginning of each step: same call site, and nothing has happened in
        between."""
        arrived, self._arrived = self._arrived, None
        return arrived is not None and arrived == (_call_site(), self._mark())

    # ---- transfer of the state to joiners -------------------------------------------------------

    def sync(self):
        self._enter()
        self.settle()
        for _ in range(_TRIES):
            rows = self._meet()
            versions = {r: row[1] for r, row in rows.items()}
            newest = max(versions.values())
            source = min(r for r in rows if versions[r] == newest)
            newest = max(newest, 0)
            lacking = [r for r in rows if r != source and (newest == 0 or versions[r] < newest)]
            if not newest:
                self.reset()  # the world may have changed since the samplers were made
            elif self._changed and self._version:
                self._repartition(rows)
            if self._hand_over(source, lacking, apart=0 < len(lacking) < len(rows) - 1):
                self._settled(newest, rows[source][2] if rank() in lacking or self._interrupt else 0)
                if self._delivery:
                    _membership.unsettled.append(self)
                    self._delivery.start()
                return
            if _membership.commit():  # the source was lost: after this boundary the world is without it
                self._changed = True
                self.on_reset()
        raise HvdError(f"elastic: joiners have no state after {_TRIES} tries: each sending rank was lost")

    def _meet(self):
        """Collective: {rank: [rank, version, call site, and progress() of each sampler]} of the ranks that
        are not lost.
        """
        # -1, the lowest: a joiner that had no saved copy to restore when repair was impossible.
        mine = [rank(), self._version if self._version or self._is_saved else -1, self._place]
        for sampler in self._samplers.values():
            mine.extend(sampler.progress())
        words = buffers.allgather(array("q", mine), "elastic.meet").tolist()
        rows = [words[i : i + len(mine)] for i in range(0, len(words), len(mine))]
        return {row[0]: row for row in rows}

    def _repartition(self, rows):
        self._changed = False
        for i, sampler in enumerate(self._samplers.values()):
            progress = {r: tuple(row[3 + 3 * i : 6 + 3 * i]) for r, row in rows.items() if row[1] > 0}
            sampler.repartition(rank(), size(), progress)

    def _hand_over(self, source, lacking, apart):
        """Collective: sends the state from source to the ranks in lacking. Returns False, on all ranks,
        when source was lost. apart: blocks that are not needed at once may follow while the other ranks
        train."""
        if not lacking:
            return True
        self._finish, self._later = None, []
        pack = functools.partial(self._pack, apart)
        lost = not _transfer.transfer(source, lacking, pack, self._unpack)
        words = array("q", [lost, 0 if lost else _transfer.rounds_of(self._later)])
        buffers.allreduce_(words, "elastic.lost", _lib.MAX)
        lost, rounds = words
        if not lost and rank() in lacking:
            self._finish()
        if not lost and rounds:
            self._delivery = _transfer.BackgroundTransfer(source, lacking, self._later, rounds)
        return not lost

    def settle(self):
        """Collective: waits until joiners have the complete state, of which a part follows while the ranks
        train. Does nothing when no transfer is in flight. Every boundary calls it, and step() of
        hvd.torch.DistributedOptimizer does."""
        if not self._delivery:
            return
        lacks = not self._arrive()
        for _ in range(_TRIES):
            words = buffers.allgather(array("q", [rank(), lacks]), "elastic.lacks").tolist()
            lacking = [r for r, lacking in zip(words[::2], words[1::2]) if lacking]
            if not lacking:
                self._end_delivery()
                return
            if len(lacking) == len(words) // 2:
                raise HvdError("elastic: all ranks with the complete state were lost: restart from a checkpoint")
            source = min(set(words[::2]) - set(lacking))  # the first source was lost
            lacks = not _transfer.transfer(source, lacking, self._pack_later, self._unpack_later)
            if not lacks and rank() in lacking:
                self._take_later()
        raise HvdError(f"elastic: joiners have no state after {_TRIES} tries: each sending rank was lost")

    def _arrive(self):
        """Waits for this rank's part of the background transfer and takes over what it received. Returns
        whether this rank has the complete state."""
        delivery = self._delivery
        if not delivery or delivery.arrived is not None:
            return not delivery or delivery.arrived
        if delivery.arrive() and delivery.takes:
            self._take_later()
        return delivery.arrived

    def _end_delivery(self):
        delivery, self._delivery, self._later = self._delivery, None, []
        if delivery:
            _membership.unsettled[:] = [state for state in _membership.unsettled if state is not self]
            delivery.drop()

    def _settled(self, version, place):
        """Called when all ranks have the state of this version. place: the call site of the commit that a
        joiner continues from, 0 on other ranks."""
        joined = not self._version and version
        if not version:
            self.save()
        self._version = max(version, 1)
        self._changed, self._place = False, 0
        self._elastic, self._size = _membership.world().elastic, size()
        if joined or self._interrupt:
            self._arrived = (place, self._mark()) if place else None

    def _pack(self, apart):
        """The state as an object and a list of memory blocks, for _transfer. apart: blocks that are not
        needed at once may go into _later instead."""
        samplers = {name: sampler.shared() for name, sampler in self._samplers.items()}
        return (self._values(), samplers), []

    def _pack_later(self):
        """Fills _later again, on a rank that has the complete state."""
        self._pack(True)
        return [len(block) for block in self._later], self._later

    def _unpack_later(self, lengths):
        if lengths != [len(block) for block in self._later]:
            raise HvdError(
                "elastic: the ranks' states differ in size: build the same model and optimizer on all"
            )
        return self._later

    def _take_later(self):
        """Takes over the blocks of _later, which have been received."""

    def _unpack(self, thing):
        """Returns the memory blocks to receive into; puts others into _later, as _pack() did. After they
        have been received, _finish() takes over the state."""
        self._finish = functools.partial(self._take, thing)
        return []

    def _take(self, thing):
        values, samplers = thing
        for name, value in values.items():
            setattr(self, name, value)
        for name, shared in samplers.items():
            self._samplers[name].adopt(shared, rank())
        self._is_saved = False  # the saved copy is older; a new one would take time while the others wait
