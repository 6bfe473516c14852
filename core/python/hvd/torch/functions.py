# SPDX-License-Identifier: Apache-2.0
"""Broadcasts a model and an optimizer, so that all ranks start with the same state."""
import torch

from .. import objects
from ..world import rank
from . import _device
from ._request import synchronize, usable
from .ops import broadcast_async_
from .process_sets import global_process_set


def broadcast_object(obj=None, root_rank=0, name=None, process_set=global_process_set):
    """Returns root_rank's object on every rank; obj is ignored on the others. The object must be
    picklable; tensors in it that were on a GPU arrive on the current GPU. Raises HvdError on all ranks
    when it cannot be pickled."""
    return objects.broadcast_object(obj, root_rank, name, process_set)


def allgather_object(obj, name=None, process_set=global_process_set):
    """Returns a list of all ranks' objects, in the order of ranks. Raises HvdError on all ranks when a
    rank's object cannot be pickled."""
    return objects.allgather_object(obj, name, process_set)


def _broadcast_all(named, root_rank, process_set):
    """Overwrites tensors, which need not be contiguous. All broadcasts are in flight together; waits for
    all that were started, also after a failure."""
    started, failure = [], None
    try:
        for name, tensor in named:
            target = usable(tensor.detach())  # a copy when it is not contiguous
            started.append((broadcast_async_(target, root_rank, name, process_set), tensor, target))
    except Exception as reason:
        failure = reason
    for handle, tensor, target in started:
        try:
            synchronize(handle)
        except Exception as reason:
            failure = failure or reason
            continue
        if target.data_ptr() != tensor.data_ptr():
            with torch.no_grad():
                tensor.copy_(target)
    if failure:
        raise failure


def broadcast_parameters(params, root_rank, process_set=global_process_set):
    """Overwrites the tensors of params with root_rank's, in place.

    params: model.state_dict(), model.named_parameters(), or a list of (name, tensor); the same names and
    shapes on all ranks. Raises ValueError for anything else."""
    if isinstance(params, dict):
        params = sorted(params.items())
    elif torch.is_tensor(params) or not hasattr(params, "__iter__"):
        raise ValueError(f"broadcast_parameters needs model.state_dict(), got {type(params).__name__}")
    else:
        params = [p if isinstance(p, tuple) else (None, p) for p in params]
    named = []
    for name, tensor in params:
        if tensor is None:
            continue
        if not torch.is_tensor(tensor):
            raise ValueError(f"broadcast_parameters: {name} is a {type(tensor).__name__}, not a tensor")
        named.append((name, tensor))
    _broadcast_all(named, root_rank, process_set)


class _Slot:
    """Placeholder for a tensor in an optimizer's state: the rest of the state is sent as an object."""

    def __init__(self, index, tensor):
        self.index, self.shape, self.dtype = index, tuple(tensor.shape), tensor.dtype
        self.device = tensor.device.type


def _take_out(value, tensors):
    """Copies nested dicts and lists with a _Slot in place of every tensor; appends the tensors to the
    list."""
    if torch.is_tensor(value):
        tensors.append(value)
        return _Slot(len(tensors) - 1, value)
    if isinstance(value, dict):
        return {key: _take_out(item, tensors) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_take_out(item, tensors) for item in value)
    return value


def _slots(value):
    if isinstance(value, _Slot):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _slots(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _slots(item)


def _put_in(value, tensors, device=None):
    """The reverse of _take_out(). device: where tensors go that were not on the CPU."""
    if isinstance(value, _Slot):
        tensor = tensors[value.index]
        return tensor if device is None or value.device == "cpu" else tensor.to(device)
    if isinstance(value, dict):
        return {key: _put_in(item, tensors, device) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_put_in(item, tensors, device) for item in value)
    return value


def _load(optimizer, state_dict):
    """load_state_dict() that keeps the group and state objects, because a wrapped optimizer, a learning
    rate scheduler and a DistributedOptimizer share them."""
    groups, state = optimizer.param_groups, optimizer.state
    optimizer.load_state_dict(state_dict)
    for group, loaded in zip(groups, optimizer.param_groups):
        group.clear()
        group.update(loaded)
    loaded = dict(optimizer.state)
    state.clear()
    state.update(loaded)
    optimizer.param_groups, optimizer.state = groups, state


def _zero_gradients(optimizer, model):
    """What Horovod does with an optimizer that has no state yet: gives each parameter a gradient of zeros, a sparse one where
    gradients will be sparse."""
    tables = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    sparse = {m.weight for m in model.modules() if isinstance(m, tables) and m.sparse} if model else set()
    for group in optimizer.param_groups:
        for param in group["params"]:
            if param.requires_grad and param.grad is None:
                param.grad = torch.zeros_like(param)
                if param in sparse or (isinstance(optimizer, torch.optim.SparseAdam) and param.dim()):
                    param.grad = param.grad.to_sparse(1)


def broadcast_optimizer_state(optimizer, root_rank, model=None, process_set=global_process_set):
    """Overwrites the optimizer's state (moments, step counts, learning rates: all of state_dict()) with
    root_rank's.

    The state may be empty on other ranks, for instance when only some ranks have loaded a checkpoint. If root_rank's is,
    each parameter without a gradient gets one of zeros on every rank, as Horovod does it; model tells which tables of
    torch.nn.Embedding have sparse ones."""
    tensors = []
    outline = _take_out(optimizer.state_dict(), tensors)
    outline, is_new = broadcast_object((outline, not optimizer.state), root_rank, "optimizer", process_set)
    if is_new:
        _zero_gradients(optimizer, model)
    mine = rank() == root_rank
    if not mine:
        params = [param for group in optimizer.param_groups for param in group["params"]]
        tensors = [
            torch.empty(s.shape, dtype=s.dtype, device=_device.near(s.device, params)) for s in _slots(outline)
        ]
    _broadcast_all([(f"optimizer.{i}", t) for i, t in enumerate(tensors)], root_rank, process_set)
    if not mine:
        _load(optimizer, _put_in(outline, tensors))
