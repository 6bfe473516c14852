# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: any torch optimizer whose step() works with the ranks' combined gradients.

A hook submits a parameter's gradient, in place, as soon as backward has accumulated it, so that the
ranks exchange it while backward goes on; step() waits for all. Everything a submission needs is
prepared once: a hook costs one call of the library, a wait another.
"""
import contextlib
import ctypes
import warnings
import weakref

import torch

from .. import _lib
from .._lib import HvdError, Request, check_stay, error, lib
from . import _device, _scaler, _stolen
from ._options import need_options, need_passes
from ._request import describe, flights, usable
from ._sparse import SparseSum
from .compression import Compression
from .process_sets import global_process_set, need_global


class _Gradient:
    """One parameter's gradient on its way through the world."""

    __slots__ = (
        "param", "name", "delay", "group", "sent", "tensor", "target", "context",
        "request", "request_pointer", "handle", "handle_pointer", "dtype", "numel", "device", "place", "version",
        "sparse", "sparse_dim",
    )  # fmt: skip

    def __init__(self, param, name, passes, request, handle):
        self.param, self.name, self.delay = param, name, passes
        self.group = None  # submitted together with the others of it
        self.sent = False  # since the last synchronize()
        self.tensor = None  # what the engine works on; None while nothing is under way
        self.target = None  # the gradient it goes back to; None when it is that gradient itself
        self.context = None  # of the compression
        self.request, self.request_pointer = request, ctypes.addressof(request)
        self.handle, self.handle_pointer = handle, ctypes.addressof(handle)
        self.dtype, self.numel, self.device = None, -1, None  # of the tensor that the request describes
        self.place = _device.HOST  # and where it was when that was last submitted
        self.version = None  # of the gradient when it was submitted
        self.sparse = None  # the SparseSum under way
        self.sparse_dim = None  # of the last sparse gradient there was


class _Group:
    """Gradients that are submitted together: their requests lie side by side."""

    __slots__ = ("members", "requests", "handles", "ready")

    def __init__(self, count):
        self.members = []
        self.requests, self.handles = (Request * count)(), (ctypes.c_int64 * count)()
        self.ready = 0


