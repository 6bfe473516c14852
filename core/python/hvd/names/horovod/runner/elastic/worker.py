# SPDX-License-Identifier: Apache-2.0
"""horovod.runner.elastic.worker"""
import enum


class HostUpdateResult(enum.IntFlag):
    """What has become of the hosts of an elastic job."""

    no_update = 0
    removed = 1
    added = 2
    mixed = 3
