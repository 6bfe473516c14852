#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 8 s, waiting
"""ElasticSampler: exact accounting. Thousands of random histories, in one process, without an engine.

A history is a world of ranks that train in lockstep while ranks die (before a step, in a step, in a commit
before or after sending their report, right after it), join, and leave on request. Each rank is a
generator that yields where it would wait for the others; the driver simulates the world. The recorded indices
of the contributors must contain every sample of every epoch once. During the history it is checked that no
rank makes a step that the others do not make (it would wait for ever).

    test_sampler.py [HISTORIES] [SEED]    HVD_SAMPLER_SEED=n repeats one history, and prints it
"""
import collections
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "core", "python"))

from hvd import sampler as module  # noqa: E402

TELL = "HVD_SAMPLER_SEED" in os.environ
current = None  # the rank whose code runs


def tell(*words):
    if TELL:
        print(*words)


class Style:
    """How the program of a history is written."""

    def __init__(self, dice):
        self.samples = dice.choice([0, 1, 2, 3, 5, 7, dice.randint(8, 80)])
        self.epochs = dice.randint(1, 3)
        self.batch = dice.randint(1, 5)
        self.ahead = dice.choice([0, 0, 1, 2, 4])  # batches that the data loader prefetches
        self.interval = dice.choice([1, 1, 1, 2, 3])  # steps between commits
        self.whole = dice.random() < 0.6  # whole_epoch(), or a plain loop over the loader
        self.top = not self.whole and dice.random() < 0.3  # commits when it has a batch, before the step
        self.interrupt = dice.random() < 0.2  # HostsUpdatedInterrupt: the function is called again
        self.shuffle = dice.random() < 0.7
        self.strict = self.whole and self.interval == 1  # each epoch is complete in itself
        self.trouble = dice.choice([0, 0.02, 0.1, 0.3])  # how many faults happen

    def __str__(self):
        return " ".join(f"{k}={v}" for k, v in vars(self).items())


class Loader:
    """The part of torch.utils.data.DataLoader that draws from its sampler."""

    def __init__(self, sampler, style):
        self.sampler, self.style = sampler, style

    def _batches(self):
        batch = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.style.batch:
                yield batch
                batch = []
        if batch:
            yield batch

    def __iter__(self):
        source, queue = self._batches(), collections.deque()
        if not self.style.ahead:
            yield from source
            return
        for _ in range(self.style.ahead):
            queue.extend([b for b in [next(source, None)] if b])
        while queue:
            batch = queue.popleft()
            queue.extend([b for b in [next(source, None)] if b])
            yield batch


class Rank:
    """One process of a history."""

    def __init__(self, style, number, rank, size):
        global current
        self.style, self.number, self.rank, self.size = style, number, rank, size
        self.epoch = self.step = 0
        self.log = []  # (epoch, index) used since the last commit
        self.pads = 0
        # until the first go() of a joiner or restarted rank: the commit (site) at which the others wait
        self.fresh = None
        self.site = None  # where its generator waits
        current = self
        self.sampler = module.ElasticSampler(range(style.samples), style.shuffle, seed=3)
        self.program = self.train()

    def train(self):
        while self.epoch < self.style.epochs:
            loader = Loader(self.sampler, self.style)
            for batch in self.sampler.whole_epoch(loader) if self.style.whole else loader:
                due = self.step % self.style.interval == 0
                if self.style.top and due:
                    yield "commit before a step"
                yield "step"
                self.use(batch)
                self.step += 1
                if not self.style.top and self.step % self.style.interval == 0:
                    yield "commit after a step"
            self.epoch += 1
            self.sampler.set_epoch(self.epoch)
            yield "commit after an epoch"
        yield "end"

    def use(self, batch):
        """Records a batch; it must be what comes next in the sequence."""
        s, begin = self.sampler, self.sampler._recorded
        s.record_batch(0, self.style.batch)
        spots = s._sequence[begin : s._recorded]
        assert batch == [s._order[~p if p < 0 else p] for p in spots], (batch, spots)
        self.log += [(self.epoch, s._order[p]) for p in spots if p >= 0]
        self.pads += sum(p < 0 for p in spots)

    def go(self):
        """Runs to the point where it waits for the others. A joiner is at a boundary already: if its first commit is
        the one at which the others were, with nothing done before, it is that boundary (elastic.py does the same)."""
        global current
        current = self
        state = self.epoch, self.step
        event = next(self.program)
        if event == self.fresh and state == (self.epoch, self.step):
            event = next(self.program)
        self.site = event
        self.fresh = None
        return event.split()[0]


