"""Coroutine functions run on the loop, plain functions in threads, listeners on the loop."""

import asyncio
import threading

from mainspring.events import EVENT_JOB_EXECUTED
from mainspring.schedulers.asyncio import AsyncIOScheduler


async def fetch(name: str) -> str:
    await asyncio.sleep(0.1)
    return f"{name} fetched on {threading.current_thread().name}"


def crunch() -> str:
    where = "a thread" if threading.current_thread() is not threading.main_thread() else "the loop"
    return f"crunched on {where}"


async def main() -> None:
    results: asyncio.Queue[str] = asyncio.Queue()
    async with AsyncIOScheduler() as scheduler:
        scheduler.add_listener(lambda event: results.put_nowait(event.retval), EVENT_JOB_EXECUTED)
        scheduler.add_job(fetch, args=["news"])
        scheduler.add_job(crunch)
        for _ in range(2):
            print(await results.get())


asyncio.run(main())
