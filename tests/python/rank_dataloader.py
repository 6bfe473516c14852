# SPDX-License-Identifier: Apache-2.0
"""Training with a DataLoader of two forked workers, which start while the engine runs."""
import torch
from harness import raises
from torch.utils.data import DataLoader, Dataset

import hvd.torch as hvd


class Squares(Dataset):
    """A data set that checks that it is read in a child, which has no engine."""

    def __len__(self):
        return 64

    def __getitem__(self, i):
        if torch.utils.data.get_worker_info():
            with raises(hvd.HvdError):
                hvd.allreduce(torch.ones(1))
        x = torch.tensor([(i + hvd_rank) / 64.0])
        return x, x * x


hvd_rank = 0


def test_training():
    global hvd_rank
    hvd_rank = hvd.rank()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(1, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model.named_parameters()
    )
    hvd.broadcast_parameters(model.state_dict(), 0)
    losses = []
    for epoch in range(4):
        order = torch.Generator().manual_seed(epoch)
        loader = DataLoader(
            Squares(), 8, shuffle=True, num_workers=2, generator=order, multiprocessing_context="fork"
        )
        losses.append(0.0)
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            losses[-1] += float(hvd.allreduce(loss.detach()))
    assert losses[-1] < losses[0] / 2, losses
    weights = hvd.allgather_object(model[0].weight.detach().numpy().tobytes())
    assert len(set(weights)) == 1
