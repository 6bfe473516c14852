# SPDX-License-Identifier: Apache-2.0
"""Process sets: groups of ranks with operations of their own.

    evens = hvd.add_process_set([0, 2])       # every rank calls it, in the same order of calls
    if evens.included():
        hvd.allreduce(tensor, process_set=evens)

The names of operations are those of the set alone: they are matched among its ranks, and sets without a common
rank never wait for each other. Tensors are in the host's memory so far, and the job is not elastic.
"""
import ctypes
import operator

from ._lib import check, lib
from .world import at_shutdown, rank, size


def _whole_numbers(ranks):
    """The ranks as a list of int. Raises ValueError if they are none."""
    try:
        numbers = [operator.index(r) for r in ranks if not isinstance(r, bool)]
        if len(numbers) == len(ranks) and all(-(2**31) <= n < 2**31 for n in numbers):
            return numbers
    except TypeError:
        pass
    raise ValueError(f"a process set is made from ranks, such as [0, 2], got {ranks!r}")


class ProcessSet:
    """A set of ranks. It can be used in operations once all ranks have passed it to add_process_set() or init().

    Attributes:
        ranks: the sorted list of its ranks.
        process_set_id: its number, None before it is added and after it is removed.
    """

    def __init__(self, ranks_or_comm):
        """ranks_or_comm: ranks of the job (any whole numbers, also NumPy's), in any order. ValueError if they
        are something else."""
        self.process_set_id = None
        if hasattr(ranks_or_comm, "Get_group"):
            raise NotImplementedError("a process set is made from ranks, not from a communicator of mpi4py")
        self.ranks = sorted(_whole_numbers(ranks_or_comm))

    def included(self):
        """Whether this process is in the set."""
        return rank() in self.ranks

    def size(self):
        """The number of ranks in the set; None if it is not added."""
        return None if self.process_set_id is None else check(lib.hvd_set_size(self.process_set_id))

    def rank(self):
        """This process's number in the set; None if the set is not added. ValueError if it is not in the set."""
        if self.process_set_id is None:
            return None
        self.need_member()
        return check(lib.hvd_set_rank(self.process_set_id))

    def need_member(self):
        """Raises ValueError unless the set is added and this process is in it."""
        if self.process_set_id is None:
            raise ValueError(f"{self} is not registered: pass it to add_process_set() on every rank first")
        if not self.included():
            raise ValueError(f"rank {rank()} is not in {self}")

    def number_of(self, job_rank):
        """The number in the set of a rank of the job. ValueError if it is not in the set."""
        if job_rank not in self.ranks:
            raise ValueError(f"rank {job_rank} is not in {self}")
        return self.ranks.index(job_rank)

    def __str__(self):
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"

    __repr__ = __str__


class _GlobalProcessSet(ProcessSet):
    """All ranks of the job."""

    def __init__(self):
        super().__init__([])
        self.process_set_id = 0

    @property
    def ranks(self):
        """The list of its ranks; None before init()."""
        return list(range(size())) if lib.hvd_initialized() else None

    @ranks.setter
    def ranks(self, ranks):
        pass

    def rank(self):
        """This process's rank in the job."""
        return rank()

    def included(self):
        """True; None before init()."""
        return True if lib.hvd_initialized() else None

    def need_member(self):
        """Does nothing: every process is in it."""

    def number_of(self, job_rank):
        """The same rank."""
        return job_rank


global_process_set = _GlobalProcessSet()

_added = []  # process sets that can be used in operations, made by add_process_set()
_formed = []  # the same, made by form_process_set()


def checked(process_set):
    """Returns the argument. Raises TypeError unless it is a ProcessSet."""
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"process_set should be a ProcessSet, got {process_set!r}")
    return process_set


def request_set(process_set):
    """The number of a process set for Request.set. ValueError if this process cannot use it."""
    checked(process_set).need_member()
    return process_set.process_set_id


def _wanted(process_set):
    """The ProcessSet that add_process_set() adds. Raises ValueError if it cannot be added on this rank."""
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if process_set.process_set_id is not None:
        raise ValueError(f"{process_set} is registered already")
    for other in (global_process_set, *_added):
        if other.ranks == process_set.ranks:
            name = "hvd.global_process_set" if other is global_process_set else str(other)
            raise ValueError(f"there is a process set of the ranks {process_set.ranks} already: {name}")
    return process_set


def add_process_set(process_set):
    """Makes a process set usable in operations. Every rank calls it, members or not, with the same ranks; all
    ranks add and remove several sets in the same order. Waits for all ranks.

    process_set: a ProcessSet, or its ranks. Returns the ProcessSet. Raises ValueError if this rank cannot add it
    (there is a set of these ranks already), HvdError on all ranks if they ask for different sets, if one of them
    cannot add it, or if it cannot be made."""
    number = ctypes.c_int()
    try:
        process_set = _wanted(process_set)
    except ValueError:
        lib.hvd_set_add(None, 0, ctypes.byref(number))  # refuses the set on the ranks that wait for this one
        raise
    count = len(process_set.ranks)
    check(lib.hvd_set_add((ctypes.c_int * count)(*process_set.ranks), count, ctypes.byref(number)))
    process_set.process_set_id = number.value
    _added.append(process_set)
    return process_set


def form_process_set(ranks, name):
    """Makes a process set with its ranks alone: only they call it, each with the same ranks and the same name. Ranks
    that call it with the same name and other ranks make another set. Waits for all ranks of the set, for
    HVD_START_TIMEOUT seconds at most.

    Returns a new ProcessSet, also if there is one of these ranks. Raises HvdError on all ranks that have called: with
    errno ETIMEDOUT if a rank has not, which the text names."""
    if not isinstance(name, str) or not name or "\0" in name:
        raise ValueError(f"a process set's name is a string of 1 to 255 bytes, got {name!r}")
    process_set = ProcessSet(ranks)
    number, count = ctypes.c_int(), len(process_set.ranks)
    array = (ctypes.c_int * count)(*process_set.ranks)
    check(lib.hvd_set_form(name.encode(), array, count, ctypes.byref(number)))
    process_set.process_set_id = number.value
    _formed.append(process_set)
    return process_set


def remove_process_set(process_set):
    """Removes a process set. Every rank calls it, members or not (of a set of form_process_set(): its members), and
    waits for all. Returns False, and does nothing, for one that is not added and for the global one. Raises HvdError
    on all ranks if operations of it are in flight on one of them."""
    if checked(process_set).process_set_id in (None, 0):
        return False
    check(lib.hvd_set_remove(process_set.process_set_id))
    process_set.process_set_id = None
    for made in (_added, _formed):
        made[:] = [other for other in made if other is not process_set]
    return True


def _forget():
    for made in (_added, _formed):
        for process_set in made:
            process_set.process_set_id = None
        made.clear()


at_shutdown.append(_forget)
