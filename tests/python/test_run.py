#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 200
# takes: 9 s
"""hvd.run(): results by rank, output as it comes, exceptions, deaths and interrupts, and what it refuses."""

import contextlib
import io
import os
import signal
import socket
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "core", "python"), os.path.dirname(os.path.abspath(__file__))]

import run_functions  # noqa: E402
from harness import raises  # noqa: E402

import hvd  # noqa: E402
from hvd import runner  # noqa: E402


def test_results():
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        found = hvd.run(run_functions.place, args=(40,), kwargs={"second": 2}, np=3)
    assert found == [(0, 3, 42), (1, 3, 42), (2, 3, 42)], found
    assert sorted(said.getvalue().split("\n")) == ["", *[f"[{r}]<stdout>:rank {r} speaks" for r in range(3)]]
    assert hvd.run(run_functions.large, args=(30_000_000,), num_proc=2) == [bytes(30_000_000)] * 2
    assert hvd.run(run_functions.secrets) == [[]]


def test_failures():
    with contextlib.redirect_stderr(io.StringIO()) as said:
        with raises(hvd.HvdError, "rank 1 has failed: KeyError: 'no such sample'"):
            hvd.run(run_functions.fails_on_last, np=2)
        assert "Traceback" in said.getvalue() and "fails_on_last" in said.getvalue()
        with raises(hvd.HvdError, "the job has failed", "exited with code 7"):
            hvd.run(run_functions.dies, np=2)
        with raises(hvd.HvdError, "rank 0 has ended with exit code 0 before func has returned"):
            hvd.run(run_functions.exits, np=2)
        with raises(hvd.HvdError, "has failed: TypeError", "frame"):
            hvd.run(run_functions.returns_a_frame, np=1)


def test_interrupt():
    """Ctrl-C ends the ranks."""
    threading.Timer(2, signal.raise_signal, [signal.SIGINT]).start()
    began = time.monotonic()
    with contextlib.redirect_stderr(io.StringIO()), raises(KeyboardInterrupt):
        hvd.run(run_functions.waits, np=2)
    assert time.monotonic() - began < 60


def test_refused():
    with raises(ValueError, "hosts and hostfile"):
        hvd.run(run_functions.place, hosts="a:1", hostfile="b")
    with raises(ValueError, "use_gloo and use_mpi"):
        hvd.run(run_functions.place, use_gloo=True, use_mpi=True)
    with raises(ValueError, "cannot be pickled"):
        hvd.run(run_functions.place, args=(sys._getframe(),))
    with contextlib.redirect_stderr(io.StringIO()), raises(ValueError, "-np", "want an integer"):
        hvd.run(run_functions.place, np=0)


def test_options():
    """Each argument becomes an option that hvdrun knows."""
    given = dict(
        num_proc=2, min_num_proc=1, max_num_proc=3, slots=1, reset_limit=4, hosts=None, hostfile=None,
        host_discovery_script="/bin/true", start_timeout=9, ssh_port=22, ssh_identity_file="/k", output_filename="/o",
        network_interfaces=["lo", "eth0"], cooldown_range=(1, 2), verbose=2,
    )  # fmt: skip
    options = runner._options(given)
    assert options[-2:] == ["-v", "-v"] and "lo,eth0" in options and options.count("--min-np") == 1
    assert runner._addresses(dict(given, host_discovery_script=None)) == ["127.0.0.1"]
    assert runner._addresses(dict(given, host_discovery_script=None, hosts="127.0.0.1:2,127.0.0.2:2")) == ["127.0.0.1"]
    assert runner._addresses(dict(given, host_discovery_script=None, hosts="localhost:2")) == ["127.0.0.1"]
    assert runner._names(dict(given, hosts="a, b:2,[fd00::1]:4,[fd00::2]")) == ["a", "b", "fd00::1", "fd00::2"]


def test_another_host():
    """A rank that another agent starts, as on another host: the agent is started by a program in place of ssh."""
    with tempfile.TemporaryDirectory() as folder:
        rsh = os.path.join(folder, "rsh")
        with open(rsh, "w") as file:
            file.write('#!/bin/sh\nshift\nexec sh -c "$*"\n')
        os.chmod(rsh, 0o700)
        os.environ["HVD_RSH_AGENT"] = rsh
        try:
            found = hvd.run(run_functions.place, args=(1,), np=2, hosts="localhost:1,a-host-that-only-rsh-knows:1")
        finally:
            del os.environ["HVD_RSH_AGENT"]
    assert found == [(0, 2, 1), (1, 2, 1)], found


def test_strangers():
    """What does not know the key gets nothing, and does not stop the ranks."""
    server = runner._Server(b"the function", ["127.0.0.1"])
    host, port = server.at.split("/")
    idle = socket.create_connection((host, int(port)))
    with socket.create_connection((host, int(port))) as peer:
        peer.settimeout(20)
        peer.sendall(b"\0\0\0\4abcd")
        got = b""
        with contextlib.suppress(ConnectionError):
            while data := peer.recv(4096):
                got += data
        assert b"the function" not in got, got
    from hvd import _call

    assert _call._ask((server.at, server.key.encode()), "call", None) == b"the function"
    idle.close()
    server.close()


def test_functions_of_this_program():
    try:
        import cloudpickle  # noqa: F401
    except ImportError:
        print("SKIP: python/test_run/lambda: python3-cloudpickle: cannot be imported")
        return
    base = 5
    assert hvd.run(lambda: base + 1, np=2) == [6, 6]


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_") and callable(test):
            test()
            print("ok", name, flush=True)
