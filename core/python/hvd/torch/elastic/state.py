# SPDX-License-Identifier: Apache-2.0
"""TorchState: a state of models, optimizers, schedulers, other objects with a state_dict(), and plain
values."""
import copy

import torch

from ... import _transfer, elastic, sampler
from .. import _enqueued
from ..functions import _load, _put_in, _slots, _take_out
from ..optimizer import _DistributedMixin


def _copy_into(old, new):
    """Copies nested dicts and lists of tensors; reuses the memory of an older copy where shapes match."""
    if torch.is_tensor(new):
        fits = torch.is_tensor(old) and (old.shape, old.dtype, old.device, old.layout) == (
            new.shape,
            new.dtype,
            new.device,
            new.layout,
        )
        return old.copy_(new) if fits and new.layout is torch.strided else new.detach().clone()
    if isinstance(new, dict):
        known = old if isinstance(old, dict) else {}
        return {key: _copy_into(known.get(key), value) for key, value in new.items()}
    if type(new) in (list, tuple):
        known = old if isinstance(old, (list, tuple)) and len(old) == len(new) else [None] * len(new)
        return type(new)(_copy_into(a, b) for a, b in zip(known, new))
    return copy.deepcopy(new)


class StateHandler:
    """Saves, restores and transfers one object with state_dict() and load_state_dict(). For objects that
    need more, derive a class and register it with set_handler_registry()."""

    def __init__(self, value):
        self.value, self.saved = value, None
        self.save()

    def set_value(self, value):
        """Called when the state's attribute is assigned."""
        self.value = value
        self.save()

    def save(self):
        with torch.no_grad():
            self.saved = _copy_into(self.saved, self.value.state_dict())

    def restore(self):
        # A copy, because some objects keep references to the dict that they load.
        self.load(_copy_into(None, self.saved))

    def dump(self):
        """The state that a joiner needs: nested dicts and lists. Tensors in it are sent without pickling."""
        return self.value.state_dict()

    def load(self, state):
        self.value.load_state_dict(state)

    def can_wait(self, outline):
        """Whether a joiner may load the result of dump() in two parts: load_first() at the boundary,
        without tensors, and load_rest() later, while the ranks train."""
        return False


class OptimizerStateHandler(StateHandler):
    """Handler of optimizers: loads into the existing groups, which schedulers and wrapped optimizers
    share."""

    def load(self, state):
        _load(self.value, state)

    def can_wait(self, outline):
        # DistributedOptimizer.step() waits for the missing part. Tensors in param_groups may be needed before.
        known = isinstance(self.value, _DistributedMixin) and type(self) is OptimizerStateHandler
        return known and not any(_slots(outline["param_groups"]))

    def load_first(self, state):
        _load(self.value, {"state": {}, "param_groups": state["param_groups"]})

    def load_rest(self, outline, tensors):
        # load_state_dict() would copy the tensors, and drop gradients in flight.
        params = [param for group in self.value.param_groups for param in group["params"]]
        for index, values in outline["state"].items():
            self.value.state[params[index]] = _put_in(values, tensors, params[index].device)


_registry = [(torch.optim.Optimizer, OptimizerStateHandler), (torch.nn.Module, StateHandler)]


def get_handler_registry():
    """The list of (type, handler class) pairs. Objects of other types with state_dict() and
    load_state_dict() get a StateHandler."""
    return _registry


def set_handler_registry(registry):
    """Replaces the list that get_handler_registry() returns, for states created from now on."""
    global _registry
    _registry = registry


def _handler(value):
    if isinstance(value, (sampler.ElasticSampler, type)):
        return None
    for kind, handler in _registry:
        if isinstance(value, kind):
            return handler(value)
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        return StateHandler(value)
    return None


def _plain(tensor):
    return tensor.device.type == "cpu" and tensor.layout is torch.strided and tensor.is_contiguous()


def _memory(tensor):
    return _transfer.memory(tensor.data_ptr(), tensor.numel() * tensor.element_size())


