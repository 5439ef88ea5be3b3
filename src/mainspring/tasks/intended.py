"""Call a scheduled function with its intended run time, as `intended_date_kwarg` requests."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from mainspring.app import Mainspring
from mainspring.app.declaring.task import Options, Task
from mainspring.core.instants import from_us
from mainspring.core.references import ref_to_obj
from mainspring.executors.current_run import current_run

__all__ = ["CALL", "call_with_intended_date", "register"]

CALL: Final = "mainspring.tasks.intended:call_with_intended_date"


def call_with_intended_date(keyword: str, reference: str, /, *args: Any, **kwargs: Any) -> Any:
    """Call the referenced function, and pass the time its run was due, in ISO format, as `keyword`."""
    found = ref_to_obj(reference)
    return _call(found.func if isinstance(found, Task) else found, keyword, args, kwargs)


def register(app: Mainspring) -> None:
    """Register the call as a task, so that workers without a key can execute it too; its target must be a task then."""

    @wraps(call_with_intended_date)
    def call(keyword: str, reference: str, /, *args: Any, **kwargs: Any) -> Any:
        return _call(app.as_task(reference).func, keyword, args, kwargs)

    if app.tasks.get(CALL) is None:
        app.tasks.add(Task(app, call, CALL, Options()))


def _call(func: Callable[..., Any], keyword: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    due = current_run().record.fire_time
    value = func(*args, **kwargs, **{keyword: None if due is None else from_us(due).isoformat()})
    return asyncio.run(value) if inspect.iscoroutine(value) else value
