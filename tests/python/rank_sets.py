# SPDX-License-Identifier: Apache-2.0
"""Process sets: every operation in sets that overlap, gradients, optimizers, objects, what is refused. Three ranks at
least."""
import torch
from harness import raises
from rank_ops import combined, mine, same

import hvd.torch as hvd
from hvd import _lib, messages

OWN_LIFE = True
sets = {}


def members(name):
    """The set of this name, and the tensors of its ranks as mine() makes them."""
    chosen = sets[name]
    return chosen, lambda shape, base=0: [mine(shape, rank=r, base=base) for r in chosen.ranks]


def test_static():
    """Sets that are given to init()."""
    unset = hvd.ProcessSet([0])
    assert unset.ranks == [0] and unset.size() is None and unset.rank() is None
    with raises(hvd.HvdError, "no rank 99"):
        hvd.init(process_sets=[[0, 99]])
    assert not hvd.is_initialized()
    assert hvd.global_process_set.included() is None and hvd.global_process_set.ranks is None
    first = hvd.ProcessSet([0])
    last = hvd.ProcessSet([2, 0])
    hvd.init(process_sets=[first, last])
    assert first.process_set_id == 1 and first.ranks == [0] and first.size() == 1
    assert hvd.global_process_set.ranks == list(range(hvd.size()))
    assert hvd.global_process_set.rank() == hvd.rank() and hvd.global_process_set.size() == hvd.size()
    sets["first"], sets["last"] = first, last


def test_added():
    size = hvd.size()
    sets["lower"] = hvd.add_process_set(range(size - 1))
    sets["upper"] = hvd.add_process_set(hvd.ProcessSet(list(range(size - 1, 0, -1))))
    assert sets["upper"].ranks == sorted(sets["upper"].ranks)
    assert sets["upper"].included() == (hvd.rank() in sets["upper"].ranks)
    assert "ranks=[0]" in str(sets["first"])
    known = hvd.known_process_sets()
    assert known == [sets[name] for name in ("first", "last", "lower", "upper")], known
    assert sets["upper"].source() == 1 and hvd.global_process_set.source() == hvd.elastic.world().source
    assert hvd.ProcessSet([0]).source() is None


def test_by_rule():
    """The last rank is in no group of "ends", whose rule is a function of this program."""
    size = hvd.size()
    seen = []

    def ends(roster, rank, k):
        seen.append((roster, rank, k))
        return None if rank == roster.size - 1 else rank % k

    hvd.define_rule("ends", ends)
    sets["everyone"] = hvd.split_process_set("host")
    assert sets["everyone"].ranks == list(range(size)) and hvd.find_process_set("host") is sets["everyone"]
    sets["ends"] = hvd.split_process_set("ends 2")
    mine_now = [r for r in range(size - 1) if r % 2 == hvd.rank() % 2] if hvd.rank() < size - 1 else []
    assert sets["ends"].ranks == mine_now and sets["ends"].included() == bool(mine_now), sets["ends"]
    everyone = list(range(size))
    assert seen == [((size, [0] * size, everyone, everyone), r, 2) for r in everyone], seen
    hvd.define_rule("wrong", lambda roster, rank, k: rank if hvd.rank() == 1 else 0)
    with raises(hvd.HvdError, "rank 0 puts rank 1 into group 0, rank 1 puts it into group 1"):
        hvd.split_process_set("wrong")
    hvd.define_rule("raises", lambda roster, rank, k: roster.nothing)
    with raises(hvd.HvdError, "rank 0: the rule 'raises' has failed for rank 0"):
        hvd.split_process_set("raises")
    hvd.define_rule("large", lambda roster, rank, k: 1 << 32)
    with raises(hvd.HvdError, "rank 0: the rule 'large' has put rank 0 into group 2147483647"):
        hvd.split_process_set("large")
    with raises(TypeError, "needs a function"):
        hvd.define_rule("number", 3)
    with raises(TypeError if hvd.rank() == 1 else hvd.HvdError, "text of a rule" if hvd.rank() == 1 else "rank 1 divides the ranks by ''"):
        hvd.split_process_set(None if hvd.rank() == 1 else "host")
    for wrong in ("every", "host 2", "nobody"):
        with raises(hvd.HvdError, "no rule"):
            hvd.split_process_set(wrong)
    assert hvd.find_process_set("blocks 2") is None


