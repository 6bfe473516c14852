# SPDX-License-Identifier: Apache-2.0
"""Tensors on a GPU: streams, the engine's memory, and errors. HVD_TEST_GPU chooses the GPU (gpu_mode.py)."""
import os

import gpu_mode
import torch
from harness import raises
from rank_ops import combined, everybody, mine, same

import hvd.torch as hvd
from hvd import _lib
from hvd.torch import _device

FAKE, REAL = gpu_mode.MODE == "fake", gpu_mode.MODE == "real"


def test_kind():
    """The request has the tensor's device and stream."""
    request = _lib.Request()
    from hvd.torch import _request

    x = torch.zeros(3)
    ordinal, stream = _request.describe(request, _lib.ALLREDUCE, "x", x, x)
    assert (request.device, request.stream or 0) == (ordinal, stream or 0)
    if not gpu_mode.MODE:
        assert (ordinal, stream) == (-1, None)
        assert not torch.cuda.is_initialized()
    elif FAKE:
        assert (ordinal, stream) == (0, gpu_mode.driver.streams[0].value)
    else:
        assert ordinal == torch.cuda.current_device() and stream == torch.cuda.current_stream().cuda_stream


def test_behind_the_stream():
    """An operation runs after the work that was on the stream when it was submitted."""
    if not gpu_mode.MODE:
        return
    n, me = hvd.size(), hvd.rank()
    for elements in (7, 100000):
        x = torch.zeros(elements)
        gpu_mode.late(x, me + 1.0)
        same(hvd.allreduce(x, op=hvd.Sum), torch.full([elements], n * (n + 1) / 2))
        x = torch.zeros(elements)
        gpu_mode.late(x, me + 1.0)
        hvd.allreduce_(x, op=hvd.Sum)
        same(x, torch.full([elements], n * (n + 1) / 2))
        x = torch.zeros(elements)
        gpu_mode.late(x, me + 1.0)
        same(hvd.allgather(x), torch.cat([torch.full([elements], r + 1.0) for r in range(n)]))
        x = torch.zeros(elements)
        gpu_mode.late(x, me + 1.0)
        same(hvd.broadcast_(x, n - 1), torch.full([elements], float(n)))
        x = torch.zeros(n, elements)
        gpu_mode.late(x, me + 1.0)
        same(hvd.reducescatter(x, op=hvd.Sum), torch.full([1, elements], n * (n + 1) / 2))
        gpu_mode.late(x, me + 1.0)
        same(hvd.alltoall(x), torch.stack([torch.full([elements], r + 1.0) for r in range(n)]))


def test_messages():
    """A message has what the work on the stream before it has made, small or large, from and to GPUs."""
    if not gpu_mode.MODE:
        return
    n, me = hvd.size(), hvd.rank()
    above, below = (me + 1) % n, (me - 1) % n
    for elements in (0, 7, 100000, 1000000):
        x, got = torch.zeros(elements), torch.zeros(elements)
        gpu_mode.late(x, me + 1.0)
        gpu_mode.late(got, -1.0)
        sent = hvd.isend(x, above)
        assert hvd.recv(got, below) == below
        same(got, torch.full([elements], below + 1.0))
        sent.wait()


def test_another_stream():
    """A request uses the stream that is current when it is submitted."""
    if not FAKE:
        return
    x = torch.zeros(1000)
    with gpu_mode.beside():
        gpu_mode.late(x, 3.0)
        handle = hvd.allreduce_async(x, op=hvd.Max)
    same(hvd.synchronize(handle), torch.full([1000], 3.0))
    group = [torch.zeros(50), torch.zeros(60)]
    with gpu_mode.beside():
        gpu_mode.late(group[1], 2.0)
        handle = hvd.grouped_allreduce_async(group, op=hvd.Max)
    same(hvd.synchronize(handle)[1], torch.full([60], 2.0))


def test_compression_beside():
    """Compressed gradients are computed and submitted on a stream of our own, other gradients on that of backward."""
    if not FAKE:
        return
    beside = gpu_mode.driver.streams[1].value
    for compression, wanted in ((hvd.Compression.fp16, beside), (hvd.Compression.none, None)):
        model = torch.nn.Linear(4, 3)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), compression=compression
        )
        for step in range(2):  # the first step describes the tensors, the second one reuses the descriptions
            optimizer.zero_grad()
            model(torch.ones(2, 4) * (hvd.rank() + 1 + step)).sum().backward()
            streams = {g.request.stream for g in optimizer._hvd_gradients.values()}
            assert streams == {wanted or gpu_mode.driver.streams[0].value}, streams
            optimizer.synchronize()
            mean = sum(2.0 * (r + 1 + step) for r in range(hvd.size())) / hvd.size()
            same(model.weight.grad, torch.full([3, 4], mean))
            with optimizer.skip_synchronize():
                optimizer.step()


