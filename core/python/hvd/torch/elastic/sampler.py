# SPDX-License-Identifier: Apache-2.0
"""hvd.sampler.ElasticSampler as a torch.utils.data.Sampler."""
import torch.utils.data

from ... import sampler


class ElasticSampler(sampler.ElasticSampler, torch.utils.data.Sampler):
    __doc__ = sampler.ElasticSampler.__doc__
