# SPDX-License-Identifier: Apache-2.0
"""horovod.runner.common.util.env"""
import os
import re

#: Variables that are not sent to other hosts.
IGNORE_REGEXES = {"BASH_FUNC_.*", "OLDPWD", ".*CUDA_VISIBLE_DEVICES", "_HOROVOD_SECRET_KEY"}


def is_exportable(name):
    """Whether a variable of this name may be sent to other hosts."""
    return not any(re.match(expression, name) for expression in IGNORE_REGEXES)


def get_env_rank_and_size():
    """Rank and size as the launcher (hvdrun, Open MPI, MPICH) has put them into the environment; (0, 1) without one."""
    for rank, size in (("HVD_RANK", "HVD_SIZE"), ("HOROVOD_RANK", "HOROVOD_SIZE"),
                       ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")):  # fmt: skip
        found = os.environ.get(rank), os.environ.get(size)
        if None not in found:
            return int(found[0]), int(found[1])
        if found != (None, None):
            raise RuntimeError(f"only one of {rank} and {size} is in the environment")
    return 0, 1
