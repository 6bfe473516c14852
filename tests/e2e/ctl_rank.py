#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank that speaks the control frames (core/base/ctl.h) without libhvd, for tests of hvdrun.

Sends HELLO, waits for the ROSTER, passes a memfd to every rank on its host with SHARE, sends BYE. An
argument makes it fail in one way:
  early N   rank N exits 0 after the roster without BYE, the others wait for LOST
  die N     rank N kills itself after the roster, the others wait for LOST
  late N    rank N never sends HELLO and exits 0 after a second; the others wait for LOST
  never N   rank N never sends HELLO and sleeps
  again     does twice what hvd_init() and hvd_shutdown() do
"""
import array
import os
import signal
import socket
import struct
import sys
import time

HELLO, ROSTER, SHARE, PROGRESS, LOST, BYE = range(1, 7)


class Ctl:
    def __init__(self):
        self.sock = socket.socket(fileno=os.dup(int(os.environ["HVD_AGENT_FD"])))
        self.sock.settimeout(20)
        self.data, self.fds = b"", []

    def send(self, kind, body, fds=()):
        head = struct.pack("<IHH", len(body), kind, len(fds))
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        sent = self.sock.sendmsg([head + body], control)
        self.sock.sendall((head + body)[sent:])

    def recv(self):
        while True:
            if len(self.data) >= 8:
                n, kind, nfds = struct.unpack_from("<IHH", self.data)
                if len(self.data) >= 8 + n:
                    body, self.data = self.data[8 : 8 + n], self.data[8 + n :]
                    fds, self.fds = self.fds[:nfds], self.fds[nfds:]
                    return kind, body, fds
            data, control, _, _ = self.sock.recvmsg(65536, socket.CMSG_SPACE(32))
            if not data:
                raise SystemExit("the agent closed the control socket")
            self.data += data
            for _, _, raw in control:
                fds = array.array("i")
                fds.frombytes(raw[: len(raw) - len(raw) % 4])
                self.fds += list(fds)


def expect_lost(ctl, rank):
    while True:
        kind, body, _ = ctl.recv()
        if kind == LOST:
            who, code = struct.unpack_from("<Ii", body)
            print("rank %d: lost %d code %d: %s" % (rank, who, code, body[8:].decode()), flush=True)
            raise SystemExit(7)


def main():
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    who = int(sys.argv[2]) if len(sys.argv) > 2 else -1
    rank, size = int(os.environ["HVD_RANK"]), int(os.environ["HVD_SIZE"])
    if what == "late" and rank == who:
        time.sleep(1)
        return
    if what == "never" and rank == who:
        time.sleep(60)
        return
    ctl = Ctl()
    for turn in range(2 if what == "again" else 1):
        card = ("card of %d in turn %d" % (rank, turn)).encode()
        ctl.send(HELLO, struct.pack("<HIBI", 3, os.getpid(), 0, 0) + card)
        if what in ("late",):
            expect_lost(ctl, rank)
        kind, body, _ = ctl.recv()
        if kind == LOST:
            print("rank %d: lost instead of a roster: %s" % (rank, body[8:].decode()), flush=True)
            raise SystemExit(7)
        assert kind == ROSTER, kind
        epoch, me, n = struct.unpack_from("<III", body)
        assert (epoch, me, n) == (turn + 1, rank, size), (epoch, me, n)
        key, pos, local = body[12:44], 56, []
        for r in range(size):
            is_local, member, length = struct.unpack_from("<BII", body, pos)
            assert member == r
            pos += 9
            assert body[pos : pos + length] == ("card of %d in turn %d" % (r, turn)).encode()
            pos += length
            if is_local:
                local.append(r)
        assert pos == len(body) and len(local) == int(os.environ["HVD_LOCAL_SIZE"])
        assert key != bytes(32)
        if what == "early" and rank == who:
            return
        if what == "die" and rank == who:
            os.kill(os.getpid(), signal.SIGKILL)
        if what in ("early", "die"):
            expect_lost(ctl, rank)
        # Each rank passes a file to every rank on this host.
        fd = os.memfd_create("test")
        os.write(fd, b"from %d" % rank)
        ctl.send(SHARE, struct.pack("<IIH", epoch, 0, 5) + b"hi", [fd])
        ctl.send(PROGRESS, struct.pack("<QQB", 10 + rank, 1000, 1) + b"allreduce")
        for _ in range(len(local) - 1):
            kind, body, fds = ctl.recv()
            assert kind == SHARE and len(fds) == 1, (kind, fds)
            e, sender, code = struct.unpack_from("<IIH", body)
            assert (e, code, body[10:]) == (epoch, 5, b"hi") and sender in local
            assert os.pread(fds[0], 64, 0) == b"from %d" % sender  # the offset is shared by all ranks
            os.close(fds[0])
        ctl.send(BYE, struct.pack("<iQ", 0, 0))
    print("rank %d: ok size %d local %d" % (rank, size, len(local)), flush=True)


main()
