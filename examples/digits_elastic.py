#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""digits_torch.py for a number of ranks that changes during the training.

    hvdrun -np 4 --min-np 2 --max-np 8 --name digits python3 examples/digits_elastic.py

While it runs, kill -9 any of its ranks, or run `hvdrun scale digits 6`. Each image of an epoch is used exactly
once, even if ranks are lost or join. A joiner gets model, optimizer and position in the epoch from another
rank. The batch size per rank is constant; the learning rate is scaled with the number of ranks.

A program survives lost ranks without any of this: digits_torch.py does. But then size() does not change,
averages are over the surviving ranks, the images of the lost rank are not used in later epochs, and no rank
can join.

If the host has a GPU for each rank, the ranks train on GPUs; each joiner then needs one, too.
"""
import argparse
import time

import torch
import torch.nn.functional as F
from digits_torch import TRAIN, Net, load, own_device

import hvd.torch as hvd


def evaluate(model, images, labels):
    """The accuracy on the held-out images; each rank evaluates its share."""
    device = next(model.parameters()).device
    images, labels = (part[TRAIN:][hvd.rank() :: hvd.size()].to(device) for part in (images, labels))
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).sum()
    counts = hvd.allreduce(torch.tensor([right, len(labels)]), op=hvd.Sum, name="accuracy")
    return float(counts[0]) / float(counts[1])


def train_epoch(state, loader):
    """Trains on the rest of an epoch; returns the mean loss over all ranks."""
    total = torch.zeros(2)
    device = next(state.model.parameters()).device
    for index, (images, labels) in enumerate(state.sampler.whole_epoch(loader)):
        images, labels = images.to(device), labels.to(device)
        state.optimizer.zero_grad()
        loss = F.cross_entropy(state.model(images), labels)
        loss.backward()  # the ranks average their gradients while this runs
        state.optimizer.step()
        state.sampler.record_batch(index, loader.batch_size)
        state.step += 1
        total += torch.tensor([float(loss.detach()), 1])
        state.check_host_updates()  # a step boundary: ranks join and leave here
    total = hvd.allreduce(total, op=hvd.Sum, name="loss")
    return float(total[0] / max(total[1], 1))


def record_changes(state):
    """Registers a callback that records each change of the ranks; rank 0 prints it."""

    def changed(old, new):
        ms = hvd.elastic.world().repair_ns / 1e6
        state.changes.append({"epoch": state.epoch, "step": state.step, "ranks": new, "repair_ms": ms})
        if hvd.rank() == 0:
            print(f"epoch {state.epoch + 1:2d}, step {state.step}: {old} ranks -> {new}", flush=True)

    state.register_resize_callbacks([changed])


def make_state(args):
    model = Net().to(own_device())
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    state = hvd.elastic.TorchState(
        model,
        optimizer,
        schedule=schedule,
        sampler=hvd.elastic.ElasticSampler(range(TRAIN)),
        epoch=0,
        epochs=args.epochs,  # how many to train; grows while --await-ranks has not been reached
        step=0,
        curves=[],
        changes=[],
    )
    state.register_resize_callbacks([hvd.elastic.scale_lr(optimizer, schedulers=[schedule])])
    record_changes(state)
    return state


def awaits_ranks(state, args):
    """True while fewer ranks train than --await-ranks asks for, for at most 10 times --epochs."""
    return hvd.size() < args.await_ranks and state.epoch < 10 * args.epochs


@hvd.elastic.run
def train(state, args, images, labels):
    """Runs once this rank has the state: at the start, or after it has joined."""
    data = torch.utils.data.TensorDataset(images[:TRAIN], labels[:TRAIN])
    loader = torch.utils.data.DataLoader(
        data, batch_size=args.batch, sampler=state.sampler, num_workers=args.workers
    )
    while state.epoch < state.epochs:
        begin = time.perf_counter()
        loss = train_epoch(state, loader)
        seconds = time.perf_counter() - begin
        rate = TRAIN / seconds
        if state.epoch < args.epochs:
            state.schedule.step()
        time.sleep(max(0, args.pace - seconds))
        accuracy = evaluate(state.model, images, labels)
        point = {"loss": loss, "accuracy": accuracy, "images_per_second": rate, "ranks": hvd.size()}
        state.curves.append(point)
        if hvd.rank() == 0:
            print(
                f"epoch {state.epoch + 1:2d}  loss {loss:.4f}  accuracy {accuracy:.4f}  "
                f"{rate:.0f} images/s on {hvd.size()} ranks",
                flush=True,
            )
        state.epoch += 1
        # Whether there is one more epoch depends on the number of ranks. The answer is kept in the state, which
        # joiners get: a joiner that decided for itself would see another number of ranks than the others saw.
        if state.epoch == state.epochs and awaits_ranks(state, args):
            state.epochs += 1
        state.sampler.set_epoch(state.epoch)
        state.commit()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=12, help="images per rank")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate per rank")
    parser.add_argument("--pace", type=float, default=0, help="least seconds per epoch")
    parser.add_argument("--await-ranks", type=int, default=0, metavar="N", help="train on until there are N ranks")
    parser.add_argument("--workers", type=int, default=0, help="DataLoader processes per rank")
    parser.add_argument("--save", metavar="FILE", help="rank 0 writes weights, curves and changes to FILE")
    args = parser.parse_args()

    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(42)
    images, labels = load()
    state = make_state(args)
    train(state, args, images, labels)
    if args.save and hvd.rank() == 0:
        found = {"ranks": hvd.size(), "curves": state.curves, "changes": state.changes}
        torch.save({**found, "weights": state.model.cpu().state_dict()}, args.save)
    hvd.shutdown()


if __name__ == "__main__":
    main()
