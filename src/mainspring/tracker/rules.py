"""The rules of a step: its statuses, the life of a lock, the number of attempts. They are checked at declaration."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from mainspring.core.policy import Backoff, Policy
from mainspring.errors import ConfigurationError

__all__ = [
    "LONGEST_SECONDS",
    "NAIVE_EPOCH",
    "STATUSES",
    "TRACKER_COLUMNS",
    "Rules",
    "make_rules",
    "read_seconds",
    "read_status",
    "read_statuses",
]

NAIVE_EPOCH: Final = datetime(1970, 1, 1)
"""The `lock_at` of a job that was never locked."""
TRACKER_COLUMNS: Final = frozenset({"id", "status", "create_at", "update_at", "lock", "lock_at", "retry", "retry_at"})
"""The columns that only the tracker writes."""
STATUSES: Final = ("pending", "in_progress", "failed", "succeeded", "ignored")
LONGEST_SECONDS: Final = 100 * 365.25 * 86_400.0
"""The longest lock or back-off, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of one step that a job may go through; `where` names the step in errors."""

    where: str
    pending: int
    in_progress: int
    failed: int
    succeeded: int
    ignored: int
    more_pending: tuple[int, ...]
    expire: float
    max_retry: int
    policy: Policy
    backs_off: bool
    traceback_stack_limit: int | None
    skip_error: bool
    debug: bool

    @property
    def waiting(self) -> tuple[int, ...]:
        """The statuses of jobs that this step has not tried yet."""
        return (self.pending, *self.more_pending)


def make_rules(
    where: str,
    *,
    statuses: dict[str, Any],
    more_pending: Any,
    expire: Any,
    max_retry: Any,
    traceback_stack_limit: Any = 10,
    skip_error: bool = False,
    debug: bool = False,
    backoff: Any = None,
    retry_on: Any = (),
    give_up_on: Any = (),
) -> Rules:
    """Check a step's declaration; return its rules."""
    codes = {name: read_status(value, f"{where}: {name}") for name, value in statuses.items()}
    more = read_statuses(() if more_pending is None else more_pending, f"{where}: more_pending")
    _refuse_duplicates(where, codes, more)
    if not _is_int(max_retry) or max_retry < 0:
        raise ConfigurationError(f"{where}: max_retry is {max_retry!r}; it is a number of attempts, 0 or more")
    if traceback_stack_limit is not None and not _is_int(traceback_stack_limit):
        raise ConfigurationError(f"{where}: traceback_stack_limit is {traceback_stack_limit!r}; it is a number or None")
    policy = Policy(
        retries=max_retry - 1,
        backoff=() if backoff is None else _read_backoff(backoff, f"{where}: backoff"),
        retry_on=_classes(retry_on, f"{where}: retry_on"),
        give_up_on=_classes(give_up_on, f"{where}: give_up_on"),
    )
    return Rules(
        where=where,
        **codes,
        more_pending=more,
        expire=read_seconds(expire, f"{where}: expire"),
        max_retry=max_retry,
        policy=policy,
        backs_off=backoff is not None,
        traceback_stack_limit=traceback_stack_limit,
        skip_error=bool(skip_error),
        debug=bool(debug),
    )


def read_status(value: Any, where: str) -> int:
    """Return a status as the number to store; accept a member of an IntEnum."""
    if not _is_int(value):
        raise ConfigurationError(f"{where} is {value!r}; a status is a whole number or a member of an IntEnum")
    return int(value)


def read_statuses(value: Any, where: str) -> tuple[int, ...]:
    """Return one status, or several, as a tuple."""
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return tuple(dict.fromkeys(read_status(one, where) for one in value))
    return (read_status(value, where),)


def read_seconds(value: Any, where: str) -> float:
    """Return a duration in seconds."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds) or seconds < 0:
        raise ConfigurationError(f"{where} is {value!r}; it is a number of seconds, 0 or more, or a timedelta")
    return min(float(seconds), LONGEST_SECONDS)


def _read_backoff(value: Any, where: str) -> Any:
    if isinstance(value, Backoff) or callable(value):
        return value
    if isinstance(value, list | tuple) and value:
        return tuple(read_seconds(delay, where) for delay in value)
    raise ConfigurationError(
        f"{where} is {value!r}; it is a Backoff, a list of seconds, or a function of the number of failures"
    )


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _refuse_duplicates(where: str, codes: dict[str, int], more: tuple[int, ...]) -> None:
    seen: dict[int, str] = {}
    for name, code in [*codes.items(), *(("more_pending", code) for code in more)]:
        if code in seen:
            raise ConfigurationError(f"{where}: {seen[code]} and {name} are both {code}; give each its own number")
        seen[code] = name


def _classes(value: Any, where: str) -> tuple[type[BaseException], ...]:
    classes = value if isinstance(value, tuple | list) else (value,)
    for kind in classes:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise ConfigurationError(f"{where} has {kind!r}; it is an exception class, or a tuple of them")
    return tuple(classes)
