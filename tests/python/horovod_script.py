#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A program written for Elastic Horovod: it commits when it has a batch, before the step,
counts batches itself, scales its learning rate in a reset callback. Only the module horovod
is ours. Used by tests/e2e/test_elastic_python.sh.

    horovod_script.py SECONDS SIZE     trains for SECONDS and until there are SIZE ranks, and then to the end of the epoch
"""
import sys
import time

import torch

import hvd.horovod_alias

hvd.horovod_alias.install()
import horovod.torch as hvd  # noqa: E402
from horovod.torch.elastic.sampler import ElasticSampler  # noqa: E402

BATCH, BATCHES_PER_COMMIT, BATCHES_PER_HOST_CHECK, BASE_LR = 4, 5, 2, 0.01
PATIENCE_S = 120  # a joiner loads PyTorch first, which takes long on a busy machine

hvd.init()
torch.manual_seed(42)
torch.set_num_threads(1)
inputs = torch.randn(300, 10)
dataset = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
sampler = ElasticSampler(dataset)
loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH, sampler=sampler)
model = torch.nn.Linear(10, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=BASE_LR * hvd.size(), momentum=0.5)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
begin = time.monotonic()


def train(state):
    model.train()
    batch_offset = state.batch
    for idx, (data, target) in enumerate(loader):
        state.batch = batch_idx = batch_offset + idx
        if batch_idx % BATCHES_PER_COMMIT == 0:
            state.commit()
        elif batch_idx % BATCHES_PER_HOST_CHECK == 0:
            state.check_host_updates()
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(data), target)
        loss.backward()
        optimizer.step()
        state.train_sampler.record_batch(idx, BATCH)
        time.sleep(0.01)


def validate():
    with torch.no_grad():
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    return float(hvd.allreduce(loss, name="avg_loss"))


def end_epoch(state):
    seconds = time.monotonic() - begin
    over = seconds > PATIENCE_S or (seconds > float(sys.argv[1]) and hvd.size() >= int(sys.argv[2]))
    state.over = bool(hvd.allreduce(torch.tensor([int(over)]), op=hvd.Max, name="over"))
    state.epoch += 1
    state.batch = 0
    state.train_sampler.set_epoch(state.epoch)
    state.commit()


@hvd.elastic.run
def full_train(state):
    while not state.over:
        train(state)
        loss = validate()
        if hvd.rank() == 0:
            print(f"epoch {state.epoch} loss {loss:.6f} size {hvd.size()}", flush=True)
        end_epoch(state)
    return loss_of_all()


def loss_of_all():
    weights = hvd.allgather(model.weight.detach(), name="weights")
    assert torch.equal(weights[:1].expand_as(weights), weights), weights
    return validate()


def on_state_reset():
    for group in optimizer.param_groups:
        group["lr"] = BASE_LR * hvd.size()


state = hvd.elastic.TorchState(
    model=model, optimizer=optimizer, train_sampler=sampler, epoch=0, batch=0, over=False
)
state.register_reset_callbacks([on_state_reset])
loss = full_train(state)
if hvd.rank() == 0:
    print(f"done: loss {loss:.6f} on {hvd.size()} ranks, {state.epoch} epochs", flush=True)
