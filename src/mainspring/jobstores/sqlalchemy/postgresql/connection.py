"""A connection to PostgreSQL that never waits without end, and that can execute a statement without a cursor.

A cursor finds out the types of parameters, decides what to prepare, and parses results. The statement of a single
enqueue is always the same, and for that the cursor would take longer than making, signing and sending the call.
"""

from __future__ import annotations

import re
import select
import time
from collections.abc import Sequence
from itertools import count
from typing import Any, Final

import psycopg
from psycopg import errors
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from mainspring.jobstores.sqlalchemy.database import ANSWER_TIMEOUT_SECONDS
from mainspring.jobstores.sqlalchemy.postgresql.arrays import learn_arrays

__all__ = ["TimedConnection"]

_UTF8: Final = b"UTF8"
_DONE: Final = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)


class TimedConnection(psycopg.Connection[Any]):
    """A connection that gives up if the server does not answer at all, for example because it is frozen."""

    patience: float = ANSWER_TIMEOUT_SECONDS
    _known_statements: dict[str, bytes] | None = None
    _poller: select.poll | None = None
    _own_cursor: psycopg.Cursor[Any] | None = None
    _is_plain: bool | None = None

    @property
    def own_cursor(self) -> psycopg.Cursor[Any]:
        """A cursor that all statements share: making a new one takes as long as signing a call."""
        if self._own_cursor is None:
            self._own_cursor = self.cursor(binary=True)
            learn_arrays(self._own_cursor)
        return self._own_cursor

    def wait(self, *args: Any, **options: Any) -> Any:
        """Wait for the server, at most `patience` seconds."""
        if options.get("timeout") is None:
            options["timeout"] = self.patience
        try:
            return super().wait(*args, **options)
        except psycopg.errors._WaitTimeout as error:
            raise self._given_up() from error

    def _given_up(self) -> psycopg.OperationalError:
        self.pgconn.finish()
        return psycopg.OperationalError(f"no answer for {self.patience:g} s")

    @property
    def is_plain(self) -> bool:
        """True if `call` can be used: text is UTF-8, statements may be prepared, and each commits by itself."""
        if self._is_plain is None:
            encoding = self.pgconn.parameter_status(b"client_encoding")
            self._is_plain = encoding == _UTF8 and self.prepare_threshold is not None and hasattr(select, "poll")
        return self._is_plain and self.autocommit

    def change(self, statement: str, params: Sequence[bytes | None], formats: Sequence[int]) -> int:
        """Execute a statement that returns no rows; return how many rows it changed."""
        return self.call(statement, params, formats).command_tuples or 0

    def call(self, statement: str, params: Sequence[bytes | None], formats: Sequence[int]) -> PGresult:
        """Execute a statement with `%b` as parameters: numbers as text (format 0), texts and bytes as they are (1)."""
        if self._known_statements is None:
            self._known_statements, self._poller = {}, select.poll()
            self._poller.register(self.pgconn.socket, select.POLLIN)
        name = self._known_statements.get(statement)
        if name is None:
            name = b"mainspring_%d" % len(self._known_statements)
            self.pgconn.send_prepare(name, _numbered(statement))
            self._answer()
            self._known_statements[statement] = name
        self.pgconn.send_query_prepared(name, params, formats)
        return self._answer()

    def _answer(self) -> PGresult:
        """Return the answer to the statement that was sent; raise if the statement failed or no answer comes."""
        wire, deadline = self.pgconn, time.monotonic() + self.patience
        if wire.flush():
            self._send_rest(deadline)
        found = None
        while True:
            while wire.is_busy():
                self._wait(deadline)
                wire.consume_input()
            result = wire.get_result()
            if result is None:
                break
            found = result
        if found is None:
            raise psycopg.OperationalError("the connection was lost before an answer came")
        if found.status not in _DONE:
            raise errors.error_from_result(found)
        return found

    def _send_rest(self, deadline: float) -> None:
        """Send the rest that the socket did not take at once; read meanwhile, since the server may wait for that."""
        assert self._poller is not None
        self._poller.modify(self.pgconn.socket, select.POLLIN | select.POLLOUT)
        while self.pgconn.flush():
            self._wait(deadline)
            self.pgconn.consume_input()
        self._poller.modify(self.pgconn.socket, select.POLLIN)

    def _wait(self, deadline: float) -> None:
        assert self._poller is not None
        left = deadline - time.monotonic()
        if left <= 0 or not self._poller.poll(left * 1000):
            raise self._given_up()


def _numbered(statement: str) -> bytes:
    """Return a statement with `$1`, `$2`, ... for its parameters."""
    numbers = count(1)
    return re.sub("%b", lambda _: f"${next(numbers)}", statement).replace("%%", "%").encode()
