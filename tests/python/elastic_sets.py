#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of tests/e2e/test_elastic_python.sh: process sets in an elastic job of four ranks. Rank 2 of the first world
kills itself, and a new rank joins. The ranks that are left of a set go on with it; its ranks change at the boundary;
all ranks then remove it and make a new one. The groups of a set by rule are made anew, and have the new rank, too.
"""
import os
import signal
import time

import torch

import hvd
import hvd.torch as ht

DEATH = 20  # the step after which a rank is lost
LATEST = 3000  # a new rank has joined before this step

pairs = [hvd.ProcessSet([0, 2]), hvd.ProcessSet([1, 3])]
ht.init(process_sets=pairs)
step = torch.zeros(1)
world = hvd.elastic.world()
joiner = world.is_new
if joiner:
    hvd.enter()
    world = hvd.elastic.world()
    step = ht.broadcast(step, world.source, name="step")
    assert all(pair.process_set_id is None for pair in pairs), "a joiner adds no static sets"
halves = hvd.find_process_set("every 2") if joiner else hvd.split_process_set("every 2")
mine = [] if joiner else [pair for pair in pairs if pair.included()]
first = world.epoch == 1
joined = joiner
while not joined and step < LATEST:
    number = 1.0 + ht.rank()
    for pair in mine:
        ranks = pair.ranks
        total = ht.allreduce(torch.full((5000,), number), op=ht.Sum, name="pair", process_set=pair)
        assert total[0] == total[-1]
        # Between a loss and the boundary the lost rank is in pair.ranks, and its part is missing.
        assert number <= total[0] <= sum(1 + r for r in ranks), (total[0], ranks)
        assert pair.size() == len(ranks) and ranks[pair.rank()] == ht.rank()
    everyone = ht.allreduce(torch.ones(1), op=ht.Sum, name="world")
    step += 1
    if step == DEATH and first and ht.rank() == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.005)
    if hvd.elastic.commit():
        world = hvd.elastic.world()
        joined = world.joined > 0
        if joined:
            ht.broadcast(step, world.source, name="step")
        sizes = sorted(pair.size() for pair in pairs)
        assert halves.ranks == list(range(ht.rank() % 2, ht.size(), 2)), halves
        assert sizes == [1, 2] and sum(len(pair.ranks) for pair in pairs) == 3, pairs
assert joined and ht.size() == 4, f"rank {ht.rank()}: no rank has joined"
assert ht.allreduce(torch.ones(1), op=ht.Sum, process_set=halves) == 2 and len(halves.ranks) == 2, halves
ht.remove_process_set(halves)
for pair in pairs:
    if not joiner:
        ht.remove_process_set(pair)
    elif pair is pairs[0]:
        known = hvd.known_process_sets()
        assert [s.process_set_id for s in known] == [1, 2] and not any(s.included() for s in known), known
        assert known[0] is hvd.known_process_sets()[0] and hvd.find_process_set("none") is None
        ht.remove_process_set(known[0])
        assert known[0].process_set_id is None and hvd.known_process_sets() == known[1:]
    else:
        ht.remove_process_set(2)
evens = ht.add_process_set([0, 2])
if evens.included():
    evens.fix()
    assert ht.allreduce(torch.ones(1), op=ht.Sum, process_set=evens) == 2
print(f"rank {ht.rank()}: ok", flush=True)
