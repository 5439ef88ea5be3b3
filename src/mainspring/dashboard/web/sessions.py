"""Sessions: a signed cookie holds account and login time; the forms' token is bound to it. Nothing is stored."""

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
"""The lifetime of a session, in seconds."""
TRIES: Final = 5
"""The failed logins from one address, or to one account, before the next must wait."""
WAIT_SECONDS: Final = 60.0
MOST_REMEMBERED: Final = 10_000


class Session(NamedTuple):
    """The id of a browser, its account (empty if none), and the time of the login."""

    id: str
    name: str
    since: int


class SessionKey:
    """A signer of sessions and form tokens. With the app's key, all processes of a server agree."""

    def __init__(self, key: bytes | None = None, clock: Callable[[], float] = time.time) -> None:
        self._key, self._clock = key or secrets.token_bytes(32), clock

    def begin(self, name: str = "") -> Session:
        """Return a new session; every login begins a new one."""
        return Session(secrets.token_urlsafe(18), name, int(self._clock()))

    def write(self, session: Session) -> str:
        """Return a session as the value of a cookie."""
        text = f"{session.id}.{session.since}.{session.name.encode().hex()}"
        return f"{text}.{self._sign('session', text)}"

    def read(self, cookie: str) -> Session | None:
        """Return the session in a cookie, or None if we did not sign it or it has expired."""
        text, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(self._sign("session", text).encode(), signature.encode("utf-8", "replace")):
            return None
        session_id, since, name = text.split(".")
        if self._clock() - int(since) > SESSION_SECONDS:
            return None
        return Session(session_id, bytes.fromhex(name).decode(), int(since))

    def token(self, session: Session) -> str:
        """Return the token for the forms of a session."""
        return self._sign("form", f"{session.id}.{session.name}")

    def is_token(self, session: Session, token: str) -> bool:
        """Return True if this token belongs to this session."""
        return hmac.compare_digest(self.token(session).encode(), token.encode("utf-8", "replace"))

    def sign(self, text: str) -> str:
        """Return a short signed text, for a cookie that lasts for one page."""
        return f"{text.encode().hex()}.{self._sign('flash', text)}"

    def unsign(self, cookie: str) -> str | None:
        """Return the text in such a cookie, or None if we did not sign it."""
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
    """A counter of failed logins by address and account; after several, the next try must wait."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed: dict[str, list[float]] = {}
        self._lock = free_in_children(threading.Lock())

    def wait(self, *whose: str) -> float:
        """Return the seconds that these must wait before the next try."""
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
        """Forget the failed logins of these addresses and accounts."""
        with self._lock:
            for each in whose:
                self._failed.pop(each, None)
