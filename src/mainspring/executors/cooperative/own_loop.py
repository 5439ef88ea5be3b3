"""An event loop of our own: it goes on, or is replaced, whatever a run does to it.

Many runs share the loop, and any of them may call `loop.stop()`, cancel all tasks or let a child task exit. None of
that may end the loop, nor disturb the neighbours.
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
        """The thread that ends once the executor is closed and nothing is left."""
        return self._keeper.thread

    def is_executed(self, run: Run) -> bool:
        """Tell whether a run has started and not ended."""
        return any(entry.item[0] is run for entry in list(self._started))

    def accuse(self, run: Run) -> None:
        """Say in the log, once, that a run has tried to cancel what is not its own."""
        if self._accused is not run:
            self._accused = run
            self._logger.warning(
                "%s tried to cancel tasks of other runs, which go on: all runs of a process share its event loop, so "
                "cancel only the tasks that this run has made, not asyncio.all_tasks()",
                shown(run),
            )

    def _make_task(self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any) -> RunTask:
        return RunTask(self, coro, loop=loop, **options)

    def _turns(self) -> bool:
        return self.thread.is_alive()  # a run may have stopped the loop just now, and it turns again in a moment

    def _abandon(self) -> None:
        if not self.thread.is_alive():  # else a new loop is on its way, which takes up what waits
            super()._abandon()

    def _replaced(self, loop: asyncio.AbstractEventLoop) -> None:
        """Go on with a new loop; what the old one executed has come to an end."""
        self.loop = loop
        for entry in list(self._started):
            self._end(entry, None, _LoopGone("the event loop ended before the run did: somebody has closed it"))
        self._call(self._begin)
        self._call(self._check_left)

    def _message(self, entry: StartedEntry, value: Any, error: BaseException | None) -> Report:
        run = entry.item[0]
        # Not isinstance: a run may have raised something whose class cannot be asked.
        if type(error) is _LoopGone and entry.stop is None and not run.interruptions:
            # Most of them are innocent. Whoever has closed the loop would do so every time, so only once.
            return Report(run, Result.INTERRUPTED, started_at=entry.at, finished_at=self._now())
        return super()._message(entry, value, error)


class RunTask(asyncio.Task[Any]):
    """A task on the loop. As long as the run that has made it is executed, no other run can cancel it."""

    def __init__(self, runs: OwnLoopRuns, coro: Coroutine[Any, Any, Any], **options: Any) -> None:
        super().__init__(coro, **options)
        context = options.get("context")
        made_by = CURRENT.get() if context is None else context.get(CURRENT)
        self._runs, self._run = runs, None if made_by is None else made_by[0]

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the task, unless it is part of another run than the caller."""
        caller, run = CURRENT.get(), self._run
        if caller is None or run is None or caller[0] is run or not self._runs.is_executed(run):
            return super().cancel(msg)
        self._runs.accuse(caller[0])
        return False


class _LoopGone(RuntimeError):
    """The loop was closed by somebody else."""


def _refuse_to_close() -> None:
    """Stand in for `loop.close()`: closed by another thread while it turns, a loop would wait for ever."""
    raise RuntimeError("this event loop belongs to mainspring, and other runs are on it; it cannot be closed")


class _LoopThread:
    """A daemon thread in which a loop turns until `end` is called on it."""

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
        """Have the loop and the thread end; for the loop only."""
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
                self._logger.error("the event loop was closed by somebody else; it is replaced")
                self._replaced(self.loop)
            started.set()
            self._turn()
            with suppress(AttributeError):
                del self.loop.close
        runner.close()

    def _turn(self) -> None:
        """Keep the loop turning until it is to end, or can turn no more."""
        while not self._ending:
            try:
                self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:  # of a child task or a callback
                self._logger.error("a run let %r escape on the event loop, which goes on", error)
            except BaseException:  # whatever a run raises stays inside, so the loop itself is broken
                return
            else:
                if not self._ending:
                    self._logger.warning("a run has stopped the event loop, which goes on")
