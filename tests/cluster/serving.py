# SPDX-License-Identifier: Apache-2.0
"""A server on loopback with its own thread and event loop: the base of proxy.py and relay.py."""
import asyncio
import threading

STARTING = 30  # s


class Serving:
    def __init__(self):
        self.loop, self.stopping, self.port = asyncio.new_event_loop(), None, None
        self.listening = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    async def listen(self):
        """The asyncio server, on a port that the kernel chooses."""
        raise NotImplementedError

    async def serve(self):
        self.stopping = asyncio.Event()
        server = await self.listen()
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

    def start(self):
        self.thread.start()
        if not self.listening.wait(STARTING):
            raise TimeoutError(f"the {type(self).__name__.lower()} does not listen")
        return self

    def stop(self):
        if self.thread.is_alive():
            self.loop.call_soon_threadsafe(self.stopping.set)
            self.thread.join(STARTING)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()
