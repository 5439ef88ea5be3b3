"""Runs on their way to the store: batch after batch, each stored while the next is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from mainspring.app.handle import RunHandle
from mainspring.app.runs import ALIAS
from mainspring.core.run import Run
from mainspring.errors import OutcomeUnknown, StoreUnavailable, add_note

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["BATCH", "Sender", "send"]

BATCH: Final = 1000
"""Runs that are stored with one round trip."""
HEAD_START: Final = 0.005
"""Seconds in which a full batch is handed to the driver; who makes the next would keep the interpreter all the time."""


def send(app: Mainspring, runs: Sequence[Run], add: Callable[[], list[str]] | None = None) -> list[RunHandle[Any]]:
    """Store runs, by `add` if they are packed already, and return their handles.

    Raise OutcomeUnknown with their ids if they may be stored and the store does not say so, asked again either.
    """
    if add is None:
        add = partial(app.store.add_runs, runs)
    try:
        ids = add()
    except OutcomeUnknown as unknown:
        try:
            ids = add()  # with the same ids, so none is stored twice
        except StoreUnavailable as error:  # which says nothing of the first try
            unknown.run_ids = tuple(run.id for run in runs)
            raise unknown from error
    # Under another id it is a run that was there already, by its unique key.
    app.events.submitted((run for run, run_id in zip(runs, ids, strict=True) if run.id == run_id), ALIAS)
    app.wake_worker(runs)
    return [RunHandle(app.runs, run_id) for run_id in ids]


class Sender:
    """Stores runs in the order in which they are sent, and collects their handles."""

    def __init__(self, app: Mainspring, handles: list[RunHandle[Any]]) -> None:
        self._app, self._handles = app, handles
        self._pool: ThreadPoolExecutor | None = None
        self._sent: Future[list[RunHandle[Any]]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, failed: BaseException | None, trace: object) -> None:
        try:
            self.wait()
        except Exception as error:
            if failed is None:
                failed = error
                raise
            add_note(failed, f"the calls sent last before it may not be stored: {error!r}")
        finally:
            if failed is not None and self._handles:
                add_note(failed, f"the first {len(self._handles):,} calls are stored")
            if self._pool is not None:
                self._pool.shutdown()

    def send(self, runs: Sequence[Run]) -> None:
        """Store up to a batch of runs: now or, if it is full and more may follow, while the caller goes on."""
        store = self._app.store
        if len(runs) < BATCH or not store.remote:
            self.wait()
            self._handles += send(self._app, runs)
            return
        add = store.pack_runs(runs)
        self.wait()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "mainspring-sender")
        self._sent = self._pool.submit(send, self._app, runs, add)
        wait([self._sent], HEAD_START)

    def wait(self) -> None:
        """Wait until all that was sent is stored."""
        sent, self._sent = self._sent, None
        if sent is not None:
            self._handles += sent.result()
