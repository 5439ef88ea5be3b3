"""Check the values of a job: each check returns the value to keep, or raises an error that says what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import lru_cache, partial
from typing import Any, Final

import msgspec

from mainspring.core.ids import NAME_CHARS
from mainspring.core.policy import Backoff, Policy, kind_name
from mainspring.core.quantities import LONGEST_DELAY_SECONDS, as_seconds
from mainspring.core.references import check_callable_args, get_callable_name, ref_to_obj
from mainspring.core.run import Call
from mainspring.errors import near
from mainspring.triggers.base import BaseTrigger

__all__ = [
    "OVERLAPS",
    "POLICY_FIELDS",
    "check_duration",
    "check_field",
    "check_lateness",
    "check_queue",
    "make_call",
    "make_policy",
]

POLICY_FIELDS: Final = frozenset(Policy.__struct_fields__)
OVERLAPS: Final = ("skip", "queue", "cancel_other")
"""The possible effects of a fire while its job has as many unfinished runs as `max_instances` allows."""


def check_arguments(args: Any, kwargs: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Return the arguments of a job; raise TypeError unless they are a list and a mapping."""
    if args is not None and (isinstance(args, (str, bytes)) or not isinstance(args, Iterable)):
        raise TypeError(f"args must be a list or tuple of arguments, not {args!r}; did you mean [{args!r}]?")
    if kwargs is not None and not (isinstance(kwargs, Mapping) and all(isinstance(key, str) for key in kwargs)):
        raise TypeError(f"kwargs must be a mapping of argument names to values, not {kwargs!r}")
    return () if args is None else tuple(args), {} if kwargs is None else kwargs


def make_call(func: Any, args: Any, kwargs: Any, name: Any) -> Call:
    """Make a call of a callable, its arguments and its name, after checking them."""
    if args is None and kwargs is None and name is None:
        try:
            return _bare_call(func)
        except TypeError:  # not hashable, or not valid
            pass
    if isinstance(func, str):
        func = ref_to_obj(func)
    if not callable(func):
        raise TypeError(f"func must be a callable or a reference to one like 'package.module:name', not {func!r}")
    args, kwargs = check_arguments(args, kwargs)
    check_callable_args(func, args, kwargs)
    if name is None:
        name = get_callable_name(func)
    elif not name or not isinstance(name, str):
        raise TypeError(f"name must be a non-empty string, not {name!r}")
    return Call(func, args, kwargs, name)


@lru_cache(maxsize=1024)
def _bare_call(func: Any) -> Call:
    """Make the call of a function without arguments, which all jobs that call it share."""
    return make_call(func, (), {}, None)


def check_duration(name: str, value: Any) -> float | None:
    """Check a positive number of seconds (or a timedelta), or None."""
    if value is None:
        return None
    seconds = as_seconds(value)
    if seconds is None or not seconds > 0:
        raise TypeError(f"{name} must be None or a positive number of seconds, not {value!r}")
    if seconds > LONGEST_DELAY_SECONDS:
        unlimited = "; None means however late" if name == "misfire_grace_time" else ""
        raise ValueError(f"{name} must be at most {LONGEST_DELAY_SECONDS:,} seconds, not {value!r}{unlimited}")
    return seconds


def _wait(value: Any) -> float:
    """Check a delay of a back-off."""
    seconds = as_seconds(value)
    if seconds is None:
        raise TypeError(f"backoff takes numbers of seconds or timedeltas, not {value!r}")
    if not 0 <= seconds <= LONGEST_DELAY_SECONDS:
        raise ValueError(f"a delay of backoff must be between 0 and {LONGEST_DELAY_SECONDS:,} seconds, not {value!r}")
    return float(seconds)


def _coalesce(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"coalesce must be True or False, not {value!r}")
    return value


