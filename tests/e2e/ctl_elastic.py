#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of an elastic job that speaks the control frames (core/base/ctl.h) without libhvd.

Sends HELLO; answers every LOST of a member of its world with HELLO (revoked), every CHANGE with HELLO
(boundary), ends with 0 when it gets LEAVE, and with BYE and 0 when the file named by its argument is
there. A joiner sends no ENTER while the file END.hold exists. Prints a line for each
roster: "epoch 2 rank 0 of 2: 0 2* (change 1)", with * behind new members, and "2@1*" for member 2 in
place 1 where that is not its rank.
A second argument makes it fail in one way:
  deaf      it does not answer a LOST
  out       it sends BYE with -5 at its first LOST, and exits with 3 after 3 s
  again     it sends BYE with -5 at its first LOST, and joins again: HELLO (join)
"""
import array
import os
import select
import socket
import struct
import sys
import time

HELLO, ROSTER, SHARE, PROGRESS, LOST, BYE, CHANGE, LEAVE, LIFELINE, REPAIRED, NUMBERS = range(1, 12)
JOIN, REVOKED, BOUNDARY, ENTER = range(4)
NEW, PLACE = 2, 4


class Rank:
    def __init__(self):
        self.sock = socket.socket(fileno=os.dup(int(os.environ["HVD_AGENT_FD"])))
        self.sock.setblocking(True)
        self.data, self.epoch, self.world, self.applied, self.change = b"", 0, [], 0, 0
        self.waiting, self.lost_at, self.begun_anew = True, 0, False
        self.placed = False     # it got its provisional numbers (NUMBERS) and has not sent ENTER yet

    def send(self, kind, body):
        self.sock.sendall(struct.pack("<IHH", len(body), kind, 0) + body)

    def hello(self, why):
        self.waiting = True
        self.send(HELLO, struct.pack("<HIBI", 3, os.getpid(), why, self.epoch) + b"card")

    def frames(self, seconds):
        """Frames that arrive within that time."""
        if select.select([self.sock], [], [], seconds)[0]:
            data, control, _, _ = self.sock.recvmsg(65536, socket.CMSG_SPACE(64))
            if not data:
                raise SystemExit("the agent closed the control socket")
            self.data += data
            for _, _, raw in control:
                fds = array.array("i")
                fds.frombytes(raw[: len(raw) - len(raw) % 4])
                for fd in fds:
                    os.close(fd)
        while len(self.data) >= 8:
            n, kind, _ = struct.unpack_from("<IHH", self.data)
            if len(self.data) < 8 + n:
                break
            body, self.data = self.data[8 : 8 + n], self.data[8 + n :]
            yield kind, body

    def on_roster(self, body):
        self.epoch, rank, size = struct.unpack_from("<III", body)
        (self.applied,) = struct.unpack_from("<I", body, 44)
        pos, self.world, text = 56, [], []
        for index in range(size):
            flags, member = struct.unpack_from("<BI", body, pos)
            pos += 5
            place = index
            if flags & PLACE:
                (place,) = struct.unpack_from("<I", body, pos)
                pos += 4
            pos += 4 + struct.unpack_from("<I", body, pos)[0]
            self.world.append(member)
            text.append("%d%s%s" % (member, "@%d" % place if place != index else "", "*" if flags & NEW else ""))
        assert pos == len(body)
        self.waiting = False
        if self.lost_at:
            self.send(REPAIRED, struct.pack("<IQ", self.epoch, time.monotonic_ns() - self.lost_at))
            self.lost_at = 0
        print("epoch %d rank %d of %d: %s (change %d)"
              % (self.epoch, rank, size, " ".join(text), self.applied), flush=True)

    def step(self, what, hold):
        for kind, body in self.frames(0.05):
            if kind == ROSTER:
                self.on_roster(body)
            elif kind == LOST and not self.waiting:
                (member,) = struct.unpack_from("<I", body)
                if member in self.world and what == "out":
                    self.send(BYE, struct.pack("<iQ", -5, 0))
                    time.sleep(3)
                    raise SystemExit(3)
                if member in self.world and what == "again" and not self.begun_anew:
                    self.begun_anew, self.epoch, self.applied = True, 0, 0
                    self.send(BYE, struct.pack("<i", -5))
                    self.hello(JOIN)
                elif member in self.world and what != "deaf":
                    self.lost_at = time.monotonic_ns()
                    self.hello(REVOKED)
            elif kind == CHANGE:
                (self.change,) = struct.unpack_from("<I", body)
            elif kind == NUMBERS:
                place = ", place %d" % struct.unpack_from("<I", body, 28) if len(body) > 28 else ""
                print("numbers: epoch %d, rank %d of %d, local rank %d of %d, cross rank %d of %d%s"
                      % (*struct.unpack_from("<7I", body), place), flush=True)
                self.placed = True
            elif kind == LEAVE:
                print("asked to leave: %s" % body.decode(), flush=True)
                raise SystemExit(0)
        if self.placed and not os.path.exists(hold):
            self.placed = False
            self.hello(ENTER)
        if not self.waiting and self.change > self.applied:
            self.hello(BOUNDARY)


def main():
    end, what = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    assert os.environ["HVD_ELASTIC"] == "1" and int(os.environ["HVD_RANK"]) < int(os.environ["HVD_SIZE"])
    rank, began, batches = Rank(), time.monotonic(), 0
    rank.hello(JOIN)
    limit = float(os.environ.get("CTL_SECONDS", "60"))
    while time.monotonic() - began < limit and (rank.waiting or not os.path.exists(end)):
        rank.step(what, end + ".hold")
        batches += not rank.waiting
        rank.send(PROGRESS, struct.pack("<QQB", batches, batches * 1000, 1) + b"allreduce")
    if os.path.exists(end):
        rank.send(BYE, struct.pack("<iQ", 0, 0))
        print("done", flush=True)
        return
    raise SystemExit("not told to end within %g s" % limit)


main()
