"""AsyncIOScheduler on a real event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from mainspring.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, EVENT_SCHEDULER_SHUTDOWN
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.schedulers.asyncio import AsyncIOScheduler
from tests.schedulers.kit import LIMIT, Program


def on_a_loop(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine function on a loop of its own; nothing in it may take for ever."""

    async def limited() -> None:
        async with asyncio.timeout(LIMIT):
            await main()

    asyncio.run(limited())


class Heard:
    """Events and the threads they came on, to be awaited."""

    def __init__(self, scheduler: AsyncIOScheduler) -> None:
        self.events: list[Any] = []
        self.threads: set[threading.Thread] = set()
        self._changed = asyncio.Event()
        scheduler.add_listener(self)

    def __call__(self, event: Any) -> None:
        self.events.append(event)
        self.threads.add(threading.current_thread())
        self._changed.set()

    async def wait(self, code: int, count: int = 1) -> Any:
        while True:
            self._changed.clear()
            found = [event for event in self.events if event.code & code]
            if len(found) >= count:
                return found[count - 1]
            await self._changed.wait()


def test_a_coroutine_function_runs_on_the_loop() -> None:
    async def main() -> None:
        here = asyncio.get_running_loop()

        async def work(value: int) -> tuple[bool, int]:
            await asyncio.sleep(0)
            return asyncio.get_running_loop() is here, value

        async with AsyncIOScheduler(timezone="UTC") as scheduler:
            heard = Heard(scheduler)
            scheduler.add_job(work, args=[7])
            assert (await heard.wait(EVENT_JOB_EXECUTED)).retval == (True, 7)

    on_a_loop(main)


def test_a_plain_function_runs_off_the_loop() -> None:
    async def main() -> None:
        async with AsyncIOScheduler(timezone="UTC") as scheduler:
            heard = Heard(scheduler)
            scheduler.add_job(threading.current_thread)
            assert (await heard.wait(EVENT_JOB_EXECUTED)).retval is not threading.current_thread()

    on_a_loop(main)


def test_a_plain_function_that_blocks_does_not_block_the_loop() -> None:
    async def main() -> None:
        go_on = threading.Event()
        async with AsyncIOScheduler(timezone="UTC") as scheduler:
            heard = Heard(scheduler)
            scheduler.add_job(go_on.wait, args=[LIMIT])
            scheduler.add_job(asyncio.sleep, args=[0, "slept"])
            assert (await heard.wait(EVENT_JOB_EXECUTED)).retval == "slept"
            go_on.set()
            assert (await heard.wait(EVENT_JOB_EXECUTED, 2)).retval is True

    on_a_loop(main)


def test_listeners_are_called_on_the_thread_of_the_loop() -> None:
    async def main() -> None:
        scheduler = AsyncIOScheduler(timezone="UTC")
        heard = Heard(scheduler)
        scheduler.start()
        scheduler.add_job(print, kwargs={"end": ""})
        scheduler.add_job(asyncio.sleep, args=[0])
        await heard.wait(EVENT_JOB_EXECUTED, 2)
        await scheduler.stop()
        await heard.wait(EVENT_SCHEDULER_SHUTDOWN)
        assert heard.threads == {threading.current_thread()}

    on_a_loop(main)


def test_many_coroutines_run_at_once() -> None:
    async def main() -> None:
        met = asyncio.Barrier(50)
        async with AsyncIOScheduler(timezone="UTC") as scheduler:
            heard = Heard(scheduler)
            for _ in range(50):
                scheduler.add_job(met.wait)
            await heard.wait(EVENT_JOB_EXECUTED, 50)

    on_a_loop(main)


def test_a_coroutine_that_raises_is_told() -> None:
    async def broken() -> None:
        raise KeyError("broken")

    async def main() -> None:
        async with AsyncIOScheduler(timezone="UTC") as scheduler:
            heard = Heard(scheduler)
            scheduler.add_job(broken)
            event = await heard.wait(EVENT_JOB_ERROR)
            assert isinstance(event.exception, KeyError)
            assert "broken" in event.traceback

    on_a_loop(main)


def test_shutdown_on_the_loop_does_not_block_it_and_what_runs_ends() -> None:
    async def main() -> None:
        began, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def work() -> None:
            began.set()
            await go_on.wait()
            ended.set()

        scheduler = AsyncIOScheduler(timezone="UTC")
        heard = Heard(scheduler)
        scheduler.start()
        scheduler.add_job(work)
        await began.wait()
        scheduler.shutdown()
        assert not scheduler.running
        assert not ended.is_set()
        go_on.set()
        await ended.wait()
        await heard.wait(EVENT_JOB_EXECUTED)

    on_a_loop(main)


