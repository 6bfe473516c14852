# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: training on N ranks equals training of one process on all data."""
import warnings

import torch
from harness import raises

import hvd.torch as hvd

BATCH = 4  # samples of a rank


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9, 5), torch.nn.Tanh()
        )
        self.last = torch.nn.Linear(5, 2)
        self.scale = torch.nn.Parameter(torch.tensor(1.5))  # no dimensions

    def forward(self, x):
        return self.last(self.layers(x)) * self.scale


def data(step, rank=None):
    """A rank's data in a step. rank None: the data of all ranks, in their order."""
    ranks = range(hvd.size()) if rank is None else [rank]
    parts = []
    for r in ranks:
        g = torch.Generator().manual_seed(1000 * step + r)
        parts.append(torch.randn(BATCH, 7, generator=g, device="cpu"))
    both = torch.cat(parts).to(torch.empty(0).device)
    return both[:, :6], both[:, 6:].expand(-1, 2)


def loss_of(model, xy):
    return torch.nn.functional.mse_loss(model(xy[0]), xy[1])


def make(kind):
    return {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    }[kind]


def compare(ours, single, tolerance=1e-5):
    for (name, a), b in zip(ours.named_parameters(), single.parameters()):
        assert torch.allclose(a, b, atol=tolerance, rtol=tolerance), f"{name}: {(a - b).abs().max()}"
    for name, a in ours.named_parameters():
        assert len({v.tobytes() for v in hvd.allgather_object(a.detach().cpu().numpy())}) == 1, name


