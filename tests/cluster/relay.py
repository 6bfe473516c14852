# SPDX-License-Identifier: Apache-2.0
"""A TCP relay in front of the API server: TLS and HTTP/2 run end to end. freeze() makes all existing connections half-open:
bytes are acknowledged but not forwarded, and nothing comes back. New connections work. Runs in its own thread."""
import asyncio
from urllib.parse import urlsplit

from serving import Serving


class Pipe:
    def __init__(self):
        self.frozen, self.tasks = False, []


class Relay(Serving):
    def __init__(self, server):
        super().__init__()
        parts = urlsplit(server)
        self.server = parts.hostname, parts.port
        self.pipes, self.accepted = [], 0

    @property
    def address(self):
        return f"https://127.0.0.1:{self.port}"

    def work(self):
        """The connections that still forward."""
        return [pipe for pipe in self.pipes if not pipe.frozen]

    def freeze(self):
        for pipe in self.work():
            pipe.frozen = True

    async def copy(self, pipe, reader, writer):
        while data := await reader.read(65536):
            if not pipe.frozen:
                writer.write(data)
                await writer.drain()

    async def connected(self, reader, writer):
        pipe = Pipe()
        self.pipes.append(pipe)
        self.accepted += 1
        up_writer = None
        try:
            up_reader, up_writer = await asyncio.open_connection(*self.server)
            pipe.tasks = [asyncio.ensure_future(self.copy(pipe, reader, up_writer)),
                          asyncio.ensure_future(self.copy(pipe, up_reader, writer))]
            await asyncio.wait(pipe.tasks, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass
        finally:
            for task in pipe.tasks:
                task.cancel()
            await asyncio.gather(*pipe.tasks, return_exceptions=True)
            self.pipes.remove(pipe)
            for end in (writer, up_writer):
                if end:
                    end.transport.abort()

    async def listen(self):
        return await asyncio.start_server(self.connected, "127.0.0.1", 0)
