"""The same in async code, on an AsyncEngine."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from mainspring.tracker import JobLockedError, UnknownJobError
from tests.tracker.kit import LONG_AGO, Job, Result, Step, add, change, expire, row, start_as_peer

T = TypeVar("T")


def run(engine: Engine, main: Callable[[AsyncEngine], Awaitable[T]]) -> T:
    """Run a coroutine with an AsyncEngine on the same database."""

    async def with_engine() -> T:
        own = create_async_engine(engine.url)
        try:
            return await main(own)
        finally:
            await own.dispose()

    return asyncio.run(with_engine())


def test_a_job_is_started_renewed_and_ended_with_its_updates(postgresql: Engine) -> None:
    async def main(engine: AsyncEngine) -> None:
        async with Step.start(engine, "a") as (job, updates):
            assert (job.id, job.data) == ("a", {"x": 1})
            await asyncio.to_thread(expire, postgresql, "a")
            await job.heartbeat()
            with pytest.raises(JobLockedError):
                async with Step.start(engine, "a"):
                    pass
            updates.set("data", {"x": 2})

    add(postgresql, "a", data={"x": 1})
    run(postgresql, main)
    after = row(postgresql, "a")
    assert (after.status, after.data, after.lock) == (40, {"x": 2}, None)
    assert after.lock_at > LONG_AGO


def test_the_eleven_arguments_do_it_too(postgresql: Engine) -> None:
    async def main(engine: AsyncEngine) -> None:
        async with start_as_peer(engine, "a", skip_error=True):
            raise OSError("no")

    add(postgresql, "a")
    run(postgresql, main)
    assert (row(postgresql, "a").status, row(postgresql, "a").retry) == (30, 1)


def test_a_cancelled_body_frees_its_job_without_a_charge(postgresql: Engine) -> None:
    async def main(engine: AsyncEngine) -> None:
        begun = asyncio.Event()

        async def body() -> None:
            async with Step.start(engine, "a", skip_error=True):
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(body())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    add(postgresql, "a")
    run(postgresql, main)
    after = row(postgresql, "a")
    assert (after.status, after.retry, after.lock) == (30, 0, None)
    assert "CancelledError" in after.errors["type"]


def test_a_lost_lock_is_told_and_nothing_written(postgresql: Engine) -> None:
    async def main(engine: AsyncEngine) -> None:
        work = Step.start(engine, "a")
        job, updates = await work.__aenter__()
        updates.set("size", 1)
        await asyncio.to_thread(change, postgresql, "a", lock="another's")
        with pytest.raises(JobLockedError):
            await job.heartbeat()
        with pytest.raises(JobLockedError):
            await work.__aexit__(None, None, None)

    add(postgresql, "a")
    run(postgresql, main)
    assert (row(postgresql, "a").status, row(postgresql, "a").size) == (20, None)


def test_tasks_drain_a_table_and_each_job_runs_once(postgresql: Engine) -> None:
    async def main(engine: AsyncEngine) -> Counter[str]:
        async def drain() -> list[str]:
            taken = []
            while work := await Step.start_next(engine):
                async with work as (job, _):
                    taken.append(str(job.id))
            return taken

        return Counter(id_ for mine in await asyncio.gather(*(drain() for _ in range(5))) for id_ in mine)

    ids = [f"j{number}" for number in range(40)]
    add(postgresql, *ids)
    assert run(postgresql, main) == dict.fromkeys(ids, 1)
    assert len(Job.query_by_status(postgresql, 40, limit=None)) == 40


def test_what_is_written_in_a_given_session_is_committed_with_the_status(postgresql: Engine) -> None:
    async def main(engine: AsyncEngine) -> list[Job]:
        async with AsyncSession(engine) as session:
            async with Step.start(session, "a") as (job, _):
                session.add(Result(id=1, job_id=job.id))
                await job.heartbeat()
            assert await session.get(Result, 1) is not None
            return await session.run_sync(lambda own: Job.query_by_status(own, 40))

    add(postgresql, "a")
    assert [job.id for job in run(postgresql, main)] == ["a"]


def test_an_unknown_id_is_told(postgresql: Engine) -> None:
    async def main(engine: AsyncEngine) -> None:
        async with Step.start(engine, "nobody"):
            pass

    with pytest.raises(UnknownJobError, match="there is no Job 'nobody'"):
        run(postgresql, main)


def test_the_wrong_kind_of_with_names_the_right_one(postgresql: Engine) -> None:
    async def main(engine: AsyncEngine) -> None:
        with (
            pytest.raises(TypeError, match=r"start\(\) on AsyncEngine is entered by `async with`"),
            Step.start(engine, "a"),
        ):
            pass
        with pytest.raises(TypeError, match=r"start\(\) on Engine is entered by `with`"):
            async with Step.start(postgresql, "a"):
                pass
        with pytest.raises(TypeError, match=r"AsyncEngine cannot be used here; .*run_sync"):
            Job.query_by_status(engine, 10)  # type: ignore[arg-type]

    add(postgresql, "a")
    run(postgresql, main)
    assert row(postgresql, "a").status == 10
