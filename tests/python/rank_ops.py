# SPDX-License-Identifier: Apache-2.0
"""The collectives of hvd.torch on integer-valued data, so that every result is exact."""
import functools
import os
import warnings

import torch
from harness import raises

import hvd.torch as hvd

DTYPES = [
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
]  # fmt: skip


def mine(shape, dtype=torch.float32, rank=None, base=0):
    """This rank's tensor: small integers that differ by index and by rank."""
    rank = hvd.rank() if rank is None else rank
    count = 1
    for extent in shape:
        count *= extent
    return ((torch.arange(count) * 3 + rank * 5 + base) % 7).reshape(shape).to(dtype)


def everybody(shape, dtype=torch.float32, base=0):
    return [mine(shape, dtype, r, base) for r in range(hvd.size())]


def combined(tensors, op):
    wide = torch.stack([t.to(torch.float64) for t in tensors])
    if op == hvd.Sum:
        return wide.sum(0)
    if op == hvd.Average:
        return wide.sum(0) / len(tensors)
    if op == hvd.Min:
        return wide.amin(0)
    if op == hvd.Max:
        return wide.amax(0)
    return wide.prod(0)


def same(a, b):
    assert a.shape == b.shape, f"{a.shape} {b.shape}"
    assert torch.equal(a.to(torch.float64), b.to(torch.float64)), f"{a} is not {b}"


def test_world():
    assert 0 <= hvd.rank() < hvd.size()
    assert 0 <= hvd.local_rank() < hvd.local_size() <= hvd.size()
    assert 0 <= hvd.cross_rank() < hvd.cross_size() <= hvd.size()
    assert hvd.place() == hvd.rank() and hvd.places() == list(range(hvd.size()))
    assert hvd.is_initialized() and hvd.is_homogeneous()
    assert hvd.version()


def test_allreduce_types_and_ops():
    for dtype in DTYPES:
        for op in (hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product):
            x = mine([5, 3], dtype)
            before = x.clone()
            got = hvd.allreduce(x, op=op, name=f"types.{dtype}.{op}")
            want = combined(everybody([5, 3], dtype), op)
            if not dtype.is_floating_point:
                want = want.trunc().to(dtype)  # integers truncate and wrap
            elif op == hvd.Average:
                want = want.to(dtype)
                rtol = 1e-2 if got.element_size() == 2 else 1e-6
                assert torch.allclose(got.double(), want.double(), rtol=rtol)
                continue
            if op == hvd.Product and dtype in (torch.uint8, torch.int8, torch.float16, torch.bfloat16):
                continue  # the reference in double does not wrap or round like these types
            same(got, want)
            same(x, before)


def test_bits():
    if os.environ.get("HVD_TEST_WAY") == "nccl":
        return  # it has "and" and "or" of bool only
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool):
        inputs = everybody([5, 3], dtype)
        ops = {hvd.BitAnd: torch.bitwise_and, hvd.BitOr: torch.bitwise_or, hvd.BitXor: torch.bitwise_xor}
        for op, two in ops.items():
            same(hvd.allreduce(inputs[hvd.rank()], op=op), functools.reduce(two, inputs))
    with raises(hvd.HvdError):
        hvd.allreduce(torch.ones(3), op=hvd.BitAnd)
    with raises(hvd.HvdError):
        hvd.allreduce(torch.ones(3, dtype=torch.int32), op=hvd.BitAnd, prescale_factor=2.0)


def test_bool():
    x = torch.tensor([hvd.rank() == 0, True, False])
    same(hvd.allreduce(x, op=hvd.Sum), torch.tensor([True, True, False]))
    same(hvd.allreduce(x, op=hvd.Min), torch.tensor([hvd.size() == 1, True, False]))
    with raises(hvd.HvdError):
        hvd.allreduce(x, op=hvd.Average)


def test_shapes():
    for shape in ([], [0], [1], [0, 3], [2, 3, 4], [100003]):
        x = mine(shape)
        same(hvd.allreduce(x, op=hvd.Sum), combined(everybody(shape), hvd.Sum))
        hvd.allreduce_(x, op=hvd.Sum)
        same(x, combined(everybody(shape), hvd.Sum))


