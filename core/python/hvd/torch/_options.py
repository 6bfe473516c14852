# SPDX-License-Identifier: Apache-2.0
"""Checks the arguments of DistributedOptimizer()."""
import torch

from .. import _lib


def need_passes(passes):
    """Raises ValueError unless passes is an int of at least 1."""
    if not isinstance(passes, int) or passes < 1:
        raise ValueError(f"backward_passes_per_step must be a whole number from 1, got {passes!r}")


def need_options(optimizer, compression, op, predivide, groups):
    """Raises ValueError for wrong arguments."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(f"a torch.optim.Optimizer is needed, got {type(optimizer).__name__}")
    if not callable(getattr(compression, "compress", None)):
        raise ValueError(f"compression should be one of hvd.Compression, got {compression!r}")
    if op not in (_lib.AVERAGE, _lib.SUM, _lib.ADASUM, _lib.MIN, _lib.MAX, _lib.PRODUCT):
        raise ValueError(f"op should be hvd.Average, Sum, Adasum, Min, Max or Product, got {op!r}")
    if op == _lib.ADASUM and groups:
        raise ValueError("op=Adasum has no groups: it combines each parameter by itself")
    if predivide != 1.0 and op != _lib.AVERAGE:
        raise ValueError("gradient_predivide_factor needs op=Average")
    if predivide <= 0:
        raise ValueError(f"gradient_predivide_factor must be positive, got {predivide}")
    if groups is not None and not isinstance(groups, (int, list, tuple)):
        raise ValueError(f"groups should be a number, or lists of parameters, got {groups!r}")
    if isinstance(groups, int) and groups < 0:
        raise ValueError(f"the number of groups must not be negative, got {groups}")
