# SPDX-License-Identifier: Apache-2.0
"""Elastic training: the state of a program, which ranks that join receive, and the function that uses it.

    state = hvd.elastic.ObjectState(step=0, weights=weights)

    @hvd.elastic.run
    def train(state):
        while state.step < 1000:
            ...
            state.step += 1
            state.commit()

    train(state)

hvd.torch.elastic has TorchState for models and optimizers, and ElasticSampler. The names are Horovod's.

What is different from Horovod: the death of a rank is no exception. The step under way is finished by the
ranks that are left, and the function simply goes on; rank() and size() change in the next commit(), where
ranks also join and leave. Nothing is lost or repeated, nobody starts again, and only ranks that join
receive the state. A rank that joins calls the function once it has the state.

A commit stands where calling the function with the state of that moment leads to the same operations as
going on there: after a step (or before one, with its data in hand), after an epoch. Programs that do other
collective work between the beginning of the function and the commit need Horovod's way: with
HVD_ELASTIC_INTERRUPT=1, or run(interrupt=True), a change of the world raises HostsUpdatedInterrupt at the
commit, on all ranks, and run() calls the function again.

A thread that submits operations while another thread is in commit() may get HvdError with errno.ESTALE:
see there. It is not HorovodInternalError, so run() does not begin again.

A rank that is started while others train holds nobody up: init() returns at once, and only run() (or the
first operation) comes in, at the others' next commit. What it does in between, imports, its model, its
data, is nobody's pause. rank() and size() may be others afterwards (enter()): then the reset and resize
callbacks are called on it too, before it gets the state, so that what was made with the old ones is made
anew. local_rank() is that of a free place on its host from the first moment.

A program that calls no commit() survives deaths all the same, as a smaller world with the old rank() and
size(); ranks cannot join it: one that is started in place of a dead one waits, and ends with the job.
"""
import collections
import copy
import ctypes
import functools
import os
import pickle
import sys
import zlib
from array import array

from . import _lib, _transfer, buffers
from ._lib import HorovodInternalError, HvdError, Left, World, check, check_stay, lib  # noqa: F401
from .sampler import ElasticSampler
from .world import enter, init, rank, shutdown, size, stats

RESET_LIMIT = 100  # of run(): how often it begins again, when nothing else is said
_TRIES = 16  # for a state to reach the ranks that join, when those that give it die
_unsettled = []  # states of which a part is on its way


class HostsUpdatedInterrupt(RuntimeError):
    """The world has changed. Only where Horovod's way was asked for. skip_sync: as in Horovod; not used."""

    def __init__(self, skip_sync=False):
        super().__init__("the world has changed")
        self.skip_sync = skip_sync


_World = collections.namedtuple("World", [name for name, _ in World._fields_[1:]])


def world():
    """What the last commit found: epoch, rank, size, source, joined, left, is_new, elastic, repair_ns.
    waiting: this rank has not come in yet (enter()), rank and size are those that it would have."""
    found = World(size_of_struct=ctypes.sizeof(World))
    check(lib.hvd_world(ctypes.byref(found)))
    return _World(*(getattr(found, name) for name in _World._fields))


def commit():
    """A boundary, for programs without a state object: all ranks call it at the end of a step. True when
    the world has changed; when ranks have joined (world().joined), all of them now bring them the state.
    Raises Left on a rank that was asked to leave."""
    for state in list(_unsettled):
        state.settle()
    return check_stay(lib.hvd_commit()) == 1


def _environ(name):
    return os.environ.get("HVD_" + name) or os.environ.get("HOROVOD_" + name)


def _whereabouts():
    """A number for where the program is: the lines of all its callers outside this package."""
    frame, lines = sys._getframe(1), []
    while frame:
        module = frame.f_globals.get("__name__", "")
        if module != "hvd" and not module.startswith("hvd."):
            lines.append((os.path.basename(frame.f_code.co_filename), frame.f_lineno))
        frame = frame.f_back
    return zlib.crc32(repr(lines).encode()) + 1


