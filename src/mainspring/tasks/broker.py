"""django-q's broker: a queue of the app's store, whose runs a caller can take and settle by hand."""

from __future__ import annotations

import os
import platform
from typing import Any

from mainspring.app import Mainspring
from mainspring.core.lanes import lanes_of
from mainspring.core.quantities import check_seconds
from mainspring.core.run import BY_HAND_PREFIX, FINAL, Error, Report, Result, Run, Status
from mainspring.core.showing.run_view import RunView
from mainspring.core.transitions import conclude
from mainspring.core.validation import check_queue
from mainspring.errors import RunNotFound, StoreUnavailable
from mainspring.jobstores.base import QueueInfo
from mainspring.node.settling import give_back_lapsed
from mainspring.tasks.current import get_app
from mainspring.tasks.enqueueing import async_task

__all__ = ["Broker", "get_broker", "queue_size"]


class Broker:
    """One queue. A run not acknowledged within `retry` seconds goes to the next caller of `dequeue`."""

    def __init__(self, list_key: str | None = None, *, app: Mainspring | None = None, retry: float = 60.0) -> None:
        self.app = get_app() if app is None else app
        self.list_key = check_queue(list_key or self.app.call_defaults.get("queue") or "default")
        self.retry = check_seconds("retry", retry, least=0.001)
        self._holder = f"{BY_HAND_PREFIX}{platform.node()}:{os.getpid()}:{os.urandom(4).hex()}"

    def enqueue(self, func: Any, /, *args: Any, **kwargs: Any) -> str:
        """Enqueue a call, with the options of `async_task`; return its id."""
        options = {**(kwargs.pop("q_options", None) or {}), "broker": self}
        return async_task(func, *args, **kwargs, q_options=options)

    def dequeue(self, count: int = 1) -> list[tuple[str, RunView]]:
        """Take up to `count` due runs; return pairs of the id to acknowledge and the run."""
        give_back_lapsed(self.app.store, lambda run: run.node is not None and run.node.startswith(BY_HAND_PREFIX))
        claimed = self.app.store.claim(
            [(lanes_of(self.list_key), count)], node=self._holder, token=os.urandom(12).hex(), lease=self.retry
        )
        return [(run.id, RunView(run, self.app.timezone)) for run in claimed.runs]

    def acknowledge(self, task_id: str, result: Any = None) -> bool:
        """Mark a run that this broker took as succeeded; return False if the broker has lost it."""
        return self._settle(task_id, Result.RETURNED, value=result)

    def fail(self, task_id: str, reason: str = "failed by its broker") -> bool:
        """Mark a run that this broker took as finally failed; return False if the broker has lost it."""
        return self._settle(task_id, Result.RAISED, reason)

    def delete(self, task_id: str) -> bool:
        """Delete a run, after cancelling it if it waits. A started run is only stopped, not deleted: return False."""
        try:
            self.app.cancel(task_id)
        except RunNotFound:
            return False
        return self.app.delete(task_id)

    def purge_queue(self) -> int:
        """Cancel all waiting runs of the queue; return their number."""
        return self.app.purge(self.list_key)

    def delete_queue(self) -> int:
        """Cancel all waiting runs of the queue and stop the started ones; return their number."""
        running = self.app.runs.iterate(status=Status.RUNNING.value, queue=self.list_key)
        return self.purge_queue() + sum(self.app.cancel(run.id) for run in list(running))

    def queue_size(self) -> int:
        """Return the number of waiting runs in the queue, due or not."""
        info = self._info()
        return info.waiting + info.delayed

    def lock_size(self) -> int:
        """Return the number of runs of the queue that are claimed and not settled."""
        return self._info().running

    def ping(self) -> bool:
        """Return True if the store answers."""
        try:
            self.app.store.beat()
        except StoreUnavailable:
            return False
        return True

    def info(self) -> str:
        """Return one line that names the queue and the store, without the password."""
        return f"queue {self.list_key} of {self.app!r}"

    def _info(self) -> QueueInfo:
        found = (info for info in self.app.store.stats().queues if info.name == self.list_key)
        return next(found, QueueInfo(name=self.list_key))

    def _settle(self, task_id: str, result: Result, reason: str = "", value: Any = None) -> bool:
        run = self.app.store.get_runs([task_id])[0]
        if run is None or run.status in FINAL or run.node != self._holder:
            return False
        now = self.app.now()
        return self.app.store.settle([conclude(_report(run, result, reason, value, now), now, 0.0, retry=False)])[0]

    def __repr__(self) -> str:
        return f"<Broker of {self.info()}>"


def _report(run: Run, result: Result, reason: str, value: Any, now: int) -> Report:
    error = None
    if result is Result.RAISED:
        error = Error(type="Failed", message=reason, traceback="", at=now, attempt=run.attempt)
    return Report(run, result, value=value, error=error, started_at=run.started_at or now, finished_at=now)


def get_broker(list_key: str | None = None) -> Broker:
    """Return the broker of a queue, by default the queue that `async_task` uses."""
    return Broker(list_key)


def queue_size(broker: Broker | None = None) -> int:
    """Return the number of waiting runs in a broker's queue, by default the queue that `async_task` uses."""
    return (broker or get_broker()).queue_size()
