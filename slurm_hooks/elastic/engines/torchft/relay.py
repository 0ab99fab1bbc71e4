"""The address that training processes know as their lighthouse: a port of this node's own loopback,
which passes every connection on to the present lighthouse.

torchft reads the address once. A lighthouse that moves therefore needs a fixed address before it.
The relay passes bytes only.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from slurm_hooks.elastic.log import debug, suppressed

CONNECT_S = 2.0
RETRY_S = 0.1
_CHUNK = 1 << 16
_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True)
class Target:
    """The place of a lighthouse. `term` tells it from the next lighthouse on the same port."""

    term: int
    host: str
    port: int


class Relay:
    """Runs in its own thread until stopped. It calls `on_refused` there with the term of a
    lighthouse that refuses connections.
    """

    def __init__(self, on_refused: Callable[[int], None]) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._socket.getsockname()[1])
        self._on_refused = on_refused
        self._target: Target | None = None
        self._is_silent = False
        self._pumps: set[asyncio.Future[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._end: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="malleable-relay", daemon=True)
        self._thread.start()

    def point_at(self, target: Target | None, abruptly: bool = False) -> None:
        """Pass new connections to `target` from now on. Without a target they wait. In any thread.

        Open connections end with their lighthouse, or now if `abruptly`. Use that only for a
        lighthouse that no longer answers: an answer under way may name other groups that act on it.
        """
        if target != self._target and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._switch, target, abruptly)

    def silence(self) -> None:
        """Stop forwarding the requests of this group, so that the lighthouse drops it after a beat.
        Answers to earlier requests still reach it. In any thread.
        """
        self._is_silent = True

    def stop(self) -> None:
        """End all connections and the thread. Soon after the start it still waits for the start."""
        if self._thread.is_alive():
            with suppressed(RuntimeError, doing="stopping a relay that ends"):
                self._loop.call_soon_threadsafe(self._finish)
            self._thread.join(3.0)

    def _finish(self) -> None:
        if not self._end.done():
            self._end.set_result(None)

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(self._serve_until_stopped())
        finally:
            rest = asyncio.all_tasks(loop)
            for task in rest:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
            loop.run_until_complete(asyncio.sleep(0))  # sockets are closed in the turn after that
            loop.close()

    async def _serve_until_stopped(self) -> None:
        server = await asyncio.start_server(self._serve, sock=self._socket)
        try:
            await self._end
        finally:
            server.close()

    def _switch(self, target: Target | None, abruptly: bool) -> None:
        self._target = target
        for pump in self._pumps if abruptly else ():
            pump.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._pass_on(reader, writer)
        except (OSError, asyncio.CancelledError) as error:
            # the caller tries again, and reaches the lighthouse of that moment
            debug("passing a connection on to the lighthouse", error)
        finally:
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target, (far_reader, far_writer) = await self._connect(writer)
        pumps = {
            asyncio.ensure_future(self._pump(reader, far_writer, is_question=True)),
            asyncio.ensure_future(self._pump(far_reader, writer)),
        }
        self._pumps |= pumps
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._pumps -= pumps
            for pump in pumps:
                pump.cancel()
            far_writer.transport.abort()
        if target is self._target and (again := await self._reach(target)):
            again[1].transport.abort()  # it still listens; if not, the term is lost at once

    async def _connect(self, caller: asyncio.StreamWriter) -> tuple[Target, _Stream]:
        while True:
            target = None if self._is_silent else self._target
            there = await self._reach(target) if target else None
            if target is not None and there is not None and target is self._target:
                return target, there
            if there is not None:
                there[1].transport.abort()  # it has moved
            if caller.is_closing():
                raise ConnectionResetError
            await asyncio.sleep(RETRY_S)

    async def _reach(self, target: Target) -> _Stream | None:
        try:
            attempt = asyncio.open_connection(target.host, target.port)
            return await asyncio.wait_for(attempt, CONNECT_S)
        except ConnectionRefusedError:
            self._on_refused(target.term)
        except (OSError, asyncio.TimeoutError) as error:
            # no answer: other checks find the dead
            debug(f"connecting to the lighthouse at {target.host} port {target.port}", error)
        return None

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, is_question: bool = False
    ) -> None:
        with suppressed(OSError, doing="passing on to or from the lighthouse"):
            while data := await source.read(_CHUNK):
                if not (is_question and self._is_silent):
                    sink.write(data)
                    await sink.drain()
