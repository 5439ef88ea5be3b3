"""A handle on an enqueued run."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec

from mainspring.app.declaring.habits import HANDLE_HABITS, attributes_elsewhere
from mainspring.app.runs import Runs
from mainspring.core.insight.explanation import Explanation
from mainspring.core.run import Status
from mainspring.core.showing.run_view import RunView
from mainspring.core.waiting.placeholders import Placeholder
from mainspring.core.waiting.results import result_of

__all__ = ["RunHandle"]

R = TypeVar("R", covariant=True)


# Without gc=False, the garbage collector would scan a million kept handles again and again.
class RunHandle(msgspec.Struct, Generic[R], eq=False, gc=False):
    """A handle on a run, by its id. `await handle` gives the run's result."""

    _runs: Runs
    id: str

    @property
    def output(self) -> R:
        """The result as an argument of another call: `parse.enqueue(page.output)`.

        That call starts once this run has succeeded. Until then, `output` is a placeholder that you can only pass on,
        alone or inside lists, tuples and dicts.
        """
        return cast(R, Placeholder(self.id))

    def status(self) -> Status:
        """Return the run's status; raise RunNotFound."""
        return self._runs.read(self.id).status

    def fetch(self) -> RunView:
        """Return the run's record; raise RunNotFound."""
        return self._runs.get(self.id)

    def done(self) -> bool:
        """Return True if the run has ended."""
        return self.fetch().finished

    def wait(self, timeout: float | None = None) -> RunView:
        """Wait until the run has ended in any way; raise TimeoutError."""
        return self._runs.wait([self.id], timeout)[0]

    def result(self, timeout: float | None = None) -> R:
        """Wait for the run and return its result.

        Raise RunFailed with the remote traceback, RunCancelled, TimeoutError, RunNotFound, or UnverifiedOutcome if
        no holder of the key has signed the run's end.
        """
        return self._runs.result_of(self._runs.wait_for_records([self.id], timeout)[0])  # type: ignore[no-any-return]

    def cancel(self) -> bool:
        """Cancel the run; return False if it has already ended."""
        return self._runs.cancel(self.id)

    def retry(self) -> None:
        """Send the run back to pending if it failed, was cancelled or is broken."""
        self._runs.retry(self.id)

    def explain(self) -> Explanation:
        """Explain why the run has or has not run."""
        return self._runs.explain(self.id)

    if not TYPE_CHECKING:  # a type checker would believe that a handle has every attribute
        __getattr__ = attributes_elsewhere(HANDLE_HABITS)

    async def result_async(self, timeout: float | None = None) -> R:
        """Wait for the result without blocking the event loop."""
        record = (await self._runs.wait_async([self.id], timeout))[0].record
        if record.refused is None:
            return result_of(record)  # type: ignore[no-any-return]
        found: R = await self._runs.off_loop(lambda: self._runs.result_of(record))
        return found

    def __await__(self) -> Generator[Any, None, R]:
        return self.result_async().__await__()

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, RunHandle) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<RunHandle {self.id}>"
