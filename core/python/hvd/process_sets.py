# SPDX-License-Identifier: Apache-2.0
"""Process sets: groups of ranks with operations of their own.

    evens = hvd.add_process_set([0, 2])       # every rank calls it, in the same order of calls
    if evens.included():
        hvd.allreduce(tensor, process_set=evens)

The names of operations are those of the set alone: they are matched among its ranks, and sets without a common
rank never wait for each other. Tensors on GPUs use NCCL where the world's do.

In an elastic job the ranks that are left of a set go on with it when one is lost, and are numbered in their old
order from the next boundary on. A set whose ranks cannot do without each other is made with fix(): it fails when it
loses one. Ranks that join are in no older set; they add and remove new ones like the others. Sets by rule
(split_process_set()) are made anew at each boundary of the ranks that the job has then.

In an elastic job that keeps places (hvdrun --keep-places) a set is a list of places: a rank that joins is in all sets of
its place. It gets objects for them from known_process_sets() and find_process_set(), once it has entered the job.
"""
import collections
import ctypes
import errno
import operator
import traceback

from ._lib import RULE, check, lib
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
        ranks: the sorted list of its ranks. In an elastic job they change at a boundary.
        process_set_id: its number, None before it is added and after it is removed.
    """

    def __init__(self, ranks_or_comm):
        """ranks_or_comm: ranks of the job (any whole numbers, also NumPy's), in any order. ValueError if they
        are something else."""
        self.process_set_id = None
        if hasattr(ranks_or_comm, "Get_group"):
            raise NotImplementedError("a process set is made from ranks, not from a communicator of mpi4py")
        self._wanted = sorted(_whole_numbers(ranks_or_comm))

    @property
    def ranks(self):
        if self.process_set_id is None:
            return self._wanted
        count = check(lib.hvd_set_size(self.process_set_id))
        array = (ctypes.c_int * count)()
        left = check(lib.hvd_set_ranks(self.process_set_id, array, count))
        return list(array)[:left]  # it may have shrunk meanwhile

    def included(self):
        """Whether this process is in the set."""
        if self.process_set_id is None:
            return rank() in self._wanted
        return lib.hvd_set_rank(self.process_set_id) >= 0

    def size(self):
        """The number of ranks in the set; None if it is not added."""
        return None if self.process_set_id is None else check(lib.hvd_set_size(self.process_set_id))

    def rank(self):
        """This process's number in the set; None if the set is not added. ValueError if it is not in the set."""
        if self.process_set_id is None:
            return None
        self.need_member()
        return check(lib.hvd_set_rank(self.process_set_id))

    def fix(self):
        """For a set that cannot do without any of its ranks, because each has another part of a model or of the data:
        call it on every rank of the set before its first operation. If one of them is lost in an elastic job, every
        operation of the set raises RankLostError on the others, and none has a result that lacks a part. After the
        next boundary they remove it and can make another one.

        In a job that keeps places all ranks of the job may call it for a set of add_process_set(): the set is then
        fixed also if all its members are lost. Fixed sets with a common place are a unit. While a place of it is
        free, every operation of its ranks raises RankLostError, and the world's operations do so on all ranks. At the
        boundary at which the last free place is filled the sets are whole again; see source().

        ValueError if the set is not added. HvdError if this process is not in it and the job keeps no places."""
        self._need_added()
        check(lib.hvd_set_fix(self.process_set_id))

    def source(self):
        """The lowest rank of the set that has the training state, as a rank of the job: root_rank of the broadcast
        that brings the state to the other ranks after commit() has returned True. None if no rank of the set has it,
        or if the set is not added. It changes at a boundary.

        A rank that has lacked the state counts as one that has it from the next boundary on. If its broadcast has failed
        (RankLostError) the program has to remember that."""
        if self.process_set_id is None:
            return None
        number = lib.hvd_set_source(self.process_set_id)
        return None if number == -errno.ENODATA else self.ranks[check(number)]

    def _need_added(self):
        if self.process_set_id is None:
            raise ValueError(f"{self} is not registered: pass it to add_process_set() on every rank first")

    def need_member(self):
        """Raises ValueError unless the set is added and this process is in it."""
        self._need_added()
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

_FORMED = 1000000  # lowest number of a set of form_process_set(); those of add_process_set() are below
_sets = {}  # {process_set_id: ProcessSet} of the sets that can be used in operations, without the global one


def checked(process_set):
    """Returns the argument. Raises TypeError unless it is a ProcessSet."""
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"process_set should be a ProcessSet, got {process_set!r}")
    return process_set


def request_set(process_set):
    """The number of a process set for Request.set. ValueError if this process cannot use it."""
    checked(process_set).need_member()
    return process_set.process_set_id


def _object_of(number):
    """The ProcessSet of a set that the library knows."""
    found = _sets.get(number)
    if found is None:
        made = ProcessSet([])
        made.process_set_id = number
        found = _sets.setdefault(number, made)  # another thread may have made one meanwhile
    return found


def known_process_sets():
    """The list of process sets that this rank knows, by rising process_set_id, without the global one: all sets of
    add_process_set() and split_process_set(), and those of form_process_set() in which this rank is. For a rank that has
    joined an elastic job: it has made none of them itself. Empty before it has entered (enter())."""
    count = check(lib.hvd_sets(None, 0))
    while True:
        array = (ctypes.c_int * count)()
        found = check(lib.hvd_sets(array, count))
        if found <= count:
            return [_object_of(number) for number in array[:found]]
        count = found


