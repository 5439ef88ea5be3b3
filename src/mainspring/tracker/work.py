"""One attempt at a job: take its lock, run the body, write how it ended, all under that lock."""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
import weakref
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from sqlalchemy.exc import IntegrityError, StatementError
from sqlalchemy.orm import Session

from mainspring.core.policy import delay_after
from mainspring.errors import Cancel, Retry, add_note
from mainspring.tracker.errors import (
    JobAlreadySucceededError,
    JobIgnoredError,
    JobIsNotReadyToStartError,
    JobLockedError,
    JobUpdateError,
    UnknownJobError,
)
from mainspring.tracker.failure import failure_records
from mainspring.tracker.rules import Rules, read_seconds
from mainspring.tracker.sessions import apart, committed, is_async, is_refusal, run, run_async
from mainspring.tracker.table import Table
from mainspring.tracker.updates import Updates, check_column

__all__ = ["Work", "held", "say", "take_next"]

J = TypeVar("J")
log = logging.getLogger("mainspring.tracker")

CLAIM_ROUNDS: Final = 8
"""The number of rounds in which to look again after other workers were faster."""
INTERRUPTIONS: Final = (KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)
"""Exceptions that stop a job from outside: the job fails, but no attempt is charged."""

# Keyed by lock instead of stored on the job, so that a job can be pickled.
_held: weakref.WeakValueDictionary[str, Work[Any]] = weakref.WeakValueDictionary()


def held(lock: str | None) -> Work[Any] | None:
    """Return this process's attempt that holds the lock, or None."""
    return None if lock is None else _held.get(lock)


