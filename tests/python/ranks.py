#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Starts ranks by hand, as a user without a launcher does, and waits for them.

    ranks.py [-t SECONDS] [-k] N COMMAND...

Every rank gets HVD_RANK, HVD_SIZE, HVD_RENDEZVOUS and HVD_KEY_FILE; its output lines are prefixed with its
rank. Exit code: 0, or that of the first rank that failed (128+n for a signal). When a rank fails or
the time is over the others are killed, with their children. -k keeps them until they end by themselves.
"""
import argparse
import contextlib
import os
import random
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time


def free_port():
    """A free port below the ephemeral ones."""
    while True:
        port = random.randrange(10000, 30000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def start(rank, size, port, key_file, command):
    env = dict(
        os.environ,
        HVD_RANK=str(rank),
        HVD_SIZE=str(size),
        HVD_RENDEZVOUS=f"127.0.0.1:{port}",
        HVD_KEY_FILE=key_file,
        OMP_NUM_THREADS="1",
    )
    return subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )


def pump(ranks, deadline, failed=None):
    """Forwards the ranks' output until all have closed it, one has failed (unless one had failed before) or the time is
    over. Returns the exit code of the first failure, 124 if the time is over, otherwise `failed`."""
    selector = selectors.DefaultSelector()
    for rank, process in enumerate(ranks):
        selector.register(process.stdout, selectors.EVENT_READ, rank)
    rest = [b""] * len(ranks)
    while selector.get_map():
        for key, _ in selector.select(min(0.2, max(0, deadline - time.monotonic()))):
            data = os.read(key.fd, 65536)
            lines = (rest[key.data] + data).split(b"\n")
            rest[key.data] = lines.pop()
            if not data and rest[key.data]:
                lines = [rest[key.data]]
            for line in lines:
                sys.stdout.write(f"[{key.data}] {line.decode(errors='replace')}\n")
            sys.stdout.flush()
            if not data:
                selector.unregister(key.fileobj)
        for process in ranks:
            if failed is None and process.poll():
                return process.returncode
        if time.monotonic() > deadline:
            return failed or 124
    return failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-t", type=float, default=120, help="seconds")
    parser.add_argument("-k", action="store_true", help="keep going when a rank has failed")
    parser.add_argument("n", type=int)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    deadline = time.monotonic() + args.t
    with tempfile.NamedTemporaryFile() as key:
        key.write(secrets.token_bytes(32))
        key.flush()
        port = free_port()
        ranks = [start(r, args.n, port, key.name, args.command) for r in range(args.n)]
        code = 1
        try:
            code = pump(ranks, deadline, 0 if args.k else None)
            if code == 124:
                print(f"ranks.py: not done after {args.t:g} s", file=sys.stderr)
            elif code:  # the others have a moment to report the failure
                pump(ranks, min(deadline, time.monotonic() + 3), code)
        finally:
            for process in ranks:
                if process.poll() is None and code:
                    os.killpg(process.pid, signal.SIGKILL)
            codes = [process.wait(timeout=10) for process in ranks]
    code = code or next((c for c in codes if c), 0)
    sys.exit(128 - code if code < 0 else code)


if __name__ == "__main__":
    main()
