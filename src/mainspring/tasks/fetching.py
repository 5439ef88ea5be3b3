"""Results of one run or of a group. The store holds every result, so the `_cached` verbs equal the plain ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from mainspring.app import Mainspring
from mainspring.core.run import FINAL, UNFINISHED, Status
from mainspring.core.showing.run_view import RunView
from mainspring.errors import RunNotFound, TransactionOpen
from mainspring.jobstores.finding import FIND_PAGE_RUNS
from mainspring.tasks import intended
from mainspring.tasks.broker import Broker
from mainspring.tasks.current import get_app, sides

__all__ = [
    "FetchedTask",
    "count_group",
    "count_group_cached",
    "delete_cached",
    "delete_group",
    "delete_group_cached",
    "fetch",
    "fetch_cached",
    "fetch_group",
    "fetch_group_cached",
    "result",
    "result_cached",
    "result_group",
    "result_group_cached",
]

ENDED: Final = tuple(status.value for status in FINAL)
FAILURES: Final = tuple(status.value for status in FINAL if status is not Status.SUCCEEDED)
UNENDED: Final = tuple(status.value for status in UNFINISHED)


class FetchedTask:
    """An ended run under the names of django-q's Task; `run` is the run itself."""

    __slots__ = ("_app", "run")

    def __init__(self, app: Mainspring, run: RunView) -> None:
        self._app, self.run = app, run

    @property
    def id(self) -> str:
        """The id of the run."""
        return self.run.id

    @property
    def name(self) -> str:
        """The readable name of the run."""
        return str(self.run.name)

    @property
    def func(self) -> str:
        """The name of the called function."""
        return str(self.run.record.args[1]) if self._has_intended_date() else self.run.func

    @property
    def hook(self) -> str | None:
        """The name of the hook, or None."""
        return self.run.record.policy.hook  # type: ignore[return-value]

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments of the call."""
        return self.run.record.args[2:] if self._has_intended_date() else self.run.record.args

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """The keyword arguments of the call."""
        return self.run.record.kwargs

    @property
    def success(self) -> bool:
        """Whether the run succeeded; otherwise it failed, was cancelled, missed its time or is broken."""
        return self.run.status is Status.SUCCEEDED and self.run.record.unverified is None

    @property
    def result(self) -> Any:
        """The return value, or the failure as text."""
        if self.success:
            return self.run.result
        if self.run.record.unverified is not None:
            return f"unverified: {self.run.record.unverified}"
        error = self.run.error
        if error is not None:
            return f"{error.message} : {error.traceback}"
        return f"{self.run.status}: {self.run.reason}" if self.run.reason else str(self.run.status)

    @property
    def group(self) -> str | None:
        """The name of the run's group, or None."""
        return self.run.record.group

    @property
    def cluster(self) -> str:
        """The name of the run's queue."""
        return self.run.record.queue

    @property
    def started(self) -> datetime | None:
        """The start of the last attempt, or None if none started."""
        return self.run.started_at

    @property
    def stopped(self) -> datetime | None:
        """The time at which the run ended."""
        return self.run.finished_at

    @property
    def attempt_count(self) -> int:
        """The number of started attempts."""
        return self.run.record.attempt

    def time_taken(self) -> float:
        """Return the seconds from the last start to the end."""
        return self.run.duration or 0.0

    def group_result(self, failures: bool = False) -> list[Any]:
        """Return the results of the run's group."""
        return _results(_of_group(self._app, self.group, failures)) if self.group else []

    def group_count(self, failures: bool = False) -> int:
        """Return the number of ended runs in the group, or of its failures."""
        return _count(self._app, self.group, FAILURES if failures else ENDED) if self.group else 0

    def group_delete(self, tasks: bool = True) -> int:
        """Delete the ended runs of the group; return their number."""
        return _delete_group(self._app, self.group, tasks) if self.group else 0

    def _has_intended_date(self) -> bool:
        return self.run.func == intended.CALL

    def __repr__(self) -> str:
        return f"<FetchedTask {self.id} {self.name} {self.run.status}>"


# -- one -----------------------------------------------------------------------------------------------------------


def fetch(task_id: str, wait: float = 0, cached: bool = False) -> FetchedTask | None:
    """Return an ended run, after waiting up to `wait` milliseconds (-1: forever); return None if it has not ended."""
    return _fetch(get_app(), task_id, wait)


def result(task_id: str, wait: float = 0, cached: bool = False) -> Any:
    """Return a run's result, or its failure as text; None if it has not ended within `wait` ms (-1: forever)."""
    task = _fetch(get_app(), task_id, wait)
    return None if task is None else task.result


def _fetch(app: Mainspring, task_id: str, wait: float) -> FetchedTask | None:
    for side in reversed(sides(app)):
        try:
            return FetchedTask(app, side.wait([task_id], _seconds(wait))[0])
        except RunNotFound:
            continue
        except TimeoutError:
            return None
        except TransactionOpen:  # a wait here would never end, but wait=0 only looks
            if wait:
                raise
            return None
    return None


# -- groups --------------------------------------------------------------------------------------------------------


