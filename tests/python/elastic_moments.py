#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of tests/e2e/test_elastic_python.sh: a rank joins, and gets the optimizer's state while all ranks go forward
and backward. The rank that sends it is killed meanwhile, if requested. At the end each rank checks that its weights
are those of training in one process."""
import os
import random
import signal
import subprocess
import sys
import threading

import torch

import hvd.torch as hvd

WEIGHTS = 3_000_000
BEFORE, AFTER = 4, 6  # steps before a rank joins, and after


def fresh():
    torch.manual_seed(1)
    model = torch.nn.Linear(WEIGHTS, 1, bias=False)
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def backward(model, number):
    # Sums and averages of these values are exact, whichever ranks contribute.
    (model.weight * (number % 5 - 2.0)).sum().backward()


def proved(model, steps):
    alone, optimizer = fresh()
    for number in range(steps):
        optimizer.zero_grad()
        backward(alone, number)
        optimizer.step()
    return torch.equal(model.weight, alone.weight)


def grow():
    subprocess.Popen([os.environ["HVDRUN"], "scale", os.environ["HVD_TEST_JOB"], "4"])


def main():
    hvd.init()
    model, optimizer = fresh()
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer, steps=0, joined_at=0)

    @hvd.elastic.run
    def train(state):
        while not state.joined_at or state.steps < state.joined_at + AFTER:
            if state.steps == BEFORE and hvd.rank() == 0:
                grow()
            optimizer.zero_grad()
            backward(model, state.steps)
            optimizer.step()
            state.steps += 1
            state.joined_at = state.joined_at or (state.steps if hvd.size() == 4 else 0)
            giver = hvd.rank() == 0 and not state.joined_at
            state.check_host_updates()
            if state._delivery and giver and sys.argv[1] == "dies":
                threading.Timer(0.04 * random.random(), os.kill, (os.getpid(), signal.SIGKILL)).start()

    train(state)
    assert proved(model, state.steps), f"not the weights after {state.steps} steps"
    print(f"proved, {hvd.size()} ranks, {state.steps} steps", flush=True)


main()
