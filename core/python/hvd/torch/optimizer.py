# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: wraps a torch optimizer so that its step() uses the gradients combined over all
ranks.

A hook submits a parameter's gradient, in place, as soon as backward has accumulated it, so that the
allreduce overlaps with the rest of backward; step() waits for all gradients, on a GPU with its current stream
only (_enqueued.py). Requests are prepared once: for each gradient a hook makes one call of the library.
"""
import contextlib
import ctypes
import warnings
import weakref

import torch

from .. import _lib
from .._lib import REQUEST_BYTES, HvdError, check_stay, lib
from ..process_sets import checked, request_set
from . import _device, _enqueued, _scaler, _stolen
from ._adasum import AdasumMixin
from ._gradient import Gradient, Group, names_of, split, unnamed
from ._options import need_options, need_passes
from ._request import describe, flights, usable
from ._sparse import SparseSum
from .compression import Compression
from .process_sets import global_process_set


#: In _hvd_synchronized: the program itself has called synchronize(). True: step() or a GradScaler has.
_CALLED = "called"
_STEP_AFTER_SYNCHRONIZE = (
    "optimizer.step() called without optimizer.skip_synchronize() after optimizer.synchronize(): the gradients are not "
    "combined again; step() within skip_synchronize() says so"
)


class _DistributedMixin:
    """Precedes the wrapped optimizer's class in the method resolution order."""

    # ---- set-up ---------------------------------------------------------------------------------

    def _hvd_setup(self, named, options):
        self._hvd_options = options
        self._hvd_gradients = {}
        self._hvd_flight = []  # gradients in flight; always the same list object
        flights.append(self._hvd_flight)
        self._hvd_nodes = []  # of autograd: with torch < 2.1 a hook lives only as long as its node
        self._hvd_synchronized = False
        self._hvd_wants_sparse = isinstance(self, torch.optim.SparseAdam)  # takes no other gradients
        self._hvd_should_synchronize = True
        self._hvd_awaits = None  # a TorchState of which a part is still being transferred
        names = names_of(self.param_groups, named)
        params = [p for g in self.param_groups for p in g["params"] if p.requires_grad]
        if options["process_set"].included() is False:
            return
        for group in split(params, options["groups"]):
            self._hvd_add(group, names)
        for param in params:
            if param not in self._hvd_gradients:
                self._hvd_add([param], names)
        # In the order of param_groups, which is the same on every rank.
        self._hvd_gradients = {p: self._hvd_gradients[p] for p in params}

    def _hvd_add(self, params, names):
        """Prepares gradients and registers their hooks; several parameters form a group."""
        group = Group(len(params))
        for i, param in enumerate(params):
            gradient = Gradient(
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
        # Autograd keeps hooks forever; with a weak reference the optimizer can still be freed.
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
                gradient.version = gradient.param.grad._version  # reported here, so not again by _hvd_receive()
                raise AssertionError(
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
        # If gradients are in flight their memory must stay alive: no call will wait for them any more.
        flight = self.__dict__.get("_hvd_flight")
        if flight is not None and not flight:
            flights[:] = [f for f in flights if f is not flight]

    @property
    def _parameter_names(self):
        return {param: gradient.name[len("allreduce.") :] for param, gradient in self._hvd_gradients.items()}

    @property
    def backward_passes_per_step(self):
        """How many backward passes accumulate before gradients are exchanged; may be set."""
        return self._hvd_options["passes"]

    @backward_passes_per_step.setter
    def backward_passes_per_step(self, passes):
        self.set_backward_passes_per_step(passes)

    # ---- sending --------------------------------------------------------------------------------

    def _hvd_send(self, gradient):
        """Submits a gradient; one of a group is submitted with the group's last one."""
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
            _enqueued.free(gradient.name)
            code = lib.hvd_submit_sized(gradient.request_pointer, REQUEST_BYTES, 1, gradient.handle_pointer)
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
        try:
            _enqueued.free(*[member.name for member in group.members])
            check_stay(lib.hvd_submit_sized(group.requests, REQUEST_BYTES, len(group.members), group.handles))
        except BaseException:
            for member in group.members:
                member.tensor, member.sent = None, False
            raise
        self._hvd_flight.extend(group.members)

    def _hvd_convert(self, gradient, grad):
        """For gradients that cannot be sent in place (sparse, compressed, not contiguous): returns the
        tensor to send. None: it was submitted here, as a sparse tensor."""
        options = self._hvd_options
        if grad.is_sparse:
            if not options["sparse_as_dense"]:
                if gradient.group is not None:
                    raise ValueError(f"{gradient.name}: a sparse gradient cannot be in a group")
                if grad._nnz() == 0 and gradient.sparse_dim is not None:
                    grad = self._hvd_zeros(gradient)  # zero_grad() loses which dimensions are dense
                gradient.sparse_dim = grad.sparse_dim()
                gradient.sparse = SparseSum(grad, gradient.name, options["op"], options["process_set"])
                gradient.sent = True
                self._hvd_flight.append(gradient)
                return None
            if grad._nnz() or gradient.sparse_dim is None:
                gradient.sparse_dim = grad.sparse_dim()
        compression = options["compression"]
        side_stream = getattr(compression, "side_stream", False)
        with _device.on_side_stream(grad) if side_stream else contextlib.nullcontext():
            dense = grad.to_dense() if grad.is_sparse else grad
            tensor, gradient.context = compression.compress(usable(dense.detach()))
            same = not grad.is_sparse and tensor.data_ptr() == grad.data_ptr()
            tensor, gradient.target = (grad, None) if same else (tensor, grad)
            self._hvd_point(gradient, tensor)
        return tensor

    def _hvd_point(self, gradient, tensor):
        """Makes the request refer to this tensor and the current stream."""
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
        process_set = self._hvd_options["process_set"]
        if process_set.process_set_id != 0:  # its number may be another one after shutdown() and init()
            request.set = request_set(process_set)
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
        """Waits until every parameter's gradient is the combined one of all ranks. Gradients that backward
        did not compute on this rank take part as zeros. For gradients on a GPU, the current stream waits.

        Raises HorovodInternalError when a rank was lost and the operation could not be repaired."""
        self._hvd_exchange()
        self._hvd_synchronized = _CALLED

    def _hvd_exchange(self):
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
        if self._hvd_wants_sparse and param.dim():
            sparse_dim = sparse_dim or 1
        elif self._hvd_options["sparse_as_dense"]:
            sparse_dim = None
        if sparse_dim is not None:  # it was sparse before, on the other ranks, too
            indices = torch.empty([sparse_dim, 0], dtype=torch.int64, device=param.device)
            values = torch.empty([0, *param.shape[sparse_dim:]], dtype=param.dtype, device=param.device)
            return torch.sparse_coo_tensor(indices, values, param.shape, device=param.device)
        return torch.zeros_like(param, memory_format=torch.contiguous_format)

    def _hvd_wait(self, discard=False):
        """Waits for all gradients in flight, also after a failure, and stores the results. discard: drops
        them.
        """
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
        """Waits for a dense gradient. Returns an error text if the program has changed the gradient
        meanwhile, else None.
        """
        _enqueued.wait(gradient.place[0], gradient.tensor, gradient.handle.value, gradient.name)
        tensor, grad = gradient.tensor, gradient.param.grad
        target = tensor if gradient.target is None else gradient.target
        if grad is not target:
            return f"the gradient of {gradient.name} was replaced while the ranks exchanged it"
        if grad._version != gradient.version:
            return (
                f"the gradient of {gradient.name} was changed while the ranks exchanged it: to clip gradients, "
                "call synchronize() first, and step() within skip_synchronize()"
            )
        if target is not tensor:
            result = self._hvd_options["compression"].decompress(tensor, gradient.context)
            if target.is_sparse:
                gradient.param.grad = result.to_sparse(gradient.sparse_dim) if self._hvd_wants_sparse else result
            else:
                target.copy_(result)
            _device.used_here(tensor)
        return None

    @staticmethod
    def _hvd_explained(gradient, failure):
        """Adds a hint if the ranks disagree because the gradient is sparse (gathered) on some and dense
        (reduced) on others.
        """
        text = str(failure)
        said = text.replace(gradient.name, "")
        if not isinstance(failure, HvdError) or "allgather" not in said or "allreduce" not in said:
            return failure
        hint = "the gradient is sparse on some ranks only: use sparse_as_dense=True"
        return type(failure)(f"{text} ({hint})", failure.errno)

    # ---- what the user calls --------------------------------------------------------------------

    @contextlib.contextmanager
    def skip_synchronize(self):
        """A context in which step(), also GradScaler's, does not wait for gradients. Use it after
        synchronize(), to change (clip) gradients in between."""
        self._hvd_should_synchronize = False
        try:
            yield
        finally:
            self._hvd_should_synchronize = True

    def set_backward_passes_per_step(self, passes):
        """Sets how many backward passes accumulate before gradients are exchanged. ValueError unless
        passes >= 1.
        """
        need_passes(passes)
        self._hvd_options["passes"] = passes
        for gradient in self._hvd_gradients.values():
            if not gradient.sent:
                gradient.delay = passes

    def step(self, closure=None, **options):
        """Waits for the combined gradients as synchronize() does, then calls the wrapped optimizer's step().
        Returns what that returns.

        options: passed to the wrapped step(). GradScaler of torch 1.13 passes itself (grad_scaler) to a fused
        Adam.

        Raises HorovodInternalError when a rank was lost and the operation could not be repaired,
        RuntimeError when a gradient was changed while it was exchanged."""
        if closure is not None:
            self._hvd_settle()
            return super().step(self._hvd_closure(closure), **options)
        if self._hvd_synchronized is _CALLED and self._hvd_should_synchronize:
            warnings.warn(_STEP_AFTER_SYNCHRONIZE, stacklevel=2)
        self._hvd_combine()
        self._hvd_settle()
        try:
            _enqueued.settle()  # an exchange may have failed since synchronize()
            return super().step(**options)  # may call _hvd_combine() (_scaler.py), which does nothing now
        finally:
            self._hvd_synchronized = False

    def _hvd_combine(self):
        """Called before gradients are used: waits for them."""
        if self._hvd_should_synchronize:
            if self._hvd_flight or not self._hvd_synchronized:
                self._hvd_exchange()
        elif self._hvd_flight:
            raise RuntimeError("the ranks are exchanging gradients: call synchronize() before skip_synchronize()")

    def _hvd_settle(self):
        if self._hvd_awaits is not None:
            self._hvd_awaits.settle()

    def state_dict(self):
        """The wrapped optimizer's state_dict(). It first waits until no gradient is being exchanged any more,
        and raises HvdError if one exchange has failed. On a rank that has just joined it also waits for the
        state."""
        _enqueued.finish()
        if self._hvd_awaits is not None:
            self._hvd_awaits._arrive()
        return super().state_dict()

    def _hvd_closure(self, closure):
        def synchronized():
            loss = closure()
            self._hvd_exchange()
            self._hvd_synchronized = False
            return loss

        return synchronized

    def zero_grad(self, *args, **kwargs):
        """The wrapped optimizer's zero_grad(). AssertionError between backward() and step() or
        synchronize()."""
        sent = sum(gradient.sent for gradient in self._hvd_gradients.values())
        if sent:
            raise AssertionError(
                f"zero_grad() between backward() and step(): the ranks are exchanging {sent} gradients; "
                "call step() or synchronize() first"
            )
        _enqueued.settle()
        self._hvd_synchronized = False
        return super().zero_grad(*args, **kwargs)

    def load_state_dict(self, *args, **kwargs):
        """The wrapped optimizer's load_state_dict(), after drop_gradients()."""
        self.drop_gradients()
        return super().load_state_dict(*args, **kwargs)

    def drop_gradients(self):
        """For a step that is not to be made, as after RankLostError: waits for the gradients in flight and drops them,
        also those that could not be exchanged. Accumulated backward passes do not count any more. zero_grad() is
        possible afterwards, and the next step begins anew."""
        self._hvd_wait(discard=True)
        for gradient in self._hvd_gradients.values():
            gradient.sent, gradient.tensor = False, None
            gradient.target = gradient.context = None
            gradient.delay = self._hvd_options["passes"]
            if gradient.group is not None:
                gradient.group.ready = 0
        self._hvd_synchronized, self._hvd_should_synchronize = False, True

    def add_param_group(self, group):
        """The wrapped optimizer's add_param_group(). The new parameters' gradients are exchanged, too,
        under names made from their position."""
        super().add_param_group(group)
        if self._hvd_options["process_set"].included() is False:
            return
        index = len(self.param_groups) - 1
        params = self.param_groups[-1]["params"]
        names = {p: unnamed(index, j) for j, p in enumerate(params)}
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
    """Wraps an optimizer: before each step its gradients are combined over all ranks.

    Args:
        optimizer: a torch.optim.Optimizer.
        named_parameters: model.named_parameters(). Errors and the timeline use these names.
        compression: hvd.Compression.none, fp16 or bf16: the type in which gradients are sent.
        backward_passes_per_step: how many backward passes accumulate before gradients are exchanged.
        op: hvd.Average, Sum, Min, Max or Product. With hvd.Adasum each rank makes the wrapped step with its own gradients,
            and what that has changed is combined, at the end of step() (_adasum.py).
        gradient_predivide_factor: with Average, divides gradients before the sum and multiplies the result.
        num_groups: older name of groups, for a number.
        groups: a number of groups, or lists of parameters. The gradients of a group are exchanged together,
            once all of them are computed.
        sparse_as_dense: sparse gradients are exchanged as dense ones, and stay dense, except for torch.optim.SparseAdam.
        process_set: the ranks that combine their gradients. On a rank that is not in it the wrapper exchanges
            nothing.
    Returns:
        An optimizer of a class derived from the optimizer's own, which shares its param_groups and state.
    Raises:
        ValueError: an argument is wrong, or named_parameters lacks a parameter or names two the same.
    """
    if checked(process_set).process_set_id is None:
        raise ValueError(f"{process_set} is not registered: pass it to add_process_set() on every rank first")
    if num_groups:
        warnings.warn("num_groups is the older name of groups", DeprecationWarning, stacklevel=2)
        groups = groups or num_groups
    need_passes(backward_passes_per_step)
    if isinstance(optimizer, (_DistributedMixin, AdasumMixin)):
        raise ValueError("the optimizer is a DistributedOptimizer already: wrap it only once")
    need_options(optimizer, compression, op, gradient_predivide_factor, groups)
    kind = type(optimizer)
    mixin = AdasumMixin if op == _lib.ADASUM else _DistributedMixin
    cls = type(kind.__name__, (mixin, kind), {"__module__": kind.__module__})
    self = cls.__new__(cls)
    # Not `step`: a learning rate scheduler has stored its own wrapper of the wrapped object's method there.
    self.__dict__.update({k: v for k, v in optimizer.__dict__.items() if k != "step"})
    for name, value in (
        ("op", op),
        ("gradient_predivide_factor", gradient_predivide_factor),
        ("sparse_as_dense", sparse_as_dense),
        ("process_set", process_set),
    ):  # Horovod's optimizers have these attributes
        self.__dict__.setdefault(name, value)
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
            "process_set": process_set,
        },
    )
    return self
