# SPDX-License-Identifier: Apache-2.0
"""A proxy in front of the API server that injects the faults of networks, load balancers and servers.

    with Proxy(cluster, Storm(seed=1)) as proxy:
        Operator(cluster, kubeconfig=proxy.kubeconfig)
        proxy.met["torn_line"]

It uses TLS with a certificate of the cluster's CA, and HTTP/1.1. It passes tokens on, so the API server knows the client.
`plan` (faults.py) chooses the fault of each request and may be changed at any time. It runs in its own thread; other
threads read its counters."""
import asyncio
import collections
import json
import os
import random
import socket
import ssl
import struct
import time
from urllib.parse import urlsplit

import operators
import pki
from faults import REFUSALS, Asked, Watch
from serving import Serving

HEAD_MAX = 65536
SLOW_S = 1.5


Met = collections.namedtuple("Met", "fault asked at")


class Cut(Exception):
    """Closes the connection without a response."""


class Head:
    """The first line of a request or response, and its headers."""

    def __init__(self, text):
        lines = text.decode("latin-1").split("\r\n")
        self.words = lines[0].split(" ", 2)
        self.headers = {name.strip().lower(): value.strip() for name, _, value in
                        (line.partition(":") for line in lines[1:] if line)}

    def length(self):
        return int(self.headers.get("content-length", "0"))


async def read_head(reader):
    return Head(await reader.readuntil(b"\r\n\r\n"))


async def chunks(reader):
    """The chunks of a body with chunked encoding."""
    while True:
        size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        data = await reader.readexactly(size)
        await reader.readexactly(2)
        if size == 0:
            return
        yield data


async def read_body(head, reader):
    if head.headers.get("transfer-encoding") != "chunked":
        return await reader.readexactly(head.length())
    return b"".join([data async for data in chunks(reader)])


async def lines(reader):
    rest = b""
    async for data in chunks(reader):
        rest += data
        *whole, rest = rest.split(b"\n")
        for line in whole:
            yield line + b"\n"


class Connection:
    """A connection of the operator and the connection to the API server that belongs to it."""

    def __init__(self, proxy, reader, writer):
        self.proxy, self.reader, self.writer = proxy, reader, writer
        self.up_reader = self.up_writer = None

    async def run(self):
        try:
            while True:
                await self.serve(await read_head(self.reader))
        except (Cut, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass
        finally:
            self.cut(self.writer)
            self.hang_up()

    @staticmethod
    def cut(writer):
        """Closes the connection with a TCP reset."""
        plain = writer.get_extra_info("socket")
        if plain and plain.fileno() >= 0:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    def hang_up(self):
        if self.up_writer:
            self.up_writer.transport.abort()
        self.up_reader = self.up_writer = None

    async def serve(self, head):
        asked = Asked(head.words[0], head.words[1])
        body = await self.reader.readexactly(head.length())
        fault = self.proxy.choose(asked)
        if fault == "reset":
            raise Cut
        if fault in REFUSALS:
            await self.refuse(asked, fault)
            return
        if fault == "slow":
            await asyncio.sleep(SLOW_S)
        answer = await self.pass_on(head, body)
        status = int(answer.words[1])
        self.proxy.passed(asked, status)
        if asked.watch and status == 200:
            await self.stream(asked, fault)
            return
        text = await read_body(answer, self.up_reader)
        if fault == "lost":
            raise Cut
        kept = {name: answer.headers[name] for name in ("content-type", "content-encoding", "retry-after")
                if name in answer.headers}
        await self.answer(status, kept, text)

    async def pass_on(self, head, body):
        """Retries over a new connection if the API server has closed the kept-alive one."""
        for kept in (True, False):
            if not self.up_writer:
                kept = False
                self.up_reader, self.up_writer = await asyncio.open_connection(
                    *self.proxy.server, ssl=self.proxy.trust, limit=HEAD_MAX)
            self.write_request(head, body)
            try:
                return await read_head(self.up_reader)
            except (OSError, asyncio.IncompleteReadError) as error:
                self.hang_up()
                if not kept or getattr(error, "partial", b""):
                    raise
        raise Cut

    def write_request(self, head, body):
        wanted = ("authorization", "accept", "accept-encoding", "content-type")
        lines_out = [" ".join(head.words), f"Host: {self.proxy.server[0]}", f"Content-Length: {len(body)}",
                     *(f"{name}: {head.headers[name]}" for name in wanted if name in head.headers)]
        self.up_writer.write("\r\n".join(lines_out).encode() + b"\r\n\r\n" + body)

    async def answer(self, status, headers, text):
        lines_out = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(text)}",
                     *(f"{name}: {value}" for name, value in headers.items())]
        self.writer.write("\r\n".join(lines_out).encode() + b"\r\n\r\n" + text)
        await self.writer.drain()

    async def refuse(self, asked, fault):
        status, reason, headers = REFUSALS[fault]
        text = json.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "reason": reason,
                           "message": f"{asked}: {reason}, says the proxy"}).encode()
        await self.answer(status, {"Content-Type": "application/json", **headers}, text)

    # ---- a watch

    async def send(self, data):
        self.writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await self.writer.drain()

    async def stream(self, asked, fault):
        """Forwards the watch until it ends or the operator closes the connection, on which it sends nothing meanwhile."""
        self.writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        gone = asyncio.ensure_future(self.reader.read(1))
        flow = asyncio.ensure_future(self.flow(asked, Watch(fault, self.proxy.dice(asked))))
        try:
            await asyncio.wait({gone, flow}, return_when=asyncio.FIRST_COMPLETED)
            if not flow.done() or not flow.result():
                raise Cut
            self.hang_up()
            self.writer.write(b"0\r\n\r\n")
            await self.writer.drain()
            await gone    # a connection that had a watch has no second request: simpler than to give the byte back
            raise Cut
        finally:
            gone.cancel()
            flow.cancel()
            await asyncio.gather(gone, flow, return_exceptions=True)

    async def flow(self, asked, watch):
        """Sends the watch's lines to the operator, with the fault. Returns False if the connection must be cut."""
        async for line in lines(self.up_reader):
            met = watch.struck
            for piece in watch.feed(line):
                await self.send(piece)
            if watch.struck and not met:
                self.proxy.struck(asked, watch.fault)
            if watch.end == "silent":
                await asyncio.sleep(3600)
            if watch.end:
                return watch.end == "over"
        return True


