# SPDX-License-Identifier: Apache-2.0
"""hvd.torch.elastic in a world that does not change: sending the state between ranks, run, a fixed job."""
import os

import torch
from harness import raises

import hvd.torch as hvd
from hvd import _transfer


class Thing:
    """Tensors by name."""

    def __init__(self, tensors):
        self.tensors = tensors

    def state_dict(self):
        return self.tensors

    def load_state_dict(self, tensors):
        self.tensors = tensors


def make(seed, **more):
    """A small model that has been trained a little, and its state."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01 * (seed + 1))
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for _ in range(seed + 1):
        optimizer.zero_grad()
        model(torch.randn(6, 5)).sum().backward()
        optimizer.step()
        schedule.step()
    return hvd.elastic.TorchState(model, optimizer, schedule=schedule, seed=seed, **more)


def fingerprint(state):
    """All numbers of a state."""
    numbers = [t.double().sum().item() for t in state.model.state_dict().values()]
    for moments in state.optimizer.state_dict()["state"].values():
        numbers += [float(torch.as_tensor(v).sum()) for v in moments.values()]
    groups = [{k: v for k, v in g.items() if k != "params"} for g in state.optimizer.param_groups]
    return repr((numbers, groups, state.schedule.state_dict()["last_epoch"], state.seed))


def all_equal(value):
    return len(set(hvd.allgather_object(value))) == 1


def test_start():
    state = make(hvd.rank())
    mine = fingerprint(state)
    root = hvd.broadcast_object(mine, 0)
    state.sync()
    assert fingerprint(state) == root and (hvd.rank() == 0 or mine != root)
    # The scheduler still drives the state's optimizer.
    assert state.schedule.optimizer is state.optimizer
    lr = state.optimizer.param_groups[0]["lr"]
    state.schedule.step()
    state.schedule.step()
    assert state.optimizer.param_groups[0]["lr"] < lr


def test_only_those_that_lack_it_receive():
    n = hvd.size()
    for lacking in ({n - 1}, set(range(1, n, 2)), set(range(n - 1))):
        state = make(hvd.rank() if hvd.rank() in lacking else 50, note=["of", hvd.rank()])
        state._version = 0 if hvd.rank() in lacking else 7
        if not set(range(n)) - lacking:
            continue
        before = hvd.stats()["bytes"]
        state.sync()
        moved = hvd.stats()["bytes"] - before
        assert state.seed == 50 and all_equal(fingerprint(state)), (lacking, state.seed)
        first = min(set(range(n)) - lacking)
        assert state.note == ["of", first if hvd.rank() in lacking else hvd.rank()]
        if hvd.rank() != first:
            assert moved < 1000 or len(lacking) == n - 1, moved  # ranks that have the state send nothing


def test_large_and_odd_tensors():
    kinds = {
        "large": torch.arange(3_000_001, dtype=torch.float64),
        "flags": torch.tensor([True, False, True]),
        "half": torch.ones(7, dtype=torch.bfloat16) * 3,
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(0, 3),
        "turned": torch.arange(12.0).view(3, 4).t(),
        "long": torch.tensor([2**62, -1]),
    }

    large, _transfer.LARGE = _transfer.LARGE, 5_000_003
    try:
        for version in (0, 5):
            mine = kinds if hvd.rank() == 0 else {}
            state = hvd.elastic.TorchState(thing=Thing(mine))
            state._version = version if hvd.rank() == 0 else 0
            state.sync()
            assert set(state.thing.tensors) == set(kinds)
            for name, tensor in kinds.items():
                got = state.thing.tensors[name]
                assert got.dtype == tensor.dtype and torch.equal(got, tensor), name
    finally:
        _transfer.LARGE = large


def test_what_does_not_pickle():
    if hvd.size() == 1:
        return
    state = hvd.elastic.ObjectState(thing=1)
    if hvd.rank() == 0:
        state.thing = (i for i in range(3))
        with raises(TypeError, "pickle"):
            state.sync()
    else:
        with raises(hvd.HvdError, "rank 0 could not pickle"):
            state.sync()


def test_restore():
    state = make(3, list=[1])
    saved = fingerprint(state)
    state.list.append(2)
    state.model[0].weight.data.add_(1)
    state.optimizer.param_groups[0]["lr"] = 9
    state.seed = 4
    state.restore()
    assert fingerprint(state) == saved and state.list == [1]
    state.seed = 5
    state.save()
    state.seed = 6
    state.restore()
    assert state.seed == 5
    other = torch.nn.Linear(1, 1)
    state.model = other
    other.weight.data.fill_(5)
    state.restore()
    assert state.model is other and other.weight.item() != 5


def test_run():
    sampler = hvd.elastic.ElasticSampler(range(29), seed=5)
    model = torch.nn.Linear(1, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0)
    loader = torch.utils.data.DataLoader(
        torch.arange(29.0), batch_size=2, sampler=sampler, num_workers=2 if hvd.rank() == 0 else 0
    )
    used = []

    @hvd.elastic.run
    def train(state, words, more):
        while state.epoch < 2:
            for index, batch in enumerate(sampler.whole_epoch(loader)):
                optimizer.zero_grad()
                model(batch[:, None]).sum().backward()
                optimizer.step()
                sampler.record_batch(index, 2)
                used.extend((state.epoch, int(x)) for x in batch)
                state.check_host_updates()
            assert sampler.processed_num == 29, sampler.processed_num
            state.epoch += 1
            sampler.set_epoch(state.epoch)
            state.commit()
        return words, more

    assert train(state, 1, more=2) == (1, 2)
    together = [x for part in hvd.allgather_object(used) for x in part]
    assert set(together) == {(e, i) for e in (0, 1) for i in range(29)}
    assert len(together) == 2 * -(-29 // hvd.size()) * hvd.size()


def test_a_checkpoint():
    sampler = hvd.elastic.ElasticSampler(range(40))
    items = iter(sampler)
    taken = [next(items) for _ in range(3)]
    sampler.record_batch(0, 3)
    other = hvd.elastic.ElasticSampler(range(40))
    other.load_state_dict(sampler.state_dict())
    rest = list(other)
    everything = sorted(x for part in hvd.allgather_object(taken + rest) for x in part)
    assert set(everything) == set(range(40)) and len(everything) < 40 + hvd.size()
    assert other.processed_num == 3 * hvd.size()


def test_error_begins_again():
    state = hvd.elastic.ObjectState(step=0, kept=[])
    calls = []
    state.register_reset_callbacks([lambda: calls.append(hvd.size())])

    @hvd.elastic.run(reset_limit=2)
    def train(state, failures):
        state.step += 1
        state.kept.append(state.step)
        state.commit()
        state.step += 10
        state.kept.append("not committed")
        if len(calls) < failures:
            raise hvd.HorovodInternalError("planned")
        return state.step

    assert train(state, 2) == 13 and state.kept == [1, 2, 3, "not committed"], state.kept
    assert calls == [hvd.size()] * 2, calls
    with raises(hvd.HorovodInternalError, "planned"):
        train(state, 9)
    assert hvd.is_initialized() and len(calls) == 4


def test_fixed_job():
    world = hvd.elastic.world()
    assert (world.rank, world.size) == (hvd.rank(), hvd.size()) and not world.is_new
    if "HVD_ELASTIC" not in os.environ:
        assert not world.elastic and not hvd.elastic.commit()


def trained(kind, **options):
    """A model and its DistributedOptimizer after two steps. Each rank has seen other data."""
    torch.manual_seed(hvd.rank())
    model = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.BatchNorm1d(40), torch.nn.Linear(40, 3))
    optimizer = hvd.DistributedOptimizer(kind(model.parameters(), lr=0.1, **options), model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer, steps=0)
    for _ in range(2):
        step(state)
    return state


def step(state):
    def backward():
        state.optimizer.zero_grad()
        loss = state.model(torch.ones(4, 30) * (1 + state.steps)).square().mean()
        loss.backward()
        return loss

    if isinstance(state.optimizer, torch.optim.LBFGS):
        state.optimizer.step(backward)
    else:
        backward()
        state.optimizer.step()
    state.steps += 1


def numbers(state):
    moments = state.optimizer.state_dict()["state"].values()
    tensors = list(state.model.state_dict().values()) + [v for m in moments for v in m.values()]
    return [t.double().sum().item() for t in tensors if torch.is_tensor(t)]


def join_last(state):
    """The last rank joins the others, which train on."""
    state.sync()  # all start with the same state
    last = hvd.size() - 1
    if hvd.rank() == last:
        for tensor in state.model.state_dict().values():
            tensor.zero_()
        state.optimizer.state.clear()
        state._version = 0
    state.sync()
    return hvd.rank() == last


def test_moments_follow():
    """The moments travel while the others train on, and step() waits for them."""
    if hvd.size() < 3:
        return
    for kind, options in ((torch.optim.Adam, {}), (torch.optim.SGD, {"momentum": 0.9})):
        state = trained(kind, **options)
        new = join_last(state)
        assert state._delivery and state.optimizer._hvd_awaits is state
        assert bool(state.optimizer.state) != new
        step(state)
        assert not state._delivery and not state.optimizer._hvd_awaits
        assert all_equal(repr(numbers(state))), numbers(state)
        step(state)
        state.commit()
        assert all_equal(repr(numbers(state)))


def test_moments_that_are_asked_for():
    """Before step() the moments are complete: by a commit, by a lone joiner, by a step with a closure, by the next
    joiner."""
    if hvd.size() < 3:
        return
    for how in ("commit", "bare", "dict", "save", "sync"):
        state = trained(torch.optim.Adam)
        new = join_last(state)
        if how == "dict":
            assert len(state.optimizer.state_dict()["state"]) == 6
        elif new or how != "save":
            ways = {"commit": state.check_host_updates, "bare": hvd.elastic.commit, "save": state.save, "sync": state.sync}
            ways[how]()
            assert len(state.optimizer.state) == 6
        if how == "save" and new:
            assert len(state._handlers["optimizer"].saved["state"]) == 6
        before = numbers(state)
        assert all_equal(repr(before)), (how, before)
        step(state)
        assert not state._delivery and all_equal(repr(numbers(state)))
    state = trained(torch.optim.LBFGS, max_iter=2)
    join_last(state)
    step(state)
    assert not state._delivery and all_equal(repr(numbers(state)))


def test_gradients_while_moments_come():
    """Gradients in flight do not change when a joiner is asked for its moments."""
    if hvd.size() < 3:
        return
    state = trained(torch.optim.Adam)
    join_last(state)
    state.optimizer.zero_grad()
    state.model(torch.ones(4, 30)).square().mean().backward()
    assert len(state.optimizer.state_dict()["state"]) == 6
    state.optimizer.synchronize()
    with state.optimizer.skip_synchronize():
        state.optimizer.step()
    assert all_equal(repr(numbers(state)))


def test_nothing_follows():
    """An optimizer that does not wait, and one without state."""
    if hvd.size() < 3:
        return
    state = trained(torch.optim.SGD)
    join_last(state)
    assert not state._delivery
    torch.manual_seed(1)
    model = torch.nn.Linear(3, 3)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    state = hvd.elastic.TorchState(model, optimizer)
    new = join_last(state)
    assert not state._delivery and len(optimizer.state) == 2, new


def test_default_device():
    """A state of host tensors is received in host memory, even if the program's default device is another one."""
    if not hasattr(torch, "set_default_device"):
        print("SKIP: this torch has no default device")
        return
    weight = torch.arange(6.0, device="cpu")
    state = hvd.elastic.TorchState(thing=Thing({"weight": weight} if hvd.rank() == 0 else {}))
    with torch.device("meta"):  # its tensors have no memory
        state.sync()
    assert state.thing.tensors["weight"].device.type == "cpu"
    assert torch.equal(state.thing.tensors["weight"], weight)
