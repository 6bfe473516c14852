# SPDX-License-Identifier: Apache-2.0
"""Batch normalization with the statistics of all ranks' batches."""
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from .. import _lib
from ..world import size
from . import autograd
from .process_sets import global_process_set


class SyncBatchNorm(_BatchNorm):
    """Like torch.nn.BatchNorm1d, 2d and 3d, with mean and variance over the batches of all ranks, which
    may differ in size. Input: (N, C, ...).

    A forward makes one allgather (of counts, means and squared deviations), a backward one allreduce."""

    def _check_input_dim(self, tensor):
        if tensor.dim() < 2:
            raise ValueError(f"expected at least 2 dimensions, got {tensor.dim()}")

    def _whole(self, tensor):
        """Count, mean and biased variance over all ranks, by channel."""
        dims = [d for d in range(tensor.dim()) if d != 1]
        channels = tensor.shape[1]
        count = tensor.numel() // channels
        mean = tensor.mean(dims) if count else tensor.new_zeros(channels)
        shape = [1, channels] + [1] * (tensor.dim() - 2)
        deviations = (tensor - mean.view(shape)).square().sum(dims)
        row = torch.cat([mean, deviations, mean.new_full((1,), count)])
        (rows,) = autograd.Allgather.apply(None, _lib.SUM, global_process_set, row.unsqueeze(0))
        means, squares, counts = rows[:, :channels], rows[:, channels:-1], rows[:, -1:]
        total = counts.sum()
        mean = (means * counts).sum(0) / total
        variance = (squares + counts * (means - mean).square()).sum(0) / total
        return total, mean, variance

    def forward(self, tensor):
        """Normalizes a tensor of shape (N, C, ...)."""
        self._check_input_dim(tensor)
        if not (self.training or self.running_mean is None) or size() == 1:
            return super().forward(tensor)
        if tensor.element_size() < 4:  # counts and squared sums need more than 16 bits
            return self._over_all(tensor.float()).to(tensor.dtype)
        return self._over_all(tensor)

    def _over_all(self, tensor):
        total, mean, variance = self._whole(tensor)
        if self.training and self.track_running_stats:
            self._follow(total, mean.detach(), variance.detach())
        shape = [1, tensor.shape[1]] + [1] * (tensor.dim() - 2)
        result = (tensor - mean.view(shape)) * torch.rsqrt(variance + self.eps).view(shape)
        if self.affine:
            result = result * self.weight.view(shape) + self.bias.view(shape)
        return result

    def _follow(self, total, mean, variance):
        with torch.no_grad():
            self.num_batches_tracked += 1
            weight = self.momentum
            if weight is None:
                weight = 1.0 / float(self.num_batches_tracked)
            unbiased = variance * (total / (total - 1).clamp(min=1))
            self.running_mean.lerp_(mean, weight)
            self.running_var.lerp_(unbiased, weight)
