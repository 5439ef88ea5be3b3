"""The audit: who did what, and why. `acting` names the person, the store keeps the acts, `audit` reads them."""

from __future__ import annotations

import getpass
import logging
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta, tzinfo
from functools import cache
from typing import Any, Final, NamedTuple

from mainspring.core.insight.acts import TEXT_CHARS, Act, about, act_id
from mainspring.core.instants import from_us
from mainspring.errors import HistoryNotKept
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.finding import instant_of

__all__ = ["Acting", "AuditEntry", "Marks", "TimeMark"]

_MARKS: Final = ("app", "marks")

log = logging.getLogger("mainspring.app")


class _Actor(NamedTuple):
    """The person and the reason in this context."""

    by: str
    why: str


_actor: ContextVar[_Actor | None] = ContextVar("mainspring_actor", default=None)
_silent: ContextVar[bool] = ContextVar("mainspring_acts_silent", default=False)


class AuditEntry(NamedTuple):
    """One act of a person: when, who, what, to what, why. `record` is the stored record."""

    at: datetime
    by: str
    verb: str
    kind: str
    target: str
    why: str
    details: dict[str, Any]
    record: Act


class Acting:
    """Records what people do to runs, jobs and queues."""

    def __init__(self, store: Callable[[], JobStore], now: Callable[[], int], zone: Callable[[], tzinfo]) -> None:
        self._store, self._now, self._zone = store, now, zone

    @contextmanager
    def acting(self, by: str | None = None, why: str = "") -> Iterator[None]:
        """Act in somebody's name and say why: `with app.acting("ann", "the provider is down"): ...`.

        This holds for the current thread or asyncio task. Without it, acts carry the account and the machine of the
        process.
        """
        outer = _actor.get()
        name = by if by is not None else outer.by if outer is not None else ""
        token = _actor.set(_Actor(name, why or ("" if outer is None else outer.why)))
        try:
            yield
        finally:
            _actor.reset(token)

    @contextmanager
    def silent(self, silent: bool = True) -> Iterator[None]:
        """Record no acts in this context, because the caller records an act on many runs as one."""
        token = _silent.set(silent or _silent.get())
        try:
            yield
        finally:
            _silent.reset(token)

    def actor(self) -> tuple[str, str]:
        """Return who acts in this context, and why."""
        found = _actor.get() or _Actor("", "")
        return _text(found.by) or _account(), _text(found.why)

    def record(self, verb: str, kind: str, target: str, **details: Any) -> None:
        """Record an act that was just done; if the store cannot take it, log that and go on."""
        if _silent.get():
            return
        act = self._act(verb, kind, target, details)
        try:
            self._store().acts([act])
        except Exception as error:
            log.warning("%s of %s %r by %s was done, but is not in the audit: %s", verb, kind, target, act.by, error)

    def order(self, verb: str, kind: str, target: str, **details: Any) -> None:
        """Record an act that nodes follow once they read it; raise if the store cannot take it."""
        store = self._store()
        if not store.keeps_history:
            raise HistoryNotKept(type(store).__name__, "orders are part of it, so no node would read this one")
        store.acts([self._act(verb, kind, target, details)])

    def _act(self, verb: str, kind: str, target: str, details: dict[str, Any]) -> Act:
        (by, why), now = self.actor(), self._now()
        act = act_id(now, secrets.token_hex(6))
        return Act(id=act, at=now, verb=verb, kind=kind, target=target, by=by, why=why, details=details)

    def audit(
        self,
        *,
        since: datetime | timedelta | None = None,
        after: AuditEntry | None = None,
        kind: str | None = None,
        target: str | None = None,
        limit: int = 100,
    ) -> list[AuditEntry]:
        """Return up to `limit` acts of people, newest first: all of them, or those on one run, job or queue.

        `since` is a datetime, or a timedelta back from now. `after` is the last entry of the previous page. The store
        keeps the newest 10,000 acts, for 90 days. Raise HistoryNotKept if it keeps none.
        """
        store = self._store()
        if not store.keeps_history:
            raise HistoryNotKept(type(store).__name__, "nobody knows who did what")
        if (kind is None) != (target is None):
            raise TypeError("give both kind= and target=, as in kind='queue', target='mail', or neither")
        thing = None if kind is None or target is None else about(kind, target)
        return self._read(thing, after, since, limit)

    def acts_on(
        self, kind: str, target: str, limit: int, since: datetime | timedelta | None = None
    ) -> list[AuditEntry]:
        """Return the newest acts on one run, job, queue or node; none if the store keeps no history."""
        return self._read(about(kind, target), None, since, limit)

    def _read(
        self, thing: str | None, after: AuditEntry | None, since: datetime | timedelta | None, limit: int
    ) -> list[AuditEntry]:
        oldest = None if since is None else instant_of(since, self._now, self._zone)
        found = self._store().acts(about=thing, after=None if after is None else after.record, limit=limit)
        zone = self._zone()
        return [
            AuditEntry(from_us(act.at, zone), act.by, act.verb, act.kind, act.target, act.why, act.details, act)
            for act in found
            if oldest is None or act.at >= oldest
        ]


class TimeMark(NamedTuple):
    """A moment worth remembering, such as a deploy: charts show it as a line."""

    at: datetime
    text: str
    by: str


class Marks:
    """The marks of an app; the store keeps them among the acts of people."""

    def __init__(self, acts: Acting, code: str) -> None:
        self._acts, self._code = acts, code

    def mark(self, text: str) -> None:
        """Mark this moment, as in `app.mark("deploy 2026.10.24")`; charts show it."""
        line = _text(text)
        if not line:
            raise ValueError("say what is marked, as in app.mark('deploy 2026.10.24')")
        self._acts.record("mark", *_MARKS, text=line)

    def marks(self, since: datetime | timedelta | None = None, limit: int = 100) -> list[TimeMark]:
        """Return the marks since a time, newest first."""
        found = self._acts.acts_on(*_MARKS, limit, since)
        return [TimeMark(entry.at, str(entry.details.get("text", "")), entry.by) for entry in found]

    def mark_new_code(self) -> None:
        """Mark this moment if the app has a code version that differs from the last one marked."""
        if not self._code:
            return
        text = f"code {self._code}"
        try:
            known = any(mark.text == text for mark in self.marks(limit=20))
        except Exception as error:  # the start itself reports a store that is away
            log.warning("could not mark the new code %s: %s", self._code, error)
            return
        if not known:
            self.mark(text)


def _text(text: str) -> str:
    """Return a text as one line that every store can keep."""
    line = " ".join(str(text).replace("\0", " ").split())
    return line.encode("utf-8", "replace").decode()[:TEXT_CHARS]


@cache
def _account() -> str:
    """Return the account and the machine of this process."""
    try:
        user = getpass.getuser()
    except (ImportError, KeyError, OSError):  # an account without a name, as in some containers
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
