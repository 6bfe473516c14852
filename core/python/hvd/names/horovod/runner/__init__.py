# SPDX-License-Identifier: Apache-2.0
"""horovod.runner"""
from hvd.runner import run  # noqa: F401
