"""The verbs about queues and limits: list, pause, resume, limit, purge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from mainspring.app.runs import Runs
from mainspring.core.quantities import check_count
from mainspring.core.validation import check_queue
from mainspring.core.waiting.gates import KEY_GATE, QUEUE_GATE
from mainspring.jobstores.base import QueueInfo

if TYPE_CHECKING:
    from mainspring.app.declaring.task import Task
    from mainspring.app.store import AppStore

__all__ = ["Queues"]

_Infos = list[QueueInfo]  # inside the class, `list` is a verb


class Queues:
    """An app's queues: `app.queues()` lists them."""

    def __init__(self, app_store: AppStore, runs: Callable[[], Runs], names: Iterable[str]) -> None:
        self._app_store, self._runs = app_store, runs
        self.declared = {check_queue(name): None for name in names}
        """The queues that the app's tasks use and those given to the app, in the order of their declaration."""

    def list(self) -> _Infos:
        """Return the queues that hold unfinished runs, are paused, or are declared by this app."""
        queues = self._app_store.store.stats().queues
        found = {info.name: info for info in queues if not info.name.startswith((".", "!"))}  # no worker serves those
        return [found.get(name) or QueueInfo(name=name) for name in sorted({*found, *self.declared})]

    __call__ = list

    def pause(self, name: str) -> None:
        """Stop workers from claiming runs of a queue until it is resumed; its limit is kept."""
        before = self._limit_of(check_queue(name))
        self._app_store.store.set_gate(QUEUE_GATE + name, -abs(before or 0))
        self._app_store.acts.record("pause_queue", "queue", name)

    def resume(self, name: str) -> None:
        """Let workers claim runs of a queue again, as many at once as its limit says."""
        before = self._limit_of(check_queue(name))
        if before is not None and before <= 0:
            self._app_store.store.set_gate(QUEUE_GATE + name, -before or None)
        self._app_store.acts.record("resume_queue", "queue", name)
        self._app_store.work_inline()

    def limit(self, name: str, number: int | None) -> None:
        """Let at most `number` runs of a queue run at once, on all nodes together; None lifts the limit."""
        before = self._limit_of(check_queue(name))
        allowed = None if number is None else check_count(f"the limit of the queue {name!r}", number)
        if before is not None and before <= 0:  # the queue stays paused
            allowed = -(allowed or 0)
        self._app_store.store.set_gate(QUEUE_GATE + name, allowed)
        self._app_store.acts.record("limit_queue", "queue", name, limit=number)
        self._app_store.work_inline()

    def set_limit(self, key: str | Task[..., object], number: int | None) -> None:
        """Let at most `number` runs of a key run at once, in place of their task's limit; None restores that limit.

        `key` is the filled-in `limit_key` of the calls, or the task if it has none. With 0, none start.
        """
        name = key if isinstance(key, str) else key.name
        allowed = None if number is None else check_count(f"the limit of {name!r}", number, least=0)
        self._app_store.store.set_gate(KEY_GATE + name, allowed)
        self._app_store.acts.record("set_limit", "limit", name, limit=number)
        self._app_store.work_inline()

    def key_limits(self) -> dict[str, int]:
        """Return the numbers that `set_limit` has set, by key or task."""
        return {name.removeprefix(KEY_GATE): number for name, number in self._app_store.store.stats().limits.items()}

    def _limit_of(self, name: str) -> int | None:
        found = (info.limit for info in self._app_store.store.stats().queues if info.name == name)
        return next(found, None)

    def purge(self, name: str) -> int:
        """Cancel all pending runs of a queue; return how many."""
        began = self._app_store.now()
        number = self._runs().purge(check_queue(name))
        self._app_store.acts.record("purge", "queue", name, runs=number, began=began)
        return number

    def to_serve(self, wanted: Mapping[str, int | None] | Iterable[str] | None) -> dict[str, int | None]:
        """Check and return the queues that a node should serve, each with its limit; by default the declared ones."""
        if wanted is None:
            return dict.fromkeys(self.declared)
        if isinstance(wanted, str):
            raise TypeError(
                f"queues must be a list of names, or a mapping of names to limits, not {wanted!r}; "
                f"did you mean [{wanted!r}]?"
            )
        if not isinstance(wanted, Mapping):
            return {check_queue(name): None for name in wanted}
        limits = {check_queue(name): limit for name, limit in wanted.items()}
        return {
            name: None if limit is None else check_count(f"the limit of the queue {name!r}", limit)
            for name, limit in limits.items()
        }
