"""The filter language: `status:failed queue:mail task:send* since:1h`, the same in the terminal and on the web. Pure.

A filter is a list of terms `KEY:VALUE`, and a run has to match all of them. A comma means "or", a minus in front means
"not", a `*` at the end of a value stands for any ending, and quotes keep a value with spaces or commas together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from operator import eq, ge, gt, le, lt
from typing import Any, Final

from mainspring.core.insight.acts import Act
from mainspring.core.insight.run_texts import kind_of
from mainspring.core.instants import to_us
from mainspring.core.quantities import read_seconds, read_time
from mainspring.core.references import parameters_of
from mainspring.core.run import Status
from mainspring.core.showing.redaction import masked
from mainspring.core.showing.run_view import RunView
from mainspring.errors import MainspringError, near

__all__ = ["KEYS", "STATUSES", "Filter", "FilterError", "Term", "arguments_of", "is_term", "parse_filter"]

EXAMPLE: Final = "status:failed queue:mail since:1h"
EXAMPLE_HINT: Final = f"; write it as in {EXAMPLE}"
_PENDING: Final = {
    "waiting": "it is due and has not started",
    "delayed": "its time has not come",
    "retrying": "it has failed and waits for its next start",
}
STATUSES: Final = (*(status.value for status in Status), *_PENDING)
"""The values of `status:`: the statuses of runs, and three more for the kinds of pending runs."""
_NAMES: Final[dict[str, Callable[[RunView], tuple[str | None, ...]]]] = {
    "queue": lambda run: (run.queue,),
    "task": lambda run: (run.task, run.task.rpartition(":")[2]),
    "job": lambda run: (run.job_id,),
    "group": lambda run: (run.group,),
    "node": lambda run: (run.node,),
    "id": lambda run: (run.id,),
}
_NUMBERS: Final[dict[str, Callable[[RunView], int]]] = {
    "starts": lambda run: run.attempt,
    "priority": lambda run: run.priority,
}
_LENGTHS: Final = ("took", "wait")
_MOMENTS: Final = ("since", "until")
KEYS: Final = ("status", *_NAMES, "by", "error", "text", *_MOMENTS, *_LENGTHS, *_NUMBERS)
"""All keys of terms, except `arg.NAME`."""

_WORD: Final = re.compile(r'(?:[^\s"]|"[^"]*")+')
_VALUE: Final = re.compile(r'(?:[^,"]|"[^"]*")+')
_COMPARISON: Final = re.compile(r"(>=|<=|>|<|=)?\s*(.*)", re.DOTALL)
_COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {">=": ge, "<=": le, ">": gt, "<": lt, "=": eq}

Test = Callable[[RunView, Callable[..., Any] | None], bool]


class FilterError(MainspringError, ValueError):
    """A filter cannot be understood; the text says which term, and why."""


@dataclass(frozen=True, slots=True)
class Term:
    """One condition: it holds if one of its tests does, or, if `negated`, if none does."""

    key: str
    values: tuple[str, ...]
    negated: bool
    tests: tuple[Test, ...]
    exact: bool = False
    """Whether the term has a single value without a `*`, which a store can look up."""
    ids: frozenset[str] | None = None
    """The ids of the runs that meet the condition, or None if each run has to be tested."""

    def holds(self, run: RunView, func: Callable[..., Any] | None) -> bool:
        """Return True if a run meets the condition."""
        return any(test(run, func) for test in self.tests) is not self.negated


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of runs: it matches those that meet all terms."""

    terms: tuple[Term, ...] = ()
    since: datetime | None = None
    """The earliest creation time of a run that can match."""

    def matches(self, run: RunView, func: Callable[..., Any] | None = None) -> bool:
        """Return True if a run meets all terms; `func`, its callable, gives names to positional arguments."""
        return all(term.holds(run, func) for term in self.terms)

    def statuses(self) -> tuple[str, ...] | None:
        """Return the stored statuses that can match, or None if all can."""
        left: set[str] | None = None
        for term in self.terms:
            if term.key == "status" and not term.negated:
                stored = {_stored(value) for value in term.values}
                left = stored if left is None else left & stored
        return None if left is None else tuple(sorted(left))

    def ids(self) -> frozenset[str] | None:
        """Return the ids that can match, or None if all can."""
        known = [term.ids for term in self.terms if term.ids is not None and not term.negated]
        return frozenset.intersection(*known) if known else None

    def is_indexed(self) -> bool:
        """Return True if a store can count the matches: by statuses, and by at most one queue, group and job."""
        counted = [term for term in self.terms if not term.negated and (term.exact or term.key == "status")]
        keys = [term.key for term in counted]
        known = all(
            term.key in ("queue", "group", "job") or (term.key == "status" and not _PENDING.keys() & set(term.values))
            for term in counted
        )
        return known and len(counted) == len(self.terms) and len(set(keys)) == len(keys)

    def is_walked(self) -> bool:
        """Return True if no index leads to the matches, and a store has to walk through the runs by age.

        Most runs have succeeded. No index holds these, and only a few of them may be of the queue that is searched.
        """
        statuses = self.statuses()
        indexed = self.ids() is not None or self.only("job") is not None or self.only("group") is not None
        narrowed = self.only("queue") is not None or statuses is not None
        return not indexed and narrowed and (statuses is None or Status.SUCCEEDED.value in statuses)

    def only(self, key: str) -> str | None:
        """Return the single value that the filter requires for a key, or None."""
        found = (term.values[0] for term in self.terms if term.key == key and term.exact and not term.negated)
        return next(found, None)