class _DistributedMixin:
    """Stands before the wrapped optimizer's class in the order of methods."""

    # ---- set-up ---------------------------------------------------------------------------------

    def _hvd_setup(self, named, options):
        self._hvd_options = options
        self._hvd_gradients = {}
        self._hvd_flight = []  # gradients under way; always this same list
        flights.append(self._hvd_flight)
        self._hvd_nodes = []  # autograd's: a hook of torch < 2.1 lives as long as its node
        self._hvd_synchronized = False
        self._hvd_should_synchronize = True
        self._hvd_awaits = None  # a TorchState of which a part is still on its way
        names = self._hvd_names(named)
        params = [p for g in self.param_groups for p in g["params"] if p.requires_grad]
        for group in self._hvd_split(params):
            self._hvd_add(group, names)
        for param in params:
            if param not in self._hvd_gradients:
                self._hvd_add([param], names)
        # In the order of param_groups, which is the same on every rank.
        self._hvd_gradients = {p: self._hvd_gradients[p] for p in params}

    def _hvd_names(self, named):
        params = [p for group in self.param_groups for p in group["params"]]
        if named is None:
            return {
                p: f"allreduce.noname.{i}.{j}"
                for i, group in enumerate(self.param_groups)
                for j, p in enumerate(group["params"])
            }
        if isinstance(named, torch.nn.Module):
            raise ValueError("named_parameters should be model.named_parameters(), not the model")
        named = list(named)
        if any(not isinstance(item, tuple) or len(item) != 2 for item in named):
            raise ValueError("named_parameters should be pairs of a name and a parameter")
        keys = [name for name, _ in named]
        twice = {name for name in keys if keys.count(name) > 1} if len(set(keys)) < len(keys) else ()
        if twice:
            raise ValueError("parameter names are not unique: " + ", ".join(sorted(twice)))
        names = {p: f"allreduce.{name}" for name, p in named}
        if any(p not in names for p in params):
            raise ValueError("named_parameters was given, but one or more parameters have no name in it")
        return names

    def _hvd_split(self, params):
        """The groups asked for: lists of parameters; none for those that travel alone."""
        groups = self._hvd_options["groups"]
        if not groups:
            return []
        if isinstance(groups, int):
            count = min(groups, len(params))
            ends = [len(params) * i // count for i in range(count + 1)] if count else [0]
            return [params[a:b] for a, b in zip(ends, ends[1:])]
        known, seen = set(params), set()
        for group in groups:
            if not isinstance(group, (list, tuple)) or not all(torch.is_tensor(p) for p in group):
                raise ValueError("groups should be a number, or lists of parameters")
            for param in group:
                if param in seen:
                    raise ValueError("a parameter appears in more than one group")
                seen.add(param)
        return [group for group in ([p for p in g if p in known] for g in groups) if group]

    def _hvd_add(self, params, names):
        """Prepares gradients, a group when there are several, and hooks them up."""
        group = _Group(len(params))
        for i, param in enumerate(params):
            gradient = _Gradient(
                param,
                names[param],
                self._hvd_options["passes"],
                group.requests[i],
                ctypes.c_int64.from_buffer(group.handles, i * ctypes.sizeof(ctypes.c_int64)),
            )
            group.members.append(gradient)
            gradient.group = group if len(params) > 1 else None
            self._hvd_gradients[param] = gradient
            self._hvd_hook(gradient)

    def _hvd_hook(self, gradient):
        # Autograd keeps hooks for ever; a weak reference lets the optimizer go.
        reference = weakref.ref(self)

        def hook(*_):
            optimizer = reference()
            if optimizer is None:
                return
            optimizer._hvd_synchronized = False
            delay = gradient.delay = gradient.delay - 1
            if delay > 0:
                return
            if delay < 0:
                gradient.version = gradient.param.grad._version  # said here, not once more when it is waited for
                raise RuntimeError(
                    f"the gradient of {gradient.name} was computed more than backward_passes_per_step "
                    "times before step(): raise backward_passes_per_step to accumulate gradients"
                )
            optimizer._hvd_send(gradient)

        _stolen.keep_apart(gradient.param)
        if hasattr(gradient.param, "register_post_accumulate_grad_hook"):  # torch >= 2.1
            gradient.param.register_post_accumulate_grad_hook(hook)
        else:
            node = gradient.param.expand_as(gradient.param).grad_fn.next_functions[0][0]
            node.register_hook(hook)
            self._hvd_nodes.append(node)

    def __del__(self):
        # Memory that the engine still works on stays: nobody will wait for it.
        flight = self.__dict__.get("_hvd_flight")
        if flight is not None and not flight:
            flights[:] = [f for f in flights if f is not flight]

    # ---- sending --------------------------------------------------------------------------------

    def _hvd_send(self, gradient):
        """Hands a gradient to the engine, or a group when this was the last one of it."""
        grad = gradient.param.grad
        if self._hvd_options["plain"] and not grad.is_sparse and grad.is_contiguous():
            tensor, gradient.target = grad, None
            self._hvd_point(gradient, tensor)
        else:
            tensor = self._hvd_convert(gradient, grad)
            if tensor is None:
                return
        group = gradient.group
        if group is None:
            code = lib.hvd_submit(gradient.request_pointer, 1, gradient.handle_pointer)
            if code:
                check_stay(code)
            gradient.tensor = tensor
            gradient.sent = True
            self._hvd_flight.append(gradient)
            return
        gradient.tensor = tensor
        gradient.sent = True
        group.ready += 1
        if group.ready == len(group.members):
            self._hvd_send_group(group)

    def _hvd_send_group(self, group):
        group.ready = 0
        code = lib.hvd_submit(group.requests, len(group.members), group.handles)
        if code:
            for member in group.members:
                member.tensor, member.sent = None, False
            check_stay(code)
        self._hvd_flight.extend(group.members)

    def _hvd_convert(self, gradient, grad):
        """The rarer cases: a tensor to send for a gradient that cannot travel as it is. None when it
        went on its way here."""
        options = self._hvd_options
        if grad.is_sparse:
            if not options["sparse_as_dense"]:
                if gradient.group is not None:
                    raise ValueError(f"{gradient.name}: a sparse gradient cannot be in a group")
                if grad._nnz() == 0 and gradient.sparse_dim is not None:
                    grad = self._hvd_zeros(gradient)  # zero_grad() forgets which dimensions are dense
                gradient.sparse_dim = grad.sparse_dim()
                gradient.sparse = SparseSum(grad, gradient.name, options["op"])
                gradient.sent = True
                self._hvd_flight.append(gradient)
                return None
            grad = gradient.param.grad = grad.to_dense()
        compression = options["compression"]
        apart = getattr(compression, "beside", False)
        with _device.beside(grad) if apart else contextlib.nullcontext():
            tensor, gradient.context = compression.compress(usable(grad.detach()))
            same = tensor.data_ptr() == grad.data_ptr()
            tensor, gradient.target = (grad, None) if same else (tensor, grad)
            self._hvd_point(gradient, tensor)
        return tensor

    def _hvd_point(self, gradient, tensor):
        """Has the request name this tensor, on the stream that is current."""
        request = gradient.request
        if (
            gradient.dtype is not tensor.dtype
            or gradient.numel != tensor.numel()
            or gradient.device != tensor.device
        ):
            self._hvd_describe(gradient, tensor)
        else:
            request.input = request.output = tensor.data_ptr() or None
            if gradient.place[0] >= 0:
                gradient.place = request.device, request.stream = _device.place(tensor)
        gradient.version = gradient.param.grad._version

    def _hvd_describe(self, gradient, tensor):
        options = self._hvd_options
        usable(tensor, in_place=True)
        gradient.place = describe(
            gradient.request,
            _lib.ALLREDUCE,
            gradient.name,
            tensor,
            tensor,
            op=options["op"],
            prescale=options["prescale"],
            postscale=options["postscale"],
        )
        gradient.dtype, gradient.numel, gradient.device = tensor.dtype, tensor.numel(), tensor.device

    # ---- waiting --------------------------------------------------------------------------------

    def synchronize(self):
        """Waits until every gradient is the ranks' combined one. Gradients that backward did not
        reach here take part as zeros."""
        for gradient in self._hvd_gradients.values():
            if not gradient.sent:
                param = gradient.param
                if param.grad is None:
                    param.grad = self._hvd_zeros(gradient)
                self._hvd_send(gradient)
        self._hvd_wait()
        self._hvd_synchronized = True

    def _hvd_zeros(self, gradient):
        param = gradient.param
        sparse_dim = gradient.sparse_dim
        if sparse_dim is not None:  # it was sparse before: the other ranks gather
            indices = torch.empty([sparse_dim, 0], dtype=torch.int64, device=param.device)
            values = torch.empty([0, *param.shape[sparse_dim:]], dtype=param.dtype, device=param.device)
            return torch.sparse_coo_tensor(indices, values, param.shape, device=param.device)
        return torch.zeros_like(param, memory_format=torch.contiguous_format)

    def _hvd_wait(self, discard=False):
        """Waits for what is under way, all of it also after a failure, and puts results in place."""
        flight = list(self._hvd_flight)
        self._hvd_flight.clear()
        failures, wrong, second = [], None, []
        for gradient in flight:
            gradient.sent = False
            gradient.delay = self._hvd_options["passes"]
            try:
                if gradient.sparse is not None:
                    gradient.sparse.proceed()
                    second.append(gradient)
                else:
                    found = self._hvd_receive(gradient)
                    wrong = wrong or found
            except Exception as reason:
                failures.append(self._hvd_explained(gradient, reason))
                gradient.sparse = None
            finally:
                gradient.tensor = gradient.target = gradient.context = None
        for gradient in second:
            try:
                gradient.param.grad = gradient.sparse.finish()
            except Exception as reason:
                failures.append(reason)
            finally:
                gradient.sparse = None
        if discard:
            return
        if failures:
            raise failures[0]
        if wrong:
            raise RuntimeError(wrong)

    def _hvd_receive(self, gradient):
        """Waits for a dense gradient. Returns what the program has done to it meanwhile, in words."""
        code = lib.hvd_wait(gradient.handle.value)
        if code:
            raise error(code)
        tensor, grad = gradient.tensor, gradient.param.grad
        target = tensor if gradient.target is None else gradient.target
        if grad is not target:
            return f"the gradient of {gradient.name} was replaced while the ranks exchanged it"
        if grad._version != gradient.version:
            return (
                f"the gradient of {gradient.name} was changed while the ranks exchanged it: synchronize() comes "
                "before clipping, then step() with skip_synchronize()"
            )
        if target is not tensor:
            target.copy_(self._hvd_options["compression"].decompress(tensor, gradient.context))
            _device.used_here(tensor)
        return None

    @staticmethod
    def _hvd_explained(gradient, failure):
        """A sparse gradient is gathered, a dense one reduced: what the ranks' disagreement means."""
        text = str(failure)
        said = text.replace(gradient.name, "")
        if not isinstance(failure, HvdError) or "allgather" not in said or "allreduce" not in said:
            return failure
        hint = "the gradient is sparse on some ranks only: sparse_as_dense=True makes all dense"
        return type(failure)(f"{text} ({hint})", failure.errno)

    # ---- what the user calls --------------------------------------------------------------------

    @contextlib.contextmanager
    def skip_synchronize(self):
        """step() and GradScaler's within do not wait: for use after synchronize(), to clip gradients between."""
        self._hvd_should_synchronize = False
        try:
            yield
        finally:
            self._hvd_should_synchronize = True

    def set_backward_passes_per_step(self, passes):
        """How many backward passes add up in a gradient before it is exchanged."""
        need_passes(passes)
        self._hvd_options["passes"] = passes
        for gradient in self._hvd_gradients.values():
            if not gradient.sent:
                gradient.delay = passes

    def step(self, closure=None, **options):
        """Waits for the combined gradients, then does the wrapped optimizer's step.

        options: the wrapped step's own. GradScaler of torch 1.13 gives itself (grad_scaler) to a fused Adam."""
        if closure is not None:
            self._hvd_settle()
            return super().step(self._hvd_closure(closure), **options)
        self._hvd_combine()
        self._hvd_settle()
        try:
            return super().step(**options)  # it may look for infinities: these gradients are combined
        finally:
            self._hvd_synchronized = False

    def _hvd_combine(self):
        """The gradients are about to be used."""
        if self._hvd_should_synchronize:
            if self._hvd_flight or not self._hvd_synchronized:
                self.synchronize()
        elif self._hvd_flight:
            raise RuntimeError("the ranks are exchanging gradients: synchronize() comes before skip_synchronize()")

    def _hvd_settle(self):
        if self._hvd_awaits is not None:
            self._hvd_awaits.settle()

    def state_dict(self):
        """The wrapped optimizer's. On a rank that has just joined: when it has come."""
        if self._hvd_awaits is not None:
            self._hvd_awaits._arrive()
        return super().state_dict()

    def _hvd_closure(self, closure):
        def synchronized():
            loss = closure()
            self.synchronize()
            self._hvd_synchronized = False
            return loss

        return synchronized

    def zero_grad(self, *args, **kwargs):
        """The wrapped optimizer's. Not between backward() and step() or synchronize()."""
        sent = sum(gradient.sent for gradient in self._hvd_gradients.values())
        if sent:
            raise RuntimeError(
                f"zero_grad() between backward() and step(): the ranks are exchanging {sent} gradients; "
                "call step() or synchronize() first"
            )
        self._hvd_synchronized = False
        return super().zero_grad(*args, **kwargs)

    def load_state_dict(self, *args, **kwargs):
        """The wrapped optimizer's. Gradients under way are waited for and dropped, passes so far are
        not counted."""
        self._hvd_wait(discard=True)
        for gradient in self._hvd_gradients.values():
            gradient.sent, gradient.tensor = False, None
            gradient.target = gradient.context = None
            gradient.delay = self._hvd_options["passes"]
            if gradient.group is not None:
                gradient.group.ready = 0
        self._hvd_synchronized, self._hvd_should_synchronize = False, True
        return super().load_state_dict(*args, **kwargs)

    def add_param_group(self, group):
        """The wrapped optimizer's; the new parameters' gradients are exchanged too, under names by
        their place."""
        super().add_param_group(group)
        index = len(self.param_groups) - 1
        params = self.param_groups[-1]["params"]
        names = {p: f"allreduce.noname.{index}.{j}" for j, p in enumerate(params)}
        for param in params:
            if param.requires_grad:
                self._hvd_add([param], names)


_scaler.wait_for(_DistributedMixin)


def DistributedOptimizer(
    optimizer,
    named_parameters=None,
    compression=Compression.none,
    backward_passes_per_step=1,
    op=_lib.AVERAGE,
    gradient_predivide_factor=1.0,
    num_groups=0,
    groups=None,
    sparse_as_dense=False,
    process_set=global_process_set,
):
    """The optimizer, with gradients combined over the ranks before each step.

    named_parameters: model.named_parameters(); names are what errors and the timeline speak of.
    compression: hvd.Compression.none, fp16 or bf16, the type in which gradients travel.
    backward_passes_per_step: passes whose gradients add up before they are exchanged.
    op: hvd.Average or another. gradient_predivide_factor: with Average, divides gradients by this
    before the sum and multiplies by it after.
    groups: a number of groups, or lists of parameters: each group is exchanged at once when all of it
    is there. num_groups: the older name of the number. sparse_as_dense: makes sparse gradients dense.

    Returns an object of a class derived from the optimizer's own, with the same groups and state.
    """
    need_global(process_set)
    if num_groups:
        warnings.warn("num_groups is the older name of groups", DeprecationWarning, stacklevel=2)
        groups = groups or num_groups
    need_passes(backward_passes_per_step)
    if isinstance(optimizer, _DistributedMixin):
        raise ValueError("the optimizer is a DistributedOptimizer already")
    need_options(optimizer, compression, op, gradient_predivide_factor, groups)
    kind = type(optimizer)
    cls = type(kind.__name__, (_DistributedMixin, kind), {"__module__": kind.__module__})
    self = cls.__new__(cls)
    # A learning rate scheduler leaves its own bound `step` in the wrapped object: not for this one.
    self.__dict__.update({k: v for k, v in optimizer.__dict__.items() if k != "step"})
    self._hvd_setup(
        named_parameters,
        {
            "compression": compression,
            "plain": compression is Compression.none,
            "passes": backward_passes_per_step,
            "op": op,
            "prescale": 1.0 / gradient_predivide_factor,
            "postscale": gradient_predivide_factor,
            "groups": groups,
            "sparse_as_dense": sparse_as_dense,
        },
    )
    return self
