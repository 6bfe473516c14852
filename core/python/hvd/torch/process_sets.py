# SPDX-License-Identifier: Apache-2.0
"""Process sets. Only the global one (all ranks) is supported; the names are there for programs written for
Horovod.
"""
from ..world import rank, size


class ProcessSet:
    """A set of ranks. Only the global one can be used in an operation."""

    def __init__(self, *ranks_or_comm):
        self.process_set_id = None
        self._ranks = ranks_or_comm

    def size(self):
        """The number of ranks in the set."""
        return len(self.ranks())

    def rank(self):
        """This process's rank within the set."""
        return self.ranks().index(rank())

    def included(self):
        """Whether this process is in the set."""
        return rank() in self.ranks()

    def ranks(self):
        """The list of its ranks."""
        return list(range(size())) if self.process_set_id == 0 else list(*self._ranks)


global_process_set = ProcessSet()
global_process_set.process_set_id = 0


def need_global(process_set):
    """Raises NotImplementedError unless this is the global process set."""
    if process_set is not global_process_set and process_set is not None:
        raise NotImplementedError("process sets other than the global one are not supported yet")


def add_process_set(process_set):
    """Not supported: raises NotImplementedError."""
    raise NotImplementedError("process sets are not supported yet")


def remove_process_set(process_set):
    """Not supported: raises NotImplementedError."""
    raise NotImplementedError("process sets are not supported yet")