def test_shutdown_from_a_coroutine_job() -> None:
    async def main() -> None:
        scheduler = AsyncIOScheduler(timezone="UTC")
        heard = Heard(scheduler)

        async def stop() -> str:
            scheduler.shutdown()
            return "stopped"

        scheduler.start()
        scheduler.add_job(stop)
        assert (await heard.wait(EVENT_JOB_EXECUTED)).retval == "stopped"
        assert not scheduler.running

    on_a_loop(main)


def test_stop_returns_after_what_runs_has_ended() -> None:
    async def main() -> None:
        began, ended = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            began.set()
            await asyncio.sleep(0.1)
            ended.set()

        scheduler = AsyncIOScheduler(timezone="UTC")
        scheduler.start()
        scheduler.add_job(work)
        await began.wait()
        await scheduler.stop()
        assert ended.is_set()

    on_a_loop(main)


class SlowStore(MemoryJobStore):
    """A store whose every answer to the ticks takes until the test lets it go on."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()
        self.asked = threading.Event()

    def due(self, limit: int, hold: float) -> Any:
        self.asked.set()
        assert self.go_on.wait(LIMIT)
        return super().due(limit, hold)

    def settle(self, outcomes: Any) -> Any:
        assert self.go_on.wait(LIMIT)
        return super().settle(outcomes)


def test_a_slow_store_does_not_block_the_loop() -> None:
    async def main() -> None:
        store, turns = SlowStore(), 0
        async with AsyncIOScheduler(timezone="UTC", jobstores={"default": store}) as scheduler:
            heard = Heard(scheduler)
            scheduler.add_job(asyncio.sleep, args=[0, "slept"])
            while not store.asked.is_set():
                await asyncio.sleep(0)
            for _ in range(100):
                await asyncio.sleep(0)
                turns += 1
            assert heard.events[-1].code != EVENT_JOB_EXECUTED
            store.go_on.set()
            assert (await heard.wait(EVENT_JOB_EXECUTED)).retval == "slept"
        assert turns == 100

    on_a_loop(main)


def test_it_can_be_started_before_its_loop_runs() -> None:
    loop = asyncio.new_event_loop()
    scheduler = AsyncIOScheduler(timezone="UTC", event_loop=loop)
    scheduler.start()

    async def end() -> None:
        assert asyncio.get_running_loop() is loop
        loop.stop()

    scheduler.add_job(end)
    loop.run_forever()
    scheduler.shutdown()
    loop.close()


def test_without_a_loop_the_error_says_what_to_do() -> None:
    scheduler = AsyncIOScheduler(timezone="UTC")
    with pytest.raises(RuntimeError, match="inside a coroutine, or pass event_loop="):
        scheduler.start()
    assert not scheduler.running


def test_it_runs_on_a_second_loop_after_the_first() -> None:
    scheduler = AsyncIOScheduler(timezone="UTC")

    async def main() -> None:
        async with scheduler:
            heard = Heard(scheduler)
            scheduler.add_job(asyncio.sleep, args=[0, "slept"])
            assert (await heard.wait(EVENT_JOB_EXECUTED)).retval == "slept"
            scheduler.remove_listener(heard)

    on_a_loop(main)
    on_a_loop(main)


def test_a_coroutine_past_its_time_out_is_cancelled() -> None:
    async def main() -> None:
        async with AsyncIOScheduler(timezone="UTC") as scheduler:
            heard = Heard(scheduler)
            scheduler.add_job(asyncio.sleep, args=[LIMIT], timeout=0.1)
            assert isinstance((await heard.wait(EVENT_JOB_ERROR)).exception, TimeoutError)

    on_a_loop(main)


def test_a_program_may_end_with_the_scheduler_running(tmp_path: Path) -> None:
    out = Program(
        tmp_path,
        """
        import asyncio
        from mainspring.schedulers.asyncio import AsyncIOScheduler

        async def main():
            done = asyncio.Event()
            scheduler = AsyncIOScheduler(timezone="UTC")
            scheduler.start()

            async def work():
                print("job")
                done.set()

            scheduler.add_job(work)
            scheduler.add_job(print, "interval", seconds=3600)
            await done.wait()

        asyncio.run(main())
        print("end")
        """,
    ).run()
    assert out.splitlines() == ["job", "end"]


def test_a_function_in_a_thread_ends_before_the_program_that_shut_down_on_the_loop(tmp_path: Path) -> None:
    out = Program(
        tmp_path,
        """
        import asyncio, threading, time
        from mainspring.schedulers.asyncio import AsyncIOScheduler

        async def main():
            began = asyncio.Event()
            loop = asyncio.get_running_loop()

            def work():
                loop.call_soon_threadsafe(began.set)
                time.sleep(0.4)
                print("job ended")

            scheduler = AsyncIOScheduler(timezone="UTC")
            scheduler.start()
            scheduler.add_job(work)
            await began.wait()
            scheduler.shutdown()

        asyncio.run(main())
        print("loop ended")
        """,
    ).run()
    assert out.splitlines() == ["loop ended", "job ended"]
