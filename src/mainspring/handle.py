"""A run seen by whoever enqueued it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mainspring.run import Status
from mainspring.runs import Runs, RunView, Waiter, result_of

if TYPE_CHECKING:
    from mainspring.jobstores.base import JobStore

__all__ = ["RunHandle"]

R = TypeVar("R", covariant=True)


class RunHandle(Generic[R]):
    """A run by its id. `await handle` gives its result."""

    __slots__ = ("_runs", "id")

    def __init__(self, runs: Runs, run_id: str) -> None:
        self._runs = runs
        self.id = run_id

    def status(self) -> Status:
        """Return where the run is in its life; raise RunNotFound."""
        return self._runs.read(self.id).status

    def fetch(self) -> RunView:
        """Return the run's record; raise RunNotFound."""
        return self._runs.get(self.id)

    def done(self) -> bool:
        """Tell whether the run has ended."""
        return self.fetch().finished

    def wait(self, timeout: float | None = None) -> RunView:
        """Wait until the run has ended, however it did; raise TimeoutError."""
        self._runs.wait([self.id], timeout)
        return self.fetch()

    def result(self, timeout: float | None = None) -> R:
        """Wait for the run and return what it returned.

        Raise RunFailed with the remote traceback, RunCancelled, TimeoutError, or RunNotFound.
        """
        return result_of(self._runs.wait([self.id], timeout)[0])  # type: ignore[no-any-return]

    def cancel(self) -> bool:
        """Cancel the run; False if it has ended."""
        return self._runs.cancel(self.id)

    def retry(self) -> None:
        """Send the run back to pending if it failed, was cancelled or is broken."""
        self._runs.retry(self.id)

    async def result_async(self, timeout: float | None = None) -> R:
        """Wait for the result without blocking the event loop."""
        deadline = None if timeout is None else time.monotonic() + timeout
        waiter = Waiter([self.id])
        while not await asyncio.to_thread(waiter.look, self._store()):
            pause = waiter.pause()
            if deadline is not None:
                if time.monotonic() >= deadline:
                    raise waiter.too_late(timeout)
                pause = min(pause, max(0.0, deadline - time.monotonic()))
            await asyncio.sleep(pause)
        return result_of(waiter.ended()[0])  # type: ignore[no-any-return]

    def __await__(self) -> Generator[Any, None, R]:
        return self.result_async().__await__()

    def _store(self) -> JobStore:
        return self._runs._store()

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, RunHandle) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<RunHandle {self.id}>"
