"""Listeners, signals and middleware that are coroutine functions are awaited, on the worker's loop if there is one."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from mainspring import Mainspring, current_run
from mainspring.errors import RunFailed
from mainspring.events import EVENT_JOB_EXECUTED
from tests.app.kit import LIMIT, LOCAL, MakeApp


def plain(number: int) -> int:
    return number + 1


async def coroutine(number: int) -> int:
    return number + 1


BOTH = pytest.mark.parametrize("func", [plain, coroutine])


@LOCAL
@BOTH
def test_a_coroutine_that_guards_an_execution_may_prevent_it(app: Mainspring, func: Any) -> None:
    called: list[int] = []

    @app.middleware
    def note(run: Any, call_next: Any) -> Any:
        called.append(1)
        return call_next()

    @app.on("pre_execute")
    async def refuse(run: Any) -> None:
        await asyncio.sleep(0)
        raise PermissionError("not today")

    app.start(work=True)
    with pytest.raises(RunFailed, match="not today"):
        app.task(func).enqueue(1).result(timeout=LIMIT)
    assert called == []


@LOCAL
@BOTH
def test_coroutines_around_a_task_are_awaited_on_the_loop_of_the_worker(app: Mainspring, func: Any) -> None:
    seen: list[tuple[str, Any]] = []

    def note(what: str) -> None:
        seen.append((what, asyncio.get_running_loop()))

    @app.on("pre_execute")
    async def before(run: Any) -> None:
        await asyncio.sleep(0)
        note(f"before {run.id}")

    @app.on("post_execute")
    async def after(run: Any, value: Any, error: Any) -> None:
        await asyncio.sleep(0)
        note(f"after {value}")

    @app.middleware
    async def around(run: Any, call_next: Any) -> Any:
        assert current_run().id == run.id
        note("in")
        value = await call_next()
        note("out")
        return value * 10

    @app.middleware
    def inner(run: Any, call_next: Any) -> Any:
        return call_next()

    @app.task
    async def loop_of_worker() -> None:
        note("the task on the loop")

    app.start(work=True)
    handle = app.task(func).enqueue(1)
    assert handle.result(timeout=LIMIT) == 20
    assert [what for what, _ in seen] == [f"before {handle.id}", "in", "out", "after 20"]
    seen_of_task = seen.copy()
    with pytest.raises(RunFailed):  # None * 10
        loop_of_worker.enqueue().result(timeout=LIMIT)
    loops = {loop for _, loop in seen_of_task} | {loop for what, loop in seen if what == "the task on the loop"}
    assert len(loops) == 1


@LOCAL
def test_a_plain_task_inside_a_coroutine_stays_in_its_own_thread(app: Mainspring) -> None:
    seen: list[str] = []

    @app.middleware
    async def around(run: Any, call_next: Any) -> Any:
        seen.append(threading.current_thread().name)
        return await call_next()

    @app.task
    def where() -> str:
        return threading.current_thread().name

    app.start(work=True)
    assert "loop" not in where.enqueue().result(timeout=LIMIT)
    assert "loop" in seen[0]


@LOCAL
def test_a_coroutine_around_a_plain_task_sees_what_it_raises(app: Mainspring) -> None:
    @app.middleware
    async def mend(run: Any, call_next: Any) -> Any:
        try:
            return await call_next()
        except (ValueError, RuntimeError) as error:
            return f"mended {error}"

    @app.task
    def fail(kind: str) -> None:
        raise {"value": ValueError, "stop": StopIteration}[kind]("torn")

    app.start(work=True)
    assert fail.enqueue("value").result(timeout=LIMIT) == "mended torn"
    assert fail.enqueue("stop").result(timeout=LIMIT) == "mended the task raised StopIteration('torn')"


@LOCAL
def test_an_exit_of_a_plain_task_or_of_a_coroutine_around_it_does_not_end_the_loop(app: Mainspring) -> None:
    cleaned_up: list[str] = []

    @app.middleware
    async def around(run: Any, call_next: Any) -> Any:
        try:
            value = await call_next()
        finally:
            cleaned_up.append(run.record.name)
        if value == "exit":
            raise SystemExit(3)
        return value

    @app.task
    def leave() -> None:
        raise SystemExit(2)

    @app.task
    def echo(text: str) -> str:
        return text

    app.start(work=True)
    assert leave.enqueue().wait(timeout=LIMIT).error.type == "SystemExit"  # type: ignore[union-attr]
    assert echo.enqueue("exit").wait(timeout=LIMIT).error.type == "SystemExit"  # type: ignore[union-attr]
    assert echo.enqueue("fine").result(timeout=LIMIT) == "fine"
    assert cleaned_up == ["leave", "echo", "echo"]


@LOCAL
def test_a_time_out_ends_a_plain_task_that_waits_for_a_coroutine(app: Mainspring) -> None:
    cancelled = threading.Event()

    @app.on("pre_execute")
    async def hang(run: Any) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled.set()

    app.start(work=True)
    view = app.task(plain).options(timeout=0.1).enqueue(1).wait(timeout=LIMIT)
    assert view.error is not None
    assert view.error.type.endswith("RunTimeout")
    assert cancelled.wait(LIMIT)


@LOCAL
def test_a_coroutine_that_fails_after_the_execution_does_no_harm(
    app: Mainspring, caplog: pytest.LogCaptureFixture
) -> None:
    @app.on("post_execute")
    async def stumble(run: Any, value: Any, error: Any) -> None:
        raise RuntimeError("stumbled")

    app.start(work=True)
    assert app.task(plain).enqueue(1).result(timeout=LIMIT) == 2
    assert app.task(coroutine).enqueue(1).result(timeout=LIMIT) == 2
    assert caplog.text.count("RuntimeError: stumbled") == 2


@LOCAL
def test_a_coroutine_may_prevent_an_enqueue_whoever_enqueues(app: Mainspring) -> None:
    loops: list[Any] = []

    @app.on("pre_enqueue")
    async def refuse(run: Any) -> None:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())
        raise PermissionError("no more today")

    task = app.task(plain)
    with pytest.raises(PermissionError):
        task.enqueue(1)

    async def on_a_loop() -> None:
        with pytest.raises(PermissionError):
            task.enqueue(1)
        with pytest.raises(PermissionError):
            await app.aio.enqueue(task, 1)
        assert loops[-1] is asyncio.get_running_loop()

    asyncio.run(on_a_loop())
    assert len(loops) == 3
    assert app.count() == 0


def test_coroutines_are_awaited_in_inline_mode(make_app: MakeApp) -> None:
    app = make_app(inline=True)
    seen: list[str] = []

    @app.middleware
    async def around(run: Any, call_next: Any) -> Any:
        await asyncio.sleep(0)
        return await call_next() * 10

    @app.on("pre_execute")
    async def before(run: Any) -> None:
        await asyncio.sleep(0)
        seen.append("before")

    assert app.task(plain).enqueue(1).result() == 20
    assert app.task(coroutine).enqueue(1).result() == 20
    assert seen == ["before", "before"]


def test_coroutines_are_awaited_around_a_task_in_a_process_of_its_own() -> None:
    from tests.app.isolated_async import app, pid

    app.start(work=True)
    try:
        assert pid.enqueue().result(timeout=LIMIT) == "awaited a child"
    finally:
        app.close()


@LOCAL
def test_a_listener_may_be_a_coroutine_and_is_awaited_before_the_app_has_stopped(
    app: Mainspring, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []

    @app.on(EVENT_JOB_EXECUTED)
    async def hear(event: Any) -> None:
        await asyncio.sleep(0.05)
        heard.append(event.job_id)
        raise RuntimeError("stumbled")

    app.add_job(plain, "interval", days=1, args=[1], id="daily")
    app.start(work=True)
    app.run_now("daily").wait(timeout=LIMIT)
    app.stop()
    assert heard == ["daily"]
    assert "RuntimeError: stumbled" in caplog.text