def fetch_group(
    group_id: str, failures: bool = True, wait: float = 0, count: int | None = None, cached: bool = False
) -> list[FetchedTask]:
    """Return the ended runs of a group in the order in which they ended, optionally without the failures.

    Wait up to `wait` milliseconds (-1: forever) until `count` of them, or all existing ones, have ended.
    """
    return _fetch_group(get_app(), group_id, failures, wait, count)


def result_group(
    group_id: str, failures: bool = False, wait: float = 0, count: int | None = None, cached: bool = False
) -> list[Any]:
    """Return a group's results in the order in which the runs ended, optionally with failures; see `fetch_group`."""
    return _results(_fetch_group(get_app(), group_id, failures, wait, count))


def count_group(group_id: str, failures: bool = False, cached: bool = False) -> int:
    """Return the number of ended runs in a group, or only of its failures."""
    return _count(get_app(), group_id, FAILURES if failures else ENDED)


def delete_group(group_id: str, tasks: bool = True, cached: bool = False) -> int:
    """Delete the ended runs of a group; return their number.

    django-q's `tasks=False` only removes the group's name. An ended run cannot change here, so it raises ValueError.
    """
    return _delete_group(get_app(), group_id, tasks)


def _fetch_group(
    app: Mainspring, group: str, failures: bool, wait: float, count: int | None = None
) -> list[FetchedTask]:
    def complete() -> bool:
        return _count(app, group, UNENDED) == 0 if count is None else _count(app, group, ENDED) >= count

    if wait:
        with suppress(TimeoutError):  # return fewer runs then
            app.runs.wait_until(complete, _seconds(wait))
    return _of_group(app, group, failures)


def _of_group(app: Mainspring, group: str, failures: bool) -> list[FetchedTask]:
    statuses = ENDED if failures else (Status.SUCCEEDED.value,)
    tasks = [FetchedTask(app, run) for side in sides(app) for run in _all(side, group, statuses)]
    found = [task for task in tasks if task.success or (failures and task.run.refused is None)]
    return sorted(found, key=lambda task: (task.run.record.finished_at or 0, task.run.record.created_at))


def _all(app: Mainspring, group: str, statuses: tuple[str, ...]) -> Iterator[RunView]:
    """Yield the runs of a group, one page at a time."""
    last = None
    while page := app.find(status=statuses, group=group, limit=FIND_PAGE_RUNS, after=last):
        yield from page
        last = page[-1]


def _results(tasks: list[FetchedTask]) -> list[Any]:
    return [task.result for task in tasks]


def _count(app: Mainspring, group: str, statuses: tuple[str, ...]) -> int:
    """Count the runs of a group, as django-q does: without the steps that never ran because their chain failed."""
    number = 0
    for side in sides(app):
        number += side.count(status=statuses, group=group)
        if Status.CANCELLED.value in statuses:
            number -= sum(run.refused is not None for run in _all(side, group, (Status.CANCELLED.value,)))
    return number


def _delete_group(app: Mainspring, group: str, tasks: bool) -> int:
    if not tasks:
        raise ValueError(
            f"the group {group!r} cannot be taken off runs that have ended: leave them to their retention, or delete "
            "them with tasks=True"
        )
    deleted = 0
    for side in sides(app):
        deleted += side.store.delete_runs([run.id for run in _all(side, group, ENDED)])
    return deleted


def _seconds(wait: float) -> float | None:
    return None if wait < 0 else wait / 1000


# -- under the names django-q has for its cache --------------------------------------------------------------------


def result_cached(task_id: str, wait: float = 0, broker: Broker | None = None) -> Any:
    """Return the same as `result`."""
    task = _fetch(_app_of(broker), task_id, wait)
    return None if task is None else task.result


def fetch_cached(task_id: str, wait: float = 0, broker: Broker | None = None) -> FetchedTask | None:
    """Return the same as `fetch`."""
    return _fetch(_app_of(broker), task_id, wait)


def result_group_cached(
    group_id: str, failures: bool = False, wait: float = 0, count: int | None = None, broker: Broker | None = None
) -> list[Any]:
    """Return the same as `result_group`."""
    return _results(_fetch_group(_app_of(broker), group_id, failures, wait, count))


def fetch_group_cached(
    group_id: str, failures: bool = True, wait: float = 0, count: int | None = None, broker: Broker | None = None
) -> list[FetchedTask]:
    """Return the same as `fetch_group`."""
    return _fetch_group(_app_of(broker), group_id, failures, wait, count)


def count_group_cached(group_id: str, failures: bool = False, broker: Broker | None = None) -> int:
    """Return the same as `count_group`."""
    return _count(_app_of(broker), group_id, FAILURES if failures else ENDED)


def delete_group_cached(group_id: str, broker: Broker | None = None) -> int:
    """Delete the ended runs of a group; return their number."""
    return _delete_group(_app_of(broker), group_id, tasks=True)


def delete_cached(task_id: str, broker: Broker | None = None) -> bool:
    """Delete an ended run; return False if there is none."""
    return any(side.delete(task_id) for side in sides(_app_of(broker)))


def _app_of(broker: Broker | None) -> Mainspring:
    return get_app() if broker is None else broker.app
