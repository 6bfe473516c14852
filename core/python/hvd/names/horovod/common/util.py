# SPDX-License-Identifier: Apache-2.0
"""horovod.common.util: what programs use of it."""
import contextlib
import functools
import importlib.util
import os
import sysconfig
import warnings

from hvd import world

EXTENSIONS = ["tensorflow", "torch", "mxnet"]
_cache = functools.lru_cache(None)


def get_ext_suffix():
    """The end of the file name of a compiled Python module."""
    return sysconfig.get_config_var("EXT_SUFFIX") or ".so"


def extension_available(ext_base_name, verbose=False):
    """Whether hvd supports this framework ("torch") and it is installed."""
    return ext_base_name == "torch" and importlib.util.find_spec("torch") is not None


def check_extension(ext_name, ext_env_var, pkg_path, *args):
    """Raises ImportError unless extension_available() for "horovod.torch" and the like."""
    framework = ext_name.rpartition(".")[2]
    if not extension_available(framework):
        raise ImportError(f"hvd has no part for {framework}, or {framework} is not installed")


def check_installed_version(name, version, exception=None):
    """Does nothing: hvd is not compiled for one version of a framework."""


def gpu_available(ext_base_name, verbose=False):
    """Whether this framework ("torch") is there and finds a GPU."""
    if not extension_available(ext_base_name):
        return False
    import torch

    return torch.cuda.is_available()


def mpi_built(verbose=False):
    """hvd.mpi_built()"""
    return world.mpi_built()


def gloo_built(verbose=False):
    """True. Programs ask it to learn whether they can run without MPI, which hvd always can, by transports of its own."""
    return True


def nccl_built(verbose=False):
    """hvd.nccl_built()"""
    return world.nccl_built()


def ddl_built(verbose=False):
    """hvd.ddl_built()"""
    return world.ddl_built()


def ccl_built(verbose=False):
    """hvd.ccl_built()"""
    return world.ccl_built()


@contextlib.contextmanager
def env(**kwargs):
    """A context in which environment variables have other values. None: stays as it is."""
    changed = {name: value for name, value in kwargs.items() if value is not None}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def get_average_backwards_compatibility_fun(reduce_ops):
    """A function of (op, average) that returns the operation. reduce_ops: has Average and Sum."""

    def operation(op, average):
        if op is not None and average is not None:
            raise ValueError("give either average or op, not both")
        if average is None:
            return reduce_ops.Average if op is None else op
        warnings.warn("average is deprecated: use op=Average or op=Sum", DeprecationWarning, stacklevel=3)
        return reduce_ops.Average if average else reduce_ops.Sum

    return operation


def num_rank_is_power_2(num_rank):
    """Whether the number is a power of two."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(items, n):
    """Cuts a list into n parts; the first len(items) % n of them have one item more."""
    size, longer = divmod(len(items), n)
    ends = [size * i + min(i, longer) for i in range(n + 1)]
    return [items[a:b] for a, b in zip(ends, ends[1:])]


def is_iterable(x):
    """Whether iter(x) works."""
    try:
        iter(x)
    except TypeError:
        return False
    return True


def is_version_greater_equal_than(ver, target):
    """Whether version ver ("2.1.0") is target or a later one. ValueError unless both are text, and target has three parts."""
    from packaging import version

    if not isinstance(ver, str) or not isinstance(target, str) or target.count(".") != 2:
        raise ValueError(f"two versions as text are needed, the second as 1.2.3, got {ver!r} and {target!r}")
    return version.parse(ver) >= version.parse(target)
