# SPDX-License-Identifier: Apache-2.0
"""Elastic training: the number of ranks may change during training, and lost ranks do not end the job.

    state = hvd.elastic.ObjectState(step=0, weights=weights)

    @hvd.elastic.run
    def train(state):
        while state.step < 1000:
            ...
            state.step += 1
            state.commit()

    train(state)

A state object holds what a joining rank needs to know; run() brings it up to date and calls the function.
hvd.torch.elastic has TorchState for models and optimizers, and ElasticSampler. The names are Horovod's.

The difference from Horovod: a lost rank does not raise an exception. The surviving ranks finish the current
step, and the function continues; rank() and size() change in the next commit(), where ranks also join and
leave. No step is lost or repeated, no survivor restarts, and only joiners receive the state.

Where to commit: at a point from which a new call of the function with the current state would run the same
operations as continuing does. Such points are the end of a step (or its beginning, when its batch is loaded
already) and the end of an epoch. Programs that run other collective operations between the beginning of the
function and the commit need Horovod's behaviour: with HVD_ELASTIC_INTERRUPT=1 or run(interrupt=True), a
change of the world raises HostsUpdatedInterrupt at the commit on all ranks, and run() calls the function
again.

Threads: a thread that submits operations while another thread is in commit() may get HvdError with
errno.ESTALE (see HvdError). That is not HorovodInternalError, so run() does not call the function again.

Joiners do not delay the ranks that train. On a joiner init() returns at once; only run() (or its first
operation) enters the world, at the others' next commit. Its imports, model and data are loaded meanwhile.
rank() and size() may change when it enters (see enter()); then the reset and resize callbacks are called on
it, too, before it gets the state, so that it can rebuild what depends on them. local_rank() is that of a
free slot on its host and does not change.

A program that never calls commit() also survives lost ranks: the remaining ranks train on, with rank() and
size() unchanged. But no rank can join it: a replacement waits until the job ends.
"""
import functools

from ._lib import HorovodInternalError, HvdError, Left, RankLostError  # noqa: F401
from ._membership import HostsUpdatedInterrupt, commit, setting, world  # noqa: F401
from ._state import ObjectState, State  # noqa: F401
from .sampler import ElasticSampler  # noqa: F401
from .world import init, shutdown

RESET_LIMIT = 100  # default of run(): how often it restarts from the last commit

for _public in (HostsUpdatedInterrupt, State, ObjectState):
    _public.__module__ = __name__  # where users find them, for error texts and pickles


def scale_lr(optimizer, rule="linear", schedulers=()):
    """Returns a resize callback that scales an optimizer's learning rates with the number of ranks.

    Args:
        rule: "linear" (twice the ranks, twice the rate, because the global batch doubles), "none", or a
            function of (old size, new size) that returns the factor.
        schedulers: the optimizer's learning rate schedulers, whose base rates are scaled, too.
    Raises:
        ValueError: rule is something else.
    """
    rules = {"linear": lambda old, new: new / old, "none": lambda old, new: 1.0}
    factor_of = rule if callable(rule) else rules.get(rule)
    if factor_of is None:
        raise ValueError(f'rule should be "linear", "none" or a function, got {rule!r}')

    def rescale(old, new):
        factor = factor_of(old, new)
        for group in optimizer.param_groups:
            for key in ("lr", "initial_lr"):
                if key in group:
                    group[key] = group[key] * factor
        for scheduler in schedulers:
            scheduler.base_lrs = [rate * factor for rate in scheduler.base_lrs]

    return rescale


def _restart():
    try:
        shutdown()
    except HvdError:
        pass  # the world has failed: that is the reason for the restart
    init()


def run(func=None, *, interrupt=None, reset_limit=None):
    """Decorates a function of (state, ...): synchronizes the state with the other ranks, then calls the
    function.

    When repair is impossible (HorovodInternalError), the state is restored to its last commit, this process
    leaves the world and joins again, and the function is called again. Left is never caught: the process of
    a rank that was asked to leave exits with code 0.

    Args:
        interrupt: True for Horovod's behaviour (see the module's text). Default: HVD_ELASTIC_INTERRUPT.
        reset_limit: how many such restarts are allowed; after that the error is raised. Default:
            HVD_ELASTIC_RESET_LIMIT, or 100.
    """
    if func is None:
        return functools.partial(run, interrupt=interrupt, reset_limit=reset_limit)
    limit = int(setting("ELASTIC_RESET_LIMIT") or RESET_LIMIT) if reset_limit is None else reset_limit

    @functools.wraps(func)
    def wrapper(state, *args, **kwargs):
        if interrupt is not None:
            state._interrupt = interrupt
        resets = 0
        state._enter()
        while True:
            try:
                state.sync()
                found = func(state, *args, **kwargs)
                state.settle()
                return found
            except HorovodInternalError:
                resets += 1
                if resets > limit:
                    raise
                state.restore()
                _restart()
                state.reset()
            except HostsUpdatedInterrupt:
                pass
            state.on_reset()

    return wrapper