def test_scales():
    x = mine([10])
    want = combined(everybody([10]), hvd.Sum)
    same(hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0), want * 2)
    same(hvd.allreduce(x, op=hvd.Sum, postscale_factor=0.5), want / 2)
    with raises(ValueError):
        hvd.allreduce(x, prescale_factor=0.0)


def test_average_argument():
    x = mine([4])
    same(hvd.allreduce(x, average=False), combined(everybody([4]), hvd.Sum))
    with raises(ValueError):
        hvd.allreduce(x, average=True, op=hvd.Sum)


def test_not_contiguous():
    x = mine([4, 6]).t()
    same(hvd.allreduce(x, op=hvd.Sum), combined(everybody([4, 6]), hvd.Sum).t())
    same(hvd.broadcast(x, 0), mine([4, 6], rank=0).t())
    for call in (lambda: hvd.allreduce_(x), lambda: hvd.broadcast_(x, 0)):
        with raises(ValueError, "not contiguous", "(6, 4)"):
            call()
    same(x, mine([4, 6]).t())


def test_unsupported():
    with raises(ValueError, "complex64"):
        hvd.allreduce(torch.zeros(3, dtype=torch.complex64))
    if hasattr(torch, "float8_e4m3fnuz"):
        with raises(ValueError, "float8_e4m3fnuz"):
            hvd.allgather(torch.zeros(3).to(torch.float8_e4m3fnuz))
    with raises(ValueError, "meta"):
        hvd.allreduce(torch.zeros(3, device="meta"))
    with raises(ValueError, "sparse"):
        hvd.allreduce(torch.eye(3).to_sparse())
    for call in (hvd.allreduce, hvd.allreduce_, hvd.allgather_async, hvd.alltoall, hvd.reducescatter):
        with raises(TypeError, "a tensor is needed, got float"):
            call(1.5)
    for call in (hvd.grouped_allreduce, hvd.grouped_allreduce_, hvd.grouped_allgather_async):
        with raises(TypeError, "a list of tensors is needed"):
            call(torch.zeros(2, 2))
        with raises(TypeError, "got list"):
            call([torch.zeros(2), [1.0]])
    with raises(ValueError, "a NUL character"):
        hvd.allreduce(torch.ones(1), name="a\0b")
    with raises(hvd.HvdError, "adasum"):  # of integers
        hvd.allreduce(torch.zeros(2, dtype=torch.int32), op=hvd.Adasum)
    with raises(hvd.HvdError, "root 99 is no rank"):
        hvd.broadcast(torch.zeros(2), 99)
    same(hvd.allreduce(torch.ones(2), op=hvd.Sum), torch.full([2], float(hvd.size())))


def test_adasum():
    """That of equal tensors is this tensor; that of tensors with nothing in common is their sum."""
    for dtype in torch.float32, torch.float64, torch.float16, torch.bfloat16:
        same(hvd.allreduce(torch.ones(5, dtype=dtype), op=hvd.Adasum), torch.ones(5, dtype=dtype))
        own = torch.zeros(hvd.size(), dtype=dtype)
        own[hvd.rank()] = 2
        both = hvd.grouped_allreduce([own, torch.ones(3, dtype=dtype)], op=hvd.Adasum)
        same(both[1], torch.ones(3, dtype=dtype))
        for result in both[0], hvd.allreduce_(own, op=hvd.Adasum):
            same(result, torch.full([hvd.size()], 2.0, dtype=dtype))


def test_async_many():
    """Hundreds of operations in flight, waited for in another order."""
    tensors = [mine([i + 1], base=i) for i in range(200)]
    handles = [hvd.allreduce_async(t, op=hvd.Sum, name=f"many.{i}") for i, t in enumerate(tensors)]
    for i in reversed(range(200)):
        same(hvd.synchronize(handles[i]), combined(everybody([i + 1], base=i), hvd.Sum))
    assert hvd.synchronize(handles[0]) is None
    with raises(ValueError):
        hvd.poll(handles[0])


def test_dropped_tensors():
    """A handle keeps its tensors alive."""
    handles = [hvd.allreduce_async(mine([50000], base=i), op=hvd.Sum) for i in range(20)]
    litter = [torch.full([50000], -1.0) for _ in range(40)]
    for i, handle in enumerate(handles):
        same(hvd.synchronize(handle), combined(everybody([50000], base=i), hvd.Sum))
    del litter


