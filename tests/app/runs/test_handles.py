"""Handles and views: waiting, failing, cancelling, retrying, deleting, finding."""

from __future__ import annotations

import asyncio
import copy
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import pytest

from mainspring import Cancel, Mainspring, RunHandle
from mainspring.core.run import Status
from mainspring.errors import RunCancelled, RunFailed, RunNotFound, StoreUnavailable
from tests.app.kit import EVERYWHERE, LIMIT, LOCAL, Gate, MakeApp


def plain(number: int) -> int:
    return number + 1


def fail(text: str) -> None:
    raise ValueError(text)


@EVERYWHERE
def test_waiting_for_a_run_that_failed_raises_with_its_traceback(app: Mainspring) -> None:
    app.start(work=True)
    with pytest.raises(RunFailed) as caught:
        app.enqueue(fail, "out of paper").result(timeout=LIMIT)
    assert (caught.value.type, caught.value.message) == ("ValueError", "out of paper")
    assert "in fail\n    raise ValueError(text)" in caught.value.traceback
    assert "out of paper" in str(caught.value)


@LOCAL
def test_waiting_too_long_is_a_time_out_and_changes_nothing(app: Mainspring) -> None:
    handle = app.task(plain).enqueue(1)
    with pytest.raises(TimeoutError, match=handle.id):
        handle.result(timeout=0)
    assert handle.status() is Status.PENDING


def test_a_time_out_says_that_no_worker_serves_the_queue_and_how_to_start_one(
    make_app: MakeApp, tmp_path: Path
) -> None:
    app = make_app(f"sqlite:///{tmp_path}/jobs.db")
    mail = app.task(queue="mail")(plain)
    handles = [mail.enqueue(number) for number in range(5)]
    start = f"5 of 5 runs have not ended in 0 s: {handles[0].id} (pending), {handles[1].id}, {handles[2].id}, ...; "
    with pytest.raises(TimeoutError) as caught:
        app.wait(handles, timeout=0)
    assert str(caught.value) == (
        f"{start}no living worker serves the queue 'mail': start one with mainspring worker MODULE:APP -Q mail"
    )
    with pytest.raises(TimeoutError, match="no living worker serves the queue 'mail'"):
        asyncio.run(app.aio.wait(handles, timeout=0))


def test_a_time_out_in_memory_says_to_work_in_the_same_process(make_app: MakeApp) -> None:
    handle = make_app().task(plain).enqueue(1)
    with pytest.raises(TimeoutError, match=r"the queue 'default': start one with app\.start\(work=True\)"):
        handle.result(timeout=0)


@LOCAL
def test_a_time_out_of_a_run_that_is_executed_or_served_blames_no_worker(app: Mainspring) -> None:
    gate = Gate()
    app.start(work=True, queues=["default"], threads=1)
    running = app.task(name="waits")(gate.wait).enqueue()
    gate.reached()
    waiting = app.task(plain).options(delay=3600).enqueue(1)
    first, chained = app.chain([app.task(plain).options(delay=3600).call(1), app.task(plain).call(2)])
    try:
        for handle, words in (
            (running, "(running)"),
            (waiting, "(pending)"),
            (chained, f"(waits for {first.id}, pending)"),
        ):
            with pytest.raises(TimeoutError) as caught:
                handle.result(timeout=0)
            assert str(caught.value) == f"1 of 1 run has not ended in 0 s: {handle.id} {words}"
    finally:
        gate.open()