def test_between_host_and_gpu():
    """Operations on host memory and on the GPU, in turn and in flight together."""
    from hvd import buffers

    handles = []
    for i in range(10):
        handles.append(hvd.allreduce_async(mine([1000 + i], base=i), op=hvd.Sum, name=f"turn.{i}"))
        data = bytearray([hvd.rank(), i])
        buffers.allreduce_(data, name=f"host.{i}", op=hvd.Max)
        assert data == bytearray([hvd.size() - 1, i])
        if REAL:
            host = torch.full([3], float(hvd.rank()), device="cpu")
            got = hvd.allreduce(host, op=hvd.Sum)
            assert got.device.type == "cpu" and got[0] == hvd.size() * (hvd.size() - 1) / 2
    for i, handle in enumerate(handles):
        same(hvd.synchronize(handle), combined(everybody([1000 + i], base=i), hvd.Sum))


def test_results_of_the_engine():
    """The result of an allgather or alltoall is a tensor of our own when the engine gets its memory back."""
    n, me = hvd.size(), hvd.rank()
    kept = []
    for i in range(30):
        kept.append(hvd.allgather(mine([me + 1, 1000], base=i)))
        splits = [r + 1 for r in range(n)]
        kept.append(hvd.alltoall(mine([sum(splits), 50], base=i), splits=torch.tensor(splits))[0])
    for i in range(30):
        same(kept[2 * i], torch.cat([mine([r + 1, 1000], rank=r, base=i) for r in range(n)]))
        begin = me * (me + 1) // 2
        want = [mine([n * (n + 1) // 2, 50], rank=r, base=i)[begin : begin + me + 1] for r in range(n)]
        same(kept[2 * i + 1], torch.cat(want))


def test_foreign_memory():
    """A tensor over foreign memory, of which nothing stays behind."""
    for length in (1, 1000):
        x = torch.arange(length, dtype=torch.int64)
        view = _device.foreign_bytes(x.data_ptr(), 8 * length, x.device)
        assert view.dtype == torch.uint8 and view.device == x.device
        same(view.view(torch.int64), x)
        x.fill_(7)
        same(view.view(torch.int64), x)
        again = view[3:]
        del view
        assert len(_device._foreign) == 1
        del again
        assert not _device._foreign


def test_objects_come_home():
    """A tensor of another rank's GPU arrives on this rank's GPU."""
    if not REAL:
        return
    sent = {"weights": torch.nn.Parameter(torch.full([3], 2.0)), "host": torch.zeros(2, device="cpu")}
    for root in range(hvd.size()):
        got = hvd.broadcast_object(sent if hvd.rank() == root else None, root)
        assert got["weights"].device.index == torch.cuda.current_device() and got["weights"].requires_grad
        assert got["host"].device.type == "cpu"
        same(got["weights"].detach(), torch.full([3], 2.0))


def test_optimizer_state():
    """Moments on the GPU are sent from GPU to GPU."""
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(5, 5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * (hvd.rank() + 1))
    if hvd.rank() == 0:
        model(torch.ones(1, 5)).sum().backward()
        optimizer.step()
    hvd.broadcast_parameters(model.state_dict(), 0)
    hvd.broadcast_optimizer_state(optimizer, 0)
    state = optimizer.state[model.weight]
    assert state["exp_avg"].device == model.weight.device
    rows = hvd.allgather(state["exp_avg"].reshape(1, -1))
    assert all(torch.equal(row, rows[0]) for row in rows) and rows.abs().sum() > 0
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_captured():
    """A stream that is being captured into a graph is refused: other ranks cannot be part of a graph."""
    if not FAKE:
        return
    driver = gpu_mode.driver
    driver.capture(driver.streams[0], 1)
    try:
        with raises(hvd.HvdError, "captured"):
            hvd.allreduce(torch.ones(2), name="in a graph")
    finally:
        driver.capture(driver.streams[0], 0)
    same(hvd.allreduce(torch.ones(2), op=hvd.Sum, name="in a graph"), torch.full([2], float(hvd.size())))


def test_other_gpu():
    """Each rank needs a GPU of its own."""
    if not FAKE:
        return
    hvd.allreduce(torch.ones(2))
    place = _device.place
    _device.place = lambda tensor: (1, place(tensor)[1])
    try:
        with raises(hvd.HvdError, "GPU"):
            hvd.allreduce(torch.ones(2), name="elsewhere")
    finally:
        _device.place = place
    same(hvd.allreduce(torch.ones(2), op=hvd.Sum), torch.full([2], float(hvd.size())))


def test_backends():
    """The answers of hvd's query functions are true."""
    assert hvd.cuda_built() == bool(gpu_mode.MODE)
    nccl = os.environ.get("HVD_NCCL_LIB")
    if nccl and gpu_mode.MODE:
        assert (hvd.nccl_built() >= 21400) == os.path.exists(nccl)
    assert not hvd.rocm_built() and not hvd.gloo_built()


def test_autocast():
    """Training in mixed precision: the ranks' weights stay equal, and close to those of one process."""
    if not REAL:
        return

    def make():
        torch.manual_seed(5)
        return torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))

    n, me = hvd.size(), hvd.rank()
    ours, single = make(), make()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(ours.parameters(), lr=0.05), ours.named_parameters(), compression=hvd.Compression.fp16
    )
    reference = torch.optim.SGD(single.parameters(), lr=0.05)
    scalers = [torch.cuda.amp.GradScaler(init_scale=256.0) for _ in range(2)]
    torch.manual_seed(6)
    for _ in range(20):
        x = torch.randn(n * 16, 8)
        y = x.sum(1, keepdim=True).sin()
        with torch.autocast("cuda", dtype=torch.float16):
            mine = torch.nn.functional.mse_loss(ours(x[me * 16 : me * 16 + 16]), y[me * 16 : me * 16 + 16])
            whole = torch.nn.functional.mse_loss(single(x), y)
        optimizer.zero_grad()
        scalers[0].scale(mine).backward()
        optimizer.synchronize()
        scalers[0].unscale_(optimizer)
        with optimizer.skip_synchronize():
            scalers[0].step(optimizer)
        scalers[0].update()
        reference.zero_grad()
        scalers[1].scale(whole).backward()
        scalers[1].step(reference)
        scalers[1].update()
    for a, b in zip(ours.parameters(), single.parameters()):
        assert torch.allclose(a, b, atol=0.02), (a - b).abs().max()
        rows = hvd.allgather(a.detach().reshape(1, -1))
        assert all(torch.equal(row, rows[0]) for row in rows)