def test_refused():
    size = hvd.size()
    for wrong in ([0.5], ["a"], [True], "ab", None, 3, [2**32]):
        with raises(ValueError, "made from ranks"):
            hvd.ProcessSet(wrong)
    with raises(ValueError, "of the ranks [0] already", "process_set_id=1"):
        hvd.add_process_set([0])
    with raises(ValueError, "hvd.global_process_set"):
        hvd.add_process_set(range(size))
    with raises(ValueError if hvd.rank() == 1 else hvd.HvdError, "made from ranks" if hvd.rank() == 1 else "adds no rank"):
        hvd.add_process_set("ab" if hvd.rank() == 1 else [1])
    for wrong in ([0], 1, None):
        with raises(TypeError, "should be a ProcessSet"):
            hvd.allreduce(torch.zeros(1), process_set=wrong)
        with raises(TypeError, "should be a ProcessSet"):
            hvd.broadcast(torch.zeros(1), 0, process_set=wrong)
    with raises(ValueError, "registered already"):
        hvd.add_process_set(sets["first"])
    with raises(hvd.HvdError, f"no rank {size}"):
        hvd.add_process_set([0, size])
    with raises(hvd.HvdError, "twice"):
        hvd.add_process_set([0, 0])
    with raises(hvd.HvdError, "at least one rank"):
        hvd.add_process_set([])
    with raises(ValueError, "add_process_set()"):
        hvd.allreduce(torch.zeros(1), process_set=hvd.ProcessSet([0]))
    if not sets["first"].included():
        for call in (hvd.allreduce, hvd.allgather, hvd.alltoall, hvd.reducescatter):
            with raises(ValueError, f"rank {hvd.rank()} is not in ProcessSet"):
                call(torch.zeros(2), process_set=sets["first"])
    else:
        with raises(ValueError, "rank 1 is not in"):
            hvd.broadcast(torch.zeros(1), 1, process_set=sets["first"])
    assert not hvd.remove_process_set(hvd.global_process_set)
    assert not hvd.remove_process_set(hvd.ProcessSet([0]))
    with raises(TypeError if hvd.rank() == 1 else hvd.HvdError, "" if hvd.rank() == 1 else "rank 1"):
        hvd.remove_process_set("x" if hvd.rank() == 1 else sets["first"])
    with raises(ValueError, "1 splits for"):
        hvd.alltoall(torch.zeros(1), splits=[1], process_set=hvd.global_process_set)
    with raises(ValueError, "not registered"):
        hvd.DistributedOptimizer(torch.optim.SGD([torch.zeros(1)], 1.0), process_set=hvd.ProcessSet([0]))
    for wrong in ("", "a\0b", 3):
        with raises(ValueError, "a process set's name"):
            hvd.find_process_set(wrong)


