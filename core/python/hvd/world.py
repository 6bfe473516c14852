# SPDX-License-Identifier: Apache-2.0
"""init, shutdown, ranks and sizes: the part of the interface that is the same for arrays and for torch."""
import atexit
import contextlib
import ctypes
import re
import sys

from . import _membership, _torchrun
from ._lib import Backend, Stats, check, check_stay, lib

#: Exported by hvd, hvd.torch and hvd.torch.mpi_ops, too.
__all__ = """
    init enter shutdown is_initialized is_homogeneous rank size local_rank local_size cross_rank cross_size
    place places
    start_timeline stop_timeline stats
    mpi_built mpi_enabled mpi_threads_supported gloo_built gloo_enabled nccl_built ddl_built ccl_built
    cuda_built rocm_built
""".split()

#: Functions without arguments that are called before this rank leaves the job. They wait for operations that it
#: has reported as complete while a GPU still works on them, and raise HvdError if one has failed.
before_shutdown = []

#: Functions without arguments that shutdown() calls: modules drop their handles in them.
at_shutdown = []

#: Objects that hold the memory of operations in flight. If the process exits during operations, the
#: interpreter must not free this memory, because the engine still uses it.
holders = []

_registered = False


def init(comm=None, process_sets=None):
    """Joins the job. Returns when all ranks have called it; on a joiner of an elastic job it returns at
    once (see enter()).

    Rank and size come from the launcher (hvdrun, mpirun, srun or torchrun), or from HVD_RANK, HVD_SIZE,
    HVD_RENDEZVOUS and HVD_KEY_FILE. Without any of these the job has one rank.

    Raises:
        HvdError: the ranks did not find each other within HVD_START_TIMEOUT, or another failure.
        hvd.elastic.Left: the elastic job does not need this rank any more. If it is not caught,
            the process exits with code 0.
        NotImplementedError: comm was given.

    process_sets: process sets, or lists of ranks, to be passed to add_process_set(), the same on every rank.
    "dynamic" stands for none: sets can be added at any time. A joiner of an elastic job adds none, because the other
    ranks have added theirs before it came. Once it has entered, known_process_sets() has objects for them.
    """
    if comm is not None:
        raise NotImplementedError("init(comm=...) is not supported: the launcher chooses the ranks")
    global _registered
    if not lib.hvd_initialized():
        with _torchrun.environment() if _torchrun.applies() else contextlib.nullcontext():
            check_stay(lib.hvd_init())
    if not _registered:
        _registered = True
        atexit.register(_leave)
    if process_sets and process_sets != "dynamic" and not _membership.world().is_new:
        from .process_sets import add_process_set

        try:
            for process_set in process_sets:
                add_process_set(process_set)
        except Exception:
            shutdown()
            raise


def enter():
    """On a joiner of an elastic job: waits for the other ranks' next commit() and becomes a member there.

    hvd.elastic.run() and the first operation call it. Until then rank() and size() are those that this
    rank would get now; they may change when it enters. Load model and data before, while the other ranks
    train on. On all other ranks it does nothing. Raises hvd.elastic.Left when the job does not need this
    rank any more.
    """
    check_stay(lib.hvd_enter())


def shutdown():
    """Leaves the job. Operations that were not waited for fail. Does nothing before init() and after
    shutdown(). Raises HvdError if leaving was not orderly, or if an operation has failed since its wait."""
    try:
        check(_finish_and_leave())
    finally:
        for forget in at_shutdown:
            forget()


def _finish_and_leave():
    """Returns what hvd_shutdown() returns. Raises if an operation has failed since its wait."""
    if not lib.hvd_initialized():
        return 0
    try:
        for finish in before_shutdown:
            finish()
    finally:
        code = lib.hvd_shutdown()
    return code


def _leave():
    # A rank that exits by an exception does not wait for the others: they detect that it is lost.
    if getattr(sys, "last_type", None) is None:
        _finish_and_leave()
        return
    for holder in holders:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(holder))


