"""Sessions: a signed cookie says who logged in and when; the token of forms is bound to it. Nothing is stored."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from mainspring.locks import free_in_children

__all__ = ["LoginLimit", "Session", "SessionKey"]

SESSION_SECONDS: Final = 12 * 3600
"""A session ends after this time."""
TRIES: Final = 5
"""Failed logins from one address, or to one account, before it has to wait."""
WAIT_SECONDS: Final = 60.0
MOST_REMEMBERED: Final = 10_000


class Session(NamedTuple):
    """The id of a browser, the account that logged in with it (empty if none), and when."""

    id: str
    name: str
    since: int


class SessionKey:
    """Signs sessions and the tokens of forms. With the app's own key, all processes of a server agree."""

    def __init__(self, key: bytes | None = None, clock: Callable[[], float] = time.time) -> None:
        self._key, self._clock = key or secrets.token_bytes(32), clock

    def begin(self, name: str = "") -> Session:
        """Return a new session; a login always begins a new one."""
        return Session(secrets.token_urlsafe(18), name, int(self._clock()))

    def write(self, session: Session) -> str:
        """Return a session as the value of a cookie."""
        text = f"{session.id}.{session.since}.{session.name.encode().hex()}"
        return f"{text}.{self._sign('session', text)}"

    def read(self, cookie: str) -> Session | None:
        """Return the session of a cookie, or None if it is none of ours, or over."""
        text, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(self._sign("session", text).encode(), signature.encode("utf-8", "replace")):
            return None
        session_id, since, name = text.split(".")
        if self._clock() - int(since) > SESSION_SECONDS:
            return None
        return Session(session_id, bytes.fromhex(name).decode(), int(since))

    def token(self, session: Session) -> str:
        """Return the token that forms of a session carry."""
        return self._sign("form", f"{session.id}.{session.name}")

    def is_token(self, session: Session, token: str) -> bool:
        """Return True if a form of this session carries this token."""
        return hmac.compare_digest(self.token(session).encode(), token.encode("utf-8", "replace"))

    def sign(self, text: str) -> str:
        """Return a short text, signed, for a cookie that lasts for one page."""
        return f"{text.encode().hex()}.{self._sign('flash', text)}"

    def unsign(self, cookie: str) -> str | None:
        """Return the text of such a cookie."""
        coded, _, signature = cookie.partition(".")
        try:
            text = bytes.fromhex(coded).decode()
        except ValueError:
            return None
        good = hmac.compare_digest(self._sign("flash", text).encode(), signature.encode("utf-8", "replace"))
        return text if good else None

    def _sign(self, purpose: str, text: str) -> str:
        found = hmac.digest(
            self._key, f"mainspring.dashboard.{purpose}\0{text}".encode("utf-8", "replace"), hashlib.sha256
        )
        return found.hex()


class LoginLimit:
    """Counts failed logins by address and by account; after some, one has to wait."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed: dict[str, list[float]] = {}
        self._lock = free_in_children(threading.Lock())

    def wait(self, *whose: str) -> float:
        """Return how many seconds these have to wait before the next try."""
        now = self._clock()
        with self._lock:
            return max((self._wait(each, now) for each in whose), default=0.0)

    def _wait(self, whose: str, now: float) -> float:
        recent = [at for at in self._failed.get(whose, []) if now - at < WAIT_SECONDS]
        return 0.0 if len(recent) < TRIES else WAIT_SECONDS - (now - recent[-TRIES])

    def fail(self, *whose: str) -> None:
        """Count a failed login."""
        now = self._clock()
        with self._lock:
            for each in whose:
                self._failed[each] = [*self._failed.get(each, [])[1 - TRIES :], now]
            if len(self._failed) > MOST_REMEMBERED:
                self._failed = {each: at for each, at in self._failed.items() if now - at[-1] < WAIT_SECONDS}

    def succeed(self, *whose: str) -> None:
        """Forget the failed logins of these."""
        with self._lock:
            for each in whose:
                self._failed.pop(each, None)
