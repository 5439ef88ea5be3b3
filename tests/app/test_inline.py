"""Inline mode, for tests of programs: executed where it is enqueued, through the real codec and the real life."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mainspring import Cancel, Mainspring, Retry, current_run
from mainspring.codec import EncodeError
from mainspring.core.run import Status
from mainspring.core.waiting.followups import FinishedRun
from mainspring.errors import RunCancelled, RunFailed
from mainspring.executors.current_run import NotInRun
from tests.app.kit import LIMIT, MakeApp


@dataclass
class Order:
    number: int
    items: list[str]


@pytest.fixture
def inline(make_app: MakeApp, tmp_path: Path) -> Mainspring:
    return make_app(f"sqlite:///{tmp_path}/jobs.db", inline=True)


def test_a_call_has_ended_when_enqueue_returns(inline: Mainspring) -> None:
    where: list[str] = []

    @inline.task
    def double(number: int) -> int:
        where.append(threading.current_thread().name)
        return number * 2

    handle = double.enqueue(21)
    assert (handle.status(), handle.result(timeout=0), where) == ("succeeded", 42, [threading.current_thread().name])
    view = inline.get(handle.id)
    assert (view.attempt, view.args, view.finished) == (1, (21,), True)
    assert view.created_at.year >= 2024
    assert view.started_at is not None
    assert view.finished_at is not None
    assert view.created_at <= view.started_at <= view.finished_at < view.created_at + timedelta(seconds=LIMIT)
    assert inline.count(status="succeeded") == 1


def test_nothing_touches_the_store(inline: Mainspring, tmp_path: Path) -> None:
    @inline.task(queue="mail", unique="x", delay=60)
    def nothing() -> None: ...

    assert inline.find() == []
    nothing.enqueue().result(timeout=0)
    inline.enqueue_many([nothing.call()])
    assert not (tmp_path / "jobs.db").exists()


def test_the_verbs_about_queues_jobs_and_records_do_not_touch_the_store_either(
    inline: Mainspring, tmp_path: Path
) -> None:
    @inline.schedule("0 3 * * *", id="nightly")
    @inline.task(queue="mail")
    def double(number: int = 21) -> int:
        return number * 2

    assert inline.reconcile().added == ["nightly"]
    assert [job.id for job in inline.jobs()] == ["nightly"]
    assert [moment.hour for moment in inline.preview("nightly", 2)] == [3, 3]
    handle = inline.run_now("nightly")
    assert (handle.status(), handle.result(timeout=0)) == ("succeeded", 42)
    assert inline.counters() | {"succeeded": 1, "jobs": 1} == inline.counters()
    assert [queue.name for queue in inline.queues()] == ["default", "mail"]
    assert (inline.broken(), inline.nodes(), inline.restore("x"), inline.discard("x")) == ([], [], False, False)
    inline.remove_job("nightly")
    assert not (tmp_path / "jobs.db").exists()


def test_what_is_put_into_a_paused_queue_waits_until_it_is_resumed(inline: Mainspring, tmp_path: Path) -> None:
    @inline.task(queue="mail")
    def double(number: int) -> int:
        return number * 2

    inline.pause_queue("mail")
    purged = double.enqueue(1)
    assert purged.status() is Status.PENDING
    assert inline.purge("mail") == 1
    assert purged.status() is Status.CANCELLED
    kept = double.enqueue(2)
    inline.resume_queue("mail")
    assert kept.result(timeout=0) == 4
    inline.retry(purged)
    assert purged.result(timeout=0) == 2
    assert not (tmp_path / "jobs.db").exists()


def test_arguments_and_results_go_through_the_real_codec(inline: Mainspring) -> None:
    kept: list[Order] = []

    @inline.task
    def take(order: Order) -> Order:
        kept.append(order)
        return order

    order = Order(1, ["a"])
    assert take.enqueue(order).result(timeout=0) == order
    assert kept[0] is not order
    with pytest.raises(EncodeError):
        take.enqueue(object())  # type: ignore[arg-type]


def test_a_result_that_could_not_be_stored_fails_as_it_would_for_real(inline: Mainspring) -> None:
    @inline.task
    def unstorable() -> object:
        return object()

    with pytest.raises(RunFailed, match="object"):
        unstorable.enqueue().result(timeout=0)


def test_failures_are_tried_again_without_waiting(inline: Mainspring) -> None:
    attempts: list[int] = []

    @inline.task(retries=2)
    def flaky() -> str:
        attempts.append(current_run().attempt)
        if len(attempts) == 1:
            raise Retry(delay=3600)
        if len(attempts) == 2:
            raise ValueError("no")
        return "done"

    assert flaky.enqueue().result(timeout=0) == "done"
    assert attempts == [1, 2, 3]

    @inline.task
    def hopeless() -> None:
        raise ValueError("hopeless")

    with pytest.raises(RunFailed, match="hopeless"):
        hopeless.enqueue().result(timeout=0)

    @inline.task
    def never() -> None:
        raise Cancel("never")

    with pytest.raises(RunCancelled, match="never"):
        never.enqueue().result(timeout=0)


def test_chains_gathering_and_hooks_have_happened_too(inline: Mainspring) -> None:
    hooked: list[str] = []

    @inline.task(name="note")
    def note(run: FinishedRun) -> None:
        hooked.append(run.status)

    @inline.task(hook="note")
    def same(value: Any) -> Any:
        return value

    assert [handle.result(timeout=0) for handle in inline.chain([same.call(1), same.call(2)])] == [1, 2]
    assert inline.gather(same.call(number) for number in range(3)).result(timeout=0) == [0, 1, 2]
    assert inline.gather([]).result(timeout=0) == []
    assert hooked == ["succeeded"] * 5


def test_a_task_may_enqueue_another(inline: Mainspring) -> None:
    @inline.task
    def inner(number: int) -> int:
        return number + 1

    @inline.task
    def outer() -> int:
        return inner.enqueue(1).result(timeout=0) * 10

    assert outer.enqueue().result(timeout=0) == 20


def test_coroutine_functions_work_also_while_a_loop_runs(inline: Mainspring) -> None:
    @inline.task
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return number * 2

    assert double.enqueue(1).result(timeout=0) == 2

    async def main() -> int:
        return await (await inline.aio.enqueue(double, 21))

    assert asyncio.run(main()) == 42


def test_progress_data_and_log_are_kept(inline: Mainspring) -> None:
    @inline.task
    def talk() -> None:
        run = current_run()
        run.progress(1, 2, "half")
        run.update(place="here")
        run.log("a line")
        logging.getLogger("shop").warning("careful")

    view = talk.enqueue().fetch()
    assert (view.progress, view.data) == ({"done": 1, "total": 2, "text": "half"}, {"place": "here"})
    assert view.log[0] == "a line"
    assert view.log[1].endswith("WARNING shop: careful")
    assert len(view.log) == 2


def test_one_call_can_be_executed_inline(make_app: MakeApp) -> None:
    app = make_app()

    @app.task
    def double(number: int) -> int:
        return number * 2

    assert double.options(inline=True).enqueue(21).result(timeout=0) == 42
    waiting = double.enqueue(1)
    assert waiting.status() is Status.PENDING
    app.start(work=True)
    assert waiting.result(timeout=LIMIT) == 2


def test_inline_mode_can_be_turned_on_and_off(make_app: MakeApp) -> None:
    app = make_app()

    @app.task
    def double(number: int) -> int:
        return number * 2

    app.inline = True
    assert double.enqueue(21).result(timeout=0) == 42
    app.inline = False
    assert double.enqueue(21).status() is Status.PENDING
    assert app.count() == 1


def test_in_memory_any_dataclass_can_be_passed_inline(make_app: MakeApp) -> None:
    app = make_app(inline=True)

    @app.task
    def count(order: Order) -> int:
        return len(order.items)

    assert count.enqueue(Order(1, ["a", "b"])).result(timeout=0) == 2


def test_middleware_is_around_what_is_executed_inline(inline: Mainspring) -> None:
    seen: list[str] = []

    @inline.task
    def double(number: int) -> int:
        return number * 2

    @inline.middleware
    def around(run: Any, call_next: Any) -> Any:
        seen.append(run.id)
        return call_next()

    handle = double.enqueue(1)
    assert seen == [handle.id]


def test_a_task_is_part_of_its_own_run_again_after_it_enqueued_another(inline: Mainspring) -> None:
    @inline.task
    def inner() -> str:
        return current_run().id

    @inline.task
    def outer() -> list[str]:
        before, handle = current_run().id, inner.enqueue()
        return [before, current_run().id, handle.id, handle.result(timeout=0)]

    handle = outer.enqueue()
    before, after, inner_id, inner_said = handle.result(timeout=0)
    assert (before, after, inner_said) == (handle.id, handle.id, inner_id)
    with pytest.raises(NotInRun):
        current_run()


def test_threads_may_enqueue_inline_at_once(inline: Mainspring) -> None:
    @inline.task
    def double(number: int) -> int:
        return number * 2

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda number: double.enqueue(number).result(timeout=LIMIT), range(200)))
    assert results == [number * 2 for number in range(200)]


def test_a_coroutine_may_enqueue_and_await_inline(inline: Mainspring) -> None:
    @inline.task
    async def inner(number: int) -> int:
        return number + 1

    @inline.task
    async def outer() -> int:
        handle = await inline.aio.enqueue(inner, 1)
        return inner.enqueue(await handle).result(timeout=0)

    assert outer.enqueue().result(timeout=0) == 3
