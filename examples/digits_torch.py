#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small convolutional net on handwritten digits (1,797 images of 8 x 8, from scikit-learn).

    hvdrun -np 4 python3 examples/digits_torch.py
    python3 examples/digits_torch.py                 the same training in one process

The ranks share each global batch evenly, so that any number of ranks computes the same as one process. Rank
0 prints one line per epoch. --save writes weights and curves for a comparison. If the host has a GPU for
each rank, the ranks train on GPUs.
"""
import argparse
import time

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

import hvd.torch as hvd

TRAIN = 1440  # images; the other 357 are held out


class Net(torch.nn.Module):
    """Two convolutions, two dense layers; smooth throughout, no dropout."""

    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = torch.nn.Conv2d(16, 32, 3, padding=1)
        self.dense1 = torch.nn.Linear(32 * 2 * 2, 64)
        self.dense2 = torch.nn.Linear(64, 10)

    def forward(self, x):
        x = F.avg_pool2d(torch.tanh(self.conv1(x)), 2)
        x = F.avg_pool2d(torch.tanh(self.conv2(x)), 2)
        return self.dense2(torch.tanh(self.dense1(x.flatten(1))))


def load():
    """Images and labels, in an order that is the same in every process."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16 - 0.3
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(7))
    return images[order], labels[order]


def own_device():
    """This rank's GPU if its host has one for each local rank; otherwise the CPU."""
    if torch.cuda.device_count() < hvd.local_size():
        return torch.device("cpu")
    torch.cuda.set_device(hvd.local_rank())
    return torch.device("cuda", hvd.local_rank())


def train_epoch(model, optimizer, images, labels, batch, epoch):
    """Trains one epoch; returns the mean loss over all ranks."""
    share = batch // hvd.size()
    order = torch.randperm(TRAIN, generator=torch.Generator().manual_seed(epoch))
    total = torch.zeros(1, device=images.device)
    for start in range(0, TRAIN - batch + 1, batch):
        first = start + hvd.rank() * share
        mine = order[first : first + share]
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images[mine]), labels[mine])
        loss.backward()  # the ranks average their gradients while this runs
        optimizer.step()
        total += loss.detach()
    return float(hvd.allreduce(total, name="loss")) / (TRAIN // batch)


def held_out_accuracy(model, images, labels):
    """The accuracy on the held-out images; each rank evaluates its share."""
    images, labels = images[TRAIN:][hvd.rank() :: hvd.size()], labels[TRAIN:][hvd.rank() :: hvd.size()]
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).sum()
    counts = hvd.allreduce(torch.tensor([right, len(labels)]), op=hvd.Sum, name="accuracy")
    return float(counts[0]) / float(counts[1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=48, help="global batch: images of all ranks together")
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--save", metavar="FILE", help="rank 0 writes weights and curves to FILE")
    args = parser.parse_args()

    hvd.init()
    if args.batch % hvd.size() or TRAIN % args.batch:
        parser.error(f"--batch must divide {TRAIN} and be a multiple of the {hvd.size()} ranks")
    torch.set_num_threads(1)
    torch.manual_seed(42)
    device = own_device()
    images, labels = (tensor.to(device) for tensor in load())
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)

    curves = []
    for epoch in range(args.epochs):
        begin = time.perf_counter()
        loss = train_epoch(model, optimizer, images, labels, args.batch, epoch)
        rate = TRAIN / (time.perf_counter() - begin)
        schedule.step()
        accuracy = held_out_accuracy(model, images, labels)
        curves.append({"loss": loss, "accuracy": accuracy, "images_per_second": rate})
        if hvd.rank() == 0:
            print(
                f"epoch {epoch + 1:2d}  loss {loss:.4f}  accuracy {accuracy:.4f}  {rate:.0f} images/s",
                flush=True,
            )
    if args.save and hvd.rank() == 0:
        torch.save({"ranks": hvd.size(), "weights": model.cpu().state_dict(), "curves": curves}, args.save)
    hvd.shutdown()


if __name__ == "__main__":
    main()