class State:
    """What a program has to remember. Derived classes say how: save, restore, sync.

    bcast_object, get_rank: Horovod has them; not needed."""

    def __init__(self, bcast_object=None, get_rank=None):
        self._reset_callbacks, self._resize_callbacks = [], []
        self._size = None  # of the world, when callbacks were last called
        self._interrupt = (_environ("ELASTIC_INTERRUPT") or "0") not in ("0", "false")

    def register_reset_callbacks(self, callbacks):
        """Functions without arguments, called when the world has changed, on the ranks that were in it
        before, and on one that comes in whose rank or size was another one until then. rank() and size()
        are the new ones; ranks that join receive the state as it is after these calls. No collective
        operations in them."""
        self._reset_callbacks.extend(callbacks)

    def register_resize_callbacks(self, callbacks):
        """As register_reset_callbacks, for functions of (old size, new size), called when these differ:
        to scale a learning rate (scale_lr) or a batch."""
        self._resize_callbacks.extend(callbacks)

    def _enter(self):
        """Comes into the world, at a boundary of the others: True. What the program has made with the
        rank and size that it had before is made anew where they have changed. False: it is in."""
        if not world().waiting:
            return False
        before = rank(), size()
        enter()
        if (rank(), size()) != before:
            self._size = before[1]
            self.on_reset()
        return True

    def on_reset(self):
        """Calls the callbacks."""
        old, self._size = self._size, size()
        for callback in self._reset_callbacks:
            callback()
        if old not in (None, self._size):
            for callback in self._resize_callbacks:
                callback(old, self._size)

    def reset(self):
        """The process begins again in a new world, after restore()."""

    def commit(self):
        """Saves a copy of the state in memory, for when repair is impossible, and is a boundary: where the
        world takes its new shape. check_host_updates() does without the copy, and may come each step."""
        self._boundary(True)

    def check_host_updates(self):
        """A boundary without saving."""
        self._boundary(False)

    def _boundary(self, save):
        if self._enter():
            self.sync()
            return
        if save:
            self.save()
        if commit():
            self._adapt()

    def _adapt(self):
        if self._interrupt:
            raise HostsUpdatedInterrupt()
        self.on_reset()
        self.sync()

    def settle(self):
        """Collective: ends what sync() has begun. Nothing, where sync() does it all."""

    def save(self):
        """Keeps a copy of the state in memory."""
        raise NotImplementedError()

    def restore(self):
        """Goes back to the copy."""
        raise NotImplementedError()

    def sync(self):
        """Collective: brings ranks that have no state, or an older one, to that of the others. At the
        start of a job: all to that of rank 0."""
        raise NotImplementedError()


