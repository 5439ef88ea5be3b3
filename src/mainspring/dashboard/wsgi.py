"""The dashboard inside a WSGI app: our own event loop answers each request.

A WSGI server gives each request a thread, so a stream of updates would hold one as long as a page is open. Pages poll
for updates every few seconds instead.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from mainspring.dashboard.asgi import DashboardApp
from mainspring.locks import free_in_children

__all__ = ["DashboardWSGI"]

MOST_BODY_BYTES: Final = 1_000_000
_STREAM: Final = "/live"

StartResponse = Callable[[str, list[tuple[str, str]]], Any]


class DashboardWSGI:
    """A WSGI app around a `DashboardApp`; mount it below a path, with `DispatcherMiddleware` for example."""

    def __init__(self, dashboard: DashboardApp) -> None:
        self._dashboard = dashboard
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = free_in_children(threading.Lock())

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        path = environ.get("PATH_INFO", "") or "/"
        if path == _STREAM:
            start_response("503 Service Unavailable", [("content-type", "text/plain; charset=utf-8")])
            return [b"This server sends no streams; ask for updates instead.\n"]
        length = min(int(environ.get("CONTENT_LENGTH") or 0), MOST_BODY_BYTES + 1)
        body = environ["wsgi.input"].read(length) if length else b""
        answer = asyncio.run_coroutine_threadsafe(self._answer(_scope(environ, path), body), self._running())
        status, headers, content = answer.result()
        start_response(f"{status} {HTTPStatus(status).phrase}", headers)
        return [content]

    def _running(self) -> asyncio.AbstractEventLoop:
        """Return the loop; start it at the first request, which comes after the server has forked."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="mainspring-dashboard", daemon=True).start()
            return self._loop

    async def _answer(self, scope: dict[str, Any], body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        sent = [{"type": "http.request", "body": body, "more_body": False}]
        got: list[Any] = []

        async def receive() -> Any:
            return sent.pop() if sent else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            got.append(message)

        await self._dashboard(scope, receive, send)
        begun = next(message for message in got if message["type"] == "http.response.start")
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in begun["headers"]]
        content = b"".join(message.get("body", b"") for message in got if message["type"] == "http.response.body")
        return begun["status"], headers, content


def _scope(environ: dict[str, Any], path: str) -> dict[str, Any]:
    """Return an ASGI scope for a WSGI request; `path` is relative to our mount point."""
    root = environ.get("SCRIPT_NAME", "").rstrip("/")
    # WSGI passes text as latin-1 bytes.
    whole = (root + path).encode("latin-1").decode("utf-8", "replace")
    headers = [
        (name[5:].replace("_", "-").lower().encode(), str(value).encode("latin-1"))
        for name, value in environ.items()
        if name.startswith("HTTP_")
    ]
    for name in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        if environ.get(name):
            headers.append((name.replace("_", "-").lower().encode(), str(environ[name]).encode("latin-1")))
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": environ["REQUEST_METHOD"],
        "scheme": environ.get("wsgi.url_scheme", "http"),
        "path": whole,
        "raw_path": quote(whole).encode(),
        "query_string": environ.get("QUERY_STRING", "").encode("latin-1"),
        "root_path": root,
        "headers": headers,
        "client": (environ.get("REMOTE_ADDR", ""), 0),
        "server": (environ.get("SERVER_NAME", ""), int(environ.get("SERVER_PORT") or 0)),
    }
