# SPDX-License-Identifier: Apache-2.0
"""Under torchrun or with its variables set by hand, before and after torch.distributed's own start."""
import os

import torch
import torch.distributed as dist

import hvd.torch as hvd

OWN_LIFE = True  # calls init and shutdown itself


def everything():
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size() == int(os.environ["WORLD_SIZE"])
    assert hvd.rank() == int(os.environ["RANK"])


def test_before():
    hvd.init()
    assert "HVD_RENDEZVOUS" not in os.environ and "HVD_KEY_FILE" not in os.environ
    everything()
    hvd.shutdown()


def test_beside():
    dist.init_process_group("gloo")
    hvd.init()
    everything()
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == hvd.size()
    dist.barrier()
    dist.destroy_process_group()
    hvd.barrier()  # no rank's client is left when rank 0's store ends, which would abort it
    hvd.shutdown()


def test_after():
    hvd.init()
    everything()
    hvd.shutdown()