class ObjectState(State):
    """Attributes that pickle takes, and ElasticSamplers. Each keyword argument becomes an attribute.

    In a job without run() call sync() before the first step: it is what a rank that joins waits in."""

    def __init__(self, bcast_object=None, get_rank=None, **kwargs):
        self._samplers = {n: v for n, v in kwargs.items() if isinstance(v, ElasticSampler)}
        self._attributes = [n for n in kwargs if n not in self._samplers]
        for name, value in kwargs.items():
            setattr(self, name, value)
        super().__init__(bcast_object, get_rank)
        self._version = 0  # how often it was committed; 0: it is nobody's yet
        self._saved_version = 0  # of what is saved; 0 until this rank has committed itself
        self._elastic = None  # is this an elastic job
        self._changed = False  # the world has, and the samplers do not know yet
        self._place = 0  # where the program was when it did
        self._arrived = None  # where the others were when this rank joined them, until its first commit
        self._later, self._delivery = [], None  # blocks that travel while the ranks go on, their Delivery
        ObjectState.save(self)

    def _values(self):
        return {name: getattr(self, name) for name in self._attributes}

    def save(self):
        self._saved = copy.deepcopy(self._values())
        self._saved_samplers = {n: s.shared() for n, s in self._samplers.items()}
        self._is_saved = True

    def restore(self):
        """Goes back to the copy. A rank that has joined and not saved since stays as it is: the others
        give it the state again, those of them that have it."""
        if self._is_saved:
            self._restore()
        self._version = self._saved_version
        self._changed, self._place, self._arrived = False, 0, None
        self._end_delivery()

    def _restore(self):
        for name, value in copy.deepcopy(self._saved).items():
            setattr(self, name, value)
        for name, sampler in self._samplers.items():
            sampler.adopt(self._saved_samplers[name], sampler.hand()[0])

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
        if commit():
            self._changed, self._place = True, _whereabouts()
            self._adapt()
            return
        for sampler in self._samplers.values():
            sampler.stay()

    def _agree(self):
        """Every rank learns how much every rank has used of the samplers' indices. Whose word is in the
        sum has reached this commit; all survivors see the same sum."""
        if not self._samplers:
            return
        if self._elastic is None:
            self._elastic = world().elastic
        words = [word for sampler in self._samplers.values() for word in sampler.tell()]
        ranks, width = size(), len(words)
        told = array("q", words * ranks)  # a fixed job: nobody dies, all are as far as this one
        if self._elastic:
            told = array("q", bytes(8 * width * ranks))
            told[rank() * width : (rank() + 1) * width] = array("q", words)
            buffers.allreduce_(told, f"elastic.told.{width}.{ranks}", _lib.SUM)
        for i, sampler in enumerate(self._samplers.values()):
            sampler.agree([tuple(told[r * width + 2 * i : r * width + 2 * i + 2]) for r in range(ranks)])

    def _adapt(self):
        if self._interrupt:
            for sampler in self._samplers.values():
                sampler.drop_hand()
        super()._adapt()

    def _mark(self):
        """What changes when this rank does something."""
        done = [(s.epoch, s.tell()) for s in self._samplers.values()]
        ops = stats()["submitted"] - (self._delivery.ops if self._delivery else 0)
        return ops, done, zlib.crc32(pickle.dumps(self._values()))

    def _just_arrived(self):
        """A rank that joins comes from a boundary. When its program commits at that same place, before
        anything has happened (as one does that commits before each step), it is there already."""
        arrived, self._arrived = self._arrived, None
        return arrived is not None and arrived == (_whereabouts(), self._mark())

    # ---- the state's way to the ranks that join -------------------------------------------------

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
                self._redeal(rows)
            if self._hand_over(source, lacking, apart=0 < len(lacking) < len(rows) - 1):
                self._settled(newest, rows[source][2] if rank() in lacking or self._interrupt else 0)
                if self._delivery:
                    _unsettled.append(self)
                    self._delivery.start()
                return
            if commit():  # the source has died: this boundary shows it
                self._changed = True
                self.on_reset()
        raise HvdError("elastic: the state has not reached the ranks that joined")

    def _meet(self):
        """{rank: [rank, version, place, and of each sampler: seat, drawn, ended]} of the living."""
        # Last comes one that joined, and could not go back to anything when repair was impossible.
        mine = [rank(), self._version if self._version or self._is_saved else -1, self._place]
        for sampler in self._samplers.values():
            mine.extend(sampler.hand())
        words = buffers.allgather(array("q", mine), "elastic.meet").tolist()
        rows = [words[i : i + len(mine)] for i in range(0, len(words), len(mine))]
        return {row[0]: row for row in rows}

    def _redeal(self, rows):
        self._changed = False
        for i, sampler in enumerate(self._samplers.values()):
            hands = {r: tuple(row[3 + 3 * i : 6 + 3 * i]) for r, row in rows.items() if row[1] > 0}
            sampler.move(rank(), size(), hands)

    def _hand_over(self, source, lacking, apart):
        """From source to those that lack the state. False, on all ranks, when source has died. apart: what
        is not needed at once may follow while those who have it go on."""
        if not lacking:
            return True
        self._finish, self._later = None, []
        pack = functools.partial(self._pack, apart)
        lost = not _transfer.bring(source, lacking, pack, self._unpack)
        words = array("q", [lost, 0 if lost else _transfer.rounds_of(self._later)])
        buffers.allreduce_(words, "elastic.lost", _lib.MAX)
        lost, rounds = words
        if not lost and rank() in lacking:
            self._finish()
        if not lost and rounds:
            self._delivery = _transfer.Delivery(source, lacking, self._later, rounds)
        return not lost

    def settle(self):
        """Waits until ranks that have joined have all of the state: what is not needed at once travels
        while the others train on. Collective, where something is under way. Every boundary calls it, and
        step() of hvd.torch.DistributedOptimizer."""
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
                raise HvdError("elastic: all ranks that had the whole state have died")
            source = min(set(words[::2]) - set(lacking))  # the one before has died
            lacks = not _transfer.bring(source, lacking, self._pack_later, self._unpack_later)
            if not lacks and rank() in lacking:
                self._take_later()
        raise HvdError("elastic: the state has not reached the ranks that joined")

    def _arrive(self):
        """This rank's part of the Delivery; what it brings is taken over. True when it is all there."""
        delivery = self._delivery
        if not delivery or delivery.arrived is not None:
            return not delivery or delivery.arrived
        if delivery.arrive() and delivery.takes:
            self._take_later()
        return delivery.arrived

    def _end_delivery(self):
        delivery, self._delivery, self._later = self._delivery, None, []
        if delivery:
            _unsettled[:] = [state for state in _unsettled if state is not self]
            delivery.drop()

    def _settled(self, version, place):
        """Everybody has the state."""
        joined = not self._version and version
        if not version:
            self.save()
        self._version = max(version, 1)
        self._changed, self._place = False, 0
        self._elastic, self._size = world().elastic, size()
        if joined or self._interrupt:
            self._arrived = (place, self._mark()) if place else None

    def _pack(self, apart):
        """The state as an object and blocks of memory, for _transfer. apart: blocks that are not needed at
        once may be put into _later instead."""
        samplers = {name: sampler.shared() for name, sampler in self._samplers.items()}
        return (self._values(), samplers), []

    def _pack_later(self):
        """_later anew, on a rank that had the whole state before."""
        self._pack(True)
        return [len(block) for block in self._later], self._later

    def _unpack_later(self, lengths):
        if lengths != [len(block) for block in self._later]:
            raise HvdError("elastic: the ranks' states differ in what is in them")
        return self._later

    def _take_later(self):
        """_later has been filled."""

    def _unpack(self, thing):
        """The blocks to be filled; others into _later, as _pack() has. When they are, _finish() takes the
        state over."""
        self._finish = functools.partial(self._take, thing)
        return []

    def _take(self, thing):
        values, samplers = thing
        for name, value in values.items():
            setattr(self, name, value)
        for name, shared in samplers.items():
            self._samplers[name].adopt(shared, rank())
        self._is_saved = False  # that is older; a copy takes time, and the others wait


