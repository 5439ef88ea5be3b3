"""The verbs about queues: list, pause, resume, purge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from mainspring.app.runs import Runs
from mainspring.core.quantities import check_count
from mainspring.core.validation import check_queue
from mainspring.jobstores.base import QueueInfo

if TYPE_CHECKING:
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
        found = {info.name: info for info in self._app_store.store.stats().queues if not info.name.startswith(".")}
        return [found.get(name) or QueueInfo(name=name) for name in sorted({*found, *self.declared})]

    __call__ = list

    def pause(self, name: str) -> None:
        """Stop workers from claiming runs of a queue until it is resumed."""
        self._app_store.store.set_queue(check_queue(name), paused=True)
        self._app_store.acts.record("pause_queue", "queue", name)

    def resume(self, name: str) -> None:
        """Let workers claim runs of a queue again."""
        self._app_store.store.set_queue(check_queue(name), paused=False)
        self._app_store.acts.record("resume_queue", "queue", name)
        self._app_store.work_inline()

    def purge(self, name: str) -> int:
        """Cancel all pending runs of a queue; return how many."""
        began = self._app_store.now()
        number = self._runs().purge(check_queue(name))
        self._app_store.acts.record("purge", "queue", name, runs=number, began=began)
        return number

    def limits(self, wanted: Mapping[str, int | None] | Iterable[str] | None) -> dict[str, int | None]:
        """Check and return the queues that a node should serve, each with its limit; by default the declared ones."""
        if wanted is None:
            return dict.fromkeys(self.declared)
        if not isinstance(wanted, Mapping):
            return {check_queue(name): None for name in wanted}
        limits = {check_queue(name): limit for name, limit in wanted.items()}
        return {
            name: None if limit is None else check_count(f"the limit of the queue {name!r}", limit)
            for name, limit in limits.items()
        }
