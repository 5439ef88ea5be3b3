"""A client of an ASGI app in the same process: no socket, no browser, one call a request."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from html import unescape
from typing import Any, NamedTuple
from urllib.parse import unquote, urlencode, urlsplit

__all__ = ["Answer", "Client"]

_CSRF = re.compile(r'name="csrf" value="([^"]+)"')


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    @property
    def json(self) -> Any:
        """The body as data."""
        return json.loads(self.body)

    @property
    def words(self) -> str:
        """What a person reads: the text without markup, on one line."""
        plain = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", self.text, flags=re.DOTALL)
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", plain)).split())


class Client:
    """Asks an ASGI app, and keeps its cookies."""

    def __init__(self, app: Any, host: str = "localhost") -> None:
        self._app, self._host = app, host
        self.cookies: dict[str, str] = {}

    def get(self, url: str, **headers: str) -> Answer:
        """Ask for a page."""
        return self._ask("GET", url, b"", headers)

    def post(self, url: str, form: Mapping[str, str] | None = None, *, csrf: bool = True, **headers: str) -> Answer:
        """Send a form, with the token of this client."""
        fields = dict(form or {})
        if csrf:
            fields["csrf"] = self.token()
        return self._ask(
            "POST", url, urlencode(fields).encode(), {"content-type": "application/x-www-form-urlencoded", **headers}
        )

    def send(self, method: str, url: str, body: bytes, **headers: str) -> Answer:
        """Send anything."""
        return self._ask(method, url, body, headers)

    def token(self) -> str:
        """Return the token of this client's forms."""
        found = _CSRF.search(self.get("/system/mark").text)
        assert found is not None
        return found[1]

    def _ask(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        return asyncio.run(self._answer(method, url, body, headers))

    async def _answer(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        parts = urlsplit(url)
        sent = {"host": self._host, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if self.cookies:
            sent["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(parts.path),
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
            "client": ("127.0.0.1", 50000),
            "server": ("localhost", 80),
        }
        messages = [{"type": "http.request", "body": body, "more_body": False}]
        got: list[Any] = []

        async def receive() -> Any:
            if not messages:
                await asyncio.Event().wait()  # this client never hangs up
            return messages.pop()

        async def send(message: Any) -> None:
            got.append(message)

        await self._app(scope, receive, send)
        begun = next(message for message in got if message["type"] == "http.response.start")
        content = b"".join(message.get("body", b"") for message in got if message["type"] == "http.response.body")
        found: dict[str, str] = {}
        for name, value in begun["headers"]:
            if name == b"set-cookie":
                key, _, rest = value.decode().partition("=")
                self.cookies[key] = rest.partition(";")[0]
            found[name.decode().lower()] = value.decode()
        return Answer(begun["status"], found, content)
