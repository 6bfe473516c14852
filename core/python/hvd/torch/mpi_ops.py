# SPDX-License-Identifier: Apache-2.0
"""The operations under the module name that programs written for Horovod import."""
from .. import Adasum, Average, Max, Min, Product, Sum  # noqa: F401
from ..world import *  # noqa: F401,F403
from ._request import poll, synchronize  # noqa: F401
from .ops import *  # noqa: F401,F403
