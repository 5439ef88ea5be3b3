"""Every error mainspring raises, in one tree.

```
MainspringError
├── SchedulerAlreadyRunningError  (RuntimeError)
├── SchedulerNotRunningError      (RuntimeError)
├── UnknownAlias                  (KeyError)      no store or executor of that alias
├── PluginNotFound                (LookupError)   no trigger, executor or store of that name
├── ConfigurationError            (ValueError)
├── CallableReferenceError        (ValueError)    a callable that cannot be named, or a name that leads nowhere
├── JobLookupError                (KeyError)
├── ConflictingIdError            (KeyError)
├── TransientJobError             (ValueError)
├── VersionConflict               (RuntimeError)  the job was changed by somebody else since it was read
├── RecordTooLarge                (ValueError)    a job is larger than its store takes
├── TooManyJobs                   (ValueError)    a store of few jobs is full
├── TransactionConflict           (RuntimeError)  another transaction took the id or key: begin yours again
├── TransactionOpen               (RuntimeError)  waiting for a run that cannot end before the caller commits
├── MaxInstancesReachedError      (RuntimeError)
├── InvalidArguments              (ValueError)    a call whose arguments do not fit the annotations of its task
├── RunNotFound                   (LookupError)
├── NodeNotFound                  (LookupError)   no living node of that name
├── HistoryNotKept                (LookupError)   asked for an audit or a chart that the store does not keep
├── TaskNotFound                  (LookupError)   no task of that name, or not one this process may import
├── RunFailed                     (RuntimeError)  waiting for a run that failed, with its traceback
├── RunCancelled                  (RuntimeError)  waiting for a run that was cancelled
├── MissingInput                  (LookupError)   an argument is the result of a run that is gone, or has none
├── UnverifiedOutcome             (RuntimeError)  waiting for a run whose outcome nobody with the key has signed
├── NotInRun                      (in context, RuntimeError)
├── AlertRefused                  (RuntimeError)  the receiver of an alert did not take it
├── StoreUnavailable              (ConnectionError)
│   ├── OutcomeUnknown            the reply was lost: repeat with the same id
│   ├── StoreLocked               another process holds the lock of an embedded store
│   └── SchemaMismatch            (in jobstores.sqlalchemy) another mainspring wrote the database
├── FrameError, EncodeError       (in codec, ValueError, TypeError) bytes or values that cannot be restored or stored
├── FilterError                   (in core.showing.filters, ValueError) a filter of runs that cannot be understood
├── JobExecutionError             (in tracker) and its JobLockedError, JobIsNotReadyToStartError, ...
├── RunTimeout                    (TimeoutError)  the run passed its time-out
├── WorkerDied                    (RuntimeError)  the process that executed the run is gone
└── Retry, Cancel                 raised by a task to say what should happen to its run
```
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any

__all__ = [
    "AlertRefused",
    "CallableReferenceError",
    "Cancel",
    "ConfigurationError",
    "ConflictingIdError",
    "HistoryNotKept",
    "InvalidArguments",
    "JobLookupError",
    "MainspringError",
    "MaxInstancesReachedError",
    "MissingInput",
    "NodeNotFound",
    "OutcomeUnknown",
    "PluginNotFound",
    "RecordTooLarge",
    "Retry",
    "RunCancelled",
    "RunFailed",
    "RunNotFound",
    "RunTimeout",
    "SchedulerAlreadyRunningError",
    "SchedulerNotRunningError",
    "StoreLocked",
    "StoreUnavailable",
    "TaskNotFound",
    "TooManyJobs",
    "TransactionConflict",
    "TransactionOpen",
    "TransientJobError",
    "UnknownAlias",
    "UnverifiedOutcome",
    "VersionConflict",
    "WorkerDied",
    "add_note",
    "install_command",
    "is_own",
    "near",
]


def near(word: str, known: Iterable[str]) -> str:
    """Suggest a known name for `word`, such as `; did you mean 'x'?`, or list the known names."""
    import difflib  # slow to import, and only errors need it

    names = sorted(set(known))
    matches = difflib.get_close_matches(word, names, n=3, cutoff=0.6)
    # `jobs:send` in a script is `shop.jobs:send` for code that imports it, and people say `send` for both.
    last = word.rpartition(":")[2]
    same = [name for name in names if ":" in name and name.rpartition(":")[2] == last]
    matches = list(dict.fromkeys([*same, *matches]))[:3]
    if matches:
        return "; did you mean " + " or ".join(repr(match) for match in matches) + "?"
    if names and len(names) <= 12:
        return "; there are " + ", ".join(repr(name) for name in names)
    return ""


def install_command(extra: str) -> str:
    """Return the command that installs an extra from where mainspring itself came: an index, a wheel or a checkout."""
    import json  # slow to import, and only errors need these
    import os
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    place, editable = "mainspring", ""
    with suppress(PackageNotFoundError, ValueError):
        origin = json.loads(distribution("mainspring").read_text("direct_url.json") or "{}")
        url = urlsplit(origin.get("url", ""))
        if url.scheme == "file" and os.path.exists(unquote(url.path)):
            place = unquote(url.path)
            editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return f'pip install {editable}"{place}[{extra}]"'


def add_note(error: BaseException, text: str) -> None:
    """Add a note to an exception, as `error.add_note` does; do nothing if its class prevents it."""
    with suppress(BaseException):
        # Do not set an attribute, which a frozen dataclass forbids.
        error.__dict__.setdefault("__notes__", []).append(text)


def is_own(error: BaseException) -> bool:
    """Return True if user code raised this error, `sys.exit()` included: it must not end our thread.

    Return False for a keyboard interrupt, the death of a greenlet and any other exception that is meant for our thread.
    """
    if isinstance(error, Exception | SystemExit | GeneratorExit):
        return True
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is not threading.main_thread()


class MainspringError(Exception):
    """The base of all errors of this library."""


class SchedulerAlreadyRunningError(MainspringError, RuntimeError):
    """The scheduler was started twice."""

    def __str__(self) -> str:
        return "the scheduler is already running; shut it down before you start or configure it"


class SchedulerNotRunningError(MainspringError, RuntimeError):
    """The scheduler is not running; start it first."""

    def __str__(self) -> str:
        return "the scheduler is not running; call start() first"


class UnknownAlias(MainspringError, KeyError):
    """No job store or executor has this alias."""

    def __init__(self, kind: str, alias: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(kind, alias, known)
        self.kind, self.alias, self.known = kind, alias, known

    def __str__(self) -> str:
        return f"no {self.kind} has the alias {self.alias!r}{near(self.alias, self.known)}"


class PluginNotFound(MainspringError, LookupError):
    """No plug-in of this kind has this name."""

    def __init__(self, kind: str, name: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(kind, name, known)
        self.kind, self.name, self.known = kind, name, known

    def __str__(self) -> str:
        if self.kind == "trigger" and len(self.name.split()) > 1:
            return f"no trigger is called {self.name!r}; write a crontab as CronTrigger.from_crontab({self.name!r})"
        return f"no {self.kind} is called {self.name!r}{near(self.name, self.known)}"


class ConfigurationError(MainspringError, ValueError):
    """A setting is wrong."""


class CallableReferenceError(MainspringError, ValueError):
    """A callable has no importable name, or a name leads to no callable."""


class JobLookupError(MainspringError, KeyError):
    """No job with this id is in the store."""

    def __init__(self, job_id: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(job_id, known)
        self.job_id, self.known = job_id, known

    def __str__(self) -> str:
        return f"no job by the id {self.job_id!r} was found{near(self.job_id, self.known)}"


class ConflictingIdError(MainspringError, KeyError):
    """Another job already has this id."""

    def __init__(self, job_id: str, advice: str = "choose another or pass replace_existing=True") -> None:
        super().__init__(job_id, advice)
        self.job_id, self.advice = job_id, advice

    def __str__(self) -> str:
        return f"the job id {self.job_id!r} is taken; {self.advice}"


class TransientJobError(MainspringError, ValueError):
    """The job's function has no name that another process could import."""

    def __init__(self, job_id: str, reason: str = "") -> None:
        super().__init__(job_id, reason)
        self.job_id, self.reason = job_id, reason

    def __str__(self) -> str:
        because = f": {self.reason}" if self.reason else ""
        return f"job {self.job_id!r} cannot be kept in a lasting store{because}; use a function of a module"


