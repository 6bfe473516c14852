#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of tests/e2e/test_elastic_joiner.sh: a joiner that starts up slowly while others train.

    elastic_joiner.py DIR HOW...     writes DIR/PID, a line for each event: time, event, step
    elastic_joiner.py check DIR      checks by these lines that the training ranks did not wait

HOW, for joiners: so many seconds between init() and run(); die: the first joiner ends itself there. For all ranks:
plain: a loop without a commit. Rank 1 ends itself after some steps. The job goes on until it is complete again and for
20 steps more, or until DIR/enough exists.
"""
import os
import signal
import sys
import time
from array import array

import hvd

BEGIN = 20  # steps before rank 1 ends itself
BETWEEN = 20  # steps that the others must do while a joiner starts up
LINE = 40  # bytes of a diary's line, at most


class Diary:
    def __init__(self, folder):
        self.folder, self.file = folder, open(os.path.join(folder, str(os.getpid())), "w")

    def note(self, what, step=-1):
        self.file.write(f"{time.monotonic()} {what} {step}\n")
        self.file.flush()

    def mark(self, name):
        """True for the first rank that comes here."""
        try:
            os.close(os.open(os.path.join(self.folder, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            return True
        except FileExistsError:
            return False

    def others(self):
        """Bytes that the others have written so far."""
        return sum(os.path.getsize(os.path.join(self.folder, name)) for name in os.listdir(self.folder)
                   if name.isdigit() and name != str(os.getpid()))

    def wait_others(self, more):
        end, at = time.monotonic() + 30, self.others() + more
        while self.others() < at and time.monotonic() < end:
            time.sleep(0.05)

    def has(self, name):
        return os.path.exists(os.path.join(self.folder, name))


def work(step, over):
    """One step. Returns whether any rank wants to end."""
    data = array("d", [1.0, over])
    hvd.allreduce_(data, "work", hvd.Sum)
    time.sleep(0.01)
    return data[1] > 0


def train(state, diary, want):
    diary.note("in", state.step)
    while not state.over:
        if state.step == BEGIN and hvd.size() == want and hvd.rank() == 1 and not state.whole:
            os.kill(os.getpid(), signal.SIGKILL)
        enough = work(state.step, diary.has("enough"))
        state.step += 1
        state.whole = state.whole + 1 if hvd.size() == want and state.step > BEGIN else 0
        state.over = enough or state.whole == 20
        diary.note("step", state.step)
        state.commit()


def plain(diary):
    step, over = 0, False
    while not over:
        over = work(step, diary.has("enough") and step > 3 * BEGIN)
        step += 1
        diary.note("step", step)
        if step == BEGIN and hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    print(f"the end after {step} steps", flush=True)


def main(folder, how):
    diary = Diary(folder)
    hvd.init()
    joins = hvd.elastic.world().waiting
    diary.note("hello")
    if joins:
        print(f"place {hvd.rank()} of {hvd.size()}, local rank {hvd.local_rank()}", flush=True)
        if how == "die" and diary.mark("dead"):
            diary.wait_others(BETWEEN * LINE)
            diary.note("end")
            os.kill(os.getpid(), signal.SIGKILL)
        if how.isdigit():
            time.sleep(int(how))
    if how == "plain":
        plain(diary)
        return
    before = hvd.rank(), hvd.size()
    state = hvd.elastic.ObjectState(step=0, whole=0, over=False, seen=[])
    state.register_reset_callbacks([lambda: state.seen.append((hvd.rank(), hvd.size()))])
    hvd.elastic.run(train)(state, diary, 3)
    assert not joins or not hvd.elastic.world().waiting
    print(f"rank {hvd.rank()}, before {before}: the end after {state.step} steps", flush=True)


def check(folder):
    lines = []
    for name in os.listdir(folder):
        if name.isdigit():
            with open(os.path.join(folder, name)) as file:
                lines.append([(float(at), what, int(step)) for at, what, step in map(str.split, file)])
    old = max((life for life in lines if life[0][1] == "hello" and len(life) > 1), key=len)
    steps = [at for at, what, _ in old if what == "step"]
    gaps = [b - a for a, b in zip(steps, steps[1:])]
    joiners = [life for life in lines if life is not old and life[0][0] > steps[0]]
    assert joiners, "no rank has joined"
    for life in joiners:
        hello = life[0][0]
        came, what = next((at, what) for at, what, _ in life if what in ("in", "end"))
        between = [at for at in steps if hello < at < came]
        print(f"joiner: {len(between)} steps of the others from its hello to its", end=" ")
        print(f"{'coming in' if what == 'in' else 'end'}, {came - hello:.2f} s later")
        least = 1 if what == "end" else BETWEEN if came - hello > 2 else 0
        assert len(between) >= least, between
    print(f"longest time between two steps: {1000 * max(gaps):.0f} ms of {len(steps)} steps")


if __name__ == "__main__":
    if sys.argv[1] == "check":
        check(sys.argv[2])
    else:
        main(*sys.argv[1:])
