# SPDX-License-Identifier: Apache-2.0
"""hvd.torch.elastic: elastic training with PyTorch. The text of the module hvd.elastic explains how it
works and how it differs from Horovod.

    hvd.init()
    sampler = hvd.elastic.ElasticSampler(dataset)
    loader = torch.utils.data.DataLoader(dataset, batch_size=32, sampler=sampler)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0)
    state.register_resize_callbacks([hvd.elastic.scale_lr(optimizer)])

    @hvd.elastic.run
    def train(state):
        while state.epoch < epochs:
            for index, (x, y) in enumerate(sampler.whole_epoch(loader)):
                optimizer.zero_grad()
                loss_fn(model(x), y).backward()
                optimizer.step()
                sampler.record_batch(index, 32)
                state.check_host_updates()
            state.epoch += 1
            sampler.set_epoch(state.epoch)
            state.commit()

    train(state)

Do not call hvd.broadcast_parameters() or another collective between init() and train(): a joiner would wait
in it forever, because the other ranks are training. run() synchronizes the state of all ranks.
"""
from ...elastic import (  # noqa: F401
    HorovodInternalError,
    HostsUpdatedInterrupt,
    Left,
    ObjectState,
    State,
    commit,
    run,
    scale_lr,
    world,
)
from .sampler import ElasticSampler  # noqa: F401
from .state import TorchState  # noqa: F401