class VersionConflict(MainspringError, RuntimeError):
    """The job has changed since it was read: read it again and repeat the change."""

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id)
        self.job_id = job_id

    def __str__(self) -> str:
        return f"job {self.job_id!r} was changed by somebody else since it was read; read it again and repeat"


class TransactionConflict(MainspringError, RuntimeError):
    """Another transaction has just enqueued a run with the same id or unique key: restart your transaction."""


class RecordTooLarge(MainspringError, ValueError):
    """A job, with the runs that it fires, has more bytes than its store takes."""

    def __init__(self, job_id: str, size: int, most: int, place: str) -> None:
        super().__init__(job_id, size, most, place)
        self.job_id, self.size, self.most, self.place = job_id, size, most, place

    def __str__(self) -> str:
        return (
            f"job {self.job_id!r} has {self.size:,} bytes together with what it fires, and {self.place} takes "
            f"{self.most:,} of one job; pass it a name or a path instead of the data, or keep it in SQL or Redis"
        )


class TooManyJobs(MainspringError, ValueError):
    """The store is for few jobs, and this would exceed its limit."""

    def __init__(self, number: int, most: int, place: str, what: str = "jobs") -> None:
        super().__init__(number, most, place, what)
        self.number, self.most, self.place, self.what = number, most, place, what

    def __str__(self) -> str:
        return (
            f"{self.place} takes {self.most:,} {self.what}, and would have {self.number:,}; remove some, or keep your "
            "jobs in SQL or Redis"
        )


