"""TornadoScheduler on a real IOLoop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from tornado import gen
from tornado.ioloop import IOLoop

from mainspring.events import EVENT_JOB_EXECUTED
from mainspring.schedulers.tornado import TornadoScheduler
from tests.schedulers.kit import LIMIT


def outcomes(scheduler: TornadoScheduler, count: int) -> asyncio.Future[list[Any]]:
    """Return what the first `count` runs return, in the order of their ends, once they have."""
    future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
    values: list[Any] = []

    def hear(event: Any) -> None:
        assert threading.current_thread() is threading.main_thread()
        values.append(event.retval)
        if len(values) == count:
            future.set_result(values)

    scheduler.add_listener(hear, EVENT_JOB_EXECUTED)
    return future


def test_native_and_decorated_coroutines_run_on_the_io_loop_and_functions_in_threads() -> None:
    async def native() -> Any:
        await gen.sleep(0)
        return IOLoop.current()

    @gen.coroutine
    def decorated() -> Any:
        yield gen.sleep(0)
        return "decorated"

    async def main() -> None:
        scheduler = TornadoScheduler(timezone="UTC")
        scheduler.start()
        found = outcomes(scheduler, 3)
        for func in (native, decorated, threading.current_thread):
            scheduler.add_job(func)
        async with asyncio.timeout(LIMIT):
            values = await found
        scheduler.shutdown()
        assert IOLoop.current() in values
        assert "decorated" in values
        (thread,) = [value for value in values if isinstance(value, threading.Thread)]
        assert thread is not threading.main_thread()

    asyncio.run(main())


def test_it_is_started_before_its_io_loop() -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        io_loop = IOLoop.current()
        scheduler = TornadoScheduler(timezone="UTC", io_loop=io_loop)
        scheduler.start()

        async def end() -> None:
            assert IOLoop.current() is io_loop
            io_loop.stop()

        scheduler.add_job(end)
        io_loop.start()
        scheduler.shutdown()
        io_loop.close()
    finally:
        asyncio.set_event_loop(None)


def test_shutdown_on_the_io_loop_does_not_block_it() -> None:
    async def main() -> None:
        began, go_on = asyncio.Event(), asyncio.Event()

        async def work() -> str:
            began.set()
            await go_on.wait()
            return "ended"

        scheduler = TornadoScheduler(timezone="UTC")
        scheduler.start()
        found = outcomes(scheduler, 1)
        scheduler.add_job(work)
        async with asyncio.timeout(LIMIT):
            await began.wait()
            scheduler.shutdown()
            go_on.set()
            assert await found == ["ended"]

    asyncio.run(main())
