"""Options that decide whether and when a call starts, and how many calls may run at the same time.

`limit=`, `rate=` and `limit_key=` put the run behind a gate. `expires=` sets a time after which it does not start.
`debounce=`, `throttle=` and `on_conflict=` say what happens if an earlier call has the same key.
"""

from __future__ import annotations

import inspect
import re
import string
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.quantities import check_seconds
from mainspring.core.run import UNTIL_START_PREFIX, Run
from mainspring.core.waiting.gates import KEY_GATE, Limit, key_of, make_limit
from mainspring.errors import near

__all__ = [
    "ADMISSION_OPTIONS",
    "PLAIN_ADMISSION",
    "Admission",
    "admitted",
    "check_patterns",
    "make_admission",
    "replacement",
]

ADMISSION_OPTIONS: Final = frozenset(
    {"limit", "rate", "burst", "limit_key", "expires", "debounce", "debounce_max", "throttle", "on_conflict"}
)
CONFLICTS: Final = ("return", "replace")


class Admission(msgspec.Struct, frozen=True):
    """The options as given, and the limit that results from them."""

    given: Mapping[str, Any]
    limit: Limit | None = None
    limit_key: str | None = None
    expires_us: int | None = None
    debounce_us: int = 0
    debounce_max_us: int | None = None
    throttle_us: int = 0
    replaces: bool = False


PLAIN_ADMISSION: Final = Admission({})
"""No limits; the unique key is filled in with the arguments."""


def make_admission(base: Admission | None, changes: Mapping[str, Any]) -> Admission | None:
    """Return the options with some of them changed; check each option and their combination."""
    given = {**(base.given if base is not None else {}), **changes}
    given = {name: value for name, value in given.items() if value is not None}
    if not given:
        return None
    limit = make_limit(given.get("limit"), given.get("rate"), given.get("burst"))
    key = given.get("limit_key")
    if key is not None and not isinstance(key, str):
        raise TypeError(f"limit_key must be a text such as 'tenant-{{tenant}}', not {key!r}")
    if key is not None and limit is None:
        raise ValueError("limit_key says which calls share a limit; give limit= or rate=, too")
    conflict = given.get("on_conflict", "return")
    if conflict not in CONFLICTS:
        raise ValueError(f"on_conflict is 'return' or 'replace', not {conflict!r}{near(str(conflict), CONFLICTS)}")
    if "debounce" in given and "throttle" in given:
        raise ValueError("debounce= runs the last of several calls, throttle= the first; give one of them")
    if "debounce_max" in given and "debounce" not in given:
        raise ValueError("debounce_max= says how long calls may put each other off; give debounce=, too")
    return Admission(
        given,
        limit,
        key,
        _us("expires", given) or None,
        _us("debounce", given),
        _us("debounce_max", given) or None,
        _us("throttle", given),
        conflict == "replace" or "debounce" in given,
    )


def check_patterns(admission: Admission | None, unique: str | None, func: Callable[..., Any]) -> None:
    """Raise ValueError if a key of these options names an argument that the function does not have."""
    if admission is not None and admission.limit_key is not None:
        _check_pattern("limit_key", admission.limit_key, func)
    if unique is not None and (admission is not None or "{" in unique):
        _check_pattern("unique", unique, func)


def _check_pattern(option: str, pattern: str, func: Callable[..., Any]) -> None:
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(pattern) if field is not None]
    except ValueError as error:
        raise ValueError(f"{option} {pattern!r} is not a pattern: {error}; write a brace itself twice") from None
    try:
        known = list(inspect.signature(func).parameters)
    except (TypeError, ValueError):  # a callable without a signature
        return
    for field in fields:
        name = re.split(r"[.\[]", field, maxsplit=1)[0]
        if name not in known:
            hint = near(name, known) or "; it takes none"
            raise ValueError(f"{option} {pattern!r} names {name!r}, which is not an argument of the task{hint}")


def _us(name: str, given: Mapping[str, Any]) -> int:
    value = given.get(name)
    if value is None:
        return 0
    return int(check_seconds(name, value, least=0.001) * SECOND)


def admitted(run: Run, admission: Admission, task: str, func: Callable[..., Any], key: str | None) -> Run:
    """Return a run with its gate, its latest start, and its unique key or id; `key` is the option `unique`."""
    arguments = _arguments(func, run)
    changes: dict[str, Any] = {}
    if admission.limit is not None:
        changes["gate"] = KEY_GATE + (task if admission.limit_key is None else key_of(admission.limit_key, arguments))
        changes["gate_spec"] = admission.limit.to_text()
    filled = None if key is None else key_of(key, arguments, "unique")
    run_at = run.run_at
    if admission.throttle_us:
        # The store ignores a run whose id it knows. So all calls in one window become the first of them.
        window = run.created_at // admission.throttle_us
        changes |= {"id": f"{task}:{filled or ''}@{window}", "unique": None}
    elif admission.replaces:
        changes["unique"] = f"{UNTIL_START_PREFIX}{task}:{filled or ''}"
        if admission.debounce_us:
            run_at = run.created_at + admission.debounce_us
            # The time of the first debounced call, and the latest start to which later calls can postpone the run.
            latest = None if admission.debounce_max_us is None else run.created_at + admission.debounce_max_us
            changes |= {"run_at": run_at, "fire_time": run.created_at, "last": latest}
    elif filled is not None:
        changes["unique"] = f"{task}:{filled}"
    if admission.expires_us is not None:
        changes["start_by"] = run_at + admission.expires_us
    return replace(run, **changes)


def replacement(run: Run, waiting: Run) -> Run:
    """Return a run that takes the place of a waiting one; the limits of a debounce count from its first call."""
    count = waiting.count + 1
    if run.fire_time is None or waiting.fire_time is None:
        return replace(run, count=count)
    run_at = run.run_at if waiting.last is None else min(run.run_at, waiting.last)
    start_by = None if run.start_by is None else run.start_by + run_at - run.run_at
    return replace(run, run_at=run_at, start_by=start_by, fire_time=waiting.fire_time, last=waiting.last, count=count)


def _arguments(func: Callable[..., Any], run: Run) -> dict[str, Any]:
    """Return the arguments of a call by name, defaults included."""
    try:
        bound = inspect.signature(func).bind(*run.args, **run.kwargs)
    except (TypeError, ValueError):  # a callable without a signature
        return dict(run.kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)
