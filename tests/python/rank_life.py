# SPDX-License-Identifier: Apache-2.0
"""Repeated init and shutdown; calls before, between and after."""
import json
import os
import tempfile

import torch
from harness import raises

import hvd.torch as hvd

OWN_LIFE = True  # calls init and shutdown itself


def test_before_init():
    assert not hvd.is_initialized()
    for call in (hvd.rank, hvd.size, lambda: hvd.allreduce(torch.ones(1)), hvd.barrier):
        with raises(hvd.HvdError):
            call()
    with raises(NotImplementedError):
        hvd.init(comm=[0])
    hvd.shutdown()


def test_again_and_again():
    for i in range(20):
        hvd.init()
        hvd.init()
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
        hvd.shutdown()
        hvd.shutdown()
        assert not hvd.is_initialized()


def test_handle_of_another_life():
    hvd.init()
    handle = hvd.allreduce_async(torch.ones(1), name="left behind")
    hvd.shutdown()
    with raises(ValueError):
        hvd.synchronize(handle)


def test_timeline():
    hvd.init()
    folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None, name="folder")
    path = os.path.join(folder, "timeline.json")
    hvd.start_timeline(path)
    hvd.allreduce(torch.ones(5), name="seen")
    hvd.barrier()
    hvd.stop_timeline()
    if hvd.rank() == 0:
        with open(path) as file:
            assert "allreduce.seen" in json.dumps(json.load(file))
        os.unlink(path)
        os.rmdir(folder)
    stats = hvd.stats()
    assert stats["ops"] >= 2 and stats["bytes"] >= 20, stats
    hvd.shutdown()
