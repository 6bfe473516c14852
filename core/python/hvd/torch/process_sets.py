# SPDX-License-Identifier: Apache-2.0
"""Process sets: so far there is one, all ranks. Here so that programs that name it run."""
from ..world import rank, size


class ProcessSet:
    """A set of ranks. Only the global one can be used in an operation."""

    def __init__(self, *ranks_or_comm):
        self.process_set_id = None
        self._ranks = ranks_or_comm

    def size(self):
        """How many ranks it has."""
        return len(self.ranks())

    def rank(self):
        """This process's place in it."""
        return self.ranks().index(rank())

    def included(self):
        """True when this process is one of it."""
        return rank() in self.ranks()

    def ranks(self):
        """Its ranks."""
        return list(range(size())) if self.process_set_id == 0 else list(*self._ranks)


global_process_set = ProcessSet()
global_process_set.process_set_id = 0


def need_global(process_set):
    """Raises unless this is the set of all ranks."""
    if process_set is not global_process_set and process_set is not None:
        raise NotImplementedError("process sets other than the global one are not supported yet")


def add_process_set(process_set):
    """Not there yet."""
    raise NotImplementedError("process sets are not supported yet")


def remove_process_set(process_set):
    """Not there yet."""
    raise NotImplementedError("process sets are not supported yet")