def test_memory_of_streams():
    """The allocator must not reuse memory on which the engine or another stream still works."""
    if not REAL:
        return
    n, me = hvd.size(), hvd.rank()
    stream = torch.cuda.Stream()
    for i in range(30):
        with torch.cuda.stream(stream):
            x = torch.full([1 << 20], me + 1.0 + i)
            gpu_mode.late(x, me + 1.0 + i, 0.002)
            handle = hvd.allreduce_async(x, op=hvd.Sum)
            del x
            torch.full([1 << 20], -1e9)
        got = hvd.synchronize(handle)
        gathered = hvd.allgather(torch.full([me + 1, 1 << 16], float(i)))
        with torch.cuda.stream(stream):
            litter = [torch.full([1 << 20], -1e9) for _ in range(4)]
        same(got, torch.full([1 << 20], n * (n + 1) / 2 + n * i))
        same(gathered, torch.full([n * (n + 1) // 2, 1 << 16], float(i)))
        del litter, got, gathered


def test_host_continues():
    """The host does not wait for the GPU."""
    if not REAL or os.environ.get("HVD_TEST_WAY") != "nccl":  # for the fake driver: rank_ahead
        return
    x = hvd.allreduce(torch.ones(1000))
    for _ in range(3):
        gpu_mode.late(x, 1.0, 0.5)
        hvd.allreduce_(x, op=hvd.Sum)
        assert not torch.cuda.current_stream().query()
        same(x, torch.full([1000], float(hvd.size())))


def test_way():
    """With HVD_TEST_WAY the tensors must have used that back end."""
    way = os.environ.get("HVD_TEST_WAY")
    if not way:
        return
    from hvd import world

    hvd.allreduce(torch.ones(3))
    found = world._backend(way.encode())
    assert found.open and found.built, found.text
    other = world._backend(b"staged" if way == "nccl" else b"nccl")
    assert not other.open, other.text