def test_overwrite_after_return():
    """Inputs and outputs belong to the program as soon as a call returns, on the fastest rank too."""
    for elements in (1, 1000, 100000, 1000000):
        want = combined(everybody([elements]), hvd.Sum)
        for i in range(10):
            x = mine([elements])
            y = hvd.allreduce(x, op=hvd.Sum, name="overwritten")
            x.fill_(-1e9)
            same(y, want)
            y.fill_(1e9)
            z = mine([elements])
            hvd.allreduce_(z, op=hvd.Sum, name="overwritten in place")
            same(z, want)
            z.fill_(-7e8)


def test_poll():
    handle = hvd.allreduce_async(torch.ones(3), op=hvd.Sum)
    while not hvd.poll(handle):
        pass
    same(hvd.synchronize(handle), torch.full([3], float(hvd.size())))
    with raises(ValueError):
        hvd.poll(handle)


def test_grouped():
    shapes = [[3], [2, 2], [1000], [], [0]]
    tensors = [mine(s, base=i) for i, s in enumerate(shapes)]
    wants = [combined(everybody(s, base=i), hvd.Sum) for i, s in enumerate(shapes)]
    for got, want in zip(hvd.grouped_allreduce(tensors, op=hvd.Sum, name="grouped"), wants):
        same(got, want)
    handle = hvd.grouped_allreduce_async_(tensors, op=hvd.Sum)
    for got, tensor, want in zip(hvd.synchronize(handle), tensors, wants):
        assert got is tensor
        same(got, want)
    assert hvd.grouped_allreduce([]) == []
    rows = [mine([hvd.rank() + 1, 2]), mine([2], torch.int64)]
    first, second = hvd.grouped_allgather(rows)
    same(first, torch.cat([mine([r + 1, 2], rank=r) for r in range(hvd.size())]))
    same(second, torch.cat(everybody([2], torch.int64)))


def test_compression():
    x = mine([100])
    want = combined(everybody([100]), hvd.Average)
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        got = hvd.allreduce(x, compression=compression)
        assert got.dtype == torch.float32
        assert torch.allclose(got.double(), want, atol=0.05), got
    y = mine([4], torch.int32)
    assert hvd.allreduce(y, compression=hvd.Compression.fp16, op=hvd.Sum).dtype == torch.int32


def test_allgather():
    for dtype in DTYPES + [torch.bool]:
        x = mine([hvd.rank() % 3, 4], dtype)  # some ranks, rank 0 among them, have no rows
        want = torch.cat([mine([r % 3, 4], dtype, r) for r in range(hvd.size())])
        got = hvd.allgather(x, name=f"gather.{dtype}")
        assert got.dtype == dtype
        same(got, want)
    same(hvd.allgather(torch.tensor(float(hvd.rank()))), torch.arange(float(hvd.size())))
    same(hvd.synchronize(hvd.allgather_async(mine([3]))), torch.cat(everybody([3])))


def test_broadcast():
    for dtype in DTYPES + [torch.bool]:
        for root in range(hvd.size()):
            x = mine([3, 5], dtype)
            same(hvd.broadcast(x, root), mine([3, 5], dtype, root))
            same(x, mine([3, 5], dtype))
            hvd.broadcast_(x, root)
            same(x, mine([3, 5], dtype, root))
    with raises(hvd.HvdError):
        hvd.broadcast(torch.zeros(1), hvd.size())


def test_alltoall():
    n, me = hvd.size(), hvd.rank()
    x = torch.cat([torch.full([2], 10.0 * me + r) for r in range(n)])
    want = torch.cat([torch.full([2], 10.0 * r + me) for r in range(n)])
    same(hvd.alltoall(x), want)
    splits = [(me + r) % 3 for r in range(n)]  # rows to r; some are 0
    x = torch.cat([torch.full([c, 2], 10.0 * me + r) for r, c in enumerate(splits)])
    got, rows = hvd.alltoall(x, splits=torch.tensor(splits))
    assert rows.tolist() == [(me + r) % 3 for r in range(n)]
    same(got, torch.cat([torch.full([(me + r) % 3, 2], 10.0 * r + me) for r in range(n)]))
    with raises(ValueError, "splits"):
        hvd.alltoall(torch.zeros(3), splits=[5] * n)


