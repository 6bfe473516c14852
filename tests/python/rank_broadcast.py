# SPDX-License-Identifier: Apache-2.0
"""What one rank sends to the others before training: parameters, buffers, the optimizer's state."""
import warnings

import torch
from harness import raises
from rank_optimizer import Net, data, loss_of, make

import hvd.torch as hvd


def test_broadcast_parameters():
    torch.manual_seed(100 + hvd.rank())
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    root = hvd.size() - 1
    if hvd.rank() == root:
        model(torch.randn(5, 3))
    hvd.broadcast_parameters(model.state_dict(), root_rank=root)
    hvd.broadcast_parameters(model.named_parameters(), root_rank=root)
    states = hvd.allgather_object({k: v.cpu().numpy().tobytes() for k, v in model.state_dict().items()})
    assert all(s == states[0] for s in states)
    assert model[1].num_batches_tracked == 1
    slanted = torch.full([3, 2], float(hvd.rank())).t()
    hvd.broadcast_parameters([("slanted", slanted)], root_rank=root)
    assert (slanted == root).all()
    with raises(ValueError, "not a tensor"):
        hvd.broadcast_parameters({"x": 3}, 0)
    for wrong in (7, torch.zeros(3)):
        with raises(ValueError, "needs model.state_dict()"):
            hvd.broadcast_parameters(wrong, 0)


def test_broadcast_optimizer_state():
    for kind in ("sgd", "adam"):
        model = Net()
        optimizer = make(kind)(model.parameters())
        if hvd.rank() == 0:  # the others have no state
            for step in range(3):
                optimizer.zero_grad()
                loss_of(model, data(step, 0)).backward()
                optimizer.step()
            optimizer.param_groups[0]["lr"] = 0.0625
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        assert optimizer.param_groups[0]["lr"] == 0.0625
        wrapped = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        wrapped.zero_grad()
        loss_of(model, data(3, hvd.rank())).backward()
        wrapped.step()
        hvd.broadcast_optimizer_state(wrapped, root_rank=0)
        found = [v for s in wrapped.state.values() for v in s.values() if torch.is_tensor(v)]
        state = torch.cat([v.flatten() for v in found])
        values = hvd.allgather_object(state.cpu().numpy().tobytes())
        assert len(set(values)) == 1 and state.numel() > 100
        weights = hvd.allgather_object(model.last.weight.detach().cpu().numpy().tobytes())
        assert len(set(weights)) == 1


def test_broadcast_hyperparameters():
    """All values of the groups arrive, in the same group objects that a scheduler and a wrapped optimizer hold.
    Otherwise the scheduler would change only the root's learning rate."""
    me = hvd.rank()
    root = hvd.size() - 1
    model = Net()
    inner = torch.optim.Adam(
        [
            {"params": list(model.layers.parameters()), "lr": 0.1 + me, "betas": (0.5, 0.9 - me / 100)},
            {"params": list(model.last.parameters()), "weight_decay": float(me), "amsgrad": me == root},
        ],
        lr=2.0 + me,
        eps=10.0**-me,
    )
    schedule = torch.optim.lr_scheduler.StepLR(inner, 1, 0.5)
    optimizer = hvd.DistributedOptimizer(inner)
    hvd.broadcast_optimizer_state(optimizer, root_rank=root)
    first, second = optimizer.param_groups
    assert first["lr"] == 0.1 + root and first["betas"] == (0.5, 0.9 - root / 100)
    assert second["lr"] == 2.0 + root and second["weight_decay"] == root and second["amsgrad"]
    assert first["eps"] == 10.0**-root and not first["amsgrad"]
    assert [len(g["params"]) for g in optimizer.param_groups] == [4, 2]
    assert inner.param_groups is optimizer.param_groups and inner.state is optimizer.state
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the scheduler has not seen the wrapped optimizer's step()
        schedule.step()
    rates = hvd.allgather_object([g["lr"] for g in optimizer.param_groups])
    # Most schedulers start from the rates that they were created with. This one multiplies the current ones.
    assert rates == [[(0.1 + root) * 0.5, (2.0 + root) * 0.5]] * hvd.size(), rates
    before = model.last.weight.detach().clone()
    loss_of(model, data(0, me)).backward()
    optimizer.step()
    assert not torch.equal(model.last.weight, before)
