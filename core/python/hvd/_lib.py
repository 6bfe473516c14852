# SPDX-License-Identifier: Apache-2.0
"""libhvd.so by ctypes: finds it, declares what core/include/hvd.h declares, turns errors into exceptions.

Every other module of the package calls the library through `lib` here. Nothing is loaded before the
first use of `lib`'s functions, so that `import hvd` works (and `pip` can build) without the library.
Calls release the GIL: a rank that waits does not stop the threads of its program.
"""
import ctypes
import errno
import glob
import os

UINT8, INT8, UINT16, INT16, INT32, INT64, FLOAT16, FLOAT32, FLOAT64, BOOL, BFLOAT16 = range(11)
FLOAT8_E4M3FN, FLOAT8_E5M2 = 11, 12
AVERAGE, SUM, ADASUM, MIN, MAX, PRODUCT, BAND, BOR, BXOR = range(9)
ALLREDUCE, ALLGATHER, BROADCAST, ALLTOALL, REDUCESCATTER, BARRIER = range(6)
MAX_DIMS = 16

_LOST = {errno.ECONNRESET, errno.ESHUTDOWN, errno.ETIMEDOUT, errno.EPIPE}
_WRONG = {errno.EINVAL, errno.EEXIST, errno.ENOTCONN}


class HvdError(RuntimeError):
    """A call of hvd failed. `errno` is the error number; the text says what happened and what to do.

    errno.ESTALE: commit() in another thread changed the world before the operation had finished. The
    operation has changed no tensor; make it again for the present rank() and size(), and submit it again."""

    def __init__(self, text, number=0):
        super().__init__(text)
        self.errno = number


class HorovodInternalError(HvdError):
    """An operation failed because a rank was lost or the job was shut down. hvd.elastic.run() handles it."""


class RankLostError(HorovodInternalError):
    """A rank is lost without which the operation cannot be done: a member of a set with fix() or of its unit, the root of
    a broadcast, the other end of a message (errno.EOWNERDEAD). An elastic job goes on: drop the step, and call commit()."""


class InvalidArgumentError(HvdError, ValueError):
    """An argument is wrong, or the call is not possible now: before init(), or with a name that is in use. A ValueError,
    too, as programs written for Horovod expect it."""


class Left(SystemExit):
    """This rank was asked to leave the job, and is not a member any more. If the exception is not caught
    the process exits with code 0."""

    def __init__(self, text):
        super().__init__(0)
        self.text = text

    def __str__(self):
        return self.text


class Request(ctypes.Structure):
    """struct hvd_request."""

    _fields_ = [
        ("kind", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("dtype", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("op", ctypes.c_int),
        ("prescale", ctypes.c_double),
        ("postscale", ctypes.c_double),
        ("root", ctypes.c_int),
        ("splits", ctypes.POINTER(ctypes.c_int64)),
        ("device", ctypes.c_int),
        ("stream", ctypes.c_void_p),
        ("output_rows", ctypes.c_int64),
        ("epoch", ctypes.c_uint32),
        ("set", ctypes.c_int),
    ]


REQUEST_BYTES = ctypes.sizeof(Request)


class Result(ctypes.Structure):
    """struct hvd_result."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("ndim", ctypes.c_int),
        ("shape", ctypes.c_int64 * MAX_DIMS),
        ("splits", ctypes.POINTER(ctypes.c_int64)),
        ("ranks", ctypes.c_int),
    ]


class Arrival(ctypes.Structure):
    """struct hvd_arrival."""

    _fields_ = [("peer", ctypes.c_int), ("bytes", ctypes.c_int64)]


class Message(ctypes.Structure):
    """struct hvd_message."""

    _fields_ = [
        ("direction", ctypes.c_int),
        ("peer", ctypes.c_int),
        ("tag", ctypes.c_int),
        ("set", ctypes.c_int),
        ("device", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("ret_arrival", ctypes.POINTER(Arrival)),
        ("stream", ctypes.c_void_p),
    ]


class Roster(ctypes.Structure):
    """struct hvd_roster."""

    _fields_ = [
        ("size", ctypes.c_int),
        ("hosts", ctypes.POINTER(ctypes.c_int)),
        ("local_ranks", ctypes.POINTER(ctypes.c_int)),
        ("places", ctypes.POINTER(ctypes.c_int)),
    ]


RULE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Roster), ctypes.c_int, ctypes.c_int, ctypes.c_void_p)


class Stats(ctypes.Structure):
    """struct hvd_stats."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "size ops batches bytes negotiated cached frozen thaws refused allocations stalls submitted sets"
            " messages_nccl".split()
        )
    ]


class World(ctypes.Structure):
    """struct hvd_world."""

    _fields_ = [
        ("size_of_struct", ctypes.c_uint64),
        ("epoch", ctypes.c_uint32),
        ("rank", ctypes.c_int),
        ("size", ctypes.c_int),
        ("source", ctypes.c_int),
        ("joined", ctypes.c_int),
        ("left", ctypes.c_int),
        ("is_new", ctypes.c_bool),
        ("elastic", ctypes.c_bool),
        ("repair_ns", ctypes.c_uint64),
        ("waiting", ctypes.c_bool),
    ]


class Backend(ctypes.Structure):
    """struct hvd_backend."""

    _fields_ = [
        ("size_of_struct", ctypes.c_uint64),
        ("built", ctypes.c_bool),
        ("open", ctypes.c_bool),
        ("threads", ctypes.c_bool),
        ("text", ctypes.c_char * 512),
    ]


_INT, _STR, _BOOL, _HANDLE = ctypes.c_int, ctypes.c_char_p, ctypes.c_bool, ctypes.c_int64