def train(kind="sgd", steps=5, tolerance=1e-5, **options):
    ours, single = Net(), Net()
    optimizer = hvd.DistributedOptimizer(
        make(kind)(ours.parameters()), named_parameters=ours.named_parameters(), **options
    )
    reference = make(kind)(single.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(ours, data(step, hvd.rank())).backward()
        optimizer.step()
        reference.zero_grad()
        loss_of(single, data(step)).backward()
        reference.step()
    compare(ours, single, tolerance)
    return ours, optimizer


def test_gradients():
    ours, single = Net(), Net()
    optimizer = hvd.DistributedOptimizer(make("sgd")(ours.parameters()), ours.named_parameters())
    loss_of(ours, data(0, hvd.rank())).backward()
    optimizer.synchronize()
    loss_of(single, data(0)).backward()
    for (name, a), b in zip(ours.named_parameters(), single.parameters()):
        assert torch.allclose(a.grad, b.grad, atol=1e-6), name


def test_overlap():
    """Gradients of the last layers are in flight while backward computes the first ones."""
    model = Net()
    optimizer = hvd.DistributedOptimizer(make("sgd")(model.parameters()), model.named_parameters())
    seen = []
    first = model.layers(data(0, hvd.rank())[0])
    first.register_hook(lambda _: seen.append({g.name for g in optimizer._hvd_flight}))
    torch.nn.functional.mse_loss(model.last(first) * model.scale, data(0, hvd.rank())[1]).backward()
    assert seen == [{"allreduce.scale", "allreduce.last.weight", "allreduce.last.bias"}], seen
    optimizer.step()


def test_sgd():
    train("sgd", steps=20)


def test_adam():
    train("adam", tolerance=1e-4)


def test_class():
    _, optimizer = train("adam", steps=1, tolerance=1e-4)
    assert isinstance(optimizer, torch.optim.Adam) and type(optimizer).__name__ == "Adam"
    assert len(optimizer.state_dict()["state"]) == 7


def test_predivide():
    train(gradient_predivide_factor=2.0)
    with raises(ValueError, "Average"):
        train(gradient_predivide_factor=2.0, op=hvd.Sum)


def test_groups():
    train(groups=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train(num_groups=100)
    model = Net()
    optimizer = hvd.DistributedOptimizer(
        make("sgd")(model.parameters()), model.named_parameters(), groups=[list(model.last.parameters())]
    )
    loss_of(model, data(0, hvd.rank())).backward()
    optimizer.step()
    twice = [[model.scale], [model.scale]]
    with raises(ValueError, "more than one group"):
        hvd.DistributedOptimizer(make("sgd")(model.parameters()), model.named_parameters(), groups=twice)


def test_compression():
    train(compression=hvd.Compression.fp16, tolerance=0.02)
    train(compression=hvd.Compression.bf16, tolerance=0.1)
    train(compression=hvd.Compression.fp16, groups=2, tolerance=0.02)


def test_sum():
    ours, single = Net(), Net()
    optimizer = hvd.DistributedOptimizer(
        make("sgd")(ours.parameters()), ours.named_parameters(), op=hvd.Sum
    )
    loss_of(ours, data(0, hvd.rank())).backward()
    optimizer.synchronize()
    (loss_of(single, data(0)) * hvd.size()).backward()
    for a, b in zip(ours.parameters(), single.parameters()):
        assert torch.allclose(a.grad, b.grad, atol=1e-5)


def test_adasum():
    """Each rank makes a step of its own; what it has changed is combined."""
    for kind in "sgd", "adam":
        ours, other = Net(), Net()
        optimizer = hvd.DistributedOptimizer(make(kind)(ours.parameters()), ours.named_parameters(), op=hvd.Adasum)
        plain = make(kind)(other.parameters())
        for step in range(3):
            for model, opt in (ours, optimizer), (other, plain):
                opt.zero_grad()
                loss_of(model, data(step, hvd.rank())).backward()
            before = [p.detach().clone() for p in other.parameters()]
            plain.step()
            optimizer.step()
            for i, (p, old) in enumerate(zip(other.parameters(), before)):
                p.data.copy_(old + hvd.allreduce(p.detach() - old, op=hvd.Adasum, name=f"reference.{i}"))
        compare(ours, other, 1e-6)
    with raises(AssertionError, "skip_synchronize"), optimizer.skip_synchronize():
        pass
    optimizer.synchronize()
    with raises(ValueError, "already"):
        hvd.DistributedOptimizer(optimizer)


def test_adasum_of_equal_changes():
    """It is that change."""
    ours, single = Net(), Net()
    optimizer = hvd.DistributedOptimizer(make("sgd")(ours.parameters()), op=hvd.Adasum)
    plain = make("sgd")(single.parameters())
    for step in range(3):
        for model, opt in (ours, optimizer), (single, plain):
            opt.zero_grad()
            loss_of(model, data(step)).backward()
            opt.step()
    compare(ours, single, 1e-5)


def test_backward_passes_per_step():
    ours, single = Net(), Net()
    optimizer = hvd.DistributedOptimizer(
        make("sgd")(ours.parameters()), ours.named_parameters(), backward_passes_per_step=2
    )
    reference = make("sgd")(single.parameters())
    for step in range(3):
        for model, opt, rank in ((ours, optimizer, hvd.rank()), (single, reference, None)):
            opt.zero_grad()
            for half in range(2):
                (loss_of(model, data(2 * step + half, rank)) / 2).backward()
            opt.step()
    compare(ours, single)
    optimizer.zero_grad()
    for half in range(2):
        loss_of(ours, data(half, hvd.rank())).backward()
    with raises(AssertionError, "backward_passes_per_step"):
        loss_of(ours, data(0, hvd.rank())).backward()
    optimizer.synchronize()
    optimizer.set_backward_passes_per_step(1)
    optimizer.zero_grad()
    loss_of(ours, data(0, hvd.rank())).backward()
    assert optimizer._hvd_flight
    optimizer.step()


def test_unused_parameters():
    """Ranks that did not use a layer contribute zeros, and no rank waits for ever."""
    ours = Net()
    spare = torch.nn.Linear(3, 3)
    params = [("net." + n, p) for n, p in ours.named_parameters()]
    params += [("spare." + n, p) for n, p in spare.named_parameters()]
    optimizer = hvd.DistributedOptimizer(make("sgd")([p for _, p in params]), params)
    loss = loss_of(ours, data(0, hvd.rank()))
    if hvd.rank() == 0:
        loss = loss + spare(torch.ones(1, 3)).sum()
    loss.backward()
    optimizer.synchronize()
    assert torch.allclose(spare.bias.grad, torch.full([3], 1.0 / hvd.size()))


def test_closure_and_scheduler():
    ours, single = Net(), Net()
    optimizer = hvd.DistributedOptimizer(make("sgd")(ours.parameters()), ours.named_parameters())
    reference = make("sgd")(single.parameters())
    schedules = [torch.optim.lr_scheduler.StepLR(o, 1, 0.5) for o in (optimizer, reference)]
    for step in range(3):
        for model, opt, rank in ((ours, optimizer, hvd.rank()), (single, reference, None)):

            def closure(model=model, opt=opt, rank=rank, step=step):
                opt.zero_grad()
                loss = loss_of(model, data(step, rank))
                loss.backward()
                return loss

            assert torch.is_tensor(opt.step(closure))
        for schedule in schedules:
            schedule.step()
    assert optimizer.param_groups[0]["lr"] == reference.param_groups[0]["lr"] == 0.0125
    compare(ours, single)


def test_sparse():
    def embedding():
        torch.manual_seed(4)
        return torch.nn.Embedding(10, 3, sparse=True)

    for dense in (False, True):
        ours, single = embedding(), embedding()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(ours.parameters(), lr=0.1), ours.named_parameters(), sparse_as_dense=dense
        )
        reference = torch.optim.SGD(single.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            used = [[r, step, 9] if r or step != 1 else [] for r in range(hvd.size())]
            mine = used[hvd.rank()]
            if mine:  # rank 0 has no data in step 1
                ours(torch.tensor(mine)).sum().backward()
            optimizer.step()
            reference.zero_grad()
            rows = [i for part in used for i in part]
            if rows:
                (single(torch.tensor(rows)).sum() / hvd.size()).backward()
                reference.step()
        compare(ours, single)


def test_sparse_on_some_ranks():
    """In the first step a gradient is sparse on some ranks, dense or missing on others: an error on all ranks."""
    if hvd.size() == 1:
        return
    for other in ("dense", "none"):
        table = torch.nn.Embedding(10, 3, sparse=hvd.rank() == 0)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(table.parameters(), lr=0.1), [(f"table.{other}", table.weight)]
        )
        before = table.weight.detach().clone()
        if hvd.rank() == 0 or other == "dense":
            table(torch.tensor([1, 2])).sum().backward()
        with raises(hvd.HvdError, f"allreduce.table.{other}", "allgather", "allreduce", "sparse_as_dense"):
            optimizer.step()
        assert torch.equal(table.weight, before)
    hvd.barrier()


def test_backward_after_synchronize():
    """A gradient that was added to after synchronize() is exchanged again before step() uses it."""
    ours, single = Net(), Net()
    optimizer = hvd.DistributedOptimizer(
        make("sgd")(ours.parameters()), ours.named_parameters(), backward_passes_per_step=2
    )
    reference = make("sgd")(single.parameters())
    for model, opt, rank in ((ours, optimizer, hvd.rank()), (single, reference, None)):
        loss_of(model, data(0, rank)).backward()
        if rank is not None:
            opt.synchronize()
        loss_of(model, data(1, rank)).backward()
        opt.step()
    compare(ours, single)


def test_bad_options():
    model = Net()
    sgd = make("sgd")(model.parameters())
    wrong = [
        ({"op": 7}, ValueError, "op should be"),
        ({"op": hvd.Adasum, "groups": 2}, ValueError, "no groups"),
        ({"compression": "fp16"}, ValueError, "compression should be"),
        ({"groups": "two"}, ValueError, "groups should be"),
        ({"groups": list(model.parameters())}, ValueError, "groups should be"),
        ({"groups": -1}, ValueError, "not be negative"),
        ({"backward_passes_per_step": 0}, ValueError, "backward_passes_per_step"),
        ({"backward_passes_per_step": 1.5}, ValueError, "backward_passes_per_step"),
        ({"gradient_predivide_factor": 0}, ValueError, "must be positive"),
        ({"named_parameters": model}, ValueError, "model.named_parameters()"),
    ]
    for options, kind, words in wrong:
        with raises(kind, words):
            hvd.DistributedOptimizer(sgd, **options)
    with raises(ValueError, "Optimizer is needed, got Net"):
        hvd.DistributedOptimizer(model)
    with raises(ValueError, "already"):
        hvd.DistributedOptimizer(hvd.DistributedOptimizer(sgd))


def test_begin_anew():
    """load_state_dict() and drop_gradients() drop gradients in flight, incomplete groups, and counts of backward passes."""
    ours, single = Net(), Net()
    halves = [list(ours.last.parameters()) + [ours.layers[0].weight]]
    optimizer = hvd.DistributedOptimizer(
        make("sgd")(ours.parameters()),
        ours.named_parameters(),
        backward_passes_per_step=2,
        groups=halves,
    )
    reference = make("sgd")(single.parameters())
    saved = optimizer.state_dict()
    for half in range(2):  # the group's other member is still missing
        loss = ours.last(torch.ones(2, 5)).sum()
        loss.backward()
    with raises(AssertionError, "exchanging 2 gradients"):
        optimizer.zero_grad()
    optimizer.load_state_dict(saved)
    loss_of(ours, data(5, hvd.rank())).backward()
    optimizer.drop_gradients()
    optimizer.zero_grad()
    for half in range(2):
        (loss_of(ours, data(half, hvd.rank())) / 2).backward()
        (loss_of(single, data(half)) / 2).backward()
    optimizer.step()
    reference.step()
    compare(ours, single)


def test_not_contiguous_gradient():
    torch.manual_seed(5)
    conv = torch.nn.Conv2d(2, 4, 3).to(memory_format=torch.channels_last)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(conv.parameters(), lr=0.1), conv.named_parameters()
    )
    x = torch.randn(2, 2, 5, 5).to(memory_format=torch.channels_last)
    conv(x * (hvd.rank() + 1)).sum().backward()
    optimizer.synchronize()
    weight = conv.weight.detach().clone().requires_grad_()
    torch.nn.functional.conv2d(x * (hvd.size() + 1) / 2, weight).sum().backward()
    assert torch.allclose(conv.weight.grad, weight.grad, rtol=1e-4, atol=1e-4)
    optimizer.step()


