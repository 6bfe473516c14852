# SPDX-License-Identifier: Apache-2.0
"""The gradients of a DistributedOptimizer: their requests, names and groups."""
import ctypes

import torch

from .._lib import Request
from . import _device


class Gradient:
    """A parameter's gradient and its request."""

    __slots__ = (
        "param", "name", "delay", "group", "sent", "tensor", "target", "context",
        "request", "request_pointer", "handle", "handle_pointer", "dtype", "numel", "device", "place", "version",
        "sparse", "sparse_dim",
    )  # fmt: skip

    def __init__(self, param, name, passes, request, handle):
        self.param, self.name, self.delay = param, name, passes
        self.group = None  # the Group that it is submitted with
        self.sent = False  # submitted since the last synchronize()
        self.tensor = None  # the tensor that the engine uses; None while nothing is in flight
        self.target = None  # the gradient to which the result is copied; None: the tensor is the gradient
        self.context = None  # from compress(), for decompress()
        self.request, self.request_pointer = request, ctypes.addressof(request)
        self.handle, self.handle_pointer = handle, ctypes.addressof(handle)
        self.dtype, self.numel, self.device = None, -1, None  # of the tensor that the request describes
        self.place = _device.HOST  # device and stream at its last submission
        self.version = None  # version counter of the gradient at its submission
        self.sparse = None  # the SparseSum in flight
        self.sparse_dim = None  # of the last sparse gradient


class Group:
    """Gradients that are submitted together: their requests are consecutive in one array."""

    __slots__ = ("members", "requests", "handles", "ready")

    def __init__(self, count):
        self.members = []
        self.requests, self.handles = (Request * count)(), (ctypes.c_int64 * count)()
        self.ready = 0


def unnamed(group, index):
    """The name of the request for a parameter without a name: parameter `index` of this param_group."""
    return f"allreduce.allreduce.noname.{group}.{index}"


def names_of(param_groups, named):
    """{parameter: name of its request}. named: pairs of a name and a parameter, or None."""
    params = [p for group in param_groups for p in group["params"]]
    if named is None:
        return {
            p: unnamed(i, j)
            for i, group in enumerate(param_groups)
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


def split(params, groups):
    """The groups of the option `groups`, as lists of parameters. Parameters in none of them are sent
    alone.
    """
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