def _max_instances(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TypeError(f"max_instances must be a positive whole number, not {value!r}")
    return value


def _overlap(value: Any) -> str:
    if value not in OVERLAPS:
        known = ", ".join(map(repr, OVERLAPS[:-1]))
        hint = near(value, OVERLAPS) if isinstance(value, str) else ""
        raise ValueError(f"overlap is {known} or {OVERLAPS[-1]!r}, not {value!r}{hint}")
    return str(value)


def _trigger(value: Any) -> BaseTrigger:
    if not isinstance(value, BaseTrigger):
        raise TypeError(f"trigger must be a trigger object, not {value!r}")
    return value


def _executor(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"executor must be a non-empty string, not {value!r}")
    return value


def check_queue(value: Any) -> str:
    """Check a queue's name."""
    if not isinstance(value, str) or not value:
        raise TypeError(f"queue must be a non-empty string, not {value!r}")
    if len(value) > NAME_CHARS or value.startswith((".", "!")) or not value.isprintable() or set(value) & set(",:{}*"):
        raise ValueError(
            f"{value!r} cannot name a queue: it has up to {NAME_CHARS} printable characters, no dot or ! in front, and "
            "none of , : { } *"
        )
    return value


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "executor": _executor,
    "queue": check_queue,
    "coalesce": _coalesce,
    "max_instances": _max_instances,
    "overlap": _overlap,
    "misfire_grace_time": partial(check_duration, "misfire_grace_time"),
    "late_after": partial(check_duration, "late_after"),
    "down_after": partial(check_duration, "down_after"),
    "trigger": _trigger,
}


def check_field(name: str, value: Any) -> Any:
    """Check one plain attribute of a job."""
    return _CHECKS[name](value)


def check_lateness(late_after: float | None, down_after: float | None) -> None:
    """Check that a job is late before it is down."""
    if late_after is not None and down_after is not None and down_after < late_after:
        raise ValueError(
            f"down_after ({down_after:g} s) must be at least late_after ({late_after:g} s): late comes before down"
        )


def make_policy(base: Policy, **changes: Any) -> Policy:
    """Return a policy with changes, after checking each value."""
    retries = changes.get("retries", 0)
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise TypeError(f"retries must be a whole number of at least 0, not {retries!r}")
    if "timeout" in changes:
        changes["timeout"] = check_duration("timeout", changes["timeout"])
    if "retention" in changes and changes["retention"] != 0:  # 0: a success is not kept
        changes["retention"] = check_duration("retention", changes["retention"])
    priority = changes.get("priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise TypeError(f"priority must be a whole number from -100 to 100, not {priority!r}")
    if not -100 <= priority <= 100:
        raise ValueError(f"priority goes from -100 to 100, not {priority!r}")
    backoff = changes.get("backoff")
    if isinstance(backoff, (list, tuple)):
        changes["backoff"] = tuple(map(_wait, backoff))
    elif isinstance(backoff, (int, float, timedelta)):
        changes["backoff"] = Backoff(first=_wait(backoff))
    elif isinstance(backoff, str) and ":" not in backoff and "." not in backoff:
        raise ValueError(
            f"backoff is a Backoff(...), seconds, a list of seconds, or a function or its name 'package.module:name', "
            f"not {backoff!r}; without it the waits grow exponentially"
        )
    delivery = changes.get("delivery", "at_least_once")
    if delivery not in ("at_least_once", "at_most_once"):
        raise ValueError(f"delivery is 'at_least_once' or 'at_most_once', not {delivery!r}")
    for name in ("retry_on", "give_up_on"):
        if name in changes:
            changes[name] = _exception_names(name, changes[name])
    if changes.get("isolation") not in (None, "process"):
        raise ValueError(f"isolation is None or 'process', not {changes['isolation']!r}")
    hook = changes.get("hook")
    if hook is not None and not callable(hook) and not isinstance(hook, str):
        raise TypeError(f"hook must be a callable or a reference like 'package.module:name', not {hook!r}")
    return msgspec.structs.replace(base, **changes)


def _exception_names(field: str, kinds: Any) -> tuple[str, ...]:
    """Check exception types and return their names, which the policy keeps."""
    given = (kinds,) if isinstance(kinds, (type, str)) else tuple(kinds)
    for kind in given:
        if not isinstance(kind, str) and not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(f"{field} takes exception types, not {kind!r}")
    return tuple(kind_name(kind) for kind in given)
