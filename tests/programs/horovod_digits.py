#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A program as users of Horovod have it: the usual training of a small net on images, with Horovod's names alone. It is run by
horovodrun (tests/e2e/test_horovod.sh). A batch is --batch-size images on all ranks together, so that any number of ranks gets the
same losses without dropout."""
import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--dropout", type=float, default=0.2)
parser.add_argument("--warmup-epochs", type=float, default=1)
parser.add_argument("--batches-per-allreduce", type=int, default=1)
parser.add_argument("--fp16-allreduce", action="store_true")
parser.add_argument("--use-adasum", action="store_true")
parser.add_argument("--gradient-predivide-factor", type=float, default=1.0)
parser.add_argument("--clip", type=float, default=0)
parser.add_argument("--checkpoint", default=None)


class Net(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, kernel_size=3)
        self.drop = nn.Dropout(dropout)
        self.fc1 = nn.Linear(8 * 6 * 6, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = torch.tanh(self.conv(x)).flatten(1)
        return F.log_softmax(self.fc2(self.drop(torch.tanh(self.fc1(x)))), dim=1)


def metric_average(value, name):
    return hvd.allreduce(torch.tensor(value), name=name).item()


def adjust_learning_rate(args, optimizer, epoch, batch, batches):
    done = epoch + batch / batches
    factor = min(1.0, (done + 0.25) / args.warmup_epochs) if args.warmup_epochs else 1.0
    for group in optimizer.param_groups:
        group["lr"] = args.lr * factor


def step(args, model, optimizer, data, target):
    optimizer.zero_grad()
    pieces = args.batches_per_allreduce
    for x, y in zip(data.chunk(pieces), target.chunk(pieces)):
        loss = F.nll_loss(model(x), y)
        (loss / pieces).backward()
    if args.clip:
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        with optimizer.skip_synchronize():
            optimizer.step()
    else:
        optimizer.step()
    return loss.item()


def evaluate(model, loader, count):
    model.eval()
    loss, right = 0.0, 0.0
    with torch.no_grad():
        for data, target in loader:
            output = model(data)
            loss += F.nll_loss(output, target, reduction="sum").item()
            right += output.argmax(1).eq(target).float().sum().item()
    return metric_average(loss / count, "avg_loss"), metric_average(right / count, "avg_accuracy")


def main():
    args = parser.parse_args()
    hvd.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)

    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    train, test = TensorDataset(images[:1536], labels[:1536]), TensorDataset(images[1536:1792], labels[1536:1792])
    share = args.batch_size // hvd.size()
    train_sampler = DistributedSampler(train, num_replicas=hvd.size(), rank=hvd.rank(), seed=3)
    train_loader = DataLoader(train, batch_size=share, sampler=train_sampler)
    test_sampler = DistributedSampler(test, num_replicas=hvd.size(), rank=hvd.rank(), shuffle=False)
    test_loader = DataLoader(test, batch_size=64, sampler=test_sampler)

    model = Net(args.dropout)
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=compression,
        backward_passes_per_step=args.batches_per_allreduce,
        op=hvd.Adasum if args.use_adasum else hvd.Average,
        gradient_predivide_factor=args.gradient_predivide_factor,
    )
    for epoch in range(args.epochs):
        model.train()
        train_sampler.set_epoch(epoch)
        for batch, (data, target) in enumerate(train_loader):
            adjust_learning_rate(args, optimizer, epoch, batch, len(train_loader))
            step(args, model, optimizer, data, target)
        loss, accuracy = evaluate(model, test_loader, len(test_sampler))
        if hvd.rank() == 0:
            print(f"epoch {epoch} loss {loss:.4f} accuracy {accuracy:.3f} size {hvd.size()}", flush=True)
            if args.checkpoint:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, os.path.join(args.checkpoint, f"checkpoint-{epoch}.pt"))


if __name__ == "__main__":
    main()