class History:
    """The world and its faults."""

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.style = Style(self.dice)
        size = self.dice.randint(1, 5)
        self.numbers = size
        self.view = [Rank(self.style, i, i, size) for i in range(size)]
        self.dead = set()
        self.used = []
        self.changes = 0
        tell(self.style)

    def alive(self):
        return [r for r in self.view if r not in self.dead]

    def maybe_kill(self, what, spare):
        """Kills some ranks, never `spare`."""
        for rank in self.alive():
            if rank is not spare and self.dice.random() < self.style.trouble:
                tell(what, rank.number)
                self.dead.add(rank)

    def run(self):
        for _ in range(20000):
            spare = self.dice.choice(self.alive())
            self.maybe_kill("dies before", spare)
            events = {rank: rank.go() for rank in self.alive()}
            kinds = set(events.values())
            assert len(kinds) == 1, "the ranks wait for each other: " + str(
                {rank.number: event for rank, event in events.items()}
            )
            kind = kinds.pop()
            if kind == "end":
                return self.prove()
            self.maybe_kill("dies in the " + kind, spare)
            if kind == "commit":
                self.commit(spare)
        raise AssertionError("no end")

    def commit(self, spare):
        """The steps of elastic.py at a commit: report and agree, then the boundary, then the change."""
        told = [rank.sampler.report() if rank not in self.dead else (0, 0) for rank in self.view]
        for rank in self.alive():
            self.used += rank.log
            rank.log = []
        self.maybe_kill("has told and dies", spare)
        for rank in self.alive():
            rank.sampler.agree(told)
        stay = self.alive()
        if self.dice.random() < self.style.trouble:  # ranks are asked to leave
            stay = [r for r in stay if r is spare or self.dice.random() < 0.7]
        new = self.dice.randint(1, 3) if self.dice.random() < self.style.trouble else 0
        if stay == self.view and not new:
            for rank in stay:
                rank.sampler.unchanged()
            return
        self.change(stay, new, spare)

    def change(self, stay, new, spare):
        self.changes += 1
        size = len(stay) + new
        tell("change: stay", [r.number for r in stay], "new", new)
        self.view = list(stay)
        for i, rank in enumerate(stay):
            rank.rank, rank.size = i, size
            if self.style.interrupt:
                rank.sampler.rewind()
                rank.program = rank.train()
                rank.fresh = rank.site
        self.maybe_kill("dies after the boundary", spare)
        progress = {r.rank: r.sampler.progress() for r in stay if r not in self.dead}
        for rank in self.alive():
            rank.sampler.repartition(rank.rank, size, progress)
        for i in range(new):
            rank = Rank(self.style, self.numbers, len(stay) + i, size)
            rank.sampler.adopt(spare.sampler.shared(), rank.rank)
            rank.epoch, rank.step, rank.fresh = spare.epoch, spare.step, spare.site
            self.numbers += 1
            self.view.append(rank)

    def prove(self):
        """By the contributors' records: each sample once in an epoch, except the remaining ones."""
        last = self.alive()[0]
        rest = collections.Counter(last.sampler._order)
        rest.subtract(range(self.style.samples))
        once = collections.Counter({i: self.style.epochs for i in range(self.style.samples)})
        count = collections.Counter(index for _, index in self.used)
        assert count + +rest == once, f"used {dict(count)}, left over {dict(+rest)}"
        if self.style.strict:
            assert not +rest, f"left over {dict(+rest)}"
            count = collections.Counter(self.used)
            assert all(v == 1 for v in count.values()), {k: v for k, v in count.items() if v > 1}
        if not self.changes:
            pads = sum(rank.pads for rank in self.view)
            assert pads <= self.style.epochs * (len(self.view) - 1), pads
        return self.changes