class TransactionOpen(MainspringError, RuntimeError):
    """The caller waits for a run inside a transaction that prevents the run from ending.

    Either the transaction has enqueued the run, which nobody else sees yet; or it has `locked` the store, so that
    nobody else can write.
    """

    def __init__(self, run_id: str, locked: bool = False) -> None:
        super().__init__(run_id, locked)
        self.run_id = run_id
        self.locked = locked

    def __str__(self) -> str:
        why = (
            "cannot end: the transaction that is open here keeps all others from writing to the SQLite file"
            if self.locked
            else "was enqueued in the transaction that is still open here, so no worker can see it"
        )
        return f"run {self.run_id!r} {why}; commit first, then wait for its result"


class MaxInstancesReachedError(MainspringError, RuntimeError):
    """The job has as many unfinished instances as it allows."""

    def __init__(self, job: Any, max_instances: int | None = None) -> None:
        # APScheduler's executors pass the job itself. Keep only its id and limit, so that the error pickles.
        self.job_id: str = job if isinstance(job, str) else job.id
        self.max_instances: int = job.max_instances if max_instances is None else max_instances
        super().__init__(self.job_id, self.max_instances)

    def __str__(self) -> str:
        return f"job {self.job_id!r} already has its maximum of {self.max_instances} unfinished instances"


class InvalidArguments(MainspringError, ValueError):
    """The arguments of a call do not fit the annotations of its task; nothing was enqueued."""

    def __init__(self, task: str, problems: tuple[tuple[str, str], ...]) -> None:
        super().__init__(task, problems)
        self.task, self.problems = task, problems

    def __str__(self) -> str:
        return f"{self.task} refuses " + "; ".join(f"{path}: {text}" for path, text in self.problems)


class RunNotFound(MainspringError, LookupError):
    """No run with this id is in the store."""

    def __init__(self, run_id: str, why: str = "") -> None:
        super().__init__(run_id, why)
        self.run_id, self.why = run_id, why

    def __str__(self) -> str:
        return f"no run {self.run_id!r} in the store" + (f": {self.why}" if self.why else "")


