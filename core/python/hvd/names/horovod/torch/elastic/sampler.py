# SPDX-License-Identifier: Apache-2.0
"""horovod.torch.elastic.sampler"""
from hvd.torch.elastic import ElasticSampler  # noqa: F401
