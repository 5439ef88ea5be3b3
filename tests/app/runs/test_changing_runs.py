"""Runs that wait are moved, postponed and prioritized; runs that ended run again, later, or with other arguments."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.core.instants import SECOND
from mainspring.errors import RunNotFound
from tests.servers import Redis

KEY = "a key of the tests that is long enough"
LIMIT = 90.0


def add(one: int, other: int = 1) -> int:
    """Fail below zero."""
    if one < 0:
        raise ValueError("below zero")
    return one + other


@pytest.fixture(params=["memory", "sqlite", "redis"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Mainspring]:
    """An app with a task, on a store that signs what it keeps."""
    url, name = "memory://", "mainspring"
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/jobs.db"
    elif request.param == "redis":
        server: Redis = request.getfixturevalue("redis_server")
        url, name = server.url, f"changing-{tmp_path.name}"
    made = Mainspring(url, name=name, secret_key=KEY, queues=["slow"])
    made.task(add)
    yield made
    made.stop()
    for run in made.find(status="pending"):
        made.cancel(run.id)
    for run in made.find(limit=1000):
        made.delete(run.id)
    made.close()


def ended(app: Mainspring, *run_ids: str) -> None:
    app.start(work=True, schedule=False)
    app.wait(run_ids, LIMIT)
    app.stop()


def test_a_moved_run_is_executed_from_its_new_queue(app: Mainspring) -> None:
    handle = app.enqueue(add, 1)
    app.move(handle, "slow")
    assert (app.get(handle.id).queue, app.get(handle.id).args) == ("slow", (1,))
    app.start(work=True, schedule=False, queues=["slow"])
    assert handle.result(LIMIT) == 2
    app.stop()
    assert app.get(handle.id).queue == "slow"


def test_only_a_run_that_waits_can_be_changed(app: Mainspring) -> None:
    handle = app.enqueue(add, 1)
    ended(app, handle.id)
    with pytest.raises(ValueError, match="is succeeded; only a run that waits can be changed"):
        app.move(handle, "slow")
    with pytest.raises(ValueError, match="only a run that waits"):
        app.postpone(handle.id, timedelta(hours=1))
    with pytest.raises(RunNotFound):
        app.prioritize("nobody", 3)
    with pytest.raises(ValueError, match="cannot name a queue"):
        app.move(handle, "a:b")


def test_a_run_is_postponed_and_brought_forward(app: Mainspring) -> None:
    handle = app.enqueue(add, 1)
    app.postpone(handle, datetime(2100, 1, 1, tzinfo=UTC))
    assert app.get(handle.id).run_at == datetime(2100, 1, 1, tzinfo=UTC)
    app.postpone(handle, timedelta(hours=1))
    run = app.get(handle.id).record
    assert 59 * 60 * SECOND < run.run_at - run.created_at < 62 * 60 * SECOND
    app.postpone(handle, timedelta())
    ended(app, handle.id)
    assert app.get(handle.id).result == 2
    with pytest.raises(TypeError, match="a timedelta from now"):
        app.postpone(handle, 60)  # type: ignore[arg-type]


def test_a_run_is_prioritized_within_bounds(app: Mainspring) -> None:
    handle = app.enqueue(add, 1)
    app.prioritize(handle, 50)
    assert app.get(handle.id).priority == 50
    with pytest.raises(ValueError, match="from -100 to 100"):
        app.prioritize(handle, 101)


def test_a_failed_run_is_sent_back_for_a_later_time(app: Mainspring) -> None:
    handle = app.enqueue(add, -1)
    ended(app, handle.id)
    app.retry(handle, at=timedelta(hours=2))
    run = app.get(handle.id)
    assert str(run.status) == "pending"
    assert run.record.run_at - run.record.created_at > 119 * 60 * SECOND


def test_a_run_runs_again_with_what_is_changed_and_says_whose_copy_it_is(app: Mainspring) -> None:
    first = app.tasks.find(f"{__name__}:add").options(queue="slow", retries=2, priority=5, group="g").enqueue(40)
    same = app.again(first)
    other = app.again(first.id, args=[1], kwargs={"other": 9}, queue="default", retries=0)
    ended(app, first.id, same.id, other.id)
    copy = app.get(same.id)
    assert (copy.result, copy.queue, copy.policy.retries, copy.priority) == (41, "slow", 2, 5)
    assert (copy.copied_from, copy.group, copy.id != first.id) == (first.id, "g", True)
    changed = app.get(other.id)
    assert (changed.result, changed.queue, changed.policy.retries, changed.copied_from) == (10, "default", 0, first.id)
    assert app.get(first.id).copied_from is None


def test_a_copy_stands_alone(app: Mainspring) -> None:
    task = app.tasks.find(f"{__name__}:add")
    first, second = app.chain([task.call(1), task.call(2)])
    copy = app.again(first)
    ended(app, first.id, second.id, copy.id)
    assert len(app.find(limit=10)) == 3


def test_arguments_of_a_copy_are_checked(app: Mainspring) -> None:
    handle = app.enqueue(add, 1)
    with pytest.raises(TypeError, match="thrid"):
        app.again(handle, kwargs={"thrid": 3})
    with pytest.raises(TypeError, match="there is no option 'ques'"):
        app.again(handle, ques="slow")


def test_a_search_goes_on_where_it_stopped(app: Mainspring) -> None:
    ids = [app.enqueue(add, number).id for number in range(7)]
    newest = ids[::-1]
    first = app.search("status:pending", limit=3)
    assert ([run.id for run in first.runs], first.more) == (newest[:3], True)
    second = app.search("status:pending", limit=10, after=first.next)
    assert ([run.id for run in second.runs], second.more, second.next) == (newest[3:], False, None)
    looked = app.search("arg.one:0", most=3)
    assert (looked.runs, looked.complete, looked.looked_through) == ([], False, 3)
    found = app.search("arg.one:0", after=looked.next)
    assert ([run.id for run in found.runs], found.complete) == (ids[:1], True)


def test_a_count_is_exact_or_says_that_it_is_not(app: Mainspring) -> None:
    for number in range(5):
        app.enqueue(add, number)
    assert app.count_up_to("status:pending") == (5, True)
    assert app.count_up_to("status:pending", cap=3) == (3, False)
    assert app.count_up_to("status:pending status:failed") == (0, True)
    assert app.count_up_to("status:waiting task:add") == (5, True)
    assert app.count_up_to("task:add", cap=2) == (2, False)
    assert app.count_up_to("-status:pending") == (0, True)


def test_the_recent_runs_of_many_jobs_come_together(app: Mainspring) -> None:
    for job_id in ("one", "two", "idle"):
        app.add_job(add, "interval", days=1, id=job_id, args=[1], max_instances=9)
    made = {job_id: [app.run_now(job_id).id for _ in range(3)] for job_id in ("one", "two")}
    found = app.recent(["two", "idle", "one"], n=2)
    assert list(found) == ["two", "idle", "one"]
    assert {job_id: [run.id for run in runs] for job_id, runs in found.items()} == {
        "two": made["two"][:0:-1], "idle": [], "one": made["one"][:0:-1],
    }  # fmt: skip
    for job_id in found:
        app.remove_job(job_id, cancel_runs=True)
