# SPDX-License-Identifier: Apache-2.0
"""bench_torch: training steps of a transformer on this machine's GPUs, in alternating rounds of one run: without any exchange
of gradients, with torch's DistributedDataParallel, and with hvd.torch's DistributedOptimizer. For one rank, and under hvdrun
for more. All use the NCCL of torch, unless HVD_NCCL_LIB names another for hvd.

    hvdrun -np 2 --doctor=off python3 tests/gpu/bench_torch.py

With NCCL_MULTI_RANK_GPU_ENABLE=1 all ranks use the first GPU (see bench_sums.c). Milliseconds of a step: the median of the
rounds, then the ratio to DistributedDataParallel's."""
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist

import hvd.torch as hvd

WIDTH, LAYERS, BATCH, LENGTH = 1024, 6, 16, 128
ROUNDS, STEPS, WARM_UP = 5, 10, 60  # hvd's schedule is frozen after the warm-up
WAYS = ("alone", "ddp", "hvd")


def make(way, device):
    """Model and optimizer of this way, from the same weights."""
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(WIDTH, 16, 4 * WIDTH, dropout=0.0, batch_first=True, device=device)
    model = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
    if way == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    if way == "hvd":
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    return model, optimizer


def run(model, optimizer, x, steps):
    """Milliseconds of one step."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / steps * 1e3


def main():
    hvd.init()
    device = torch.device("cuda", 0 if os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE", "0") != "0" else hvd.local_rank())
    torch.cuda.set_device(device)
    torch.backends.cuda.matmul.allow_tf32 = True
    folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)
    dist.init_process_group("nccl", store=dist.FileStore(os.path.join(folder, "store"), hvd.size()), rank=hvd.rank(),
                            world_size=hvd.size(), device_id=device)
    both = {way: make(way, device) for way in WAYS}
    x = torch.randn(BATCH, LENGTH, WIDTH, device=device)
    for way in WAYS:
        run(*both[way], x, WARM_UP)
    ms = {way: [] for way in WAYS}
    for _ in range(ROUNDS):
        for way in WAYS:
            dist.barrier()
            ms[way].append(run(*both[way], x, STEPS))
    if hvd.rank() == 0:
        parameters = sum(p.numel() for p in both["alone"][0].parameters())
        middle = {way: statistics.median(ms[way]) for way in WAYS}
        print(f"torch {torch.__version__}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))} of torch, {hvd.size()} ranks")
        print(f"transformer, {parameters / 1e6:.0f} million parameters   alone {middle['alone']:.2f} ms   "
              f"ddp {middle['ddp']:.2f} ms   hvd {middle['hvd']:.2f} ms   x{middle['hvd'] / middle['ddp']:.3f}")
    dist.destroy_process_group()
    hvd.shutdown()


if __name__ == "__main__":
    main()