def scale_lr(optimizer, rule="linear", schedulers=()):
    """A resize callback that scales an optimizer's learning rates with the number of ranks.

    rule: "linear" (twice the ranks, twice the rate, as the batch of all ranks grows), "none", or a function
    of (old size, new size) that returns the factor. schedulers: the optimizer's; their base rates too."""
    rules = {"linear": lambda old, new: new / old, "none": lambda old, new: 1.0}
    factor_of = rule if callable(rule) else rules.get(rule)
    if factor_of is None:
        raise ValueError(f'rule should be "linear", "none" or a function, got {rule!r}')

    def rescale(old, new):
        factor = factor_of(old, new)
        for group in optimizer.param_groups:
            for key in ("lr", "initial_lr"):
                if key in group:
                    group[key] = group[key] * factor
        for scheduler in schedulers:
            scheduler.base_lrs = [rate * factor for rate in scheduler.base_lrs]

    return rescale


def _begin_again():
    try:
        shutdown()
    except HvdError:
        pass  # the world is broken: that is why
    init()


def run(func=None, *, interrupt=None, reset_limit=None):
    """Decorates a function of (state, ...): brings the state to where the others are, then calls it.

    interrupt: True: Horovod's way, see above; default: HVD_ELASTIC_INTERRUPT. reset_limit: when repair is
    impossible (HorovodInternalError), the state goes back to its last commit, this process leaves the
    world and joins again, and the function is called again, at most so many times; then the error gets
    out. Default: HVD_ELASTIC_RESET_LIMIT, or 100. Left gets out at once: the process ends with code 0."""
    if func is None:
        return functools.partial(run, interrupt=interrupt, reset_limit=reset_limit)
    limit = int(_environ("ELASTIC_RESET_LIMIT") or RESET_LIMIT) if reset_limit is None else reset_limit

    @functools.wraps(func)
    def wrapper(state, *args, **kwargs):
        if interrupt is not None:
            state._interrupt = interrupt
        resets = 0
        state._enter()
        while True:
            try:
                state.sync()
                found = func(state, *args, **kwargs)
                state.settle()
                return found
            except HorovodInternalError:
                resets += 1
                if resets > limit:
                    raise
                state.restore()
                _begin_again()
                state.reset()
            except HostsUpdatedInterrupt:
                pass
            state.on_reset()

    return wrapper