def test_reducescatter():
    n, me = hvd.size(), hvd.rank()
    for rows in (0, 1, n, n + 1, 7):
        counts = [rows // n + (r < rows % n) for r in range(n)]
        start = sum(counts[:me])
        for op in (hvd.Sum, hvd.Average):
            got = hvd.reducescatter(mine([rows, 3]), op=op)
            want = combined(everybody([rows, 3]), op)[start : start + counts[me]]
            assert got.shape == want.shape and torch.allclose(got.double(), want, rtol=1e-6)
    a, b = hvd.grouped_reducescatter([mine([n, 2]), mine([2 * n])], op=hvd.Sum)
    same(a, combined(everybody([n, 2]), hvd.Sum)[me : me + 1])
    same(b, combined(everybody([2 * n]), hvd.Sum)[2 * me : 2 * me + 2])
    with raises(ValueError):
        hvd.reducescatter(torch.tensor(1.0))


def test_sparse():
    me, n = hvd.rank(), hvd.size()
    x = torch.sparse_coo_tensor([[me, n]], [[1.0, 2.0], [3.0, 4.0]], [n + 1, 2])
    want = torch.zeros(n + 1, 2)
    for r in range(n):
        want += torch.sparse_coo_tensor([[r, n]], [[1.0, 2.0], [3.0, 4.0]], [n + 1, 2]).to_dense()
    same(hvd.synchronize(hvd.sparse_allreduce_async(x, "sparse", hvd.Sum)).to_dense(), want)
    got = hvd.sparse_allreduce_async(x, "sparse")().to_dense()
    assert torch.allclose(got, want / n)


def test_objects():
    obj = {"rank": hvd.rank(), "list": [1, "two", 3.0], "tensor": torch.tensor([1.5])}
    for root in range(hvd.size()):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            got = hvd.broadcast_object(obj if hvd.rank() == root else None, root, name="object")
        assert got["rank"] == root and got["tensor"].item() == 1.5
    got = hvd.allgather_object("x" * (hvd.rank() * 1000))
    assert [len(s) for s in got] == [r * 1000 for r in range(hvd.size())]


class Unpicklable:
    def __reduce__(self):
        raise TypeError("not this one")


def test_objects_that_cannot_travel():
    """The rank that has the error raises it. The others raise an error too, and do not wait."""
    last = hvd.size() - 1
    bad = hvd.rank() == last
    obj = [Unpicklable()] if bad else "good"
    for call in (lambda: hvd.broadcast_object(obj, last), lambda: hvd.allgather_object(obj)):
        with raises(TypeError if bad else hvd.HvdError, "not this one" if bad else f"rank {last}"):
            call()
    assert hvd.allgather_object(1) == [1] * hvd.size()


def test_signatures():
    """Names, order and defaults that programs written for Horovod rely on."""
    import inspect

    scales = "prescale_factor=1.0, postscale_factor=1.0"
    plain = f"average=None, name=None, op=None, {scales}, process_set"
    packed = f"average=None, name=None, compression, op=None, {scales}, process_set"
    shared = f"op=0, process_set, {scales}"
    wanted = {
        "allreduce_async allreduce_async_ allreduce_": f"tensor, {plain}",
        "grouped_allreduce_async grouped_allreduce_async_ grouped_allreduce_": f"tensors, {plain}",
        "allreduce": f"tensor, {packed}",
        "grouped_allreduce": f"tensors, {packed}",
        "sparse_allreduce_async": "tensor, name=None, op=None, process_set",
        "allgather allgather_async": "tensor, name=None, process_set",
        "grouped_allgather grouped_allgather_async": "tensors, name=None, process_set",
        "broadcast broadcast_ broadcast_async broadcast_async_": "tensor, root_rank, name=None, process_set",
        "alltoall alltoall_async": "tensor, splits=None, name=None, process_set",
        "reducescatter_async": f"tensor, name=None, {shared}",
        "grouped_reducescatter_async": f"tensors, name=None, {shared}",
        "reducescatter": f"tensor, name=None, compression, {shared}",
        "grouped_reducescatter": f"tensors, name=None, compression, {shared}",
        "broadcast_parameters": "params, root_rank, process_set",
        "broadcast_optimizer_state": "optimizer, root_rank, model=None, process_set",
        "broadcast_object": "obj=None, root_rank=0, name=None, process_set",
        "allgather_object": "obj, name=None, process_set",
        "barrier": "process_set",
        "join": "device=-1",
        "poll synchronize": "handle",
        "init": "comm=None, process_sets=None",
        "start_timeline": "file_path, mark_cycles=False",
        "DistributedOptimizer": "optimizer, named_parameters=None, compression, backward_passes_per_step=1, "
        "op=0, gradient_predivide_factor=1.0, num_groups=0, groups=None, sparse_as_dense=False, process_set",
    }
    own = {"process_set": hvd.global_process_set, "compression": hvd.Compression.none}
    for names, want in wanted.items():
        for name in names.split():
            got = []
            for parameter in inspect.signature(getattr(hvd, name)).parameters.values():
                default = parameter.default
                if parameter.name in own:
                    assert default is own[parameter.name], name
                    default = parameter.empty
                got.append(parameter.name if default is parameter.empty else f"{parameter.name}={default!r}")
            assert ", ".join(got) == want, f"{name}: {', '.join(got)}"
    assert hvd.broadcast_object("x", process_set=hvd.global_process_set) == "x"


def test_buffers():
    import array

    import numpy

    import hvd as plain

    n, me = hvd.size(), hvd.rank()
    got = plain.allreduce(numpy.full([2, 3], me + 1.0), op=plain.Sum)
    assert isinstance(got, numpy.ndarray) and (got == n * (n + 1) / 2).all()
    a = array.array("i", [me, 1])
    plain.allreduce_(a, op=plain.Sum)
    assert a.tolist() == [n * (n - 1) // 2, n]
    assert plain.broadcast_(bytearray([me]), n - 1) == bytearray([n - 1])
    assert plain.allgather(array.array("q", [me] * me)).tolist() == [r for r in range(n) for _ in range(r)]
    assert plain.allgather(numpy.full([1, 2], me, dtype="f4")).shape == (n, 2)
    assert bytes(plain.allreduce(b"\1\2", op=plain.Max)) == b"\1\2"
    plain.barrier()
    with raises(ValueError, "contiguous"):
        plain.allreduce(numpy.zeros([4, 4])[:, 1])
    with raises(ValueError, "not supported"):
        plain.allreduce(numpy.zeros(3, dtype=complex))
    with raises(ValueError, "read-only"):
        plain.allreduce_(b"1")


def every_byte():
    """All bit patterns of 8 bits, in an order of this rank's own."""
    return (torch.arange(256) + hvd.rank() * 37).to(torch.uint8)


def everybodys_bytes():
    return torch.cat([(torch.arange(256) + r * 37).to(torch.uint8) for r in range(hvd.size())])


def test_float8():
    names = [name for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name)]
    if not names:
        print("SKIP: this torch has no 8-bit floats")
        return
    for dtype in [getattr(torch, name) for name in names]:
        x, root = every_byte().view(dtype), hvd.size() - 1
        got = hvd.allgather(x)
        assert got.dtype == dtype and torch.equal(got.view(torch.uint8), everybodys_bytes())
        got = hvd.broadcast(x, root)
        assert torch.equal(got.view(torch.uint8), everybodys_bytes()[-256:])
        got = hvd.alltoall(every_byte().repeat(hvd.size()).view(dtype))
        assert torch.equal(got.view(torch.uint8), everybodys_bytes())
        with raises(hvd.HvdError, "cannot combine elements of float8_e", "convert the tensor to bfloat16 first"):
            hvd.allreduce(x, op=hvd.Sum)


def test_ml_dtypes():
    import hvd as plain

    try:
        import ml_dtypes
    except ImportError:
        print("SKIP: there is no ml_dtypes")
        return
    for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        x = every_byte().numpy().view(dtype)
        got = plain.allgather(x)
        assert got.dtype == dtype and got.tobytes() == everybodys_bytes().numpy().tobytes()
        assert plain.allgather(x[:0]).shape == (0,)
        assert plain.broadcast_(x, hvd.size() - 1) is x
        assert x.tobytes() == everybodys_bytes()[-256:].numpy().tobytes()
        with raises(hvd.HvdError, "cannot combine elements of float8_e", "convert the tensor to bfloat16 first"):
            plain.allreduce(x)
    x = mine([5, 3]).numpy().astype(ml_dtypes.bfloat16)
    got = plain.allreduce(x, op=plain.Sum)
    assert got.dtype == x.dtype
    same(torch.from_numpy(got.astype("f4")), combined(everybody([5, 3]), hvd.Sum))
    plain.allreduce_(x, op=plain.Sum)
    assert (x == got).all()


def test_mismatch():
    """Every rank raises the error, with the tensor's name and what each rank asked for."""
    if hvd.size() == 1:
        return
    last = hvd.rank() == hvd.size() - 1
    with raises(hvd.HvdError, "shape.tensor", "float32"):
        hvd.allreduce(torch.zeros(5 if last else 4), name="shape.tensor")
    with raises(hvd.HvdError, "type.tensor", "float64"):
        hvd.allreduce(torch.zeros(4, dtype=torch.float64 if last else torch.float32), name="type.tensor")
    x = torch.ones(4)
    with raises(hvd.HvdError, "op.tensor"):
        hvd.allreduce_(x, name="op.tensor", op=hvd.Max if last else hvd.Sum)
    same(x, torch.ones(4))
    with raises(hvd.HvdError, "root.tensor"):
        hvd.broadcast(torch.zeros(2), 1 if last else 0, name="root.tensor")
    same(hvd.allreduce(torch.ones(4), op=hvd.Sum, name="shape.tensor"), torch.full([4], float(hvd.size())))


def test_duplicate_name():
    """A second operation with a name that is still in flight is refused."""
    if hvd.rank() == 0:
        hvd.barrier()  # the other ranks come here only after they have tried
        first = hvd.allreduce_async(torch.ones(3), op=hvd.Sum, name="twice")
    else:
        first = hvd.allreduce_async(torch.ones(3), op=hvd.Sum, name="twice")
        with raises(hvd.HvdError, "twice"):
            hvd.allreduce_async(torch.ones(3), op=hvd.Sum, name="twice")
        hvd.barrier()
    same(hvd.synchronize(first), torch.full([3], float(hvd.size())))


def test_threads():
    """Any thread may submit and wait."""
    import threading

    failures = []

    def work(number):
        try:
            for i in range(20):
                got = hvd.allreduce(mine([100], base=number), op=hvd.Sum, name=f"thread.{number}")
                same(got, combined(everybody([100], base=number), hvd.Sum))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=[i]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures, failures


def test_barrier():
    hvd.barrier()


def test_default_device():
    """Host tensors stay in host memory, even if the program's default device is another one, as with
    torch.set_default_device("cuda")."""
    if not hasattr(torch, "set_default_device"):
        print("SKIP: this torch has no default device")
        return
    n, me = hvd.size(), hvd.rank()
    x = torch.full([me + 1, 2], me + 1.0, device="cpu")
    rows = torch.arange(n, device="cpu").float()
    index = torch.zeros([1, 1], dtype=torch.int64, device="cpu")
    sparse = torch.sparse_coo_tensor(index, x[:1, :1].view(1), [2], device="cpu")
    with torch.device("meta"):  # its tensors have no memory
        gathered = hvd.allgather(x)
        exchanged, splits = hvd.alltoall(rows, splits=[1] * n)
        summed = hvd.synchronize(hvd.sparse_allreduce_async(sparse, op=hvd.Sum, name="default_device"))
    assert {t.device.type for t in (gathered, exchanged, splits, summed)} == {"cpu"}
    assert gathered.tolist() == [[r + 1.0] * 2 for r in range(n) for _ in range(r + 1)]
    assert exchanged.tolist() == [float(me)] * n and splits.tolist() == [1] * n
    assert summed.to_dense().tolist() == [n * (n + 1) / 2, 0.0]
