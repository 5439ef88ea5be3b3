"""Coroutine functions: to their end in a thread, or many at once on an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainspring.executors.threads.slots import Slot

__all__ = ["finish"]


def finish(slot: Slot, coroutine: Coroutine[Any, Any, Any], context: Context) -> Any:
    """Run a coroutine to its end in the slot's thread, on a loop that the slot keeps for the next one."""
    if asyncio._get_running_loop() is not None:
        return _finish_elsewhere(slot, coroutine, context)
    runner = slot.runner
    try:
        if runner is None:
            runner = slot.runner = asyncio.Runner()
        value, error = runner.run(_alone(slot, coroutine), context=context)
    except BaseException:
        # The loop itself was hit, by an interrupt or by a child task's SystemExit: it may be in any state.
        coroutine.close()
        slot.close()
        raise
    if error is not None:
        raise error
    return value


async def _alone(slot: Slot, coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """Await the coroutine, then cancel what it left behind: nothing of a run goes on in the next one."""
    slot.task = me = asyncio.current_task()
    value = error = None
    try:
        value = await coroutine
    except BaseException as exc:  # SystemExit and KeyboardInterrupt, too, would stop the loop
        error = exc
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
    try:
        return value, error
    finally:
        error = None  # its traceback holds this frame


def _finish_elsewhere(slot: Slot, coroutine: Coroutine[Any, Any, Any], context: Context) -> Any:
    """Run a coroutine in a thread of its own while this one, which has a running loop, waits."""
    outcome: list[tuple[Any, BaseException | None]] = []

    def run() -> None:
        try:
            with asyncio.Runner() as runner:
                outcome.append(runner.run(_alone(slot, coroutine), context=context))
        except BaseException as error:
            coroutine.close()
            outcome.append((None, error))

    thread = threading.Thread(target=run, name="mainspring-coroutine", daemon=True)
    thread.start()
    thread.join()
    value, error = outcome[0]
    try:
        if error is not None:
            raise error
        return value
    finally:
        error = None
