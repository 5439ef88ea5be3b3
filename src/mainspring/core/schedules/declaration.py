"""Compare a schedule as the code declares it with the stored one, field by field. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from mainspring.core.job import DECLARED_FIELDS, Job
from mainspring.core.policy import Policy
from mainspring.core.run import Call
from mainspring.triggers.base import BaseTrigger

__all__ = ["SCHEDULE", "Difference", "differences", "is_same_trigger", "without_start"]

SCHEDULE: Final = "schedule"
"""The field name of a difference that concerns the whole schedule: it is only in the code, or only in the store."""
_POLICY_FIELDS: Final = Policy.__struct_fields__


class Difference(NamedTuple):
    """A field of a job whose declaration in the code differs from the stored value.

    `code` and `store` are the two values. `by` and `at` say who changed the job last and when, if known.
    """

    job: str
    field: str
    code: Any
    store: Any
    by: str | None = None
    at: datetime | None = None


def differences(job: Job, declared: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield the fields in which a stored job differs from its declaration."""
    for name in DECLARED_FIELDS:
        for field, code, store in _parts(name, declared[name], getattr(job, name)):
            if code != store:
                yield Difference(job.id, field, code, store)


def _parts(name: str, code: Any, store: Any) -> Iterator[tuple[str, Any, Any]]:
    """Split a call and a policy into the fields that people know."""
    if isinstance(code, Call):
        yield "task", code.task_name, store.task_name
        for part in ("args", "kwargs", "name"):
            yield part, _plain(getattr(code, part)), _plain(getattr(store, part))
    elif isinstance(code, Policy):
        for part in _POLICY_FIELDS:
            yield part, getattr(code, part), getattr(store, part)
    elif isinstance(code, BaseTrigger):
        yield name, code, code if is_same_trigger(code, store) else store
    else:
        yield name, code, store


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else tuple(value) if isinstance(value, list | tuple) else value


def is_same_trigger(one: BaseTrigger, other: BaseTrigger) -> bool:
    """Return True if two triggers are the same, ignoring the start of an interval: by default its creation time."""
    return one == other or _known(one) == _known(other)


def _known(trigger: BaseTrigger) -> Any:
    try:
        return without_start(trigger.to_data())
    except (TypeError, ValueError):  # a trigger that cannot be stored
        return trigger


def without_start(data: Any) -> Any:
    """Return a trigger's data without the time of its creation, at which an interval starts by default."""
    if isinstance(data, dict):
        moves = "start_date" if data.get("type") in ("interval", "calendarinterval") else None
        return {key: without_start(item) for key, item in sorted(data.items()) if key != moves}
    return [without_start(item) for item in data] if isinstance(data, list | tuple) else data
