# SPDX-License-Identifier: Apache-2.0
"""A relay of bytes before the API server: TLS and HTTP/2 stay whole from end to end. freeze() makes of all connections
there are half-open ones: what is sent is still acknowledged, goes nowhere, and nothing comes back; new connections work.
A thread of its own."""
import asyncio
import contextlib
import threading
from urllib.parse import urlsplit

STARTING = 30


class Pipe:
    def __init__(self):
        self.frozen, self.tasks = False, []


class Relay:
    def __init__(self, server):
        parts = urlsplit(server)
        self.server, self.port = (parts.hostname, parts.port), None
        self.pipes, self.accepted = [], 0
        self.loop, self.stopping = asyncio.new_event_loop(), None
        self.listening = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    @property
    def address(self):
        return f"https://127.0.0.1:{self.port}"

    def freeze(self):
        """How many."""
        frozen = [pipe for pipe in self.pipes if not pipe.frozen]
        for pipe in frozen:
            pipe.frozen = True
        return len(frozen)

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

    async def serve(self):
        self.stopping = asyncio.Event()
        server = await asyncio.start_server(self.connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.listening.set()
        await self.stopping.wait()
        server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def run(self):
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self.serve())
        self.loop.close()

    def __enter__(self):
        self.thread.start()
        if not self.listening.wait(STARTING):
            raise TimeoutError("the relay does not listen")
        return self

    def __exit__(self, *_):
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.stopping.set)
        self.thread.join(STARTING)
