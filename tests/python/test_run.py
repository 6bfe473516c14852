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
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "core", "python"), os.path.dirname(os.path.abspath(__file__))]

import run_functions  # noqa: E402
from harness import raises  # noqa: E402

import hvd  # noqa: E402
from hvd import _call, runner  # noqa: E402


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
        with raises(hvd.HvdError, "rank 1 has failed: KeyError: 'no such sample'", "exited with code 1"):
            hvd.run(run_functions.fails_on_last, np=2)  # the other one waits for it, and fails because of that
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
    with raises(TypeError, "args should be a tuple"):
        hvd.run(run_functions.place, args=1)
    with raises(TypeError, "needs a function"):
        hvd.run("place")
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
    assert runner._options(dict(given, network_interfaces="lo,eth0")) == options
    assert runner._addresses(dict(given, host_discovery_script=None)) == ["127.0.0.1"]
    with tempfile.NamedTemporaryFile("w") as hostfile:
        print("localhost slots=2\n127.0.0.1:3#here\n  # none\n[::1]:2\n", file=hostfile, flush=True)
        assert runner._names(dict(given, hostfile=hostfile.name)) == ["localhost", "127.0.0.1", "::1"]
        assert runner._addresses(dict(given, host_discovery_script=None, hostfile=hostfile.name)) == ["127.0.0.1"]
    assert "127.0.0.1" not in runner._addresses(dict(given, host_discovery_script=None, hosts="localhost,not.a.host"))
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
    """What does not know the key gets nothing and says nothing, and does not stop the ranks."""
    server = runner._Server(b"the function", ["127.0.0.1"])
    host, port = server.at.split("/")
    at = host, int(port)
    idle = socket.create_connection(at)
    for said in (bytes(32) + bytes(40) + b"call 0", bytes(32) + b"\xff" * 40, bytes(32 + 8) + bytes(32)):
        with socket.create_connection(at) as peer:
            peer.settimeout(20)
            peer.sendall(said)
            got = b""
            with contextlib.suppress(ConnectionError):
                while data := peer.recv(4096):
                    got += data
            assert len(got) == 32, got
    where = [at], server.key.encode()
    assert _call._ask(where, "call", 0) == b"the function"
    assert _call._ask(where, "failure", 1, b"text") == b"taken" and server.failures == [(1, "text")]
    for wrong in ([at], b"another key"), ([], server.key.encode()):
        with raises(SystemExit, "cannot reach"):
            _call._ask(wrong, "result", 0, b"forged")
    assert not server.results
    idle.close()
    server.close()
    with raises(SystemExit, "cannot reach"):
        _call._ask(where, "call", 0)
    assert not server._thread.is_alive()


def test_a_relay():
    """Who stands between a rank and this process can pass messages on, but not change them or say something."""
    server = runner._Server(b"the function", ["127.0.0.1"])
    at = "127.0.0.1", int(server.at.split("/")[1])
    with socket.create_server(("127.0.0.1", 0)) as relay:

        def between():
            rank, _ = relay.accept()
            with rank, socket.create_connection(at) as real:
                real.sendall(rank.recv(32, socket.MSG_WAITALL))
                rank.sendall(real.recv(32, socket.MSG_WAITALL))
                real.sendall(rank.recv(4096))
                with contextlib.suppress(OSError):
                    real.sendall(rank.recv(4096))
                    rank.sendall(real.recv(40, socket.MSG_WAITALL) + b"not the function"[: len(b"the function")])

        thread = threading.Thread(target=between)
        thread.start()
        with raises(SystemExit, "does not know the key"):
            _call._ask(([relay.getsockname()], server.key.encode()), "call", 0)
        thread.join(20)
    server.close()


def test_end_of_the_program():
    """When the process that has called run() is killed, the ranks end, too."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "pids")
        code = f"import sys; sys.path[:0] = {sys.path[:2]!r}; import hvd, run_functions as f; hvd.run(f.writes_pid, ({file!r},), np=2)"
        program = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        began = time.monotonic()
        pids = []
        while len(pids) < 2 and time.monotonic() - began < 60:
            time.sleep(0.05)
            with contextlib.suppress(OSError, ValueError), open(file) as lines:
                pids = [int(line) for line in lines if line.endswith("\n")]
        program.kill()
        program.wait()
        assert len(pids) == 2
        while any(os.path.exists(f"/proc/{pid}") for pid in pids):
            assert time.monotonic() - began < 100, pids
            time.sleep(0.05)


def test_output_that_nobody_takes():
    """The ranks do not wait for a reader that has gone, or cannot show what they print."""

    class Gone:
        encoding = "ascii"

        def write(self, text):
            text.encode("ascii")
            raise BrokenPipeError

        def flush(self):
            pass

    with contextlib.redirect_stdout(Gone()):
        assert hvd.run(run_functions.prints_much, np=2) == [1, 1]


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
