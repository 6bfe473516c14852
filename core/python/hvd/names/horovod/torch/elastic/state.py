# SPDX-License-Identifier: Apache-2.0
"""horovod.torch.elastic.state"""
from hvd.torch.elastic.state import (  # noqa: F401
    OptimizerStateHandler,
    StateHandler,
    TorchState,
    get_handler_registry,
    set_handler_registry,
)

ModelStateHandler = SamplerStateHandler = StateHandler
