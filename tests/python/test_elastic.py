#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 20 s, waiting
"""hvd.elastic: the real code in a simulated world. Every rank is a thread. Where it would call the
library it waits for the simulation, which answers when all living ranks have reached the same call, kills
some before or after it, lets others join or leave at commits, sometimes makes a repair fail, and
fails when the ranks wait for each other.

Checked in each history: all ranks, joiners too, always have the same state, even if the rank that
sends it dies during that; contributors use every sample exactly once; no rank waits for ever.

    test_elastic.py [HISTORIES] [SEED]    HVD_ELASTIC_SEED=n repeats one history, and prints it
"""
import collections
import errno
import os
import random
import sys
import threading
import traceback
import types
import zlib
from array import array

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "core", "python"))

from hvd import _lib, _membership, _state, _transfer, buffers, elastic, sampler  # noqa: E402
from hvd._lib import HorovodInternalError, HvdError  # noqa: E402
from test_sampler import Loader  # noqa: E402

TELL = "HVD_ELASTIC_SEED" in os.environ
SECONDS = 60  # until a rank must reach its next call
here = threading.local()


def tell(*words):
    if TELL:
        print(*words, flush=True)


class Dead(BaseException):
    """This rank has been killed."""


class Process(threading.Thread):
    """A rank: runs the program, and waits where it would call the library."""

    def __init__(self, history, number, rank, size):
        super().__init__(daemon=True)
        self.history, self.number, self.rank, self.size = history, number, rank, size
        self.log, self.ops, self.call, self.failure, self.ended = [], 0, None, None, False
        self.sampler, self.state, self.resized, self.unsettled = None, None, [], []
        self.posted, self.answered = threading.Semaphore(0), threading.Semaphore(0)

    def run(self):
        here.me = self
        try:
            program(self, self.history.style)
        except (Dead, elastic.Left):
            pass
        except BaseException:
            self.failure = traceback.format_exc()
        self.ended = True
        self.posted.release()

    def post(self, kind, name, payload=None):
        """A call of the library, which all ranks must make."""
        self.call, self.payload = (kind, name), payload
        self.posted.release()
        self.answered.acquire()
        self.ops += kind not in ("commit", "again")
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def post(*call):
    return here.me.post(*call)


# ---- the part of the library that hvd.elastic uses -----------------------------------------------


def allreduce_(data, name=None, op=None):
    data[:] = array("q", post("reduce", f"{name} {op} {len(data)}", list(data)))


def allgather(data, name=None):
    return array("q", post("gather", name, list(data)))


def broadcast_(data, root, name=None):
    data[:] = post("broadcast", f"{name} {root} {len(data)}", bytes(data))


def exchange(name, data, rows, into=None):
    return post("exchange", name, (bytes(data), rows))


def arrive(got, take):
    if take:
        take(memoryview(got))


class Unsettled:
    """Stands for _membership.unsettled: each simulated rank has a list of its own."""

    def __iter__(self):
        return iter(here.me.unsettled)

    def __setitem__(self, where, states):
        here.me.unsettled[where] = states

    def append(self, state):
        here.me.unsettled.append(state)


def play():
    """Replaces the library by the simulation."""
    for module in (sampler, _state, _transfer):
        module.rank, module.size = (lambda: here.me.rank), (lambda: here.me.size)
    buffers.allreduce_, buffers.allgather, buffers.broadcast_ = allreduce_, allgather, broadcast_
    _transfer.exchange, _transfer.arrive = exchange, arrive
    _transfer.lib = types.SimpleNamespace(hvd_wait=lambda _: 0)
    _transfer.CHUNK, _transfer.LARGE = 100, 50
    elastic._restart = lambda: post("again", "")
    _membership.unsettled = Unsettled()
    _state.stats = lambda: {"submitted": here.me.ops}
    _membership.world = lambda: types.SimpleNamespace(elastic=True, waiting=False)
    _membership.lib = types.SimpleNamespace(hvd_commit=lambda: post("commit", ""))
    _lib.error = lambda code: HvdError("asked to leave", -code)


# ---- the program of every rank -------------------------------------------------------------------


class Style:
    """How the program of a history is written, and how many faults happen to it."""

    def __init__(self, dice):
        self.samples = dice.choice([0, 3, 7, dice.randint(8, 40)])
        self.epochs = dice.randint(1, 2)
        self.batch = dice.randint(1, 4)
        self.ahead = dice.choice([0, 0, 1, 3])
        self.interval = dice.choice([1, 1, 2])
        self.whole = dice.random() < 0.6
        self.top = not self.whole and dice.random() < 0.4
        self.interrupt = dice.random() < 0.25
        self.blocks = dice.choice([0, 1, 3])  # memory blocks in the state
        self.moments = dice.choice([0, 2, 2])  # more blocks, which may be sent later
        self.trouble = dice.choice([0.01, 0.04, 0.1])

    def __str__(self):
        return " ".join(f"{k}={v}" for k, v in vars(self).items())