def is_initialized():
    """True between init() and shutdown()."""
    return lib.hvd_initialized()


def rank():
    """This process's rank in the job, from 0."""
    return check(lib.hvd_rank())


def size():
    """The number of ranks in the job."""
    return check(lib.hvd_size())


def local_rank():
    """This process's rank among the ranks of its host, from 0."""
    return check(lib.hvd_local_rank())


def local_size():
    """The number of ranks on this host."""
    return check(lib.hvd_local_size())


def cross_rank():
    """This host's number among the hosts of the job, from 0."""
    return check(lib.hvd_cross_rank())


def cross_size():
    """The number of hosts in the job."""
    return check(lib.hvd_cross_size())


def place():
    """This process's place. In a job that keeps places (hvdrun --keep-places) a rank has the same place until it
    leaves, and its replacement gets it: the place is this rank's cell of a grid. Otherwise the same as rank()."""
    return check(lib.hvd_place())


def places():
    """The places of all ranks, by rank. They rise; a number between two of them is a free place. A joiner does not
    know them before it has entered (enter()): HvdError."""
    count = size()
    while True:
        array = (ctypes.c_int * count)()
        found = check(lib.hvd_places(array, count))
        if found <= count:
            return list(array[:found])
        count = found


def is_homogeneous():
    """True when every host has the same number of ranks."""
    check(lib.hvd_rank())
    return lib.hvd_homogeneous()


def start_timeline(file_path, mark_cycles=False):
    """Starts writing a timeline (Chrome trace format) to file_path. Rank 0 writes it; with "%r" in the
    path every rank writes one, with its rank in place of "%r"."""
    check(lib.hvd_start_timeline(str(file_path).encode(), mark_cycles))


def stop_timeline():
    """Ends the timeline and closes its file."""
    check(lib.hvd_stop_timeline())


def stats():
    """The engine's counters since init(), as a dict."""
    counters = Stats(size=ctypes.sizeof(Stats))
    check(lib.hvd_stats(ctypes.byref(counters)))
    return {name: getattr(counters, name) for name, _ in Stats._fields_ if name != "size"}


def _backend(name):
    found = Backend(size_of_struct=ctypes.sizeof(Backend))
    check(lib.hvd_backend(name, ctypes.byref(found)))
    return found


def mpi_built():
    """Whether hvd can use MPI: libhvd_mpi.so is beside libhvd.so. HVD_BACKEND=mpi selects it."""
    return _backend(b"mpi").built


def mpi_enabled():
    """Whether this job's collectives use MPI (HVD_BACKEND=mpi). Starting it with mpirun is not enough."""
    return _backend(b"mpi").open


def mpi_threads_supported():
    """Whether the program may call MPI itself from any thread while hvd uses it. hvd's own operations may
    be submitted from any thread in any case."""
    return _backend(b"mpi").threads


def gloo_built():
    """Always False: hvd uses its own transports, shared memory and TCP."""
    return False


def gloo_enabled():
    """Always False; see gloo_built()."""
    return False


def nccl_built():
    """The version of the NCCL that hvd uses for CUDA tensors, such as 22707; 0 if this machine has no NCCL
    or no NVIDIA driver. Import torch first: hvd then uses torch's copy of NCCL."""
    found = _backend(b"nccl")
    version = re.match(rb"(?:NCCL )?(\d+)\.(\d+)\.(\d+)", found.text)
    if not found.built or not version:
        return 0
    major, minor, patch = map(int, version.groups())
    return major * 10000 + minor * 100 + patch


def ddl_built():
    """Always False: hvd does not use DDL."""
    return False


def ccl_built():
    """Always False: hvd does not use oneCCL."""
    return False


def cuda_built():
    """Whether hvd can work on CUDA tensors on this machine: NVIDIA's driver is installed."""
    return _backend(b"staged").built


def rocm_built():
    """Always False: hvd does not support AMD GPUs."""
    return False
