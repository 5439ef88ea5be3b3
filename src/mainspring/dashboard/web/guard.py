"""The checks of every request, and the headers of every answer.

A request must name one of our hosts, since a stranger's host name that points here would pass the browsers' same-origin
rule. Requests other than GET must come from our pages, according to `Sec-Fetch-Site` or `Origin`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["LOOPBACK_HOSTS", "Guard", "is_loopback"]

LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
POLICY: Final = (
    "default-src 'self'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
)
_HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not `no-referrer`: with that, browsers send `Origin: null` with our forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]{2,45})\]|([a-z0-9._-]{1,253}))(?::[0-9]{1,5})?")
_READING: Final = ("GET", "HEAD")
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-real-ip")


def is_loopback(address: str) -> bool:
    """Return True if an address belongs to this machine, and no other machine can reach it."""
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return address == "localhost"


def _name_of(host: str) -> str:
    """Return the name in a Host header, without its port."""
    found = _HOST.fullmatch(host)
    return "" if found is None else found[1] or found[2]


class Guard:
    """An ASGI app wrapped in the checks. Without accounts, only this machine may send requests."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str], *, only_loopback: bool) -> None:
        self._app, self._hosts = app, {host.lower() for host in hosts}
        self._only_loopback = only_loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request and pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        target = self._app if refusal is None else refusal
        await target(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if _name_of(host) not in self._hosts and "*" not in self._hosts:
            return PlainTextResponse(
                f"This dashboard does not answer for the host {host[:100]!r}. Name it with --host-name or hosts=.\n",
                421,
            )
        if self._only_loopback and not self._is_here(scope, headers):
            return PlainTextResponse(
                "This dashboard has no accounts, so it answers only to this machine. Give it accounts.\n", 403
            )
        if scope["method"] not in _READING and not _is_own(headers, host):
            return PlainTextResponse("This request comes from another site.\n", 403)
        return None

    def _is_here(self, scope: Scope, headers: Headers) -> bool:
        """Return True if the request comes from this machine, and not through a proxy."""
        client = scope.get("client")
        return client is not None and is_loopback(client[0]) and not any(name in headers for name in _FORWARDED)


def _is_own(headers: Headers, host: str) -> bool:
    """Return True if a request comes from our pages, or from no page at all, as a script's does."""
    site = headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc.lower() == host
