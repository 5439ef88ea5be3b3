"""Runs on their way to the store: batch after batch, each stored while the next is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Final, Self

from mainspring.app.handle import RunHandle
from mainspring.core.run import Run
from mainspring.errors import add_note
from mainspring.jobstores.base import JobStore

__all__ = ["BATCH", "Sender"]

BATCH: Final = 1000
"""Runs that are stored with one round trip."""
HEAD_START: Final = 0.005
"""Seconds in which a full batch is handed to the driver; who makes the next would keep the interpreter all the time."""


class Sender:
    """Stores runs in the order in which they are sent, and collects their handles."""

    def __init__(self, send: Callable[..., list[RunHandle[Any]]], handles: list[RunHandle[Any]]) -> None:
        self._send, self._handles = send, handles
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

    def send(self, store: JobStore, runs: Sequence[Run]) -> None:
        """Store up to a batch of runs: now or, if it is full and more may follow, while the caller goes on."""
        if len(runs) < BATCH or not store.remote:
            self.wait()
            self._handles += self._send(runs)
            return
        add = store.pack_runs(runs)
        self.wait()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "mainspring-sender")
        self._sent = self._pool.submit(self._send, runs, add)
        wait([self._sent], HEAD_START)

    def wait(self) -> None:
        """Wait until all that was sent is stored."""
        sent, self._sent = self._sent, None
        if sent is not None:
            self._handles += sent.result()
