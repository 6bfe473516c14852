#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of tests/e2e/test_elastic_python.sh: in each round the ranks have different numbers of batches, and call join()
after the last one. Before that each sends a message to the next one. Rank 2 of the first world kills itself in the middle
of a round, and a new rank joins between two rounds.
"""
import errno
import os
import signal
import time

import numpy
import torch

import hvd
import hvd.torch as ht

DEATH = 4  # the round in which a rank is lost
LATEST = 600  # a new rank has joined before this round


def batches(rank, turn):
    return (rank * 3 + turn) % 7 + 2


def pass_on(turn):
    """One message around the ring. Of a rank that is lost none comes."""
    rank, size = hvd.rank(), hvd.size()
    before, after = (rank - 1) % size, (rank + 1) % size
    got = numpy.zeros(5000, dtype=numpy.int64)
    sent = hvd.isend(numpy.full(5000, turn * 100 + rank), after)
    for wait, what in (lambda: hvd.recv(got, before), "from"), (sent.wait, "to"):
        try:
            wait()
        except hvd.HvdError as error:
            assert error.errno == errno.EOWNERDEAD and turn >= DEATH, (what, error)
            return
    assert (got == turn * 100 + before).all(), got


def run_round(turn, first):
    for batch in range(batches(hvd.rank(), turn)):
        total = ht.allreduce(torch.full((1000,), 1.0 + hvd.rank()), op=ht.Sum, name="gradient")
        assert total[0] == total[-1] and 1 + hvd.rank() <= total[0] <= sum(range(1, 1 + hvd.size()))
        if first and turn == DEATH and batch == 1 and hvd.rank() == 2:
            os.kill(os.getpid(), signal.SIGKILL)
    last = ht.join()
    numbers = [batches(rank, turn) for rank in range(hvd.size())]
    assert turn == DEATH or numbers[last] == max(numbers), (last, numbers)


ht.init()
state = torch.zeros(1)
world = hvd.elastic.world()
joined = world.is_new
if joined:
    hvd.enter()
    world = hvd.elastic.world()
    state = ht.broadcast(state, world.source, name="round")
first = world.epoch == 1
while not joined and state < LATEST:
    pass_on(int(state))
    run_round(int(state), first)
    state += 1
    time.sleep(0.02)
    if hvd.elastic.commit():
        world = hvd.elastic.world()
        joined = world.joined > 0
        if joined:
            ht.broadcast(state, world.source, name="round")
assert joined and hvd.size() == 4, f"rank {hvd.rank()}: no rank has joined"
pass_on(int(state))
run_round(int(state), False)
print(f"rank {hvd.rank()}: ok", flush=True)