def find_process_set(name):
    """The newest process set of form_process_set() with this name in which this rank is, or of split_process_set() with
    this rule; None if there is none. For a rank that has joined an elastic job."""
    number = lib.hvd_set_find(_encoded(name))
    return None if number == -errno.ENOENT else _object_of(check(number))


def _encoded(name):
    if not isinstance(name, str) or not name or "\0" in name:
        raise ValueError(f"a process set's name is a string of 1 to 255 bytes, got {name!r}")
    return name.encode()


def _is_split(process_set):
    """Whether it is one of split_process_set(): it has other ranks on other ranks."""
    return check(lib.hvd_set_is_split(process_set.process_set_id)) == 1


def _wanted(process_set):
    """The ProcessSet that add_process_set() adds. Raises ValueError if it cannot be added on this rank."""
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if process_set.process_set_id is not None:
        raise ValueError(f"{process_set} is registered already")
    added = [s for s in known_process_sets() if s.process_set_id < _FORMED and not _is_split(s)]
    for other in (global_process_set, *added):
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
    _sets[number.value] = process_set
    return process_set


def form_process_set(ranks, name):
    """Makes a process set with its ranks alone: only they call it, each with the same ranks and the same name. Ranks
    that call it with the same name and other ranks make another set. Waits for all ranks of the set, for
    HVD_START_TIMEOUT seconds at most.

    Returns a new ProcessSet, also if there is one of these ranks. Raises HvdError on all ranks that have called: with
    errno ETIMEDOUT if a rank has not, which the text names."""
    encoded, ranks = _encoded(name), ProcessSet(ranks).ranks
    number, count = ctypes.c_int(), len(ranks)
    check(lib.hvd_set_form(encoded, (ctypes.c_int * count)(*ranks), count, ctypes.byref(number)))
    return _object_of(number.value)


Roster = collections.namedtuple("Roster", "size hosts local_ranks places")
Roster.__doc__ = """The ranks of the job, for a rule: how many there are, and lists by rank: numbers of the ranks' hosts
(0, 1 and so on), their ranks on the host, and their places (hvd.places())."""

_rules = {}  # callbacks by name
_replaced = []  # callbacks that were replaced: another thread may still be in one of them


def define_rule(name, function):
    """Gives a rule for split_process_set() a name: letters, digits, "_", "." and "-". Every rank calls it, one that
    joins an elastic job before init(): functions are not sent to other ranks.

    function(roster, rank, k): the number of the rank's group, 0 or more, or None: it is in no group. roster: a
    Roster; k: the number in the rule's text, 0 if there is none. It depends on these alone, because all ranks have to
    get the same, and calls nothing of hvd. If it raises, the traceback is printed and the set is refused."""

    def call(roster, job_rank, k, _):
        try:
            given, size = roster.contents, roster.contents.size
            lists = (given.hosts[:size], given.local_ranks[:size], given.places[:size])
            group = function(Roster(size, *lists), job_rank, k)
            return -1 if group is None else max(-(1 << 31), min(operator.index(group), (1 << 31) - 1))
        except Exception:
            traceback.print_exc()
            return -2

    if not callable(function):
        raise TypeError(f"define_rule() needs a function, got {function!r}")
    callback = RULE(call)
    check(lib.hvd_rule_define(name.encode(), callback, None))
    if name in _rules:
        _replaced.append(_rules[name])
    _rules[name] = callback


def split_process_set(rule):
    """Divides the ranks of the job into groups, and makes one process set of each. Every rank calls it, as
    add_process_set(), and gets the set of its own group; included() is False on a rank in no group.

    rule: "host" (the ranks of each host), "every 4" (ranks 0, 4, 8 ...; 1, 5, 9 ...), "blocks 4" (ranks 0 to 3, 4 to
    7 ...), or the name of a function of define_rule(), which a number may follow. In an elastic job the groups are made
    anew at each boundary at which the job changes, and `ranks` is the new group. Raises HvdError on all ranks if they
    have computed different groups, or one of them does not know the rule."""
    number = ctypes.c_int()
    if not isinstance(rule, str):
        lib.hvd_set_split(None, ctypes.byref(number))  # fails, also on the ranks that wait for this one
        raise TypeError(f"split_process_set() needs the text of a rule, got {rule!r}")
    check(lib.hvd_set_split(rule.encode(), ctypes.byref(number)))
    return _object_of(number.value)


def remove_process_set(process_set):
    """Removes a process set. Every rank calls it, members or not (of a set of form_process_set(): its members), and
    waits for all. Returns False, and does nothing, for one that is not added and for the global one. Raises HvdError
    on all ranks if operations of it are in flight on one of them.

    process_set: a ProcessSet, or its number (process_set_id)."""
    if isinstance(process_set, int):
        if process_set not in [known.process_set_id for known in known_process_sets()]:
            check(lib.hvd_set_remove(process_set))  # fails, also on the ranks that wait for this one
            return True
        process_set = _object_of(process_set)
    if not isinstance(process_set, ProcessSet):
        lib.hvd_set_remove(-1)  # fails, also on the ranks that wait for this one
    if checked(process_set).process_set_id in (None, 0):
        return False
    number, ranks = process_set.process_set_id, process_set.ranks
    check(lib.hvd_set_remove(number))
    process_set.process_set_id = None
    process_set._wanted = ranks
    _sets.pop(number, None)
    return True


def _forget():
    for process_set in _sets.values():
        process_set.process_set_id = None
    _sets.clear()


at_shutdown.append(_forget)
