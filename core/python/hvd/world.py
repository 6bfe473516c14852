# SPDX-License-Identifier: Apache-2.0
"""The life of a rank: init, shutdown, who it is; what of it is the same for arrays and for torch."""
import atexit
import contextlib
import ctypes
import re
import sys

from . import _torchrun
from ._lib import Backend, Stats, check, check_stay, error, lib

#: What hvd, hvd.torch and hvd.torch.mpi_ops pass on.
__all__ = """
    init enter shutdown is_initialized is_homogeneous rank size local_rank local_size cross_rank cross_size
    start_timeline stop_timeline stats
    mpi_built mpi_enabled mpi_threads_supported gloo_built gloo_enabled nccl_built ddl_built ccl_built
    cuda_built rocm_built
""".split()

#: Called with no arguments when the world has ended: users of handles forget theirs.
at_shutdown = []

#: What holds the memory of operations under way. When the process ends in the middle of them, the
#: interpreter must not free it while the engine still works on it.
holders = []

_registered = False


def init(comm=None, process_sets=None):
    """Joins the world; returns when every rank has. Of an elastic job in which others train already it
    returns at once: see enter().

    The launcher (hvdrun, mpirun, srun, torchrun, or HVD_RANK, HVD_SIZE, HVD_RENDEZVOUS and
    HVD_KEY_FILE by hand) says who the others are; without one this is a world of 1. In an elastic job a
    rank that is not wanted any more when it comes gets hvd.elastic.Left.
    """
    if comm is not None:
        raise NotImplementedError("init(comm=...) is not supported: the launcher chooses the ranks")
    if process_sets:
        raise NotImplementedError("process sets are not supported yet")
    global _registered
    if not lib.hvd_initialized():
        with _torchrun.environment() if _torchrun.applies() else contextlib.nullcontext():
            check_stay(lib.hvd_init())
    if not _registered:
        _registered = True
        atexit.register(_leave)


def enter():
    """Comes into a world that others train in, at their next commit(); hvd.elastic.run() and the first
    operation do it by themselves. Until then rank() and size() are those that this rank would have if
    it came in now: they may be others afterwards. What takes long and needs nobody else (the model, the
    data) is best done before, while the others go on. In every other case it does nothing. Raises
    hvd.elastic.Left when this rank is not wanted any more."""
    check_stay(lib.hvd_enter())


def shutdown():
    """Leaves the world. Operations still under way fail. Without a world it does nothing."""
    code = lib.hvd_shutdown() if lib.hvd_initialized() else 0
    failure = error(code) if code < 0 else None
    for forget in at_shutdown:
        forget()
    if failure:
        raise failure


def _leave():
    # A rank that dies of an exception does not wait for the others: its end is what tells them.
    if getattr(sys, "last_type", None) is None:
        lib.hvd_shutdown()
        return
    for holder in holders:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(holder))


def is_initialized():
    """True between init() and shutdown()."""
    return lib.hvd_initialized()


def rank():
    """This process's number in the world, from 0."""
    return check(lib.hvd_rank())


def size():
    """How many ranks the world has."""
    return check(lib.hvd_size())


def local_rank():
    """This process's number among those of its host."""
    return check(lib.hvd_local_rank())


def local_size():
    """How many ranks this host has."""
    return check(lib.hvd_local_size())


def cross_rank():
    """This host's number among the hosts."""
    return check(lib.hvd_cross_rank())


def cross_size():
    """How many hosts there are."""
    return check(lib.hvd_cross_size())


def is_homogeneous():
    """True when every host has the same number of ranks."""
    check(lib.hvd_rank())
    return lib.hvd_homogeneous()


def start_timeline(file_path, mark_cycles=False):
    """Writes a Chrome trace from now on. Rank 0 writes it; "%r" in the path makes every rank write."""
    check(lib.hvd_start_timeline(str(file_path).encode(), mark_cycles))


def stop_timeline():
    """Ends the trace."""
    check(lib.hvd_stop_timeline())


def stats():
    """The engine's counters since init(), by name."""
    counters = Stats(size=ctypes.sizeof(Stats))
    check(lib.hvd_stats(ctypes.byref(counters)))
    return {name: getattr(counters, name) for name, _ in Stats._fields_ if name != "size"}


def _backend(name):
    found = Backend(size_of_struct=ctypes.sizeof(Backend))
    check(lib.hvd_backend(name, ctypes.byref(found)))
    return found


def mpi_built():
    """Whether hvd was built with MPI: its plugin is beside libhvd.so. HVD_BACKEND=mpi uses it."""
    return _backend(b"mpi").built


def mpi_enabled():
    """Whether this job uses MPI (HVD_BACKEND=mpi). mpirun as the launcher alone does not count."""
    return _backend(b"mpi").open


def mpi_threads_supported():
    """Whether the program may call MPI itself, from any thread, beside hvd. Operations of hvd may be
    submitted from any thread in any case."""
    return _backend(b"mpi").threads


def gloo_built():
    """False: hvd has its own transports, shared memory and TCP."""
    return False


def gloo_enabled():
    """False, as gloo_built."""
    return False


def nccl_built():
    """The version of NCCL that tensors on this machine's GPUs use, such as 22707; 0: they cannot, for want of
    an NCCL or of a driver. It is looked for as before the first such tensor: import torch first, whose copy
    is the one to use."""
    found = _backend(b"nccl")
    version = re.match(rb"(?:NCCL )?(\d+)\.(\d+)\.(\d+)", found.text)
    if not found.built or not version:
        return 0
    major, minor, patch = map(int, version.groups())
    return major * 10000 + minor * 100 + patch


def ddl_built():
    """False."""
    return False


def ccl_built():
    """False."""
    return False


def cuda_built():
    """Whether hvd can work on tensors of GPUs here: NVIDIA's driver is there."""
    return _backend(b"staged").built


def rocm_built():
    """False."""
    return False
