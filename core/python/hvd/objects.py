# SPDX-License-Identifier: Apache-2.0
"""Collectives for any object that can be pickled.

Unpickling runs code that the sender chooses. Only ranks that hold the job's key can send, so this trusts
the job as its own program does.
"""
import collections.abc
import copyreg
import functools
import io
import pickle
from array import array

from . import buffers
from ._lib import HvdError
from .process_sets import global_process_set
from .world import rank


#: {type: reduce function}, as in copyreg.dispatch_table, for types that pickle restores on the wrong device.
reducers = {}


@functools.lru_cache(None)
def _pickler():
    try:
        from cloudpickle import Pickler  # lambdas and classes of __main__, where it is installed
    except ImportError:
        from pickle import Pickler

    table = getattr(Pickler, "dispatch_table", None)
    if not isinstance(table, collections.abc.Mapping):
        table = copyreg.dispatch_table

    class ObjectPickler(Pickler):
        dispatch_table = collections.ChainMap(reducers, table)

    return ObjectPickler


def dump(obj):
    """Pickles an object; returns a bytearray."""
    stream = io.BytesIO()
    _pickler()(stream).dump(obj)
    return bytearray(stream.getbuffer())


def _try_dump(obj):
    """Returns the pickled object and None, or no bytes and the exception, so that the other ranks can be
    told.
    """
    try:
        return dump(obj), None
    except Exception as reason:
        return bytearray(), reason


def broadcast_object(obj=None, root_rank=0, name=None, process_set=global_process_set):
    """Returns root_rank's object on every rank of the process set. obj is ignored on the other ranks.

    Raises HvdError on all ranks when root_rank cannot pickle its object."""
    name = f"broadcast_object.{name}" if name else None
    mine = rank() == root_rank
    data, failure = _try_dump(obj) if mine else (bytearray(), None)
    length = array("q", [-1 if failure else len(data)])
    buffers.broadcast_(length, root_rank, name and f"{name}.size", process_set)
    if failure:
        raise failure
    if length[0] < 0:
        raise HvdError(f"broadcast_object: rank {root_rank} could not pickle its object; its output has the error")
    if not mine:
        data = bytearray(length[0])
    buffers.broadcast_(data, root_rank, name and f"{name}.data", process_set)
    return obj if mine else pickle.loads(data)


def allgather_object(obj, name=None, process_set=global_process_set):
    """Returns a list of the objects of all ranks of the process set, in the order of ranks.

    Raises HvdError on all ranks when a rank cannot pickle its object."""
    name = f"allgather_object.{name}" if name else None
    data, failure = _try_dump(obj)
    lengths = buffers.allgather(array("q", [-1 if failure else len(data)]), name and f"{name}.size", process_set)
    if failure:
        raise failure
    unable = [r for r, length in zip(process_set.ranks, lengths) if length < 0]
    if unable:
        raise HvdError(f"allgather_object: rank {unable[0]} could not pickle its object; its output has the error")
    everything = memoryview(buffers.allgather(data, name and f"{name}.data", process_set))
    objects, start = [], 0
    for length in lengths:
        objects.append(pickle.loads(everything[start : start + length]))
        start += length
    return objects
