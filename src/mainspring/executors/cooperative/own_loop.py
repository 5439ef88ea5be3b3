"""An event loop in our own thread, which survives or is replaced whatever a run does to it.

Many runs share the loop, and any of them may call `loop.stop()`, cancel all tasks or let a child task exit. None of
this may end the loop or disturb the other runs.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mainspring.core.run import Report, Result, Run
from mainspring.executors.cooperative.base import StartedEntry
from mainspring.executors.cooperative.loops import LoopRuns
from mainspring.executors.current_run import CURRENT
from mainspring.executors.execution import shown

if TYPE_CHECKING:
    from mainspring.executors.base import BaseExecutor

__all__ = ["OwnLoopRuns"]


class OwnLoopRuns(LoopRuns):
    """Coroutine runs on a loop in a thread of ours."""

    def __init__(self, executor: BaseExecutor, name: str, limit: int, grace: float) -> None:
        self._accused: Run | None = None
        self._keeper = _LoopThread(name, self._make_task, self._replaced, executor._logger)
        super().__init__(executor, self._keeper.loop, limit, grace)
        self.on_empty = self._keeper.end

    @property
    def thread(self) -> threading.Thread:
        """The thread of the loop; it ends once the executor is closed and no run is left."""
        return self._keeper.thread

    def is_executed(self, run: Run) -> bool:
        """Return True if a run has started and not ended."""
        return any(entry.item[0] is run for entry in list(self._started))

    def accuse(self, run: Run) -> None:
        """Log once that a run has tried to cancel tasks of other runs."""
        if self._accused is not run:
            self._accused = run
            self._logger.warning(
                "%s tried to cancel tasks of other runs, which go on. All runs of a process share its event loop, so "
                "cancel only tasks that this run has made, not asyncio.all_tasks()",
                shown(run),
            )

    def _make_task(self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any) -> RunTask:
        return RunTask(self, coro, loop=loop, **options)

    def _turns(self) -> bool:
        return self.thread.is_alive()  # a run may just have stopped the loop, which will restart

    def _abandon(self) -> None:
        if not self.thread.is_alive():  # else a new loop is about to start and takes the waiting runs
            super()._abandon()

    def _replaced(self, loop: asyncio.AbstractEventLoop) -> None:
        """Switch to a new loop, and end the runs of the old one."""
        self.loop = loop
        for entry in list(self._started):
            self._end(entry, None, _LoopGone("the event loop ended before the run did: somebody has closed it"))
        self._call(self._begin)
        self._call(self._check_left)

    def _message(self, entry: StartedEntry, value: Any, error: BaseException | None) -> Report:
        run = entry.item[0]
        # Do not use isinstance, which may fail on the exception of a run.
        if type(error) is _LoopGone and entry.stop is None and not run.interruptions:
            # Most of these runs are innocent, but the one that closed the loop may do so again: repeat them only once.
            return Report(run, Result.INTERRUPTED, started_at=entry.at, finished_at=self._now())
        return super()._message(entry, value, error)


class RunTask(asyncio.Task[Any]):
    """A task on the loop. While the run that made it goes on, no other run can cancel it."""

    def __init__(self, runs: OwnLoopRuns, coro: Coroutine[Any, Any, Any], **options: Any) -> None:
        super().__init__(coro, **options)
        context = options.get("context")
        made_by = CURRENT.get() if context is None else context.get(CURRENT)
        self._runs, self._run = runs, None if made_by is None else made_by[0]

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the task, unless it belongs to a run other than the caller's."""
        caller, run = CURRENT.get(), self._run
        if caller is None or run is None or caller[0] is run or not self._runs.is_executed(run):
            return super().cancel(msg)
        self._runs.accuse(caller[0])
        return False


class _LoopGone(RuntimeError):
    """A run closed the loop."""


def _refuse_to_close() -> None:
    """Replace `loop.close()`: a loop that another thread closes while it is running would wait for ever."""
    raise RuntimeError("this event loop belongs to mainspring and other runs use it; it cannot be closed")


class _LoopThread:
    """A daemon thread that runs a loop until the loop calls `end`."""

    def __init__(
        self,
        name: str,
        make_task: Callable[..., asyncio.Task[Any]],
        replaced: Callable[[asyncio.AbstractEventLoop], None],
        logger: logging.Logger,
    ) -> None:
        self._make_task, self._replaced, self._logger = make_task, replaced, logger
        self._ending = False
        started = threading.Event()
        self.thread = threading.Thread(target=self._serve, args=(started,), name=name, daemon=True)
        self.thread.start()
        started.wait()

    def end(self) -> None:
        """End the loop and the thread; only the loop calls this."""
        self._ending = True
        self.loop.stop()

    def _serve(self, started: threading.Event) -> None:
        while not self._ending:
            runner = asyncio.Runner()
            self.loop = runner.get_loop()
            self.loop.set_task_factory(self._make_task)
            with suppress(AttributeError):  # loops that are not asyncio's own may take no attributes
                self.loop.close = _refuse_to_close  # type: ignore[method-assign]
            if started.is_set():
                self._logger.error("a run closed the event loop; a new one takes its place")
                self._replaced(self.loop)
            started.set()
            self._turn()
            with suppress(AttributeError):
                del self.loop.close
        runner.close()

    def _turn(self) -> None:
        """Keep the loop running until it should end, or is broken."""
        while not self._ending:
            try:
                self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:  # of a child task or a callback
                self._logger.error("a run let %r escape into the event loop, which goes on", error)
            except BaseException:  # exceptions of runs stay inside their tasks, so the loop itself is broken
                return
            else:
                if not self._ending:
                    self._logger.warning("a run stopped the event loop, which goes on")
