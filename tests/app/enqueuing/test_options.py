"""Options of a call: when, where, how urgent, how often again, how long kept; each checked where it is written."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import mainspring
from mainspring import Mainspring, Retry
from mainspring.core.run import Status
from mainspring.errors import RunFailed, RunNotFound, TaskNotFound
from tests.app.kit import EVERYWHERE, LIMIT, LOCAL, Gate, MakeApp


def plain(number: int = 1) -> int:
    return number + 1


def soon(failures: int) -> float:
    return 0.0


@EVERYWHERE
def test_a_unique_call_is_enqueued_once_while_it_is_unfinished(app: Mainspring) -> None:
    task = app.task(plain)
    first, second = (task.options(unique="user-1").enqueue(number) for number in (1, 2))
    other, third = (
        task.options(unique="user-2").enqueue(3),
        app.task(name="b")(plain).options(unique="user-1").enqueue(),
    )
    assert first == second
    assert len({first, other, third}) == 3
    app.start(work=True)
    assert first.result(timeout=LIMIT) == 2
    again = task.options(unique="user-1").enqueue(4)
    assert again != first
    assert again.result(timeout=LIMIT) == 5


@EVERYWHERE
def test_higher_priority_goes_first_and_equals_go_in_order(app: Mainspring) -> None:
    order: list[int] = []

    @app.task
    def note(number: int) -> None:
        order.append(number)

    calls = [note.options(priority=priority).call(priority) for priority in (0, -5, 10, 3)]
    handles = app.enqueue_many([*calls, note.options(priority=10).call(11)])
    app.start(work=True, threads=1)
    app.wait(handles, LIMIT)
    assert order == [10, 11, 3, 0, -5]


@EVERYWHERE
def test_a_delayed_call_waits_for_its_time(app: Mainspring) -> None:
    task = app.task(plain)
    late = task.options(delay=timedelta(hours=1)).enqueue(1)
    soon_after = task.options(delay=0.01).enqueue(2)
    app.start(work=True)
    view = soon_after.wait(timeout=LIMIT)
    assert view.started_at is not None
    assert view.started_at >= view.run_at > view.created_at
    view = late.fetch()
    assert view.status is Status.PENDING
    assert timedelta(hours=1) <= view.run_at - view.created_at < timedelta(hours=1, seconds=LIMIT)
    assert next(queue for queue in app.queues() if queue.name == "default").delayed == 1


@LOCAL
def test_a_delay_is_not_cut_short_by_a_store_that_is_slow_to_tell_the_time(
    app: Mainspring, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell = app.store.beat

    def tell_slowly() -> int:
        told = tell()
        time.sleep(0.2)
        return told

    monkeypatch.setattr(app.store, "beat", tell_slowly)
    view = app.task(plain).options(delay=5).enqueue().fetch()
    assert view.run_at - view.created_at >= timedelta(seconds=5.2)


@LOCAL
def test_a_time_without_a_zone_is_of_the_apps_zone(make_app: MakeApp, url: str) -> None:
    app = make_app(url, timezone="Asia/Tokyo")
    task = app.task(plain)
    naive = task.options(at=datetime(2090, 1, 1, 9)).enqueue().fetch()
    aware = task.options(at=datetime(2090, 1, 1, tzinfo=UTC)).enqueue().fetch()
    assert naive.run_at == aware.run_at == datetime(2090, 1, 1, tzinfo=UTC)
    past = task.options(at=datetime(2020, 1, 1)).enqueue().fetch()
    assert past.run_at == past.created_at


@LOCAL
def test_of_delay_and_at_the_last_word_counts(app: Mainspring) -> None:
    task = app.task(plain)
    moment = datetime(2090, 1, 1, tzinfo=UTC)
    assert task.options(delay=5).options(at=moment).enqueue().fetch().run_at == moment
    view = task.options(at=moment).options(delay=5).enqueue().fetch()
    assert timedelta(seconds=5) <= view.run_at - view.created_at < timedelta(seconds=5 + LIMIT)


@EVERYWHERE
def test_a_failing_call_is_tried_again_as_often_as_it_may_and_keeps_each_error(app: Mainspring) -> None:
    attempts: list[int] = []

    @app.task(retries=2, backoff=[0, 0])
    def flaky() -> None:
        attempts.append(len(attempts) + 1)
        raise ValueError(f"attempt {attempts[-1]}")

    app.start(work=True)
    view = flaky.enqueue().wait(timeout=LIMIT)
    assert (view.status, view.attempt, view.failures) == (Status.FAILED, 3, 3)
    assert [error.message for error in view.errors] == ["attempt 1", "attempt 2", "attempt 3"]


@EVERYWHERE
def test_only_the_named_exceptions_are_tried_again(app: Mainspring) -> None:
    @app.task(retries=5, backoff=[0], retry_on=[ConnectionError], give_up_on=[ConnectionRefusedError])
    def fail(kind: str) -> None:
        raise {"value": ValueError, "reset": ConnectionResetError, "refused": ConnectionRefusedError}[kind]

    app.start(work=True)
    handles = [fail.enqueue(kind) for kind in ("value", "reset", "refused")]
    assert [view.attempt for view in app.wait(handles, LIMIT)] == [1, 6, 1]


@EVERYWHERE
def test_a_function_may_say_how_long_to_wait(app: Mainspring) -> None:
    @app.task(retries=2, backoff=soon)
    def fail() -> None:
        raise ValueError

    app.start(work=True)
    assert fail.enqueue().wait(timeout=LIMIT).attempt == 3


def test_a_back_off_that_no_worker_could_find_is_refused_when_it_is_enqueued(make_app: MakeApp) -> None:
    app = make_app("redis://localhost:1/0")
    task = app.task(backoff=soon, retries=1)(plain)
    with pytest.raises(TaskNotFound, match=r"soon[\s\S]*secret_key"):
        task.enqueue()


@LOCAL
def test_a_task_may_ask_to_be_tried_again_and_say_when(app: Mainspring) -> None:
    attempts: list[int] = []

    @app.task(retries=1, backoff=[3600])
    def again() -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise Retry(delay=0)
        return "done"

    app.start(work=True)
    view = again.enqueue().wait(timeout=LIMIT)
    assert (view.result, view.attempt, view.failures) == ("done", 2, 1)


@LOCAL
def test_waiting_uncounted_spends_no_retry(app: Mainspring) -> None:
    attempts: list[int] = []

    @app.task
    def wait_for_it() -> str:
        attempts.append(1)
        if len(attempts) < 4:
            raise Retry(delay=0, counted=False)
        return "there"

    app.start(work=True)
    view = wait_for_it.enqueue().wait(timeout=LIMIT)
    assert (view.result, view.attempt, view.failures, view.errors) == ("there", 4, 0, ())


@EVERYWHERE
def test_a_call_that_takes_too_long_is_stopped(app: Mainspring) -> None:
    @app.task(timeout=0.2)
    def endless() -> None:
        while True:
            threading.Event().wait(0.01)

    app.start(work=True)
    with pytest.raises(RunFailed, match=r"time-out of 0\.2 s"):
        endless.enqueue().result(timeout=LIMIT)


@EVERYWHERE
def test_a_result_that_is_not_to_be_kept_is_gone_and_one_kept_is_not(app: Mainspring) -> None:
    task = app.task(plain)
    kept, dropped = task.options(retention=3600).enqueue(), task.options(retention=60).enqueue()
    app.start(work=True)
    app.wait([kept, dropped], LIMIT)
    app.stop()
    app.store.shift_clock(100)
    app.store.prune()
    with pytest.raises(RunNotFound):
        dropped.fetch()
    assert kept.result(timeout=0) == 2


@LOCAL
def test_options_of_a_task_are_its_defaults_and_options_of_a_call_come_first(app: Mainspring) -> None:
    task = app.task(queue="mail", retries=5, timeout=30, priority=7)(plain)
    view = task.enqueue().fetch()
    assert (view.queue, view.policy.retries, view.policy.timeout, view.priority) == ("mail", 5, 30, 7)
    view = task.options(queue="slow", retries=1, name="a name", group="g", id="my-id", priority=-3).enqueue().fetch()
    assert (view.queue, view.policy.retries, view.policy.timeout, view.priority) == ("slow", 1, 30, -3)
    assert (view.name, view.group, view.id) == ("a name", "g", "my-id")
    assert task.enqueue().fetch().queue == "mail"


@EVERYWHERE
def test_an_id_of_ones_own_is_used_once(app: Mainspring) -> None:
    task = app.task(plain).options(id="invoice-17")
    first = task.enqueue(1)
    app.start(work=True)
    assert first.result(timeout=LIMIT) == 2
    assert task.enqueue(100).result(timeout=LIMIT) == 2
    assert app.count() == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"retrys": 1}, "did you mean 'retries'"),
        ({"delay": -1}, "between 0"),
        ({"delay": float("nan")}, "between 0"),
        ({"delay": 1e300}, "between 0"),
        ({"delay": "soon"}, "number of seconds"),
        ({"delay": True}, "number of seconds"),
        ({"at": "tomorrow"}, "datetime"),
        ({"delay": 1, "at": datetime(2090, 1, 1)}, "give one of them"),
        ({"queue": ""}, "non-empty"),
        ({"queue": "a:b"}, "cannot name a queue"),
        ({"queue": ".threads"}, "cannot name a queue"),
        ({"unique": ""}, "non-empty"),
        ({"group": 7}, "non-empty string"),
        ({"id": "x" * 256}, "at most 255"),
        ({"retries": -1}, "retries"),
        ({"timeout": 0}, "timeout"),
        ({"priority": 1000}, "priority"),
        ({"retry_on": ["x", 3]}, "retry_on"),
        ({"isolation": "thread"}, "isolation"),
        ({"delivery": "maybe"}, "delivery"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(make_app: MakeApp, options: dict[str, Any], words: str) -> None:
    app = make_app()
    with pytest.raises((TypeError, ValueError), match=words):
        app.task(**options)
    task = app.task(plain)
    with pytest.raises((TypeError, ValueError), match=words):
        task.options(**options)


@LOCAL
def test_a_queue_that_no_task_uses_is_warned_about_once(app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
    app.task(queue="mail", name="mail")(plain)
    task = app.task(plain).options(queue="mial")
    task.enqueue()
    task.enqueue()
    assert [record.getMessage() for record in caplog.records if "mial" in record.getMessage()] == [
        "no task of this app uses the queue 'mial'; did you mean 'mail'? (if you mean it, start a worker with -Q mial)"
    ]


@LOCAL
def test_a_queue_may_be_limited_to_so_many_at_once(app: Mainspring) -> None:
    gate, lock = Gate(), threading.Lock()
    now, most = [0], [0]

    @app.task(queue="few")
    def crowd() -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        gate.reached()
        with lock:
            now[0] -= 1

    handles = app.enqueue_many(crowd.call() for _ in range(6))
    app.start(work=True, queues={"few": 2, "default": None}, threads=8)
    app.task(plain).enqueue().result(timeout=LIMIT)
    gate._reached.set()
    app.wait(handles, LIMIT)
    assert most[0] <= 2


def test_the_back_off_of_the_documentation_is_a_name_of_the_package(make_app: MakeApp) -> None:
    task = make_app().task(backoff=mainspring.Backoff(first=2, longest=60))(print)
    assert task.defaults.policy.backoff == mainspring.Backoff(first=2.0, longest=60.0)
    assert "Backoff" in mainspring.__all__