class Work(Generic[J]):
    """An attempt at one job; `with` (or `async with`) gives `(job, updates)`."""

    def __init__(self, target: Any, table: Table[J], rules: Rules, key: tuple[Any, ...]) -> None:
        self._target, self._table, self._rules, self._key = target, table, rules, key
        self._async = is_async(target)
        self._token = uuid.uuid4().hex
        self._job: J | None = None
        self._retry = 0
        self._entered = False
        self.updates = Updates(_columns=table.columns)

    def __repr__(self) -> str:
        return f"<Work on {self._name}, {self._rules.where}>"

    @property
    def _name(self) -> str:
        return f"{self._table.job_class.__name__} {self._table.show_id(self._key)!r}"

    # -- the block ---------------------------------------------------------------------------------------------

    def __enter__(self) -> tuple[J, Updates]:
        self._enter(asynchronous=False)
        job = run(self._target, self.take) if self._job is None else self._job
        return job, self.updates

    def __exit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, tb: TracebackType | None
    ) -> bool:
        return run(self._target, lambda session: self._end(session, exception))

    async def __aenter__(self) -> tuple[J, Updates]:
        self._enter(asynchronous=True)
        job = await run_async(self._target, self.take) if self._job is None else self._job
        return job, self.updates

    async def __aexit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, tb: TracebackType | None
    ) -> bool:
        return await run_async(self._target, lambda session: self._end(session, exception))

    def _enter(self, *, asynchronous: bool) -> None:
        if asynchronous is not self._async:
            word = "async with" if self._async else "with"
            raise TypeError(f"start() on {type(self._target).__name__} is entered by `{word}`")
        if self._entered:
            raise RuntimeError(f"{self!r} was entered before; call start() again for another attempt")
        self._entered = True

    # -- taking ------------------------------------------------------------------------------------------------

    def take(self, session: Session) -> J:
        """Take the lock, or raise an error that says why it cannot be taken."""
        for _ in range(CLAIM_ROUNDS):
            job = committed(session, self.claim)
            if job is not None:
                return job
            self._refuse(session)
        raise JobLockedError(f"{self._name} is taken by others again and again", self._table.show_id(self._key))

    def claim(self, session: Session) -> J | None:
        """Take this job and read it; return None if it is not startable."""
        if not self._table.take_one(session, self._rules, self._token, self._key):
            return None
        return self._read_taken(session)

    def claim_oldest(self, session: Session) -> bool:
        """Take the oldest startable job and read it; return False if there is none."""
        key = self._table.take_oldest(session, self._rules, self._token)
        if key is None:
            return False
        self._key = key
        self._read_taken(session)
        return True

    @property
    def is_taken(self) -> bool:
        """Whether the job was taken. If its holder vanished at the last allowed attempt, it was ignored instead."""
        return self._job is not None

    def _read_taken(self, session: Session) -> J | None:
        table, rules = self._table, self._rules
        job: Any = table.read(session, self._key)
        if job.status == rules.ignored:
            table.write(session, self._key, self._token, {"lock": None, "update_at": table.now("update_at")})
            self._say("its holder vanished at the last attempt it had, set status = %d", rules.ignored)
            return None
        self._job, self._retry = job, job.retry
        _held[self._token] = self
        self._say("locked, set status = %d, attempt %d", rules.in_progress, self._retry + 1)
        return self._job

    def _refuse(self, session: Session) -> None:
        """Raise the reason why the job was not startable; return if it has become startable."""
        table, rules, name, id_ = self._table, self._rules, self._name, self._table.show_id(self._key)
        row = committed(session, lambda session: table.glance(session, rules, self._key))
        if row is None:
            raise UnknownJobError(f"there is no {name}", id_)
        status, live, startable, retry_at = row
        if live:
            raise JobLockedError(f"{name} is locked by somebody else", id_)
        if startable:
            return
        if status == rules.succeeded:
            raise JobAlreadySucceededError(f"{name} has succeeded already", id_)
        if status == rules.ignored:
            why = f"it failed too often, or was given up; to try it again set its status to {rules.pending}"
            raise JobIgnoredError(f"{name} is ignored: {why}", id_)
        if status == rules.failed:
            raise JobIsNotReadyToStartError(f"{name} has failed and is tried again after {retry_at} UTC", id_)
        if status == rules.in_progress:
            raise JobIsNotReadyToStartError(
                f"{name} is in progress ({status}) but nobody holds its lock; set its status to {rules.pending}", id_
            )
        ready = ", ".join(map(str, (*rules.waiting, rules.failed)))
        raise JobIsNotReadyToStartError(f"{name} has the status {status}; {rules.where} starts from {ready}", id_)

    # -- holding -----------------------------------------------------------------------------------------------

    def heartbeat(self) -> Any:
        """Renew the lock; in an async block, await the result."""
        target = apart(self._target, self._table.job_class)
        return run_async(target, self._beat) if self._async else run(target, self._beat)

    def _beat(self, session: Session) -> None:
        values = {"lock_at": self._table.now("lock_at")}
        if not committed(session, lambda session: self._table.write(session, self._key, self._token, values)):
            raise self._lost()
        self._say("lock renewed")

    def _lost(self) -> JobLockedError:
        return JobLockedError(
            f"the lock of {self._name} is lost: it was not renewed within {self._rules.expire:g} s and somebody else "
            "took the job, or the row was changed or deleted; nothing was written",
            self._table.show_id(self._key),
        )

    # -- ending ------------------------------------------------------------------------------------------------

    def _end(self, session: Session, raised: BaseException | None) -> bool:
        """Write how the body ended; return True to swallow its exception."""
        if raised is None:
            try:
                self._succeed(session)
                return False
            except JobLockedError:
                raise
            except BaseException as error:
                failure = self._explained(error)
                try:
                    self._write_end(session, failure)
                except JobLockedError:  # or the success was written, and only the answer was lost
                    add_note(failure, f"{self._name} is not locked by this worker any more")
                if failure is error:
                    raise
                raise failure from error
        session.rollback()  # the body may have left work unfinished in the user's session
        written = self._write_end(session, raised)
        if not (self._rules.skip_error and written and isinstance(raised, Exception)):
            return False
        log.warning("%s failed, which is skipped: %s", self._name, type(raised).__name__, exc_info=raised)
        return True

    def _succeed(self, session: Session) -> None:
        for name in self.updates.values:
            check_column(name, self._table.columns)
        values = {**self.updates.values, **self._table.ended(self._rules.succeeded, 0, None)}

        def write(session: Session) -> None:
            if not self._table.write(session, self._key, self._token, values):
                raise self._lost()

        committed(session, write)
        self._say("succeeded, set status = %d and unlocked", self._rules.succeeded)

    def _explained(self, error: BaseException) -> BaseException:
        """Return a clear error if the database or its driver refused a value."""
        if not self.updates.values or not is_refusal(error):
            return error
        names = ", ".join(sorted(self.updates.values))
        reason = error.orig if isinstance(error, StatementError) else error
        return JobUpdateError(
            f"the updates of {self._name} cannot be stored ({names}): {reason}; it is marked failed",
            self._table.show_id(self._key),
        )

    def _write_end(self, session: Session, exception: BaseException) -> bool:
        """Mark the job failed or ignored; return True if that was written. An error here never hides `exception`."""
        rules = self._rules
        interrupted = isinstance(exception, INTERRUPTIONS)
        failures = self._retry + (not interrupted)
        again = interrupted or (not isinstance(exception, Cancel) and rules.policy.wants_retry(failures, exception))
        wait = None if interrupted or not again else self._wait(failures, exception)
        ended = self._table.ended(rules.failed if again else rules.ignored, failures, wait)
        try:
            if self._write_failure(session, exception, failures, ended):
                self._say("failed, set status = %d, retry = %d and unlocked", ended["status"], failures)
                return True
        except Exception as error:
            log.error("%s failed, and that could not be written; its lock has to expire", self._name, exc_info=error)
            add_note(exception, f"{self._name} could not be marked failed: {type(error).__name__}: {error}")
            return False
        if isinstance(exception, Exception):
            raise self._lost() from exception
        return False

    def _write_failure(self, session: Session, exception: BaseException, failures: int, ended: dict[str, Any]) -> bool:
        for record in failure_records(exception, failures, self._rules.traceback_stack_limit):
            values = ended if record is None else {**ended, "errors": self._table.stored(record)}
            try:
                return committed(session, partial(self._table.write, key=self._key, token=self._token, values=values))
            except Exception as error:
                # The record may be larger than the column: the next one is smaller.
                if record is None or not (is_refusal(error) or isinstance(error, IntegrityError)):
                    raise
        raise AssertionError("unreachable")

    def _wait(self, failures: int, exception: BaseException) -> float | None:
        """Return the seconds until the next attempt; if the back-off function fails, free the lock anyway."""
        if isinstance(exception, Retry) and exception.delay is not None:
            delay: Any = exception.delay
        elif not self._rules.backs_off:
            return None
        else:
            try:
                delay = delay_after(self._rules.policy.backoff, failures, random.random())
            except Exception:
                log.exception("%s: the backoff of %s failed; the job does not wait", self._name, self._rules.where)
                return None
        try:
            return read_seconds(delay, "the delay")
        except ValueError as error:
            log.error("%s: %s; the job does not wait", self._name, error)
            return None

    def _say(self, text: str, *args: Any) -> None:
        if self._rules.debug or log.isEnabledFor(logging.DEBUG):
            say(self._rules.debug, f"{self._name}: {text % args}")


def say(aloud: bool, line: str) -> None:
    """Log one step of a job; with `aloud`, also print it for programs without logging."""
    log.debug("%s", line)
    if aloud:
        print(line, flush=True)


def take_next(session: Session, target: Any, table: Table[J], rules: Rules) -> Work[J] | None:
    """Take the oldest startable job; return None if there is none."""
    if session.get_bind(table.job_class).dialect.update_returning:
        work = Work(target, table, rules, ())
        while committed(session, work.claim_oldest):
            if work.is_taken:
                return work
    # Either the database has no UPDATE ... RETURNING, or other workers are taking all the jobs we found. Try each job
    # in turn and wait for it. A job that we do not get belongs to another worker, so the loop ends.
    while keys := committed(session, lambda session: table.oldest(session, rules)):
        # Try the oldest first. Workers that lose that race spread out instead of meeting again at the second job.
        for key in (keys[0], *random.sample(keys[1:], len(keys) - 1)):
            work = Work(target, table, rules, key)
            if committed(session, work.claim) is not None:
                return work
    return None