def test_names():
    model = Net()
    params = list(model.parameters())
    with raises(ValueError, "have no name"):
        hvd.DistributedOptimizer(make("sgd")(params), [("one", params[0])])
    with raises(ValueError, "not unique: x"):
        hvd.DistributedOptimizer(make("sgd")(params), [("x", p) for p in params])
    with raises(ValueError, "pairs"):
        hvd.DistributedOptimizer(make("sgd")(params), params)
    hvd.DistributedOptimizer(make("sgd")(params))


def test_add_param_group():
    model = Net()
    optimizer = hvd.DistributedOptimizer(make("sgd")(model.last.parameters()))
    optimizer.add_param_group({"params": list(model.layers.parameters()), "lr": 0.01})
    loss_of(model, data(0, hvd.rank())).backward()
    optimizer.synchronize()
    grads = hvd.allgather_object(model.layers[0].weight.grad.cpu().numpy().tobytes())
    assert len(set(grads)) == 1


def test_mismatch_in_training():
    """One rank has another model: every rank's step() names the gradient."""
    if hvd.size() == 1:
        return
    width = 5 if hvd.rank() == 0 else 4
    model = torch.nn.Linear(3, width)
    optimizer = hvd.DistributedOptimizer(make("sgd")(model.parameters()), model.named_parameters())
    model(torch.ones(2, 3)).sum().backward()
    with raises(hvd.HvdError, "allreduce."):
        optimizer.step()
