# SPDX-License-Identifier: Apache-2.0
"""Any object that pickle takes, from one rank to all and from all to all.

Only ranks that hold the job's key can send: unpickling trusts the job, as the job's program does.
"""
import collections.abc
import copyreg
import functools
import io
import pickle
from array import array

from . import buffers
from ._lib import HvdError
from .world import rank, size


#: By type: what reduces an object for its way to another process, where pickle's own way would bring it to
#: the wrong place there. As in copyreg.dispatch_table.
travellers = {}


@functools.lru_cache(None)
def _pickler():
    try:
        from cloudpickle import Pickler  # lambdas and classes of __main__, where it is installed
    except ImportError:
        from pickle import Pickler

    table = getattr(Pickler, "dispatch_table", None)
    if not isinstance(table, collections.abc.Mapping):
        table = copyreg.dispatch_table

    class Traveller(Pickler):
        dispatch_table = collections.ChainMap(travellers, table)

    return Traveller


def dump(obj):
    """The bytes of an object."""
    stream = io.BytesIO()
    _pickler()(stream).dump(obj)
    return bytearray(stream.getbuffer())


def _try_dump(obj):
    """The bytes of an object and None, or nothing and why not: then the other ranks are told."""
    try:
        return dump(obj), None
    except Exception as reason:
        return bytearray(), reason


def broadcast_object(obj=None, root_rank=0, name=None):
    """root_rank's object, on every rank. The others' argument is ignored."""
    name = f"broadcast_object.{name}" if name else None
    mine = rank() == root_rank
    data, failure = _try_dump(obj) if mine else (bytearray(), None)
    length = array("q", [-1 if failure else len(data)])
    buffers.broadcast_(length, root_rank, name and f"{name}.size")
    if failure:
        raise failure
    if length[0] < 0:
        raise HvdError(f"broadcast_object: rank {root_rank} could not pickle its object")
    if not mine:
        data = bytearray(length[0])
    buffers.broadcast_(data, root_rank, name and f"{name}.data")
    return obj if mine else pickle.loads(data)


def allgather_object(obj, name=None):
    """A list of every rank's object, in the order of the ranks."""
    name = f"allgather_object.{name}" if name else None
    data, failure = _try_dump(obj)
    lengths = buffers.allgather(array("q", [-1 if failure else len(data)]), name and f"{name}.size")
    if failure:
        raise failure
    unable = [r for r in range(size()) if lengths[r] < 0]
    if unable:
        raise HvdError(f"allgather_object: rank {unable[0]} could not pickle its object")
    everything = memoryview(buffers.allgather(data, name and f"{name}.data"))
    objects, start = [], 0
    for r in range(size()):
        objects.append(pickle.loads(everything[start : start + lengths[r]]))
        start += lengths[r]
    return objects
