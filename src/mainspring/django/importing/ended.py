"""Convert a finished task of django-q into an ended run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from django.utils.timezone import is_naive, make_aware

from mainspring.core.instants import to_us
from mainspring.core.run import Call, Error, Run, Status
from mainspring.errors import near
from mainspring.node.new_ids import new_run_id

__all__ = ["TASK_FIELDS", "ended_run"]

TASK_FIELDS: Final = (
    *("id", "name", "func", "hook", "args", "kwargs", "result", "group", "cluster", "started", "stopped", "success"),
    "attempt_count",
)


def ended_run(values: Mapping[str, Any]) -> Run:
    """Return the run for the fields of django-q's `Task`; raise TypeError for other fields."""
    for name in values:
        if name not in TASK_FIELDS:
            raise TypeError(f"a task has no field {name!r}{near(name, TASK_FIELDS)}")
    for name in ("func", "started", "stopped"):
        if values.get(name) is None:
            raise TypeError(f"a task that has ended needs {name!r}")
    started, stopped, success = _us(values["started"]), _us(values["stopped"]), values.get("success", True)
    result, attempt = values.get("result"), values.get("attempt_count") or 1
    error = Error(type="Error", message=str(result), traceback="", at=stopped, attempt=attempt)
    return Run(
        id=values.get("id") or new_run_id(),
        call=Call(
            values["func"],
            tuple(values.get("args") or ()),
            dict(values.get("kwargs") or {}),
            values.get("name") or values["func"].rpartition(".")[2],
        ),
        queue=values.get("cluster") or "default",
        group=values.get("group"),
        status=Status.SUCCEEDED if success else Status.FAILED,
        attempt=attempt,
        created_at=started,
        run_at=started,
        started_at=started,
        finished_at=stopped,
        result=result if success else None,
        errors=() if success else (error,),
    )


def _us(moment: datetime) -> int:
    return to_us(make_aware(moment) if is_naive(moment) else moment)
