"""django-q's verbs over the project's app: change `django_q.tasks` to `mainspring.django.tasks` in the imports.

A call is part of the surrounding transaction. `schedule` adds a row of `Schedule`, `fetch` returns a `Task`.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError

from mainspring import tasks as verbs
from mainspring.app.declaring.task import reference_of
from mainspring.django.reporting import collected_errors
from mainspring.tasks import (
    AsyncTask,
    Broker,
    Chain,
    Iter,
    async_chain,
    async_iter,
    count_group,
    count_group_cached,
    delete_cached,
    delete_group,
    delete_group_cached,
    get_broker,
    queue_size,
    result,
    result_cached,
    result_group,
    result_group_cached,
)

__all__ = [
    "AsyncTask",
    "Broker",
    "Chain",
    "Iter",
    "async_chain",
    "async_iter",
    "async_task",
    "count_group",
    "count_group_cached",
    "delete_cached",
    "delete_group",
    "delete_group_cached",
    "fetch",
    "fetch_cached",
    "fetch_group",
    "fetch_group_cached",
    "get_broker",
    "queue_size",
    "result",
    "result_cached",
    "result_group",
    "result_group_cached",
    "schedule",
]


def async_task(func: Any, /, *args: Any, **kwargs: Any) -> str:
    """Enqueue a call of a function; return the id of the run.

    With `sync=True`, execute the call here and now, in the caller's transaction, and raise what the function raises.
    """
    with collected_errors() as errors:
        run_id = verbs.async_task(func, *args, **kwargs)
    ended = verbs.fetch(run_id) if errors else None
    if ended is not None and not ended.success:
        raise errors[-1]
    return run_id


def fetch(task_id: str, wait: float = 0, cached: bool = False) -> Any:
    """Return the ended Task with this id or name, after waiting up to `wait` ms (-1: forever), or None."""
    from mainspring.django.models import Task  # Django loads the models after the apps

    found = verbs.fetch(task_id, wait)
    if found is None:
        return Task.get_task(task_id)
    # Runs executed with `sync=True` are in no table.
    return Task.objects.filter(pk=task_id).first() or found


def fetch_group(
    group_id: str, failures: bool = True, wait: float = 0, count: int | None = None, cached: bool = False
) -> list[Any]:
    """Return the ended Tasks of a group in the order in which they ended; see `mainspring.tasks.fetch_group`."""
    from mainspring.django.models import Task

    found = verbs.fetch_group(group_id, failures, wait, count)
    rows = Task.objects.in_bulk([each.id for each in found])
    return [rows.get(each.id, each) for each in found]


def fetch_cached(task_id: str, wait: float = 0, broker: Broker | None = None) -> Any:
    """Return the same as `fetch`."""
    return fetch(task_id, wait)


def fetch_group_cached(
    group_id: str, failures: bool = True, wait: float = 0, count: int | None = None, broker: Broker | None = None
) -> list[Any]:
    """Return the same as `fetch_group`."""
    return fetch_group(group_id, failures, wait, count)


def schedule(
    func: Any,
    /,
    *args: Any,
    name: str | None = None,
    hook: Any = None,
    schedule_type: str = "O",
    minutes: int | None = None,
    repeats: int = -1,
    next_run: datetime | None = None,
    cron: str | None = None,
    cluster: str | None = None,
    intended_date_kwarg: str | None = None,
    **kwargs: Any,
) -> Any:
    """Add a row of `Schedule`, and return it; raise IntegrityError if a schedule has this name already.

    The function may be one that only the workers can import. Arguments are stored as text, so they must be literals.
    """
    from mainspring.django.models import Schedule

    if name and Schedule.objects.filter(name=name).exists():
        raise IntegrityError(f"there is a schedule with the name {name!r} already")
    given = {} if next_run is None else {"next_run": next_run}
    row = Schedule(
        name=name,
        func=_path(func),
        hook=None if hook is None else _path(hook),
        args=_text(args) if args else None,
        kwargs=_text(kwargs) if kwargs else None,
        schedule_type=schedule_type,
        minutes=minutes,
        repeats=repeats,
        cron=cron,
        cluster=cluster,
        intended_date_kwarg=intended_date_kwarg,
        **given,
    )
    row.full_clean()
    row.save()
    return row


def _path(func: Any) -> str:
    """Return a function's dotted name, as django-q writes it."""
    return func if isinstance(func, str) else reference_of(func).replace(":", ".")


def _text(values: tuple[Any, ...] | Mapping[str, Any]) -> str:
    text = repr(values)
    try:
        same = ast.literal_eval(text) == values
    except (SyntaxError, ValueError):
        same = False
    if not same:
        raise TypeError(f"a schedule keeps its arguments as text, so they must be literals, unlike {text}")
    return text