class BlockState(elastic.ObjectState):
    """State in memory blocks beside the attributes, as TorchState has."""

    def __init__(self, blocks, moments, **kwargs):
        self.blocks, self.moments = blocks, moments
        super().__init__(**kwargs)

    def save(self):
        super().save()
        self.saved_blocks = [bytes(b) for b in self.blocks]
        self.saved_moments = [bytes(b) for b in self.moments]
        self.mark = len(here.me.history.used)  # the used samples that this state contains

    def whole(self):
        return self._version and not (self._delivery and self._delivery.takes)

    def _restore(self):
        super()._restore()
        self.blocks[:] = [bytearray(b) for b in self.saved_blocks]
        self.moments[:] = [bytearray(b) for b in self.saved_moments]

    def _pack(self, apart):
        thing, _ = super()._pack(apart)
        lengths = [len(b) for b in self.blocks], [len(b) for b in self.moments]
        return (thing, lengths, apart), self._divide(self.blocks, self.moments, apart)

    def _divide(self, blocks, moments, apart):
        self._later = [memoryview(b) for b in moments if apart]
        return [memoryview(b) for b in blocks] + [memoryview(b) for b in moments if not apart]

    def _unpack(self, thing):
        inner, lengths, self.apart = thing
        super()._unpack(inner)
        self.fresh = [[bytearray(length) for length in kind] for kind in lengths]
        return self._divide(*self.fresh, self.apart)

    def _take(self, thing):
        self.blocks[:] = self.fresh[0]
        if not self.apart:
            self.moments[:] = self.fresh[1]
        super()._take(thing)

    def _take_later(self):
        self.moments[:] = self.fresh[1]


def program(me, style):
    indices = sampler.ElasticSampler(range(style.samples), seed=1)
    blocks = [bytearray(os.urandom(60 * i + 1)) for i in range(style.blocks)]
    moments = [bytearray(os.urandom(80 * i + 1)) for i in range(style.moments)]
    state = BlockState(blocks, moments, epoch=0, step=0, total=me.number, indices=indices)
    me.sampler, me.state = indices, state
    state.register_resize_callbacks([lambda old, new: me.resized.append((old, new))])

    def step(batch):
        assert state._version
        content = (state.epoch, state.step, state.total, [bytes(b) for b in state.blocks])
        state.total += me.post("step", "", (content, sum(batch)))
        under_way = state._delivery
        state.settle()
        if under_way or state.step % 5 == 0:
            told = allgather(array("q", [zlib.crc32(b"".join(state.moments))]), "moments")
            assert len(set(told)) == 1, f"not the same moments: {told}"
            me.history.counts["later"] += under_way is not None
        for block in state.blocks + state.moments:
            block[0] = state.total % 256
        state.step += 1
        spots = indices._sequence[indices._recorded :][: len(batch)]
        me.log += [(state.epoch, index) for index, spot in zip(batch, spots) if spot >= 0]
        indices.record_batch(0, style.batch)

    loader = Loader(indices, style)

    @elastic.run(interrupt=style.interrupt)
    def train(state):
        while state.epoch < style.epochs:
            for batch in indices.whole_epoch(loader) if style.whole else loader:
                if style.top and state.step % style.interval == 0:
                    state.commit()
                step(batch)
                if not style.top and state.step % style.interval == 0:
                    state.check_host_updates()
            state.epoch += 1
            indices.set_epoch(state.epoch)
            state.commit()

    train(state)


# ---- the world -----------------------------------------------------------------------------------


