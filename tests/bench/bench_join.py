#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of the benchmark of joining: how long the others wait when a rank is admitted, with all of the state
at the boundary and with the optimizer's moments sent after it, in turn. Started under hvdrun, on one host:

    hvdrun --name JOB -np 3 --min-np 3 --max-np 4 bench_join.py JOB MIB STEP_MS ROUNDS

A model of MIB with Adam, so three times that in state. Its forward and backward pass is a sleep of STEP_MS, as it
is for the processor when a GPU works. Rank 0 prints lines "way rounds boundary step": medians, in milliseconds,
of the boundary's duration, and of the extra time of the step after it."""
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "core", "python"))

import torch  # noqa: E402

import hvd.torch as hvd  # noqa: E402
from hvd.torch.elastic.state import OptimizerStateHandler  # noqa: E402

HVDRUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build", "hvdrun")
JOB, MIB, STEP, ROUNDS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) / 1000, int(sys.argv[4])
can_wait = OptimizerStateHandler.can_wait


def scale(ranks):
    subprocess.Popen([os.environ.get("HVDRUN", HVDRUN), "scale", JOB, str(ranks)], stdout=subprocess.DEVNULL)


def main():
    hvd.init()
    # Only the head is trained: the cost of exchanging gradients is measured elsewhere.
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(1))])
    head, rest = model[0], [torch.nn.Parameter(torch.zeros(1 << 20)) for _ in range(MIB // 4)]
    model.extend(rest)
    optimizer = torch.optim.Adam(model.parameters())
    for p in model:
        p.grad = torch.zeros_like(p)
    optimizer.step()  # creates the moments
    for p in rest:
        p.requires_grad_(False).grad = None
    optimizer = hvd.DistributedOptimizer(optimizer)
    state = hvd.elastic.TorchState(model, optimizer, round=0, asked=False)
    found = {"together": [], "apart": []}

    @hvd.elastic.run
    def train(state):
        ordinary, joined = [], False
        while state.round < 2 * ROUNDS:
            way = "apart" if state.round % 2 else "together"
            OptimizerStateHandler.can_wait = can_wait if way == "apart" else lambda *_: False
            if hvd.rank() == 0 and not state.asked:
                scale(4 if hvd.size() == 3 else 3)
            state.asked = True
            begin = time.monotonic()
            time.sleep(STEP)
            optimizer.zero_grad()
            head.sum().backward()
            optimizer.step()
            took = (time.monotonic() - begin) * 1000
            if joined:
                found[way][-1].append(took - statistics.median(ordinary or [took]))
                state.round += 1
            else:
                ordinary.append(took)
            joined = False
            before, begin = hvd.size(), time.monotonic()
            state.check_host_updates()
            if hvd.size() != before:
                state.asked = False
                joined = hvd.size() == 4
                if joined:
                    found[way].append([(time.monotonic() - begin) * 1000])

    train(state)
    for way, rows in found.items():
        rows = [row for row in rows if len(row) == 2]
        if hvd.rank() == 0 and rows:
            print(way, len(rows), *(f"{statistics.median(column):.1f}" for column in zip(*rows)), flush=True)


main()