class Proxy(Serving):
    """met: {fault: count}; requests: {(method, resource): count of requests to the API server}; last: {the same: time of
    the last one}."""

    def __init__(self, cluster, plan=None):
        super().__init__()
        self.cluster, self.plan = cluster, plan
        self.met, self.requests, self.numbers = (collections.Counter() for _ in range(3))
        self.last = {}
        self.what = []                 # of Met, in order
        self.seed = getattr(plan, "seed", 0)
        parts = urlsplit(cluster.ready["server"])
        self.server = parts.hostname, parts.port
        self.trust = ssl.create_default_context(cafile=cluster.ca)
        self.kubeconfig = None

    # ---- called by connections, on its thread

    def choose(self, asked):
        number = self.numbers[asked.key()]
        self.numbers[asked.key()] += 1
        fault = self.plan.choose(asked, number) if self.plan else None
        if fault and not (asked.watch and hasattr(Watch, fault)):    # faults of a watch count when they happen
            self.struck(asked, fault)
        return fault

    def dice(self, asked):
        return random.Random(f"{self.seed} {asked.key()} {self.numbers[asked.key()]} lines")

    def struck(self, asked, fault):
        self.met[fault] += 1
        self.what.append(Met(fault, str(asked), time.monotonic()))

    def passed(self, asked, _status):
        self.requests[asked.method, asked.resource] += 1
        self.last[asked.method, asked.resource] = time.monotonic()

    # ---- life

    def start(self):
        keys = pki.Keys(os.path.join(self.cluster.folder, "keys"))
        keys.make_certificate("proxy", "proxy", ["127.0.0.1"])
        super().start()
        self.kubeconfig = operators.kubeconfig_of(self.cluster, self.cluster.path(f"proxy-{self.port}.kubeconfig"),
                                                  server=f"https://127.0.0.1:{self.port}")
        return self

    async def listen(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cluster.path("keys", "proxy.crt"), self.cluster.path("keys", "proxy.key"))
        return await asyncio.start_server(lambda r, w: Connection(self, r, w).run(), "127.0.0.1", 0, ssl=context,
                                          limit=HEAD_MAX)
