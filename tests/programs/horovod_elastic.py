#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""An elastic program as users of Horovod have it: it commits behind a step, its loops count in the state, and it combines a metric
at the end of each epoch. Rank 1 kills itself once, in the middle of an epoch (horovod_elastic.py MARK: a file that is
made then). Run by tests/e2e/test_horovod.sh."""
import os
import signal
import sys
import time

import torch

import horovod.torch as hvd

EPOCHS, BATCHES = 4, 40

hvd.init()
torch.manual_seed(1 + hvd.rank())
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


def die_once(state):
    if hvd.rank() == 1 and state.epoch == 1 and state.batch == 17 and not os.path.exists(sys.argv[1]):
        open(sys.argv[1], "w").close()
        os.kill(os.getpid(), signal.SIGKILL)


@hvd.elastic.run
def train(state):
    for state.epoch in range(state.epoch, EPOCHS):
        for state.batch in range(state.batch, BATCHES):
            die_once(state)
            x = torch.randn(8, 4)
            optimizer.zero_grad()
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            loss.backward()
            optimizer.step()
            time.sleep(0.02)
            if state.batch % 5 == 0:
                state.commit()
        state.batch = 0
        loss = hvd.allreduce(loss.detach(), name="loss").item()
        if hvd.rank() == 0:
            print(f"epoch {state.epoch} loss {loss:.6f} size {hvd.size()}", flush=True)
        state.commit()
    weights = hvd.allgather(model.weight.detach())
    assert torch.equal(weights, weights[:1].expand_as(weights)), weights


state = hvd.elastic.TorchState(model, optimizer, epoch=0, batch=0)
state.register_reset_callbacks([lambda: None])
train(state)
print(f"done on {hvd.size()} ranks", flush=True)
