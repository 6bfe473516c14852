# SPDX-License-Identifier: Apache-2.0
"""Starts collectives on torch tensors, for ops.py (the public functions) and autograd.py.

Every start_*() checks the user's tensors and returns a handle for synchronize().
"""
import ctypes
import operator

import torch

from .. import _lib
from .._lib import check, dims, lib
from ..process_sets import checked
from ._request import need_tensor, receive, submit, usable, wait


def _names(kind, name, count):
    """Names of the operations: `kind.name`, with a number in a group."""
    if name is None:
        return [None] * count
    if count == 1:
        return [f"{kind}.{name}"]
    return [f"{kind}.{name}_{i + 1}of{count}" for i in range(count)]


def several(tensors):
    """Returns a group's tensors as a list. Raises TypeError for a single tensor, which is iterable but not
    a group.
    """
    if torch.is_tensor(tensors):
        raise TypeError("a list of tensors is needed, got a tensor")
    tensors = list(tensors)
    for tensor in tensors:
        need_tensor(tensor)
    return tensors


_is_inference = getattr(torch.Tensor, "is_inference", lambda tensor: False)  # since torch 1.9


def _touched(tensor):
    """Increments the tensor's version counter: the engine has changed its values, which autograd did not
    see."""
    if not _is_inference(tensor) and tensor.numel():
        with torch.no_grad():
            tensor.view(-1)[:0].zero_()


def _waiter(outputs, single, in_place=False):
    def finish(pending):
        wait(pending)
        if in_place:
            for output in outputs:
                _touched(output)
        return outputs[0] if single else outputs

    return finish


def start_allreduce(tensors, name, scales, in_place, single, process_set):
    tensors = several(tensors)
    inputs = [usable(t, in_place) for t in tensors]
    outputs = tensors if in_place else [torch.empty_like(t) for t in inputs]
    members = list(zip(_names("allreduce", name, len(inputs)), inputs, outputs))
    return submit(_lib.ALLREDUCE, members, _waiter(outputs, single, in_place), process_set, **scales)


def _rows(tensor):
    """Makes a scalar one row."""
    return tensor.reshape(1) if tensor.dim() == 0 else tensor


def start_allgather(tensors, name, single, process_set, splits=False):
    inputs = [_rows(usable(t)) for t in several(tensors)]

    def finish(pending):
        results = receive(pending)
        if not splits:
            results = [tensor for tensor, _ in results]
        return results[0] if single else results

    names = _names("allgather", name, len(inputs))
    return submit(_lib.ALLGATHER, [(n, t, None) for n, t in zip(names, inputs)], finish, process_set)


def start_broadcast(tensor, root_rank, name, in_place, process_set):
    source = usable(tensor, in_place)
    output = tensor if in_place else source.detach().clone()
    members = [(_names("broadcast", name, 1)[0], output, output)]
    root = checked(process_set).number_of(root_rank)
    return submit(_lib.BROADCAST, members, _waiter([output], True, in_place), process_set, root=root)


def even_splits(rows, ranks):
    """The splits of an alltoall that was given none. Raises ValueError unless the rows divide evenly."""
    if rows % ranks:
        raise ValueError(f"alltoall without splits: {rows} rows for {ranks} ranks")
    return [rows // ranks] * ranks


def _splits(given, rows, ranks):
    """The splits of an alltoall as a list. Raises ValueError unless they are `ranks` numbers, 0 or more, with a sum of at most
    `rows`."""
    try:
        splits = [operator.index(s) for s in (given.tolist() if torch.is_tensor(given) else given)]
    except TypeError:
        raise ValueError(f"alltoall needs whole numbers in one dimension as splits, got {given!r}") from None
    if not splits:
        return even_splits(rows, ranks)
    if len(splits) != ranks:
        raise ValueError(f"alltoall: {len(splits)} splits for {ranks} ranks")
    if min(splits) < 0 or sum(splits) > rows:
        raise ValueError(f"alltoall: the splits {splits} are not numbers of rows, 0 or more, of the {rows} that there are")
    return splits


def start_alltoall(tensor, splits, name, process_set):
    """Sends the first sum(splits) rows only."""
    source = _rows(usable(tensor))
    device = splits.device if torch.is_tensor(splits) else "cpu"
    if splits is not None:
        splits = _splits(splits, source.shape[0], checked(process_set).size())
        source = source[: sum(splits)]
        splits = dims(splits)

    def finish(pending):
        output, got = receive(pending)[0]
        return output, torch.tensor(got, dtype=torch.int32, device=device)

    members = [(_names("alltoall", name, 1)[0], source, None)]
    return submit(_lib.ALLTOALL, members, finish, process_set, splits=splits)


def share(rows, ranks):
    """How many of `rows` rows each of `ranks` ranks gets from a reducescatter, as a list."""
    return [rows // ranks + (r < rows % ranks) for r in range(ranks)]


def _place(process_set):
    """This rank's number in the process set, the set's size, and the epoch for which both are right."""
    if checked(process_set).process_set_id != 0:
        return process_set.rank(), process_set.size(), 0
    world = _lib.World(size_of_struct=ctypes.sizeof(_lib.World))
    check(lib.hvd_world(ctypes.byref(world)))
    # In another world hvd_submit() refuses the request with ESTALE. A joiner that has not entered has no epoch
    # yet; hvd_submit() itself checks whether entering changed its rank or size.
    return world.rank, world.size, 0 if world.waiting else world.epoch


def start_reducescatter(tensors, name, scales, single, process_set):
    inputs = [usable(t) for t in several(tensors)]
    number, ranks, epoch = _place(process_set)
    for t in inputs:
        if t.dim() == 0:
            raise ValueError("reducescatter needs a tensor with at least one dimension")
    outputs = [t.new_empty([share(t.shape[0], ranks)[number], *t.shape[1:]]) for t in inputs]
    members = list(zip(_names("reducescatter", name, len(inputs)), inputs, outputs))
    return submit(_lib.REDUCESCATTER, members, _waiter(outputs, single), process_set, epoch=epoch, **scales)