class History:
    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.style = Style(self.dice)
        size = self.numbers = self.dice.randint(1, 6)
        self.view = [Process(self, i, i, size) for i in range(size)]
        self.calm = False  # no rank dies
        self.dead, self.used, self.counts = set(), [], collections.Counter()
        tell(self.style)

    def alive(self):
        return [p for p in self.view if p not in self.dead]

    def kill(self, when, call):
        """Kills some ranks, never all that have the state."""
        whole = [p for p in self.alive() if p.state and p.state.whole()]
        spare = self.dice.choice([p for p in whole if p.state._is_saved] or whole or self.alive())
        # The rank that sends the rest of the state dies often here: by chance alone that would be rare.
        trouble = self.style.trouble * (8 if "elastic.la" in call[1] else 1)
        for p in self.alive():
            if p is not spare and not self.calm and self.dice.random() < trouble:
                tell(p.number, "dies", when, call)
                self.dead.add(p)
                p.answer = Dead()
                p.answered.release()
        return spare

    def run(self):
        for p in self.view:
            p.start()
        while True:
            for p in self.alive():
                assert p.posted.acquire(timeout=SECONDS), f"rank {p.number} does not come back"
            for p in self.alive():
                assert not p.failure, f"rank {p.number}: {p.failure}"
            calls = {p.number: "the end" if p.ended else p.call for p in self.alive()}
            assert len(set(calls.values())) == 1, f"the ranks wait for each other: {calls}"
            call = calls.popitem()[1]
            if call == "the end":
                return self.prove()
            self.kill("before", call)
            tell("  ", call, [p.number for p in self.alive()])
            self.counts[call[0]] += 1
            getattr(self, "do_" + call[0])(*call)

    def answer(self, results, call):
        """After an operation: some ranks die, the others get their results."""
        living = self.alive()
        self.kill("after", call)
        for p in living:
            if p not in self.dead:
                p.answer = results(p)
                p.answered.release()

    def do_step(self, *call):
        contents = [p.payload[0] for p in self.alive()]
        assert all(c == contents[0] for c in contents), f"not the same state: {contents}"
        self.calm = False
        if self.dice.random() < self.style.trouble / 4:
            self.fail()
            return
        total = sum(p.payload[1] for p in self.alive())
        self.answer(lambda p: total, call)

    def fail(self):
        """Repair is impossible: all ranks return to the saved state and start again."""
        tell("repair is impossible")
        self.calm = True  # until they train again: a rank that dies earlier could take the saved state of all with it
        self.counts["failed"] += 1
        source = max(self.alive(), key=lambda p: (p.state._saved_version, p.state._is_saved, -p.rank))
        del self.used[source.state.mark :]
        for p in self.alive():
            p.log = []
            p.answer = HorovodInternalError("planned")
            p.answered.release()

    def do_again(self, *call):
        self.admit(self.alive(), self.dice.choice([0, 0, 1]))

    def do_reduce(self, kind, name):
        columns = list(zip(*(p.payload for p in self.alive())))
        result = [(max if f" {_lib.MAX} " in name else sum)(c) for c in columns]
        if name.startswith("elastic.told"):
            for p in self.alive():
                self.used += p.log
                p.log = []
        self.answer(lambda p: result, (kind, name))

    def do_gather(self, *call):
        result = [x for p in self.alive() for x in p.payload]
        self.answer(lambda p: result, call)

    def do_broadcast(self, kind, name):
        root = self.view[int(name.split()[1])]
        error = HvdError("its root is dead", errno.EOWNERDEAD)
        result = error if root in self.dead else root.payload
        self.answer(lambda p: result, (kind, name))

    def do_exchange(self, *call):
        living = self.alive()

        def received(p):
            parts = []
            for source in living:
                data, rows = source.payload
                begin = sum(rows[: p.rank])
                parts.append(data[begin : begin + rows[p.rank]])
            return b"".join(parts)

        self.answer(received, call)

    def do_commit(self, *call):
        spare = self.kill("in", call)
        stay, leave, new = self.alive(), [], 0
        if self.dice.random() < 2 * self.style.trouble:
            leave = [p for p in stay if p is not spare and self.dice.random() < 0.3]
        if self.dice.random() < 5 * self.style.trouble:
            new = self.dice.randint(1, 3)
        stay = [p for p in stay if p not in leave]
        for p in leave:
            tell(p.number, "is asked to leave")
            p.answer = -errno.ESHUTDOWN
            p.answered.release()
        changed = stay != self.view or new
        self.counts["changed"] += bool(changed)
        self.admit(stay, new, int(bool(changed)))

    def admit(self, stay, new, answer=None):
        """The world is now those that stay, and some joiners."""
        size = len(stay) + new
        for i, p in enumerate(stay):
            p.rank, p.size = i, size
        self.view = stay + [Process(self, self.numbers + i, len(stay) + i, size) for i in range(new)]
        self.numbers += new
        for p in self.view[len(stay) :]:
            tell(p.number, "joins")
            self.counts["joined"] += 1
            p.start()
        for p in stay:
            p.answer = answer
            p.answered.release()

    def prove(self):
        one = self.alive()[0]
        rest = collections.Counter(one.sampler._order)
        rest.subtract(range(self.style.samples))
        once = collections.Counter({i: self.style.epochs for i in range(self.style.samples)})
        count = collections.Counter(index for _, index in self.used)
        assert count + +rest == once, f"used {dict(count)}, left over {dict(+rest)}"
        if self.style.whole and self.style.interval == 1:
            assert not +rest and max(collections.Counter(self.used).values(), default=1) == 1
        for p in self.alive():  # the callbacks have seen every change of size
            sizes = p.resized
            assert all(a[1] == b[0] for a, b in zip(sizes, sizes[1:])), sizes
        return self.counts


def main():
    play()
    histories = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    seeds = range(first, first + histories)
    if TELL:
        seeds = [int(os.environ["HVD_ELASTIC_SEED"])]
    counts = collections.Counter()
    for seed in seeds:
        try:
            counts.update(History(seed).run())
        except BaseException:
            print(f"FAILED: HVD_ELASTIC_SEED={seed}: {Style(random.Random(seed))}", flush=True)
            traceback.print_exc()
            os._exit(1)  # other ranks wait
    print(f"ok {len(seeds)} histories: " + " ".join(f"{k}={v}" for k, v in sorted(counts.items())))


if __name__ == "__main__":
    main()
