"""Run one coroutine to its end in a thread."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any

from mainspring.executors.forks import leave_if_forked

if TYPE_CHECKING:
    from mainspring.executors.threads.slots import Slot

__all__ = ["finish", "run_alone"]

Outcome = list[tuple[Any, BaseException | None]]
"""Receives the value or the exception of a coroutine."""


def finish(slot: Slot, coroutine: Coroutine[Any, Any, Any], context: Context) -> Any:
    """Run a coroutine to its end in the slot's thread, on a loop that the slot keeps for its next coroutine."""
    if asyncio._get_running_loop() is not None:
        return _finish_elsewhere(slot, coroutine, context)
    runner = slot.runner
    try:
        if runner is None:
            runner = slot.runner = asyncio.Runner()
        outcome: Outcome = []
        runner.run(_alone(slot, coroutine, outcome), context=context)
    except BaseException:
        # An interrupt, or the SystemExit of a child task, hit the loop itself, which may be in any state.
        coroutine.close()
        slot.close()
        raise
    return _result(outcome)


def run_alone(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end in this thread, on a new loop.

    Its exception bypasses asyncio: a loop would never stop if `isinstance` failed on the exception.
    """
    outcome: Outcome = []
    home = os.getpid()

    async def catch() -> None:
        try:
            outcome.append((await coroutine, None))
            leave_if_forked(home)
        except BaseException as error:
            leave_if_forked(home, error)
            outcome.append((None, error))

    asyncio.run(catch())
    return _result(outcome)


def _result(outcome: Outcome) -> Any:
    value, error = outcome.pop()
    try:
        if error is not None:
            raise error
        return value
    finally:
        error = None  # its traceback holds this frame


async def _alone(slot: Slot, coroutine: Coroutine[Any, Any, Any], outcome: Outcome) -> None:
    """Await the coroutine, then cancel the tasks it left behind, so that no part of a run goes on in the next one.

    The outcome goes into a list: asyncio would make the repr of a returned one, and the repr of a value may fail.
    """
    slot.task = me = asyncio.current_task()
    value = error = None
    try:
        value = await coroutine
    except BaseException as exc:  # SystemExit and KeyboardInterrupt, too, would stop the loop
        error = exc
    leave_if_forked(slot.home, error)
    try:
        left = asyncio.all_tasks() - {me}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
    except asyncio.CancelledError as exc:
        error = error or exc
    finally:
        slot.task = None
    outcome.append((value, error))
    error = None  # its traceback holds this frame


def _finish_elsewhere(slot: Slot, coroutine: Coroutine[Any, Any, Any], context: Context) -> Any:
    """Run a coroutine in another thread while this one waits, because this one has a running loop."""
    outcome: Outcome = []

    def run() -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(_alone(slot, coroutine, outcome), context=context)
        except BaseException as error:
            coroutine.close()
            outcome.append((None, error))

    thread = threading.Thread(target=run, name="mainspring-coroutine", daemon=True)
    thread.start()
    thread.join()
    return _result(outcome)