def test_operations():
    for name in sets:
        chosen, of_all = members(name)
        if not chosen.included():
            continue
        number, size = chosen.rank(), chosen.size()
        x = mine([6, 2])
        for op in (hvd.Sum, hvd.Average, hvd.Min, hvd.Max):
            same(hvd.allreduce(x, op=op, process_set=chosen), combined(of_all([6, 2]), op).float())
        same(hvd.allreduce_(x.clone(), op=hvd.Sum, process_set=chosen), combined(of_all([6, 2]), hvd.Sum))
        a, b = hvd.grouped_allreduce([x, x * 2], op=hvd.Sum, process_set=chosen)
        same(b, a * 2)
        same(hvd.allgather(mine([number + 1, 2]), process_set=chosen),
             torch.cat([mine([i + 1, 2], rank=r) for i, r in enumerate(chosen.ranks)]))
        root = chosen.ranks[-1]
        same(hvd.broadcast(x, root, process_set=chosen), mine([6, 2], rank=root))
        rows = mine([size * 2])
        same(hvd.alltoall(rows, process_set=chosen),
             torch.cat([mine([size * 2], rank=r)[number * 2 : number * 2 + 2] for r in chosen.ranks]))
        shares = [6 // size + (i < 6 % size) for i in range(size)]
        first = sum(shares[:number])
        same(hvd.reducescatter(x, op=hvd.Sum, process_set=chosen),
             combined(of_all([6, 2]), hvd.Sum)[first : first + shares[number]])
        hvd.barrier(process_set=chosen)
        assert hvd.broadcast_object((name, hvd.rank()), root, process_set=chosen) == (name, root)
        assert hvd.allgather_object(hvd.rank(), process_set=chosen) == chosen.ranks
        sparse = torch.sparse_coo_tensor([[number]], [2.0], [size])
        got = hvd.synchronize(hvd.sparse_allreduce_async(sparse, "sparse", hvd.Average, process_set=chosen))
        same(got.to_dense(), torch.full([size], 2.0 / size))


def test_adasum():
    """That of equal tensors is this tensor; that of tensors with nothing in common is their sum."""
    for chosen in (*sets.values(), hvd.global_process_set):
        if chosen.included():
            same(hvd.allreduce(torch.ones(5), op=hvd.Adasum, process_set=chosen), torch.ones(5))
            own = torch.zeros(chosen.size())
            own[chosen.rank()] = 2
            same(hvd.allreduce(own, op=hvd.Adasum, process_set=chosen), torch.full([chosen.size()], 2.0))


def test_at_the_same_time():
    """The same names in all sets and in the world, in another order on each rank."""
    names = [*sets, None]
    for step in range(60):
        turn = (step + hvd.rank()) % len(names)
        order = names[turn:] + names[:turn]
        handles = {}
        for name in order:
            chosen = hvd.global_process_set if name is None else sets[name]
            if chosen.included():
                handles[name] = hvd.allreduce_async(mine([50], base=step), op=hvd.Sum, name="x", process_set=chosen)
        for name in reversed(list(handles)):
            chosen = hvd.global_process_set if name is None else sets[name]
            ranks = [mine([50], rank=r, base=step) for r in chosen.ranks]
            same(hvd.synchronize(handles[name]), combined(ranks, hvd.Sum))


def test_gradients():
    """Each operation is linear: its gradient for ones is how often a rank's element is used in the set, times the factors of
    hvd.torch.autograd."""
    chosen = sets["upper"]
    if not chosen.included():
        return
    size = chosen.size()

    def gradient(function, shape):
        x = mine(shape).requires_grad_()
        function(x).sum().backward()
        return x.grad

    same(gradient(lambda x: hvd.allreduce(x, op=hvd.Average, process_set=chosen), [4]), torch.ones(4))
    same(gradient(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=chosen), [4]), torch.full([4], float(size)))
    same(gradient(lambda x: hvd.allgather(x, process_set=chosen), [3]), torch.ones(3))
    same(gradient(lambda x: hvd.alltoall(x, process_set=chosen), [size]), torch.ones(size))
    same(gradient(lambda x: hvd.reducescatter(x, op=hvd.Average, process_set=chosen), [size]),
         torch.ones(size))
    same(gradient(lambda x: hvd.reducescatter(x, op=hvd.Sum, process_set=chosen), [size]),
         torch.full([size], float(size)))
    root = chosen.ranks[0]
    wanted = torch.full([2], 1.0 if hvd.rank() == root else 0.0)
    same(gradient(lambda x: hvd.broadcast(x, root, process_set=chosen), [2]), wanted)


def test_optimizer():
    """The set's ranks train one model, each other rank its own."""
    chosen = sets["upper"]
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(3, 2)
    if chosen.included():
        hvd.broadcast_parameters(model.state_dict(), chosen.ranks[0], process_set=chosen)
    plain = [p.detach().clone() for p in model.parameters()]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.5), named_parameters=model.named_parameters(), process_set=chosen
    )
    inputs = mine([4, 3])
    for _ in range(3):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    weight = model.weight.detach()
    everywhere = hvd.allgather(weight.reshape(1, -1))
    if chosen.included():
        for r in chosen.ranks:
            same(everywhere[r], weight.reshape(-1))
    else:
        by_hand = torch.nn.Linear(3, 2)
        with torch.no_grad():
            for to, value in zip(by_hand.parameters(), plain):
                to.copy_(value)
        own = torch.optim.SGD(by_hand.parameters(), lr=0.5)
        for _ in range(3):
            own.zero_grad()
            by_hand(inputs).square().mean().backward()
            own.step()
        same(by_hand.weight.detach(), weight)


def test_formed():
    """Only its ranks make and remove it; there may be another set of the same ranks."""
    if hvd.rank() in (0, 2):
        pair = hvd.form_process_set([2, 0], "pair")
        assert pair.ranks == [0, 2] and pair.size() == 2 and pair.included()
        assert hvd.allreduce(torch.ones(3), op=hvd.Sum, process_set=pair).tolist() == [2.0] * 3
        sets["formed"] = hvd.form_process_set([0, 2], "pair")
        assert sets["formed"].process_set_id > pair.process_set_id
        assert hvd.find_process_set("pair") is sets["formed"] is hvd.known_process_sets()[-1]
        assert hvd.remove_process_set(pair) and pair.process_set_id is None and not hvd.remove_process_set(pair)
    else:
        assert hvd.find_process_set("pair") is None
    with raises(hvd.HvdError, "is not one of the set's ranks"):
        hvd.form_process_set([(hvd.rank() + 1) % hvd.size()], "other")
    with raises(ValueError, "made from ranks"):
        hvd.form_process_set("ab", "other")