def _stored(status: str) -> str:
    return Status.PENDING.value if status in _PENDING else status


def is_term(word: str) -> bool:
    """Return True if a word is a term of a filter, such as `status:failed`, rather than an id."""
    key, colon, _ = word.removeprefix("-").partition(":")
    return bool(colon) and (key in KEYS or key.startswith("arg."))


def parse_filter(text: str | Iterable[str], now: datetime, acts: Callable[[], Iterable[Act]] = tuple) -> Filter:
    """Read a filter: one text, or words that a shell has split already. Raise FilterError.

    Times such as `since:1h` and `until:14:00` are relative to `now`, and in its zone. `acts` reads the acts of people;
    only a filter with `by:` calls it, once.
    """
    acts = cache(acts)
    words = _split(text) if isinstance(text, str) else [part for word in text for part in _parts(word)]
    terms = tuple(_term(word, now, acts) for word in words)
    moments = [_moment("since", term.values[0], now) for term in terms if term.key == "since" and not term.negated]
    return Filter(terms, max(moments, default=None))


def _split(text: str) -> list[str]:
    if text.count('"') % 2:
        raise FilterError(f"a quote is not closed in {text!r}")
    return _WORD.findall(text)


def _parts(word: str) -> list[str]:
    """Split a word from a shell only if it has several terms: in `text:not found`, the shell has removed the quotes."""
    parts = word.split()
    if len(parts) < 2 or not all(map(is_term, parts)):
        return [word] if _split(word) else []
    return _split(word)


def _term(word: str, now: datetime, acts: Callable[[], Iterable[Act]]) -> Term:
    negated = word.startswith("-")
    key, colon, rest = word.removeprefix("-").partition(":")
    if not colon:
        hint = f"write text:{word} to search for it, or KEY:VALUE as in {EXAMPLE}"
        raise FilterError(f"{word!r} is not a condition; {hint}")
    if key not in KEYS and not key.startswith("arg."):
        raise FilterError(f"there is no filter {key!r}{near(key, KEYS) or EXAMPLE_HINT}")
    values = tuple(_VALUE.findall(rest))
    if not values or key == "arg.":
        raise FilterError(f"{word!r} is not complete; write it as in {EXAMPLE} arg.user:42")
    if key in _MOMENTS and len(values) > 1:
        raise FilterError(f"{word!r}: {key} takes one time")
    plain = tuple(value.replace('"', "") for value in values)
    quoted = [value.endswith('"') for value in values]
    if key == "by":
        fits = list(map(_pattern, [key] * len(values), plain, quoted))
        ids = frozenset(act.target for act in acts() if act.kind == "run" and _is_by(act, fits))
        return Term(key, plain, negated, (lambda run, _: run.id in ids,), ids=ids)
    tests = tuple(_test(key, value, sure, now) for value, sure in zip(plain, quoted, strict=True))
    exact = len(values) == 1 and key in _NAMES and (values[0].endswith('"') or not values[0].endswith("*"))
    return Term(key, plain, negated, tests, exact)


def _test(key: str, value: str, quoted: bool, now: datetime) -> Test:
    if key == "status":
        return _status_test(value, to_us(now))
    if key in _NAMES:
        names, fits = _NAMES[key], _pattern(key, value, quoted)
        return lambda run, _: any(name is not None and fits(name) for name in names(run))
    if key == "error":
        part = value.rstrip("*").casefold()
        return lambda run, _: bool(run.errors) and part in str(run.errors[-1]).casefold()
    if key == "text":
        part = value.rstrip("*").casefold()
        return lambda run, func: part in _searched(run, func).casefold()
    if key in _MOMENTS:
        at, compare = to_us(_moment(key, value, now)), ge if key == "since" else le
        return lambda run, _: compare(run.record.created_at, at)
    if key in _LENGTHS:
        return _length_test(key, value, to_us(now))
    if key in _NUMBERS:
        return _number_test(key, value)
    fits, path = _pattern(key, value, quoted), key.split(".")[1:]
    return lambda run, func: any(fits(str(found)) for found in _values_at(path, arguments_of(run, func)))


