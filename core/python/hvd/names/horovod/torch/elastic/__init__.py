# SPDX-License-Identifier: Apache-2.0
"""horovod.torch.elastic"""
from horovod.common.elastic import run_fn  # noqa: F401
from hvd.elastic import HorovodInternalError, HostsUpdatedInterrupt  # noqa: F401
from hvd.torch import init, shutdown  # noqa: F401
from hvd.torch.elastic import ElasticSampler, ObjectState, State, TorchState, run  # noqa: F401

__all__ = ["TorchState", "ElasticSampler", "run"]
