"""A client for the JSON gateway of etcd 3.4 or newer; it needs only the standard library."""

from __future__ import annotations

import base64
import http.client
import json
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final
from urllib.parse import urlsplit

from mainspring.errors import ConfigurationError, OutcomeUnknown, StoreUnavailable

__all__ = ["EtcdClient", "b64", "unb64"]

TIMEOUT_SECONDS: Final = 4.5
SILENCE_SECONDS: Final = 30.0
"""End a watch after this many seconds of silence, since its connection may be dead; the caller begins a new one."""
_NOT_DONE: Final = (
    "no leader", "space exceeded", "permission denied", "auth", "user name is empty", "duplicate key",
    "too many operations", "request is too large", "too many requests",
)  # fmt: skip
"""The messages by which etcd refuses a request before it does anything."""
_ELSEWHERE: Final = ("no leader", "leader changed", "timed out", "too many requests", "server stopped")
"""The messages of failures that a retry may avoid, at another member or a moment later."""
_STALE: Final = ("invalid auth token", "revision of auth store is old")

_Failed = (OSError, http.client.HTTPException)


class EtcdClient:
    """A client that asks any of the members. Any thread may use it, and a forked child, too.

    `endpoints` are URLs such as http://10.0.0.1:2379; without them, the client uses `host` and `port`. The other
    arguments have the names that the package etcd3 gives them. etcd's gateway does not accept the common name of a
    client's certificate as its user: give `user` and `password`.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 2379,
        ca_cert: str | None = None,
        cert_key: str | None = None,
        cert_cert: str | None = None,
        timeout: float | None = None,
        user: str | None = None,
        password: str | None = None,
        *,
        endpoints: Sequence[str] = (),
    ) -> None:
        if isinstance(endpoints, str):
            raise ConfigurationError(f"endpoints= takes a list of URLs, such as [{endpoints!r}]")
        secure = bool(ca_cert or cert_cert or cert_key)
        self.endpoints = tuple(endpoints) or (f"http{'s' * secure}://{host}:{port}",)
        self._members = [urlsplit(each) for each in self.endpoints]
        if any(member.scheme not in ("http", "https") or not member.hostname for member in self._members):
            raise ConfigurationError(f"the endpoints of etcd are URLs such as http://host:2379, not {self.endpoints!r}")
        self._timeout = timeout or TIMEOUT_SECONDS
        self._user, self._password = user, password
        self._tls: ssl.SSLContext | None = None
        if any(member.scheme == "https" for member in self._members):
            self._tls = ssl.create_default_context(cafile=ca_cert)
            if cert_cert:
                self._tls.load_cert_chain(cert_cert, cert_key)
        self._begin()

    def _begin(self) -> None:
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._idle: list[tuple[int, http.client.HTTPConnection]] = []
        self._first = 0  # the member to ask first
        self._token = ""
        self._watches: dict[threading.Event, http.client.HTTPConnection] = {}

    def __repr__(self) -> str:
        return f"<EtcdClient {','.join(self.endpoints)}>"

    # -- asking ------------------------------------------------------------------------------------------------

    def call(self, verb: str, body: dict[str, Any], *, write: bool = False) -> dict[str, Any]:
        """Return the answer to a request such as `kv/txn`; ask another member if one cannot answer.

        Raise OutcomeUnknown for a `write` that etcd may have done, and do not repeat it.
        """
        if self._pid != os.getpid():
            self._begin()  # the old connections and locks belong to the parent
        deadline, tries = time.monotonic() + 2 * self._timeout, 2 * len(self._members)
        problem = ""
        while tries > 0 and time.monotonic() < deadline:
            tries -= 1
            status, said, sent = self._ask(verb, body)
            if status == 200:
                return said
            problem = said.get("message") or said.get("error") or f"it answered {status}"
            if any(text in problem for text in _STALE) and self._user:
                self._token = ""
                continue
            if write and sent and not any(text in problem for text in _NOT_DONE):
                raise OutcomeUnknown(f"{self!r} did not answer {verb}: {problem}")
            if status and not any(text in problem for text in _ELSEWHERE):
                raise StoreUnavailable(f"{self!r} refused {verb}: {problem}{_advice(problem)}")
            with self._lock:
                self._first += 1
        raise StoreUnavailable(f"no member of {self!r} answered {verb}: {problem}")

    def _ask(self, verb: str, body: dict[str, Any]) -> tuple[int, dict[str, Any], bool]:
        """Ask one member; return the HTTP status (0: no answer), the answer, and whether the whole request was sent."""
        sent = False
        try:
            with self._connection() as connection:
                connection.request("POST", f"/v3/{verb}", json.dumps(body), self._headers(verb))
                sent = True
                answer = connection.getresponse()
                data = answer.read()
        except StoreUnavailable:  # the log-in failed: another member would not help
            raise
        except _Failed as error:
            return 0, {"message": f"{type(error).__name__}: {error}"}, sent
        try:
            found = json.loads(data)
        except ValueError:
            found = {}
        return answer.status, found if isinstance(found, dict) else {}, sent

    def _headers(self, verb: str) -> dict[str, str]:
        if self._user is None or verb == "auth/authenticate":
            return {}
        if not self._token:
            self._token = self.call("auth/authenticate", {"name": self._user, "password": self._password})["token"]
        return {"Authorization": self._token}

    @contextmanager
    def _connection(self) -> Iterator[http.client.HTTPConnection]:
        """Lend a connection that no other thread uses; close it if anything goes wrong."""
        with self._lock:
            number = self._first % len(self._members)
            kept = self._idle.pop() if self._idle else None
        if kept is not None and (kept[0] != number or not _is_alive(kept[1])):
            kept[1].close()
            kept = None
        connection = kept[1] if kept is not None else self._open(number, self._timeout)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._idle.append((number, connection))

    def _open(self, number: int, timeout: float) -> http.client.HTTPConnection:
        member = self._members[number]
        host = member.hostname or ""
        if member.scheme == "https":
            return http.client.HTTPSConnection(host, member.port, timeout=timeout, context=self._tls)
        return http.client.HTTPConnection(host, member.port, timeout=timeout)

    # -- watching ----------------------------------------------------------------------------------------------

    def watch(self, start: str, end: str, seen: Callable[[], None], stopped: threading.Event) -> None:
        """Call `seen` for each message about a range of keys, until `stopped` is set or the watch ends.

        An error or a long silence ends it.
        """
        with self._lock:
            number = self._first % len(self._members)
        connection = self._open(number, SILENCE_SECONDS)
        try:
            self._watches[stopped] = connection
            body = {"create_request": {"key": b64(start), "range_end": b64(end)}}
            connection.request("POST", "/v3/watch", json.dumps(body), self._headers("watch"))
            answer = connection.getresponse()
            if answer.status == 401:
                self._token = ""
            while not stopped.is_set() and (line := answer.readline()):
                if b'"error"' in line or b'"canceled":true' in line:
                    return
                seen()
        except _Failed:
            with self._lock:
                self._first += 1
            raise
        finally:
            self._watches.pop(stopped, None)
            connection.close()

    def stop_watch(self, stopped: threading.Event) -> None:
        """Set this event, and make the `watch` that has it return at once."""
        stopped.set()
        connection = self._watches.get(stopped)
        with suppress(OSError, AttributeError):  # the watch has ended, or has not begun
            connection.sock.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]

    def close(self) -> None:
        """Close the idle connections and end all watches; the next use opens new connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()
        for stopped in list(self._watches):
            self.stop_watch(stopped)


def _is_alive(connection: http.client.HTTPConnection) -> bool:
    """Return False if the server has closed a connection: the outcome of a request on it would be unknown."""
    if connection.sock is None:
        return False
    try:
        return not select.select([connection.sock], [], [], 0)[0]
    except (OSError, ValueError):
        return False


def _advice(problem: str) -> str:
    if "space exceeded" in problem:
        return (
            "; its database is full: compact it (etcdctl compact), then etcdctl defrag and etcdctl alarm disarm, and "
            "start it with --auto-compaction-retention=1h"
        )
    if "user name is empty" in problem:
        return "; give a user and a password: etcd://user:password@host"
    if problem == "it answered 404":
        return "; it is no etcd, or one older than 3.4"
    if "authentication failed" in problem:
        return "; correct the user or the password"
    if "permission denied" in problem:
        return "; grant the user a role that may read and write all keys below the path"
    return ""


def b64(value: str | bytes) -> str:
    """Encode text or bytes for the gateway."""
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


def unb64(value: str) -> bytes:
    """Decode bytes from the gateway."""
    return base64.b64decode(value)