def test_a_time_out_is_told_although_the_store_cannot_say_who_lives(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app()
    handle = app.task(plain).enqueue(1)

    def nodes() -> NoReturn:
        raise StoreUnavailable("the network was cut")

    monkeypatch.setattr(app.store, "nodes", nodes)
    with pytest.raises(TimeoutError, match=rf"{handle.id} \(pending\)$"):
        handle.result(timeout=0)


@LOCAL
def test_a_run_that_is_not_there_is_not_found(app: Mainspring) -> None:
    handle: RunHandle[Any] = app.handle("nobody")
    for ask in (handle.status, handle.fetch, handle.result, handle.cancel, handle.retry, handle.wait):
        with pytest.raises(RunNotFound, match="nobody"):
            ask()
    assert app.delete("nobody") is False


@EVERYWHERE
def test_a_pending_run_is_cancelled_at_once(app: Mainspring) -> None:
    handle = app.task(plain).enqueue(1)
    assert handle.cancel() is True
    with pytest.raises(RunCancelled):
        handle.result(timeout=0)
    assert handle.cancel() is False


@EVERYWHERE
def test_a_coroutine_that_runs_is_stopped_when_it_is_cancelled(app: Mainspring) -> None:
    gate = Gate()

    @app.task
    async def endless() -> None:
        gate.open()
        await asyncio.Event().wait()

    app.start(work=True)
    handle = endless.enqueue()
    gate.wait()
    assert handle.cancel() is True
    with pytest.raises(RunCancelled):
        handle.result(timeout=LIMIT)


@LOCAL
def test_a_task_may_cancel_its_own_run_with_a_reason(app: Mainspring) -> None:
    @app.task(retries=3)
    def give_up() -> None:
        raise Cancel("nothing to do")

    app.start(work=True)
    with pytest.raises(RunCancelled, match="nothing to do"):
        give_up.enqueue().result(timeout=LIMIT)


@EVERYWHERE
def test_a_failed_run_can_be_sent_back_and_succeed(app: Mainspring) -> None:
    broken = [True]

    @app.task
    def mend() -> str:
        if broken:
            raise ValueError("broken")
        return "whole"

    app.start(work=True)
    handle = mend.enqueue()
    assert handle.wait(timeout=LIMIT).status is Status.FAILED
    broken.clear()
    handle.retry()
    assert handle.result(timeout=LIMIT) == "whole"
    with pytest.raises(ValueError, match="succeeded"):
        handle.retry()


@EVERYWHERE
def test_a_finished_run_can_be_deleted_and_an_unfinished_one_cannot(app: Mainspring) -> None:
    handle = app.task(plain).enqueue(1)
    assert app.delete(handle) is False
    app.start(work=True)
    handle.result(timeout=LIMIT)
    assert app.delete(handle) is True
    with pytest.raises(RunNotFound):
        handle.fetch()


@LOCAL
def test_a_view_shows_times_as_datetimes_of_the_apps_zone(make_app: MakeApp, url: str) -> None:
    app = make_app(url, timezone="Europe/Berlin")
    before = datetime.now(UTC)
    app.start(work=True)
    view = app.task(plain).enqueue(1).wait(timeout=LIMIT)
    moments = [view.created_at, view.run_at, view.started_at, view.finished_at]
    assert all(moment is not None and moment.tzinfo is app.timezone for moment in moments)
    assert view.created_at <= view.finished_at  # type: ignore[operator]
    assert abs((view.created_at - before).total_seconds()) < LIMIT
    assert view.duration is not None
    assert (view.fire_time, view.start_by, view.finished, view.attempt, view.queue) == (None, None, True, 1, "default")
    assert (view.name, view.func) == ("plain", f"{__name__}:plain")


@LOCAL
def test_a_view_can_be_copied(app: Mainspring) -> None:
    view = app.task(plain).enqueue(1).fetch()
    twin = copy.deepcopy(view)
    assert (twin.id, twin.args, repr(twin)) == (view.id, (1,), repr(view))


@EVERYWHERE
def test_runs_are_found_and_counted_by_status_queue_and_group(app: Mainspring) -> None:
    task = app.task(queue="mail")(plain)
    first = [task.options(group="spring").enqueue(number) for number in range(3)]
    task.options(queue="slow").enqueue(7)
    first[0].cancel()
    assert {view.id for view in app.find(group="spring")} == {handle.id for handle in first}
    assert [app.count(group="spring", status="pending"), app.count(queue="slow"), app.count()] == [2, 1, 4]
    assert app.count(status=["pending", "cancelled"], queue="mail") == 3
    pages = app.find(limit=3)
    pages += app.find(limit=3, after=pages[-1])
    assert len({view.id for view in pages}) == 4
    with pytest.raises(ValueError, match="did you mean 'pending'"):
        app.find(status="pendin")


@EVERYWHERE
def test_waiting_for_several_gives_each_as_it_ended_in_the_order_asked(app: Mainspring) -> None:
    good, bad = app.task(plain).enqueue(1), app.enqueue(fail, "x")
    app.start(work=True)
    assert [view.status for view in app.wait([bad, good, bad.id], LIMIT)] == ["failed", "succeeded", "failed"]


@EVERYWHERE
def test_queues_can_be_paused_resumed_looked_at_and_purged(app: Mainspring) -> None:
    task = app.task(queue="mail")(plain)
    app.pause_queue("mail")
    handles = app.enqueue_many(task.call(number) for number in range(3))
    other = app.task(name="other")(plain).enqueue(1)
    app.start(work=True)
    other.result(timeout=LIMIT)
    info = {queue.name: queue for queue in app.queues()}
    assert (info["mail"].paused, info["mail"].waiting, set(info)) == (True, 3, {"default", "mail"})
    assert handles[0].cancel()
    assert app.purge("mail") == 2
    app.resume_queue("mail")
    assert [handle.status() for handle in handles] == ["cancelled"] * 3
    assert task.enqueue(4).result(timeout=LIMIT) == 5


@EVERYWHERE
def test_nodes_tells_who_takes_part(app: Mainspring) -> None:
    assert app.nodes() == []
    app.start(work=True, queues=["mail"])
    app.task(queue="mail")(plain).enqueue(1).result(timeout=LIMIT)
    (node,) = app.nodes()
    assert (node.queues, node.state) == (("mail",), "running")
    app.stop()
    assert app.nodes() == []


def test_handles_are_equal_if_their_runs_are(make_app: MakeApp) -> None:
    app = make_app()
    handle = app.task(plain).enqueue(1)
    assert handle == app.handle(handle.id)
    assert len({handle, app.handle(handle.id), app.handle("other")}) == 2
    assert handle != handle.id


@LOCAL
def test_a_task_may_stop_the_app_that_executes_it(app: Mainspring) -> None:
    @app.task
    def last() -> str:
        app.stop()
        return "done"

    app.start(work=True)
    handle = last.enqueue()
    assert handle.result(timeout=LIMIT) == "done"
    assert not app.running


@LOCAL
def test_starting_twice_is_an_error_and_stopping_twice_is_not(app: Mainspring) -> None:
    app.start()
    with pytest.raises(RuntimeError, match="already running"):
        app.start()
    app.stop()
    app.stop()
    assert not app.running


@EVERYWHERE
def test_a_run_that_is_sent_back_has_its_unique_key_again(app: Mainspring) -> None:
    task = app.task(fail).options(unique="k")
    first = task.enqueue("torn")
    first.cancel()
    first.retry()
    assert task.enqueue("torn") == first
    assert first.cancel()
    other = task.enqueue("torn")
    first.retry()  # goes without the key, which another has by now
    assert task.enqueue("torn") == other != first
    assert {first.status(), other.status()} == {Status.PENDING}
    other.cancel()
    first.cancel()
    first.retry()
    assert task.enqueue("torn") == first


@LOCAL
def test_a_task_that_uses_its_app_in_a_with_statement_leaves_it_running(app: Mainspring) -> None:
    @app.task
    def double(number: int) -> int:
        return 2 * number

    @app.task
    def use() -> str:
        with app:
            return double.enqueue(2).id

    @app.task
    async def use_in_thread() -> str:
        return await asyncio.to_thread(use.func)

    app.start(work=True)
    inner = [task.enqueue().result(timeout=LIMIT) for task in (use, use_in_thread)]
    assert app.running
    assert [app.handle(run_id).result(timeout=LIMIT) for run_id in inner] == [4, 4]


def test_a_program_that_runs_its_app_ends_when_a_task_stops_it(tmp_path: Path) -> None:
    program = """
from mainspring import Mainspring

app = Mainspring("sqlite:///jobs.db")

@app.task
def last():
    app.stop()

if __name__ == "__main__":
    last.enqueue()
    app.run()
    print("ended")
"""
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, timeout=2 * LIMIT, capture_output=True, text=True, check=True
    )
    assert "ended" in done.stdout
    assert "a run has stopped its app" in done.stderr