class TorchState(elastic.ObjectState):
    """The state of a PyTorch program. Models, optimizers, learning rate schedulers, ElasticSamplers and
    other objects with state_dict() and load_state_dict() are transferred by these methods; other
    keyword arguments are plain values, which must be picklable. All are attributes: state.model,
    state.epoch.

    When ranks join, the state of an hvd.DistributedOptimizer (moments, step counts) is sent while all ranks
    already compute forward and backward; its step(), state_dict() and commit() wait for it. Until then the
    program must not change the optimizer's state, and on a joiner optimizer.state is empty.
    """

    def __init__(self, model=None, optimizer=None, **kwargs):
        kwargs.update(model=model, optimizer=optimizer)
        handlers = {name: _handler(value) for name, value in kwargs.items()}
        self._handlers = {name: handler for name, handler in handlers.items() if handler}
        self._parts = self._tensors = None  # of a transfer: outlines, and tensors whose memory it uses
        for name, handler in self._handlers.items():
            object.__setattr__(self, name, handler.value)
        super().__init__(**{n: v for n, v in kwargs.items() if n not in self._handlers})

    def __setattr__(self, name, value):
        if name != "_handlers" and name in self._handlers:
            self._handlers[name].set_value(value)
        super().__setattr__(name, value)

    def save(self):
        _enqueued.finish()  # otherwise what a failed operation has left might replace a good copy
        self._arrive()
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def _restore(self):
        for handler in self._handlers.values():
            handler.restore()
        super()._restore()

    def _pack(self, apart):
        plain, blocks = super()._pack(apart)
        tensors, parts = [], {}
        for name, handler in self._handlers.items():
            begin = len(tensors)
            outline = _take_out(handler.dump(), tensors)
            large = any(tensor.numel() for tensor in tensors[begin:])
            parts[name] = outline, begin, apart and large and handler.can_wait(outline)
        # The memory must stay alive until it has been sent.
        self._tensors = [tensor.detach().cpu().contiguous() for tensor in tensors]
        now = self._divide(parts, self._tensors)
        return (plain, parts), blocks + now

    def _unpack(self, thing):
        plain, parts = thing
        # Receives into the objects' own memory if shapes match: the first use of new memory takes longer than
        # the transfer. If the transfer fails half-way, another rank sends the state again.
        tensors = []
        for name, (part, _, _) in parts.items():
            here = []
            _take_out(self._handlers[name].dump(), here)
            fits = {(i, tuple(t.shape), t.dtype): t.detach() for i, t in enumerate(here) if _plain(t)}
            for i, slot in enumerate(_slots(part)):
                own = fits.get((i, slot.shape, slot.dtype))
                if own is None:
                    own = torch.empty(slot.shape, dtype=slot.dtype, device="cpu")
                tensors.append(own)
        blocks = super()._unpack(plain)
        self._parts, self._tensors = parts, tensors
        return blocks + self._divide(parts, tensors)

    def _divide(self, parts, tensors):
        """Returns the memory blocks that are needed at once; puts the others into _later."""
        blocks = [_memory(tensor) for tensor in tensors]
        begins = [begin for _, begin, _ in parts.values()] + [len(blocks)]
        now, self._later = [], []
        for (_, begin, waits), end in zip(parts.values(), begins[1:]):
            (self._later if waits else now).extend(blocks[begin:end])
        return now

    def _take(self, thing):
        for name, (part, _, waits) in self._parts.items():
            handler = self._handlers[name]
            if waits:
                handler.load_first(part)
            else:
                handler.load(_put_in(part, self._tensors))
        super()._take(thing)

    def _take_later(self):
        for name, (part, _, waits) in self._parts.items():
            if waits:
                self._handlers[name].load_rest(part, self._tensors)

    def _settled(self, version, place):
        super()._settled(version, place)
        self._await(self if self._delivery else None)

    def _end_delivery(self):
        super()._end_delivery()
        self._await(None)

    def _await(self, state):
        """Makes the optimizers' step() wait for the rest of this state. None: the state is complete."""
        for handler in self._handlers.values():
            if isinstance(handler.value, _DistributedMixin):
                handler.value._hvd_awaits = state
        if not state:
            self._tensors = self._parts = None