class NodeNotFound(MainspringError, LookupError):
    """No living node has this name."""

    def __init__(self, name: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(name, known)
        self.name, self.known = name, known

    def __str__(self) -> str:
        return f"no living node is called {self.name!r}{near(self.name, self.known)}"


class HistoryNotKept(MainspringError, LookupError):
    """The store keeps no history: neither the acts of people nor counters."""

    def __init__(self, store: str, lacking: str) -> None:
        super().__init__(store, lacking)
        self.store, self.lacking = store, lacking

    def __str__(self) -> str:
        return f"{self.store} keeps no history: {self.lacking}"


class TaskNotFound(MainspringError, LookupError):
    """No task has this name."""

    def __init__(self, name: str, known: tuple[str, ...] = (), why: str = "") -> None:
        super().__init__(name, known, why)
        self.name, self.known, self.why = name, known, why

    def __str__(self) -> str:
        known = [name for name in self.known if not name.startswith("mainspring:")]  # leave out mainspring's tasks
        return f"no task is called {self.name!r}{near(self.name, known)}{self.why}"


class RunFailed(MainspringError, RuntimeError):
    """The run failed; `traceback` comes from its last attempt, in the process that executed it."""

    def __init__(self, run_id: str, type: str, message: str, traceback: str) -> None:
        super().__init__(run_id, type, message, traceback)
        self.run_id, self.type, self.message, self.traceback = run_id, type, message, traceback

    def __str__(self) -> str:
        what = f"{self.type}: {self.message}" if self.message else self.type
        remote = f"\n\n{self.traceback.rstrip()}" if self.traceback else ""
        return f"run {self.run_id!r} failed: {what}{remote}"


class RunCancelled(MainspringError, RuntimeError):
    """The run was cancelled, so it has no result."""

    def __init__(self, run_id: str, reason: str = "") -> None:
        super().__init__(run_id, reason)
        self.run_id, self.reason = run_id, reason

    def __str__(self) -> str:
        return f"run {self.run_id!r} was cancelled" + (f": {self.reason}" if self.reason else "")


class MissingInput(MainspringError, LookupError):
    """An argument of the run is the result of another run that has no result, or is gone (`status` is None)."""

    def __init__(self, run_id: str, status: str | None = None) -> None:
        super().__init__(run_id, status)
        self.run_id, self.status = run_id, status

    def __str__(self) -> str:
        how = "is no longer in the store" if self.status is None else f"is {self.status}"
        return f"an argument is the result of run {self.run_id!r}, but that run {how}"


class UnverifiedOutcome(MainspringError, RuntimeError):
    """The store says that the run has ended, but no holder of the key has signed its outcome; `why` has the reason."""

    def __init__(self, run_id: str, status: str, why: str) -> None:
        super().__init__(run_id, status, why)
        self.run_id, self.status, self.why = run_id, status, why

    def __str__(self) -> str:
        return (
            f"run {self.run_id!r} is stored as {self.status}, but that cannot be verified and is not believed "
            f"({self.why}); has every node the same key, and who else can write to the store?"
        )


class AlertRefused(MainspringError, RuntimeError):
    """The receiver of an alert answered with a status other than 2xx."""

    def __init__(self, host: str, status: int, answer: str = "") -> None:
        super().__init__(host, status, answer)
        self.host, self.status, self.answer = host, status, answer

    def __str__(self) -> str:
        return f"{self.host} answered {self.status}{f': {self.answer}' if self.answer else ''}"


class StoreUnavailable(MainspringError, ConnectionError):
    """The store does not answer; nothing was changed."""


class OutcomeUnknown(StoreUnavailable):
    """The store's reply was lost after it may have acted; repeating with the same ids is safe.

    If an enqueueing call raises it, `run_ids` are the ids of the runs that may or may not be stored, in call order.
    """

    run_ids: tuple[str, ...] = ()


class StoreLocked(StoreUnavailable):
    """Another process has kept the store's lock for too long; nothing was changed."""


class RunTimeout(MainspringError, TimeoutError):
    """The run took longer than its time-out and was stopped."""

    def __init__(self, seconds: float | None = None) -> None:
        super().__init__(seconds)
        self.seconds = seconds

    def __str__(self) -> str:
        # An interrupt raises the bare class inside a thread, so `seconds` may be missing.
        return "the run passed its time-out" + (f" of {self.seconds:g} s" if self.seconds is not None else "")


class WorkerDied(MainspringError, RuntimeError):
    """The process that executed the run ended before the run did."""

    def __init__(self, pid: int, exitcode: int | None) -> None:
        super().__init__(pid, exitcode)
        self.pid, self.exitcode = pid, exitcode

    @property
    def how(self) -> str:
        """How the process ended: by which signal, or with which exit code."""
        if self.exitcode is None or self.exitcode >= 0:
            return f"with code {self.exitcode}"
        number = -self.exitcode
        name = signal.Signals(number).name if number in signal.valid_signals() else "unknown"
        return f"by signal {number} ({name}{': out of memory?' if name == 'SIGKILL' else ''})"

    def __str__(self) -> str:
        return f"worker process {self.pid} ended {self.how} while it executed the run"


class Retry(MainspringError):
    """Raise in a task to try its run again, after `delay` (seconds or a timedelta) if given.

    It counts as one of the `retries`, unless `counted=False` says that the run only waits.
    """

    def __init__(self, delay: float | timedelta | None = None, reason: str = "", counted: bool = True) -> None:
        super().__init__(delay, reason, counted)
        if isinstance(delay, timedelta):
            delay = delay.total_seconds()
        elif delay is not None and (isinstance(delay, bool) or not isinstance(delay, int | float) or delay != delay):
            raise TypeError(f"Retry takes a delay as a number of seconds or a timedelta, not {delay!r}")
        self.delay, self.reason, self.counted = delay, reason, counted

    def __str__(self) -> str:
        return self.reason or "to be tried again"


class Cancel(MainspringError):
    """Raise in a task to end its run as cancelled."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
