"""Send alerts by HTTP: a JSON body, signed if there is a secret, within a time-out."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from mainspring.core.insight.alerts import Alert
from mainspring.core.quantities import check_seconds
from mainspring.errors import AlertRefused

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

__all__ = ["SIGNATURE_HEADER", "Webhook", "ping_url", "sign", "verify"]

SIGNATURE_HEADER: Final = "X-Mainspring-Signature"
ANSWER_BYTES: Final = 2000
TIMEOUT_SECONDS: Final = 10.0
TOLERANCE_SECONDS: Final = 300.0
"""Accept signatures up to this old in `verify`."""


@cache
def _opener() -> OpenerDirector:
    """Return the object that opens URLs. Import it late: that takes 40 ms, and most programs send nothing."""
    from urllib.request import HTTPRedirectHandler, build_opener

    class NoRedirects(HTTPRedirectHandler):
        """Treats a redirect as a failure, because a redirected request loses its body."""

        def redirect_request(self, req: Any, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str) -> None:
            return None

    return build_opener(NoRedirects)


class Webhook:
    """Sends alerts to a URL as JSON, by POST. Any answer but 2xx is a failure, and the alert is sent again later.

    With a `secret`, the request carries `X-Mainspring-Signature: t=<time>,v1=<HMAC-SHA256 of "<time>.<body>">`. `body`
    turns an alert into another JSON document, for a chat service for example. The URL may be a private or local one.
    """

    def __init__(
        self,
        url: str,
        *,
        secret: str | bytes | None = None,
        timeout: float = TIMEOUT_SECONDS,
        headers: Mapping[str, str] | None = None,
        body: Callable[[Alert], Any] | None = None,
    ) -> None:
        self.url, self.host = check_url(url)
        self._secret = secret.encode() if isinstance(secret, str) else secret
        self._timeout = check_seconds("timeout of a webhook", timeout, least=0.1, most=60.0)
        self._headers, self._body = dict(headers or {}), body

    def __call__(self, alert: Alert) -> int:
        """Send an alert; return the status of the answer, or raise AlertRefused or OSError."""
        document = alert.to_dict() if self._body is None else self._body(alert)
        content = json.dumps(document).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": alert.id, **self._headers}
        if self._secret is not None:
            headers[SIGNATURE_HEADER] = sign(self._secret, content, int(time.time()))
        return _request(self.url, self._timeout, content, headers)

    def __repr__(self) -> str:
        return f"<Webhook {self.host}>"  # without the path, which often serves as the password


def check_url(url: str) -> tuple[str, str]:
    """Return a URL and its scheme and host; raise ValueError if it is not an HTTP or HTTPS URL."""
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("a webhook is a URL such as 'https://hooks.example.org/...'")
    return url, f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


def ping_url(url: str) -> int:
    """Call a heartbeat URL, such as one of healthchecks.io, by GET; return the status of the answer."""
    return _request(url, TIMEOUT_SECONDS, None, {})


def _request(url: str, timeout: float, content: bytes | None, headers: Mapping[str, str]) -> int:
    from urllib.error import HTTPError
    from urllib.request import Request

    from mainspring import __version__

    known = {"User-Agent": f"mainspring/{__version__}", **headers}
    request = Request(url, data=content, headers=known)
    try:
        with _opener().open(request, timeout=timeout) as answer:
            answer.read(ANSWER_BYTES)
            return int(answer.status)
    except HTTPError as error:
        with error:
            said = error.read(ANSWER_BYTES).decode("utf-8", "replace")
        raise AlertRefused(check_url(url)[1], error.code, " ".join(said.split())[:200]) from None


def sign(secret: bytes, body: bytes, at: int) -> str:
    """Return the signature of a body, made at a second since 1970."""
    digest = hmac.new(secret, f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def verify(
    secret: str | bytes, body: bytes, signature: str, *, now: float | None = None, tolerance: float = TOLERANCE_SECONDS
) -> bool:
    """Return True if the holder of the secret has signed this body and `signature` is not too old."""
    parts = dict(part.strip().partition("=")[::2] for part in signature.split(","))
    at = parts.get("t", "")
    if not at.isdigit():
        return False
    key = secret.encode() if isinstance(secret, str) else secret
    right = hmac.compare_digest(sign(key, body, int(at)), f"t={at},v1={parts.get('v1', '')}")
    return right and abs((time.time() if now is None else now) - int(at)) <= tolerance
