"""Read the pickles of APScheduler 3 without APScheduler, and without calling the functions they name.

APScheduler's classes become stand-ins that only hold their state. A short list of plain types is allowed. Any other
name is refused before anything is called.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from mainspring.core.job import Job
from mainspring.core.run import Call
from mainspring.triggers import (
    AndTrigger,
    BaseTrigger,
    CalendarIntervalTrigger,
    CronTrigger,
    DateTrigger,
    IntervalTrigger,
    OrTrigger,
)
from mainspring.triggers.cron.fields import MONTHS, WEEKDAYS

__all__ = ["read_job"]

_POSITIONS: Final = ("1st", "2nd", "3rd", "4th", "5th", "last")
_TYPES: Final = (
    set, frozenset, bytearray, complex, datetime, date, time, timedelta, timezone, Decimal, UUID,
    OrderedDict, ZoneInfo,
)  # fmt: skip


class _StandIn:
    """A stand-in for an APScheduler object: the name of its class, and its state."""

    kind: str
    state: dict[str, Any]

    def __setstate__(self, state: Any) -> None:
        parts = state if isinstance(state, tuple) else (state,)
        self.state = {name: value for part in parts if part for name, value in part.items()}


def _zone(name: str, *_: Any) -> tzinfo:
    return ZoneInfo(name)


def _attribute(owner: Any, name: str) -> Callable[..., tzinfo]:
    """Stand in for getattr, which pickles of time zones use to name their constructors."""
    if owner is ZoneInfo and name == "_unpickle":
        return _zone
    raise pickle.UnpicklingError(f"it asks for the attribute {name!r} of {owner!r}")


_KNOWN: Final[dict[tuple[str, str], Any]] = {
    **{(cls.__module__, cls.__qualname__): cls for cls in _TYPES},
    ("backports.zoneinfo", "ZoneInfo"): ZoneInfo,
    ("builtins", "getattr"): _attribute,
    ("pytz", "_UTC"): lambda: UTC,
    ("pytz", "_p"): _zone,
    ("pytz", "FixedOffset"): lambda minutes: timezone(timedelta(minutes=minutes)),
}


class _Reader(pickle.Unpickler):
    """An unpickler that makes only known types, and names the others in its error."""

    def __init__(self, data: bytes, trusted: Collection[str]) -> None:
        super().__init__(io.BytesIO(data))
        self._trusted = trusted

    def find_class(self, module: str, name: str) -> Any:
        known = _KNOWN.get((module, name))
        if known is not None:
            return known
        if module.startswith("apscheduler.triggers."):
            return type(name, (_StandIn,), {"kind": f"{module}:{name}"})
        if f"{module}:{name}" in self._trusted:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(
            f"it names {module}:{name}, which nothing here calls for and which could run anything;"
            f" if you know it, permit it: --trust-classes {module}:{name}"
        )


def read_job(data: bytes, trusted: Collection[str] = ()) -> Job:
    """Return a job from its APScheduler 3 pickle: its state, or in ZooKeeper and etcd a document that contains it."""
    state = _Reader(data, trusted).load()
    if isinstance(state, dict) and "job_state" in state:
        state = state["job_state"]
    if not isinstance(state, dict) or state.get("version") != 1:
        raise ValueError("it is not a job of APScheduler 3")
    job = Job(
        state["id"],
        Call(state["func"], tuple(state["args"]), dict(state["kwargs"]), state["name"]),
        _trigger(state["trigger"]),
        executor=state["executor"],
        misfire_grace_time=state["misfire_grace_time"],
        coalesce=state["coalesce"],
        max_instances=state["max_instances"],
    )
    job.next_run_time = state["next_run_time"]
    return job


def _trigger(found: Any) -> BaseTrigger:
    if not isinstance(found, _StandIn):
        raise ValueError(f"its trigger is a {type(found).__name__}, not one of APScheduler's")
    return _make_trigger(found.kind, found.state)


def _make_trigger(kind: str, state: Mapping[str, Any]) -> BaseTrigger:
    # APScheduler has moved classes between modules, but never renamed them.
    maker = _TRIGGERS.get(kind.rpartition(":")[2])
    if maker is None or not kind.startswith("apscheduler.triggers."):
        raise ValueError(f"its trigger is a {kind}, which mainspring does not have")
    return maker(state)


def _limits(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: state.get(name) for name in ("start_date", "end_date", "timezone", "jitter")}


def _date(state: Mapping[str, Any]) -> BaseTrigger:
    return DateTrigger(state["run_date"])


def _interval(state: Mapping[str, Any]) -> BaseTrigger:
    length: timedelta = state["interval"]
    seconds = length.seconds + length.microseconds / 1e6 if length.microseconds else length.seconds
    return IntervalTrigger(days=length.days, seconds=seconds, **_limits(state))


def _cron(state: Mapping[str, Any]) -> BaseTrigger:
    fields: dict[str, Any] = {
        field.state["name"]: ",".join(map(_expression, field.state["expressions"])) for field in state["fields"]
    }
    return CronTrigger(**fields, **_limits(state))


def _calendar_interval(state: Mapping[str, Any]) -> BaseTrigger:
    lengths = dict(zip(("years", "months", "weeks", "days"), state["interval"], strict=True))
    clock = dict(zip(("hour", "minute", "second"), state["time"], strict=True))
    return CalendarIntervalTrigger(**lengths, **clock, **_limits(state))


def _combined(cls: type[AndTrigger | OrTrigger]) -> Callable[[Mapping[str, Any]], BaseTrigger]:
    return lambda state: cls([_make_trigger(kind, inner) for kind, inner in state["triggers"]], state.get("jitter"))


_TRIGGERS: Final[dict[str, Callable[[Mapping[str, Any]], BaseTrigger]]] = {
    "DateTrigger": _date,
    "IntervalTrigger": _interval,
    "CronTrigger": _cron,
    "CalendarIntervalTrigger": _calendar_interval,
    "AndTrigger": _combined(AndTrigger),
    "OrTrigger": _combined(OrTrigger),
}


def _expression(found: _StandIn) -> str:
    """Return the text of one part of a cron field."""
    name, state = found.kind.rpartition(":")[2], found.state
    step = f"/{state['step']}" if state.get("step") else ""
    if name == "AllExpression":
        return f"*{step}"
    if name == "LastDayOfMonthExpression":
        return "last"
    if name == "WeekdayPositionExpression":
        return f"{_POSITIONS[state['option_num']]} {WEEKDAYS[state['weekday']]}"
    words: dict[str, Callable[[int], str]] = {
        "RangeExpression": str,
        "MonthRangeExpression": lambda number: MONTHS[number - 1],
        "WeekdayRangeExpression": lambda number: WEEKDAYS[number],
    }
    if name not in words:
        raise ValueError(f"its cron trigger has a {name}, which mainspring does not know")
    first, last = state["first"], state["last"]
    if last is None or (first == last and not step):  # `5/2` continues to the end of the field
        return f"{words[name](first)}{step}"
    return f"{words[name](first)}-{words[name](last)}{step}"
