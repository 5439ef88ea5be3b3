"""Test tools for a project: execute enqueued runs in the test's thread, connection and transaction."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from django.db import connections, transaction
from msgspec.structs import replace

from mainspring.app.inline import InlineRunner
from mainspring.core.references import iscoroutinefunction_partial
from mainspring.core.run import Run
from mainspring.core.showing.run_view import RunView
from mainspring.django.application import app
from mainspring.django.conf import conf
from mainspring.jobstores.base import JobStore
from mainspring.node.node import Node
from mainspring.node.store_link import StoreLink

__all__ = ["enqueued", "run_queue"]


def run_queue(*queues: str) -> int:
    """Execute the due runs of these queues, or of all, and the runs they enqueue; return the number of starts.

    This thread becomes the worker, on its connection and inside its transaction, so it works in a `TestCase`. A failed
    run with retries left is retried at once. Runs that are due later stay.
    """
    return _QueueRunner(app.store, queues).run()


def enqueued(func: Callable[..., Any] | str | None = None, *, queue: str | None = None) -> list[RunView]:
    """Return the waiting runs of one task, or of all, oldest first."""
    found = app.find(status=["pending", "blocked"], task=func, queue=queue, limit=10_000)
    return sorted(found, key=lambda run: (run.record.created_at, run.id))


class _QueueRunner(InlineRunner):
    """A runner of the project's runs in this thread."""

    def __init__(self, store: JobStore, queues: Iterable[str]) -> None:
        super().__init__(app)
        self.store = store  # type: ignore[assignment]
        self._queues, self.started = tuple(queues), 0

    def run(self) -> int:
        """Execute due runs until none is left; return the number of starts."""
        self.work()
        return self.started

    def _prepare(self, run: Run) -> Run:
        self.started += 1
        prepared = super()._prepare(run)
        if iscoroutinefunction_partial(prepared.call.func):
            return prepared
        return replace(prepared, call=prepared.call.found(_behind_savepoint(prepared.call.func)))

    def _work(self, node: Node, link: StoreLink) -> bool:
        found = [queue for queue in self.store.stats().queues if queue.waiting and not queue.paused]
        names = [queue.name for queue in found if not queue.name.startswith(("!", "."))]
        wanted = [name for name in names if not self._queues or name in self._queues]
        before = self.started
        if wanted:
            node.queues = dict.fromkeys(wanted)
            link.worker.look_everywhere()
            link.worker()  # claims and executes
            while link.worker.outbox:
                link.worker()  # settles
        return self.started > before


def _behind_savepoint(func: Any) -> Callable[..., Any]:
    """Keep a failed SQL statement of a task from breaking the test's transaction."""

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        alias = conf().alias or "default"
        if not connections[alias].in_atomic_block:
            return func(*args, **kwargs)
        with transaction.atomic(using=alias):
            return func(*args, **kwargs)

    return call
