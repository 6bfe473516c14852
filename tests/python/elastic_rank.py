#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of tests/e2e/test_elastic_python.sh: trains with hvd.elastic, using only hvd, records
which samples it used, and follows HVD_TEST_PLAN.

    elastic_rank.py DIR SAMPLES EPOCHS     writes DIR/MEMBER.PID
    elastic_rank.py check DIR SAMPLES      checks by all files that every sample was used exactly once

HVD_TEST_PLAN: words "changes.steps:what[:who]": after so many changes of the world, or "=size.steps:...": when it has
this size, and then so many steps.
what: before, in, after (a SIGKILL before, in, after the step's operation, of the rank whose HVD_RANK is who),
giving (a SIGKILL while it sends the state to joiners; steps is 0), or a number (hvdrun scale to
it, by rank 0). HVD_TEST_MEMORY: bytes of state. Training goes on until EPOCHS are over, the world has changed
HVD_TEST_CHANGES times, and has HVD_TEST_SIZE ranks.

SIGUSR1 to a rank: it kills itself before its next operation. A SIGKILL from outside may come between a commit and the line
that records it.
"""
import collections
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import zlib
from array import array

import hvd

BATCH = 3


def batches(sampler):
    """A data loader that prefetches two batches."""

    def draw(indices):
        batch = [i for _, i in zip(range(BATCH), indices)]
        return [batch] if batch else []

    indices = iter(sampler)
    queue = collections.deque(draw(indices) + draw(indices))
    while queue:
        yield queue.popleft()
        queue.extend(draw(indices))


class Loader:
    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        return batches(self.sampler)


class Diary:
    """The samples that this rank has used. A line is written after the commit that contains them."""

    def __init__(self, folder):
        self.file = open(os.path.join(folder, f"{os.environ.get('HVD_RANK', 0)}.{os.getpid()}"), "w")
        self.used = []
        self.life = None  # of the job, which starts again when all ranks that have the state die

    def reached(self, **more):
        self.file.write(json.dumps({"used": self.used, "life": self.life, **more}) + "\n")
        self.file.flush()
        self.used = []


def plan(state):
    """The events planned for this step: (what, who)."""
    steps = state.step - state.since
    now = f"{len(state.sizes) - 1}.{steps}", f"={state.sizes[-1]}.{steps}"
    for word in os.environ.get("HVD_TEST_PLAN", "").split():
        when, what, *who = word.split(":")
        if when in now:
            yield what, who[0] if who else ""


doomed = threading.Event()


def happen(state, where):
    if doomed.is_set() and where == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    for what, who in plan(state):
        mine = who == os.environ.get("HVD_RANK")
        if mine and what == where:
            os.kill(os.getpid(), signal.SIGKILL)
        if mine and what == "in" and where == "before":
            threading.Timer(0.01 * random.random(), os.kill, (os.getpid(), signal.SIGKILL)).start()
        if mine and what == "giving" and where == "changed":
            threading.Timer(0.05 * random.random(), os.kill, (os.getpid(), signal.SIGKILL)).start()
        if what.isdigit() and where == "before" and hvd.rank() == 0:
            subprocess.Popen([os.environ["HVDRUN"], "scale", os.environ["HVD_TEST_JOB"], what])


def use(sampler, batch, epoch, diary):
    first = sampler._recorded
    sampler.record_batch(0, BATCH)
    spots = sampler._sequence[first : sampler._recorded]
    diary.used += [(epoch, i) for i, spot in zip(batch, spots) if spot >= 0]  # without repeats for padding


def train(state, diary, epochs):
    changes, size = (int(os.environ.get(name, 0)) for name in ("HVD_TEST_CHANGES", "HVD_TEST_SIZE"))
    loader = Loader(state.sampler)
    diary.life = state.life
    while not state.done:
        for batch in state.sampler.whole_epoch(loader):
            happen(state, "before")
            if any(what == "in" for what, _ in plan(state)):
                data = array("d", [1.0] * 2_000_000)
                for _ in range(4):
                    hvd.allreduce_(data, "large", hvd.Sum)
                if ("in", os.environ.get("HVD_RANK")) in plan(state):
                    time.sleep(60)  # the kill is late; this rank must not reach the commit
            time.sleep(0.01)
            data = array("d", [sum(batch), state.step, 1])
            hvd.allreduce_(data, "gradient", hvd.Sum)
            happen(state, "after")
            assert data[1] == state.step * data[2], (list(data), state.step)
            state.total += data[0]
            state.step += 1
            use(state.sampler, batch, state.epoch, diary)
            try:
                state.check_host_updates()
            except hvd.elastic.Left:
                diary.reached(left=True)
                raise
            except hvd.elastic.HostsUpdatedInterrupt:
                diary.reached(interrupted=True)
                raise
            diary.reached()
        state.epoch += 1
        state.sampler.set_epoch(state.epoch)
        state.done = state.epoch >= epochs and len(state.sizes) > changes and size in (0, hvd.size())
        state.commit()


def main():
    folder, samples, epochs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    signal.signal(signal.SIGUSR1, lambda *_: doomed.set())
    hvd.init()
    diary = Diary(folder)
    sampler = hvd.elastic.ElasticSampler(range(samples))
    memory = bytes([hvd.rank() % 256]) * int(os.environ.get("HVD_TEST_MEMORY", 100_000))
    state = hvd.elastic.ObjectState(
        life=os.getpid(),
        epoch=0,
        step=0,
        since=0,
        total=0.0,
        done=False,
        sizes=[hvd.size()],
        memory=memory,
        sampler=sampler,
    )

    def changed():
        state.sizes.append(hvd.size())
        state.since = state.step
        diary.reached()  # the commit has returned
        happen(state, "changed")

    state.register_reset_callbacks([changed])
    hvd.elastic.run(train)(state, diary, epochs)
    diary.reached(end=[state.epoch, state.step, state.total, state.sizes, zlib.crc32(state.memory)])
    if hvd.rank() == 0:
        print(f"sizes {state.sizes} steps {state.step}", flush=True)
    hvd.shutdown()


def check(folder, samples):
    """Every sample of every epoch was used once, in the life of the job that reached the end. All ranks that reached it
    have the same state."""
    entries = []
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name)) as file:
            entries += [json.loads(line) for line in file]
    ends = [entry["end"] for entry in entries if "end" in entry]
    lives = {entry["life"] for entry in entries if "end" in entry}
    used = collections.Counter()
    for entry in entries:
        if entry["life"] in lives:
            used.update(map(tuple, entry["used"]))
    assert ends and all(end == ends[0] for end in ends), ends
    epochs = ends[0][0]
    wrong = {(e, i): used[e, i] for e in range(epochs) for i in range(samples) if used[e, i] != 1}
    assert not wrong, f"(epoch, sample): times: {wrong}"
    assert len(used) == epochs * samples
    print(f"ok {len(used)} samples of {epochs} epochs, each once; sizes {ends[0][3]}")


if __name__ == "__main__":
    if sys.argv[1] == "check":
        check(sys.argv[2], int(sys.argv[3]))
    else:
        main()
