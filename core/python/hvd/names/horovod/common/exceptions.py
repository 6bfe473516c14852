# SPDX-License-Identifier: Apache-2.0
"""horovod.common.exceptions"""
from hvd.elastic import HorovodInternalError, HostsUpdatedInterrupt  # noqa: F401


class HorovodVersionMismatchError(ImportError):
    """Never raised: hvd is not compiled for one version of a framework."""

    def __init__(self, name, version, installed_version):
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name, self.version, self.installed_version = name, version, installed_version


def get_version_mismatch_message(name, version, installed_version):
    """A sentence for HorovodVersionMismatchError."""
    return f"{name} {version} was found, but the package was built for {installed_version}"