class Alone:
    """A world of this size, seen by this rank."""

    def __init__(self, rank=0, size=1):
        self.rank, self.size = rank, size


def test_calls():
    """The calls of a user, in a world that does not change."""
    global current
    current = Alone()
    s = module.ElasticSampler(range(7), shuffle=False)
    assert list(s) == list(range(7)) == list(s) and len(s) == 7  # nothing was recorded
    items = iter(s)
    assert [next(items) for _ in range(3)] == [0, 1, 2]
    s.record_indices([1, 0])
    try:
        s.record_indices([5])
        raise AssertionError("what was not handed out was recorded")
    except ValueError:
        pass
    s.record_batch(9, 100)  # no more than was handed out
    assert s.state_dict() == {"epoch": 0, "processed_num": 3, "remaining": [3, 4, 5, 6]}
    assert list(s) == [3, 4, 5, 6] and len(s) == 4
    s.set_epoch(0)  # the epoch has begun
    assert list(s) == [3, 4, 5, 6]
    s.record_batch(0, 4)
    s.set_epoch(0)  # the epoch is over, and begins again
    assert list(s) == list(range(7))
    s.set_epoch(3)
    assert list(s) == list(range(7)) and s.epoch == 3
    orders = []
    for epoch in range(3):
        s = module.ElasticSampler(range(50), seed=9)
        s.set_epoch(epoch)
        orders.append(list(s))
        expected = list(range(50))
        random.Random(9 + epoch).shuffle(expected)  # as Horovod's sampler does
        assert orders[-1] == expected
    assert orders[0] != orders[1] != orders[2]


def test_checkpoints():
    """Moving a sampler's state to another world, and from Horovod."""
    global current
    used = []
    for rank in range(4):
        current = Alone(rank, 4)
        s = module.ElasticSampler(range(22), seed=2)
        items = iter(s)
        used += [next(items) for _ in range(3)]
        s.record_batch(0, 3)
        saved = s.state_dict()
        assert saved["processed_num"] == 12
    for rank in range(3):
        current = Alone(rank, 3)
        s = module.ElasticSampler(range(22), seed=5)
        s.load_state_dict(saved)
        used += list(s)
    assert sorted(used)[:1] == [0] and set(used) == set(range(22)) and len(used) == 12 + 12  # two pads
    current = Alone()
    s = module.ElasticSampler(range(10), shuffle=False)
    s.load_state_dict({"epoch": 4, "processed_num": 6})
    assert (list(s), s.epoch, s.processed_num) == ([6, 7, 8, 9], 4, 6)
    s.load_state_dict({"epoch": 2, "processed_indices": [1, 3, 9]})
    assert (list(s), s.epoch, s.processed_num) == ([0, 2, 4, 5, 6, 7, 8], 2, 3)


def main():
    module.rank, module.size = (lambda: current.rank), (lambda: current.size)
    test_calls()
    test_checkpoints()
    histories = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    seeds = range(first, first + histories)
    if TELL:
        seeds = [int(os.environ["HVD_SAMPLER_SEED"])]
    changes = 0
    for seed in seeds:
        try:
            changes += History(seed).run()
        except Exception:
            print(f"FAILED: HVD_SAMPLER_SEED={seed}: {Style(random.Random(seed))}")
            raise
    print(f"ok {len(seeds)} histories, {changes} changes of the world")


if __name__ == "__main__":
    main()
