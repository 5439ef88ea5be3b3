"""The same verbs, awaitable."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading

import pytest

from mainspring import Mainspring
from mainspring.aio import AsyncFace
from mainspring.core.run import Status
from mainspring.errors import RunCancelled, RunFailed, RunNotFound
from tests.app.kit import EVERYWHERE, LIMIT, LOCAL, Gate, MakeApp


def double(number: int) -> int:
    return number * 2


def fail() -> None:
    raise ValueError("torn")


@EVERYWHERE
def test_enqueue_and_await_the_result(app: Mainspring) -> None:
    async def main() -> list[int]:
        await app.aio.start(work=True)
        first = await app.aio.enqueue(double, 21)
        many = await app.aio.enqueue_many(app.task(double).call(number) for number in range(3))
        await app.aio.wait(many, LIMIT)
        gathered = await app.aio.gather(app.task(double).call(number) for number in range(3))
        results = [await first, *[await handle for handle in many], *await gathered]
        await app.aio.close()
        return results

    assert asyncio.run(main()) == [42, 0, 2, 4, 0, 2, 4]


@LOCAL
def test_awaiting_raises_as_waiting_does(app: Mainspring) -> None:
    async def main() -> None:
        handle = await app.aio.enqueue(double, 1)
        with pytest.raises(TimeoutError):
            await handle.result_async(timeout=0)
        await app.aio.cancel(handle)
        with pytest.raises(RunCancelled):
            await handle
        with pytest.raises(RunNotFound):
            await app.handle("nobody")
        await app.aio.start(work=True)
        with pytest.raises(RunFailed, match="torn"):
            await (await app.aio.enqueue(fail))

    asyncio.run(main())


@LOCAL
def test_waiting_does_not_block_the_loop_nor_the_other_verbs(app: Mainspring) -> None:
    gate = Gate()

    @app.task(queue="gated")
    def gated() -> str:
        gate.wait()
        return "through"

    async def main() -> list[str]:
        app.start(work=True, threads=16)
        handles = [await app.aio.enqueue_call(gated.call()) for _ in range(12)]
        waiting = [asyncio.create_task(app.aio.wait([handle], LIMIT)) for handle in handles]
        awaiting = [asyncio.create_task(handle.result_async(LIMIT)) for handle in handles]
        await asyncio.sleep(0)
        assert await (await app.aio.enqueue(double, 2)) == 4
        gate.open()
        await asyncio.gather(*waiting)
        return await asyncio.gather(*awaiting)

    assert asyncio.run(main()) == ["through"] * 12


@LOCAL
def test_looking_and_jobs_work_too(app: Mainspring) -> None:
    async def main() -> None:
        aio = app.aio
        job = await aio.add_job(double, "interval", hours=1, args=[4], id="one")
        assert [each.id for each in await aio.jobs()] == ["one"]
        assert len(await aio.preview(job, 3)) == 3
        handle = await aio.run_now("one")
        assert await aio.count(job="one") == 1
        assert (await aio.find(job="one"))[0].id == (await aio.get(handle.id)).id
        assert await aio.cancel(handle) is True
        await aio.retry(handle)
        assert (await aio.get(handle.id)).status is Status.PENDING
        assert await aio.purge("default") == 1
        assert await aio.delete(handle) is True
        await aio.remove_job("one")
        assert await aio.nodes() == []

    asyncio.run(main())


def test_every_verb_that_touches_the_store_is_there() -> None:
    local = {"task", "schedule", "as_task", "stored_func", "handle", "on", "middleware", "wrapped", "emit", "run"}
    local |= {"now", "wake_for", "wake_worker", "declared_queues", "drain", "check_policy", "load"}
    local |= {"alert", "ping", "asgi", "wsgi", "hand_over_sums", "after_commit", "call_off_loop_by"}
    local |= {
        "resource",
        "on_worker_start",
        "on_worker_stop",
        "register_type",
        "report",
        "work_inline",
        "acting",
    }  # what reaches no further than this process
    verbs = {name for name, _ in inspect.getmembers(Mainspring, inspect.isfunction) if name[0] != "_"}
    assert {"enqueue", "find", "add_job", "purge", "start"} <= verbs
    assert sorted(verbs - local - set(vars(AsyncFace))) == []


def test_the_face_is_made_once(make_app: MakeApp) -> None:
    app = make_app()
    assert app.aio is app.aio


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_the_face_works_in_a_forked_child(make_app: MakeApp) -> None:
    app = make_app()

    async def count() -> int:
        return await app.aio.count()

    assert asyncio.run(count()) == 0
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            timer = threading.Timer(LIMIT, os._exit, [2])
            timer.daemon = True
            timer.start()
            code = asyncio.run(count())
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
