# SPDX-License-Identifier: Apache-2.0
"""Rendezvous of ranks that were started by torchrun, or with torch.distributed's variables set in another
way.

These ranks know RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. A TCPStore listens at MASTER_PORT:
torchrun's agent runs it, or rank 0 opens one during init(). Rank 0 publishes its address and a random key
in the store. Every rank passes both to the library in HVD_RENDEZVOUS and HVD_KEY_FILE. The key is only as
secret as the store, which is not authenticated: anyone who can reach MASTER_PORT can read it.
"""
import contextlib
import datetime
import os
import secrets
import socket
import time

from ._lib import HvdError

_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_OURS = ("HVD_RANK", "HVD_SIZE", "HVD_RENDEZVOUS", "HVD_KEY_FILE")  # hvd-agent sets the first two
_OLDER = ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_RENDEZVOUS")
_LAUNCHERS = ("PMIX_RANK", "OMPI_COMM_WORLD_SIZE")

_times = 0  # calls of init() in this process: each uses another key of the store


def applies():
    """True when torch.distributed's variables are set and no other launcher's are."""
    env = os.environ
    if any(name not in env for name in _NEEDED) or any(name in env for name in _OURS + _OLDER):
        return False
    return "TORCHELASTIC_RUN_ID" in env or not any(name in env for name in _LAUNCHERS)


def _store(rank, timeout):
    from torch.distributed import TCPStore, is_available, is_initialized

    env = os.environ
    agent_has_it = env.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store_exists = agent_has_it or (is_available() and is_initialized())
    options = {
        "world_size": None if agent_has_it else int(env["WORLD_SIZE"]),
        "is_master": rank == 0 and not store_exists,
        "timeout": timeout,
        "wait_for_workers": False,
    }
    try:
        return TCPStore(env["MASTER_ADDR"], int(env["MASTER_PORT"]), **options)
    except RuntimeError as reason:
        if "libuv" not in str(reason):  # some builds of torch lack libuv, their default
            raise
        return TCPStore(env["MASTER_ADDR"], int(env["MASTER_PORT"]), use_libuv=False, **options)


def _own_address():
    """The address of this host on its default route, for hosts whose name resolves to loopback (as in
    Debian's /etc/hosts). Connecting a UDP socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return probe.getsockname()[0]


def _rendezvous():
    """The address at which rank 0 will listen: host:port, for HVD_RENDEZVOUS."""
    env = os.environ
    found = socket.getaddrinfo(env["MASTER_ADDR"], 0, type=socket.SOCK_STREAM)
    family, address = min((entry[0], entry[4][0]) for entry in found)  # IPv4 first
    several_hosts = env.get("LOCAL_WORLD_SIZE", env["WORLD_SIZE"]) != env["WORLD_SIZE"]
    if several_hosts and (address.startswith("127.") or address == "::1"):
        family, address = socket.AF_INET, _own_address()
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:  # not an address of this host, such as that of a Service or NAT
            probe.bind(("", 0))
        port = probe.getsockname()[1]
    return f"[{address}]:{port}" if family == socket.AF_INET6 else f"{address}:{port}"


def _ask(rank, place, seconds):
    """Returns the address and key that rank 0 has published under the name place, and the store. Rank 0
    has to keep the store until every rank has read it."""
    store = _store(rank, datetime.timedelta(seconds=seconds))
    if rank == 0:
        store.set(place, f"{_rendezvous()} {secrets.token_hex(32)}")
    rendezvous, key = store.get(place).decode().split(" ")
    return rendezvous, bytes.fromhex(key), store


def _meet(rank):
    """Repeats _ask() until HVD_START_TIMEOUT: the store may not be open yet, or may be one that is
    closing."""
    global _times
    env = os.environ
    run, restart = env.get("TORCHELASTIC_RUN_ID", ""), env.get("TORCHELASTIC_RESTART_COUNT", "0")
    place = f"hvd/{run}/{restart}/{_times}"
    end = time.monotonic() + float(env.get("HVD_START_TIMEOUT") or 30)
    while True:
        try:
            found = _ask(rank, place, max(1.0, end - time.monotonic()))
            break
        except (RuntimeError, OSError) as reason:
            if time.monotonic() > end - 0.2:
                where = f"{env['MASTER_ADDR']}:{env['MASTER_PORT']}"
                text = str(reason).split("\n", 1)[0]
                raise HvdError(
                    f"rank {rank} found no entry of rank 0 in the TCPStore at {where} ({text}): check that rank 0 "
                    "runs and that MASTER_ADDR and MASTER_PORT are the same on all ranks"
                ) from None
        time.sleep(0.1)
    _times += 1
    return found


@contextlib.contextmanager
def environment():
    """Sets the library's variables during hvd_init()."""
    env = os.environ
    rendezvous, key, store = _meet(int(env["RANK"]))
    fd = os.memfd_create("hvd-key")  # has no path, and is freed with its last descriptor
    try:
        os.write(fd, key)
        env.update(zip(_OURS, (env["RANK"], env["WORLD_SIZE"], rendezvous, f"/proc/self/fd/{fd}")))
        yield
    finally:
        for name in _OURS:
            env.pop(name, None)
        os.close(fd)
        del store  # all ranks have joined, or init() has failed