def test_fix_elsewhere():
    """Only in a job that keeps places a rank fixes sets of others."""
    with raises(ValueError, "not registered"):
        hvd.ProcessSet([0]).fix()
    if hvd.rank() == 1:
        with raises(hvd.HvdError, "is not in set 1"):
            sets["first"].fix()


def test_messages():
    """In the world and in a set, whose ranks are those of the job; by any source; what is refused."""
    rank, size = hvd.rank(), hvd.size()
    above, below = (rank + 1) % size, (rank - 1) % size
    for count in (0, 3, 100000):
        got = torch.zeros(count)
        sent = hvd.isend(torch.full([count], float(rank)), above, tag=5)
        assert hvd.recv(got, below, tag=5) == below
        same(got, torch.full([count], float(below)))
        assert sent.wait() is None and sent.done()
    if rank == 0:
        got = torch.zeros(2, dtype=torch.int64)
        assert sorted(hvd.recv(got) for _ in range(size - 1)) == list(range(1, size))
    else:
        hvd.send(torch.tensor([rank, 1]), 0)
    last = sets["last"]
    if last.included():
        other = last.ranks[0] if rank == last.ranks[-1] else last.ranks[-1]
        got = torch.zeros(4)
        message = hvd.irecv(got, process_set=last)
        hvd.send(torch.ones(4), other, process_set=last)
        assert message.wait() == other and got.sum() == 4
    else:
        with raises(ValueError, "is not in ProcessSet"):
            hvd.recv(torch.zeros(1), process_set=last)
    hvd.isend(torch.zeros(2), rank, tag=7)
    with raises(hvd.HvdError, "has 8 bytes, and the buffer 16"):
        hvd.recv(torch.zeros(4), rank, tag=7)
    with raises(ValueError, "not contiguous"):
        hvd.recv(torch.zeros(4, 4).t())
    with raises(hvd.HvdError, "tag -1 is negative"):
        hvd.send(torch.zeros(1), 0, tag=-1)
    with raises(ValueError, "tag 4294967296 does not fit"):
        hvd.send(torch.zeros(1), 0, tag=2**32)
    with raises(ValueError, "rank 4294967296 does not fit"):
        hvd.send(torch.zeros(1), 2**32)
    with raises(ValueError, "not to None"):
        hvd.send(torch.zeros(1), None)


def test_dropped_message():
    """The library writes to memory of a receive whose object is gone: no other object must have it by then."""
    rank, got = hvd.rank(), bytearray(8)
    dropped = messages.irecv(got, rank, tag=8)
    del dropped
    others = [_lib.Arrival(peer=77, bytes=77) for _ in range(2000)]
    hvd.send(torch.ones(2), rank, tag=8)
    assert all((other.peer, other.bytes) == (77, 77) for other in others)
    assert any(got)


def test_failed_message():
    """Each wait() for a message that has failed raises the same."""
    rank = hvd.rank()
    message = hvd.irecv(torch.zeros(1), rank, tag=9)
    hvd.send(torch.zeros(4), rank, tag=9)
    for _ in range(2):
        with raises(hvd.HvdError, "a message of 16 bytes"):
            message.wait()


def test_removed():
    chosen = sets.pop("upper")
    number = chosen.process_set_id
    parameter, other = (torch.nn.Parameter(torch.zeros(1)) for _ in range(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], 1.0), process_set=chosen)
    orphan = hvd.DistributedOptimizer(torch.optim.SGD([other], 1.0), process_set=chosen)
    assert hvd.remove_process_set(chosen) and not hvd.remove_process_set(chosen)
    with raises(ValueError, "not registered"):
        hvd.allreduce(torch.zeros(1), process_set=chosen)
    if chosen.included():
        with raises(ValueError, "not registered"):
            other.sum().backward()
        del orphan
    assert hvd.add_process_set(chosen).process_set_id > number
    for step in range(2):
        optimizer.zero_grad()
        (parameter.sum() * hvd.rank()).backward()
        optimizer.step()
    if chosen.included():
        same(parameter.detach(), torch.full([1], -2.0 * sum(chosen.ranks) / chosen.size()))
    hvd.shutdown()
    assert chosen.process_set_id is None and sets["first"].process_set_id is None
