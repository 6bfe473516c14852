# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer(op=Adasum): each rank makes the wrapped step with its own gradients, and what that has changed is
combined by Adasum. So a wrapped optimizer that rescales gradients (Adam) does that before they are combined."""
import contextlib

import torch

from .. import _lib
from ._gradient import names_of, unnamed
from ._request import synchronize
from .ops import allreduce_async_


class AdasumMixin:
    """Precedes the wrapped optimizer's class in the method resolution order."""

    def _hvd_setup(self, named, options):
        self._hvd_options = options
        self._hvd_names = names_of(self.param_groups, named)

    def _hvd_params(self):
        """Every parameter and the name of its operation, in the same order on every rank."""
        for i, group in enumerate(self.param_groups):
            for j, param in enumerate(group["params"]):
                if param.requires_grad:
                    name = self._hvd_names.get(param, unnamed(i, j))
                    yield param, f"adasum.{name[len('allreduce.'):]}"

    def step(self, closure=None, **options):
        """The wrapped optimizer's step() with this rank's gradients. Then every parameter has changed by the Adasum of all
        ranks' changes. Returns what the wrapped step() returns. On a failure the parameters are as before, but not what the
        wrapped optimizer remembers (such as momentum).

        Every rank has to take part in each step, or be in join(): a GradScaler that skips a step on one rank is not
        possible.
        Raises HorovodInternalError when a rank was lost and the operation could not be repaired."""
        if self._hvd_options["process_set"].included() is False:
            return super().step(closure, **options)
        named = list(self._hvd_params())
        before = [param.detach().clone() for param, _ in named]
        try:
            loss = super().step(closure, **options)
            with torch.no_grad():
                self._hvd_combine(named, before)
        except BaseException:
            with torch.no_grad():
                for (param, _), old in zip(named, before):
                    param.copy_(old)
            raise
        return loss

    def _hvd_combine(self, named, before):
        """Replaces what has changed since `before` by the Adasum of all ranks' changes."""
        flight = []
        compression = self._hvd_options["compression"]
        for (param, name), old in zip(named, before):
            change = (param - old).contiguous()
            sent, context = compression.compress(change)
            handle = allreduce_async_(sent, op=_lib.ADASUM, name=name, process_set=self._hvd_options["process_set"])
            flight.append((handle, sent, context))
        failure = None
        for (param, _), old, (handle, sent, context) in zip(named, before, flight):
            try:
                synchronize(handle)
                param.copy_(old + compression.decompress(sent, context))
            except Exception as reason:
                failure = failure or reason
        if failure:
            raise failure

    def synchronize(self):
        """Does nothing: ranks meet in step()."""

    @contextlib.contextmanager
    def skip_synchronize(self):
        """Not possible with Adasum: raises AssertionError, as Horovod does."""
        raise AssertionError("skip_synchronize() is not possible with op=Adasum: the ranks meet in step()")
        yield
