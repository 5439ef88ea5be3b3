"""A network that fails: a proxy before a server, which drops connections, swallows replies, or everything."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Final, Literal

from tests.servers import HOST

Mode = Literal["open", "refuse", "mute", "hole"]
CUTS: Final[tuple[Mode, ...]] = ("refuse", "mute", "hole")
"""Connections are dropped and refused; requests arrive and their replies do not; nothing arrives."""


class Proxy:
    """Carries the connections of one program to a server, as long as its mode is open."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._mode: Mode = "open"
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._carry, HOST))
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()

    def cut(self, mode: Mode) -> None:
        """Fail in some way, from now on."""
        self._set(mode, drop=mode == "refuse")

    def mend(self) -> None:
        """Carry new connections; those that have missed something are dropped."""
        self._set("open", drop=True)

    def close(self) -> None:
        """Drop everything and stop."""
        self._set("refuse", drop=True)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.01))
        self._loop.close()

    def _set(self, mode: Mode, drop: bool) -> None:
        done = threading.Event()

        def act() -> None:
            self._mode = mode
            if drop:
                for writer in self._open:
                    writer.transport.abort()
            done.set()

        self._loop.call_soon_threadsafe(act)
        done.wait()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._mode == "refuse":
            writer.transport.abort()
            return
        self._open.add(writer)
        try:
            upstream, out = await asyncio.open_connection(HOST, self._server_port)
        except OSError:
            self._open.discard(writer)
            writer.transport.abort()
            return
        self._open.add(out)
        try:
            await asyncio.gather(self._pump(reader, out, ("open", "mute")), self._pump(upstream, writer, ("open",)))
        finally:
            for each in (writer, out):
                self._open.discard(each)
                each.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, modes: tuple[Mode, ...]) -> None:
        """Carry one direction in some modes and swallow in the others, until either side ends."""
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                if self._mode in modes:
                    sink.write(data)
                    await sink.drain()
        with contextlib.suppress(OSError, RuntimeError):
            sink.write_eof()
