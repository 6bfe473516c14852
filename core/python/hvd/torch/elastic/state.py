# SPDX-License-Identifier: Apache-2.0
"""TorchState: models, optimizers, schedulers and whatever else has a state_dict(), beside plain values."""
import copy

import torch

from ... import _transfer, elastic, sampler
from ..functions import _load, _put_in, _slots, _take_out
from ..optimizer import _DistributedMixin


def _copy_into(old, new):
    """A copy of nested dicts and lists of tensors, in the memory of an older copy as far as it fits."""
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
    """Saves, restores and hands on one object by state_dict() and load_state_dict(). Register one of
    your own with set_handler_registry() for objects that need more."""

    def __init__(self, value):
        self.value, self.saved = value, None
        self.save()

    def set_value(self, value):
        """The attribute of the state was assigned to."""
        self.value = value
        self.save()

    def save(self):
        with torch.no_grad():
            self.saved = _copy_into(self.saved, self.value.state_dict())

    def restore(self):
        # A copy: some objects keep what they are given.
        self.load(_copy_into(None, self.saved))

    def dump(self):
        """What a rank that joins needs: nested dicts and lists; tensors travel as they are."""
        return self.value.state_dict()

    def load(self, state):
        self.value.load_state_dict(state)

    def can_wait(self, outline):
        """Whether what dump() gave may be loaded in two parts: load_first() at the boundary, without its
        tensors, and load_rest() when the others have trained on."""
        return False


class OptimizerStateHandler(StateHandler):
    """Loads into the groups that a scheduler or a wrapped optimizer shares."""

    def load(self, state):
        _load(self.value, state)

    def can_wait(self, outline):
        # Its step() waits for what is missing. A tensor in the groups may be asked for before.
        known = isinstance(self.value, _DistributedMixin) and type(self) is OptimizerStateHandler
        return known and not any(_slots(outline["param_groups"]))

    def load_first(self, state):
        _load(self.value, {"state": {}, "param_groups": state["param_groups"]})

    def load_rest(self, outline, tensors):
        # load_state_dict() would copy it, and drop gradients that are under way.
        params = [param for group in self.value.param_groups for param in group["params"]]
        for index, values in outline["state"].items():
            self.value.state[params[index]] = _put_in(values, tensors, params[index].device)


_registry = [(torch.optim.Optimizer, OptimizerStateHandler), (torch.nn.Module, StateHandler)]


def get_handler_registry():
    """Pairs of a type and the handler for objects of it. Others with state_dict() and load_state_dict()
    get a StateHandler."""
    return _registry


def set_handler_registry(registry):
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
    """The state of a PyTorch program. model and optimizer, learning rate schedulers, ElasticSamplers and
    whatever else has state_dict() and load_state_dict() are handled as such; every other keyword argument
    is a plain value. All are attributes: state.model, state.epoch.

    When ranks join, what an optimizer of hvd.DistributedOptimizer remembers (moments, step counts) follows
    while all go forward and backward: its step() waits for it. Before that it is not to be changed, and
    optimizer.state is empty on a rank that joins; state_dict() and commit() wait."""

    def __init__(self, model=None, optimizer=None, **kwargs):
        kwargs.update(model=model, optimizer=optimizer)
        handlers = {name: _handler(value) for name, value in kwargs.items()}
        self._handlers = {name: handler for name, handler in handlers.items() if handler}
        self._parts = self._kept = None  # what is sent or received: outlines, and tensors whose memory is used
        for name, handler in self._handlers.items():
            object.__setattr__(self, name, handler.value)
        super().__init__(**{n: v for n, v in kwargs.items() if n not in self._handlers})

    def __setattr__(self, name, value):
        if name != "_handlers" and name in self._handlers:
            self._handlers[name].set_value(value)
        super().__setattr__(name, value)

    def save(self):
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
        # The memory must live until it has been sent.
        self._kept = [tensor.detach().cpu().contiguous() for tensor in tensors]
        now = self._divide(parts, self._kept)
        return (plain, parts), blocks + now

    def _unpack(self, thing):
        plain, parts = thing
        # Into the memory that the objects have already, where it fits: touching new memory takes longer
        # than what it is for. What arrives half is asked for again from another rank.
        tensors = []
        for name, (part, _, _) in parts.items():
            here = []
            _take_out(self._handlers[name].dump(), here)
            fits = {(i, tuple(t.shape), t.dtype): t.detach() for i, t in enumerate(here) if _plain(t)}
            for i, slot in enumerate(_slots(part)):
                at_hand = fits.get((i, slot.shape, slot.dtype))
                if at_hand is None:
                    at_hand = torch.empty(slot.shape, dtype=slot.dtype, device="cpu")
                tensors.append(at_hand)
        blocks = super()._unpack(plain)
        self._parts, self._kept = parts, tensors
        return blocks + self._divide(parts, tensors)

    def _divide(self, parts, tensors):
        """The memory of what is needed at once; that of the rest is _later."""
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
                handler.load(_put_in(part, self._kept))
        super()._take(thing)

    def _take_later(self):
        for name, (part, _, waits) in self._parts.items():
            if waits:
                self._handlers[name].load_rest(part, self._kept)

    def _settled(self, version, place):
        super()._settled(version, place)
        self._await(self if self._delivery else None)

    def _end_delivery(self):
        super()._end_delivery()
        self._await(None)

    def _await(self, state):
        """Has the optimizers' step() wait for the rest of the state; None: it is there."""
        for handler in self._handlers.values():
            if isinstance(handler.value, _DistributedMixin):
                handler.value._hvd_awaits = state
        if not state:
            self._kept = self._parts = None