def _pattern(key: str, value: str, quoted: bool) -> Callable[[str], bool]:
    if quoted:
        return value.__eq__
    if "*" in value[:-1]:
        raise FilterError(f"{key}:{value} has a * before its end; only the end may be left open, as in {key}:send*")
    return (lambda text: text.startswith(value[:-1])) if value.endswith("*") else value.__eq__


def _is_by(act: Act, fits: Iterable[Callable[[str], bool]]) -> bool:
    """Return True if one of these people acted; a pattern may leave out the machine after the account's name."""
    return any(fit(name) for fit in fits for name in (act.by, act.by.partition("@")[0]))


def _status_test(word: str, now: int) -> Test:
    if word not in STATUSES:
        raise FilterError(f"no status is called {word!r}{near(word, STATUSES)}")
    if word not in _PENDING:
        return lambda run, _: run.status == word
    return lambda run, _: kind_of(run, now) == word


# -- times and numbers ---------------------------------------------------------------------------------------------


def _moment(key: str, value: str, now: datetime) -> datetime:
    try:
        return read_time(value, now, -1)
    except (OverflowError, ValueError):
        raise FilterError(
            f"{key}:{value} is not a time; write how long ago ({key}:1h, {key}:30m, {key}:2d), a time of the last day "
            f"({key}:14:00), or a date ({key}:2026-03-01, {key}:2026-03-01T14:00)"
        ) from None


def _length_test(key: str, value: str, now: int) -> Test:
    given = _COMPARISON.fullmatch(value)
    length = read_seconds(given[2]) if given else None
    if given is None or given[1] is None or length is None:
        raise FilterError(f"{key}:{value} is not a length of time; write more or less than what: {key}:>30s, {key}:<5m")
    compare, limit, measure = _COMPARE[given[1]], length * 1e6, _took if key == "took" else _waited

    def test(run: RunView, _: Callable[..., Any] | None) -> bool:
        measured = measure(run, now)
        return measured is not None and compare(measured, limit)

    return test


def _took(run: RunView, now: int) -> int | None:
    record = run.record
    if record.started_at is None or (record.finished_at is None and record.status is not Status.RUNNING):
        return None
    return (now if record.finished_at is None else record.finished_at) - record.started_at


def _waited(run: RunView, now: int) -> int | None:
    record = run.record
    if record.status is Status.PENDING:
        return max(0, now - record.run_at)
    return None if record.started_at is None else max(0, record.started_at - record.run_at)


def _number_test(key: str, value: str) -> Test:
    given = _COMPARISON.fullmatch(value)
    if given is None or not re.fullmatch(r"-?\d{1,18}", given[2]):
        raise FilterError(f"{key}:{value} is not a whole number; write {key}:3, {key}:>1 or {key}:<=10")
    compare, limit, number = _COMPARE[given[1] or "="], int(given[2]), _NUMBERS[key]
    return lambda run, _: compare(number(run), limit)


# -- arguments -----------------------------------------------------------------------------------------------------


def arguments_of(run: RunView, func: Callable[..., Any] | None) -> Mapping[str, Any]:
    """Return a run's arguments by name, and positional ones also by number; secrets are masked and never match."""
    args, kwargs = masked(run.args, run.kwargs, func)
    numbered = {str(number): value for number, value in enumerate(args)}
    return {**numbered, **dict(zip(parameters_of(func), args, strict=False)), **kwargs}


def _values_at(path: list[str], value: Any) -> Iterable[Any]:
    """Return the value at `user.city` inside arguments; each item of a list counts."""
    if isinstance(value, list | tuple | set | frozenset):
        return [found for item in value for found in _values_at(path, item)]
    if not path:
        return [value]
    if not isinstance(value, Mapping):
        return []
    return _values_at(path[1:], value[path[0]]) if path[0] in value else []


def _searched(run: RunView, func: Callable[..., Any] | None) -> str:
    errors = (f"{error}\n{error.traceback}" for error in run.errors)
    args, kwargs = masked(run.args, run.kwargs, func)
    return "\n".join([run.task, run.name, run.reason or "", repr(args), repr(kwargs), *errors, *run.log])