_PROTOTYPES = {
    "hvd_init": (_INT, []),
    "hvd_enter": (_INT, []),
    "hvd_shutdown": (_INT, []),
    "hvd_initialized": (_BOOL, []),
    "hvd_rank": (_INT, []),
    "hvd_size": (_INT, []),
    "hvd_local_rank": (_INT, []),
    "hvd_local_size": (_INT, []),
    "hvd_cross_rank": (_INT, []),
    "hvd_cross_size": (_INT, []),
    "hvd_place": (_INT, []),
    "hvd_places": (_INT, [ctypes.c_void_p, _INT]),
    "hvd_homogeneous": (_BOOL, []),
    "hvd_error": (_STR, []),
    "hvd_version": (_STR, []),
    # Requests and handles: c_void_p takes what byref() gives and is the cheapest to convert.
    "hvd_submit_sized": (_INT, [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]),
    "hvd_poll": (_INT, [_HANDLE]),
    "hvd_wait": (_INT, [_HANDLE]),
    "hvd_wait_stream": (_INT, [_HANDLE, ctypes.c_void_p]),
    "hvd_result": (_INT, [_HANDLE, ctypes.c_void_p]),
    "hvd_release": (None, [_HANDLE]),
    "hvd_barrier": (_INT, [_STR]),
    "hvd_join": (_INT, []),
    "hvd_exchange_sized": (_INT, [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]),
    "hvd_set_add": (_INT, [ctypes.c_void_p, _INT, ctypes.c_void_p]),
    "hvd_set_form": (_INT, [ctypes.c_char_p, ctypes.c_void_p, _INT, ctypes.c_void_p]),
    "hvd_set_split": (_INT, [ctypes.c_char_p, ctypes.c_void_p]),
    "hvd_set_find": (_INT, [ctypes.c_char_p]),
    "hvd_rule_define": (_INT, [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]),
    "hvd_set_remove": (_INT, [_INT]),
    "hvd_set_fix": (_INT, [_INT]),
    "hvd_set_source": (_INT, [_INT]),
    "hvd_sets": (_INT, [ctypes.c_void_p, _INT]),
    "hvd_set_is_split": (_INT, [_INT]),
    "hvd_set_size": (_INT, [_INT]),
    "hvd_set_rank": (_INT, [_INT]),
    "hvd_set_ranks": (_INT, [_INT, ctypes.c_void_p, _INT]),
    "hvd_world": (_INT, [ctypes.c_void_p]),
    "hvd_commit": (_INT, []),
    "hvd_dtype_size": (ctypes.c_size_t, [_INT]),
    "hvd_dtype_name": (_STR, [_INT]),
    "hvd_op_name": (_STR, [_INT]),
    "hvd_kind_name": (_STR, [_INT]),
    "hvd_start_timeline": (_INT, [_STR, _BOOL]),
    "hvd_stop_timeline": (_INT, []),
    "hvd_stats": (_INT, [ctypes.c_void_p]),
    "hvd_backend": (_INT, [_STR, ctypes.c_void_p]),
}


def _candidates():
    """Paths where the library may be, in the order of preference: in the package, in a checkout's build
    folders.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    yield os.path.join(here, "libhvd.so")
    root = os.path.dirname(os.path.dirname(os.path.dirname(here)))
    if os.path.exists(os.path.join(root, "core", "include", "hvd.h")):
        yield os.path.join(root, "build", "libhvd.so")
        yield from sorted(glob.glob(os.path.join(root, "build-*", "libhvd.so")))


def _open():
    named = os.environ.get("HVD_LIBRARY")
    if named:
        return ctypes.CDLL(named)
    for path in _candidates():
        if os.path.exists(path):
            return ctypes.CDLL(path)
    return ctypes.CDLL("libhvd.so.0")


class _Library:
    """The library's functions as attributes. The first use loads the library."""

    def __getattr__(self, name):
        if name not in _PROTOTYPES:
            raise AttributeError(name)
        try:
            library = _open()
        except OSError as error:
            raise ImportError(
                f"libhvd.so was not found or did not load ({error}). Install hvd with make install, build it with "
                "make in its checkout, or set HVD_LIBRARY to the library's path"
            ) from None
        for function, (restype, argtypes) in _PROTOTYPES.items():
            try:
                pointer = getattr(library, function)
            except AttributeError:
                raise ImportError(
                    f"{library._name} has no {function}: it is of another version than this package"
                ) from None
            pointer.restype, pointer.argtypes = restype, argtypes
            setattr(self, function, pointer)
        self.path = library._name
        return getattr(self, name)


lib = _Library()


def name_bytes(name):
    """A tensor's name for the library, where it ends at the first NUL: a name with one is refused."""
    if name is None:
        return None
    if "\0" in name:
        raise ValueError(f"the name {name!r} has a NUL character in it: want a name without")
    return name.encode()


def error(number):
    """The exception for the library call that has just failed on this thread."""
    number = abs(number)
    text = (lib.hvd_error() or b"").decode(errors="replace") or os.strerror(number)
    if number == errno.EOWNERDEAD:
        return RankLostError(text, number)
    kind = HorovodInternalError if number in _LOST else InvalidArgumentError if number in _WRONG else HvdError
    return kind(text, number)


def check(code):
    """Returns the result of a library call, or raises if it is an error."""
    if code < 0:
        raise error(code)
    return code


def check_stay(code):
    """check() for calls that return -ESHUTDOWN when a rank of an elastic job was asked to leave: raises
    Left."""
    if code == -errno.ESHUTDOWN:
        raise Left(str(error(code)))
    return check(code)


def dims(values):
    """A C array of int64, for a shape or for splits."""
    values = tuple(values)
    return (ctypes.c_int64 * len(values))(*values)
