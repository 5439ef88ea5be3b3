"""Serve a dashboard on a safe address and a free port, in the foreground or beside other work."""

from __future__ import annotations

import errno
import logging
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from mainspring.dashboard.asgi import DashboardApp
from mainspring.dashboard.web.guard import is_loopback
from mainspring.errors import ConfigurationError

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["DEFAULT_PORT", "DashboardServer", "bind"]

DEFAULT_PORT: Final = 8300
TRIES: Final = 20
"""The number of ports to try if one is busy."""
GRACE_SECONDS: Final = 2
STOP_SECONDS: Final = 30
"""The caller may close the app after the stop, so wait this long: on a busy machine, the last pages take time."""


def bind(host: str, port: int, *, exact: bool = False) -> socket.socket:
    """Return a socket that listens on a port, or on the next free one unless `exact`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in range(port, port + (1 if exact or port == 0 else TRIES)):
        found = socket.socket(family)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, number))
            found.listen(128)
        except OSError as error:
            found.close()
            if error.errno == errno.EADDRINUSE:
                continue
            raise ConfigurationError(f"the dashboard cannot listen on {host}:{number}: {error.strerror}") from error
        return found
    raise ConfigurationError(f"port {port} is busy; choose another with --port, or let it choose with --port 0")


class _Server(uvicorn.Server):
    """A server that ends the streams of updates when it stops: they would never end by themselves."""

    def __init__(self, config: uvicorn.Config, ends: Callable[[], None]) -> None:
        super().__init__(config)
        self._ends = ends

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Unlike uvicorn, do not send the signal again at the end: a requested stop is not a failure.
        self._ends()
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ends()
        await super().shutdown(sockets)


class DashboardServer:
    """A dashboard and its socket: `run` serves until a signal; `start` and `stop` serve beside other work."""

    def __init__(
        self, dashboard: DashboardApp, *, host: str = "127.0.0.1", port: int = DEFAULT_PORT, exact: bool = False
    ) -> None:
        if not is_loopback(host) and dashboard.is_open:
            raise ConfigurationError(
                f"others can reach {host}, and the dashboard has no accounts; give it a file of them with --users, or "
                "leave it on 127.0.0.1"
            )
        self._socket = bind(host, port, exact=exact)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        config = uvicorn.Config(
            dashboard,
            log_config=None,
            log_level=logging.WARNING,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        self._server = _Server(config, dashboard.close)
        self._thread: threading.Thread | None = None
        self._warming = threading.Thread(target=dashboard.warm_up, name="mainspring-dashboard-warm-up", daemon=True)

    @property
    def url(self) -> str:
        """The address for a browser."""
        shown = "localhost" if is_loopback(self.host) else f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{shown}:{self.port}/"

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM."""
        self._serve()

    def start(self) -> None:
        """Serve in a thread of this process."""
        self._thread = threading.Thread(target=self._serve, name="mainspring-dashboard", daemon=True)
        self._thread.start()

    def _serve(self, **_: Any) -> None:
        self._warming.start()
        self._server.run(sockets=[self._socket])
        self._warming.join(GRACE_SECONDS)

    def stop(self) -> None:
        """Stop the server, and end its thread."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)
            self._warming.join(STOP_SECONDS)
        self._socket.close()
