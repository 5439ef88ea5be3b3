"""Limits, rates, expiry, debounce and throttle, as a user gives them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.core.instants import SECOND
from mainspring.core.run import Status
from mainspring.testing.clock import VirtualClock


@pytest.fixture(params=["memory", "sqlite", "postgresql", "mariadb", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return "memory://"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    return str(request.getfixturevalue(f"{request.param}_server").url)


@pytest.fixture
def app(url: str, request: pytest.FixtureRequest) -> Iterator[Mainspring]:
    name = f"l{abs(hash(request.node.name)) % 10**8}"
    with Mainspring(url, name=name) as app:
        yield app


class Gauge:
    """How many calls run at once, at most, by key."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.now: dict[Any, int] = {}
        self.most: dict[Any, int] = {}
        self.order: list[Any] = []

    def __call__(self, key: Any = None) -> None:
        with self.lock:
            self.order.append(key)
            self.now[key] = self.now.get(key, 0) + 1
            self.most[key] = max(self.most.get(key, 0), self.now[key])
        time.sleep(0.02)
        with self.lock:
            self.now[key] -= 1


def test_no_more_runs_of_a_task_run_at_once_than_its_limit(app: Mainspring) -> None:
    gauge = Gauge()

    @app.task(limit=2, name="work")
    def work() -> None:
        gauge()

    handles = app.enqueue_many(work.call() for _ in range(20))
    app.start(work=True, threads=8)
    assert {run.status for run in app.wait(handles, timeout=60)} == {Status.SUCCEEDED}
    assert gauge.most == {None: 2}


def test_each_key_has_a_limit_of_its_own_and_keys_take_turns(app: Mainspring) -> None:
    gauge = Gauge()

    @app.task(limit=1, limit_key="tenant-{tenant}", name="sync")
    def sync(tenant: str, n: int = 0) -> None:
        gauge(tenant)

    handles = app.enqueue_many(sync.call(tenant, n=n) for tenant in ("a", "b", "c") for n in range(5))
    app.start(work=True, threads=8)
    app.wait(handles, timeout=60)
    assert gauge.most == {"a": 1, "b": 1, "c": 1}
    assert set(gauge.order[:3]) == {"a", "b", "c"}


def test_a_run_without_a_slot_is_blocked_and_says_why(app: Mainspring) -> None:
    started, goes = threading.Event(), threading.Event()

    @app.task(limit=1, name="one")
    def one() -> None:
        started.set()
        goes.wait(30)

    app.start(work=True)
    first = one.enqueue()
    assert started.wait(30)
    second = one.enqueue()
    deadline = time.monotonic() + 30
    while second.status() is not Status.BLOCKED and time.monotonic() < deadline:
        time.sleep(0.01)
    sentence = second.explain().sentence
    assert "slot" in sentence
    assert "1 of 1" in sentence
    goes.set()
    app.wait([first, second], timeout=60)


def test_a_limit_can_be_changed_while_workers_run(app: Mainspring) -> None:
    goes = threading.Event()
    gauge = Gauge()

    @app.task(limit=1, limit_key="k", name="held")
    def held() -> None:
        gauge.now["x"] = gauge.now.get("x", 0) + 1
        goes.wait(30)

    app.set_limit("k", 0)
    assert app.limits() == {"k": 0}
    handles = app.enqueue_many(held.call() for _ in range(3))
    app.start(work=True, threads=8)
    time.sleep(0.2)
    assert gauge.now == {}
    app.set_limit("k", 3)
    deadline = time.monotonic() + 30
    while gauge.now.get("x") != 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert gauge.now == {"x": 3}
    goes.set()
    app.wait(handles, timeout=60)


def test_a_queue_runs_at_most_as_many_as_its_limit_and_keeps_it_through_a_pause(app: Mainspring) -> None:
    gauge = Gauge()

    @app.task(queue="mail", name="send")
    def send() -> None:
        gauge()

    app.limit_queue("mail", 3)
    app.pause_queue("mail")
    handles = app.enqueue_many(send.call() for _ in range(15))
    (info,) = [queue for queue in app.queues() if queue.name == "mail"]
    assert (info.paused, info.waiting) == (True, 15)
    app.start(work=True, threads=8)
    app.resume_queue("mail")
    app.wait(handles, timeout=60)
    assert 1 <= gauge.most[None] <= 3
    (info,) = [queue for queue in app.queues() if queue.name == "mail"]
    assert (info.paused, info.limit) == (False, 3)
    app.limit_queue("mail", None)
    assert [queue.limit for queue in app.queues() if queue.name == "mail"] == [None]


def test_a_rate_spreads_the_starts(app: Mainspring) -> None:
    @app.task(rate="1/h", burst=2, name="tick")
    def tick() -> None: ...

    app.enqueue_many(tick.call() for _ in range(4))
    app.start(work=True, threads=8)
    deadline = time.monotonic() + 60
    waiting = [run.record for run in app.find(status="pending")]
    while len(waiting) != 2 or min(run.run_at for run in waiting) <= app.now():
        assert time.monotonic() < deadline
        time.sleep(0.01)
        waiting = [run.record for run in app.find(status="pending")]
    hours = sorted(round((run.run_at - run.created_at) / (3600 * SECOND)) for run in waiting)
    assert hours == [1, 2]


def test_a_call_that_waited_too_long_is_recorded_as_missed() -> None:
    clock = VirtualClock()
    with Mainspring("memory://", clock=clock) as app:
        called = []

        @app.task(expires=60)
        def late() -> None:
            called.append(1)

        handle = late.enqueue()
        clock.advance(61)
        app.start(work=True)
        run = handle.wait(timeout=30)
        assert (run.status, run.reason, called) == (Status.MISSED, "late", [])


def test_debounced_calls_become_the_last_one(app: Mainspring) -> None:
    @app.task(unique="user-{id}", debounce=30, name="index")
    def index(id: int, text: str) -> str:
        return text

    handles = [index.enqueue(7, text) for text in ("a", "b", "c")]
    other = index.enqueue(8, "x")
    waiting = {run.id: run for run in app.find(status="pending")}
    assert set(waiting) == {handles[-1].id, other.id}
    assert waiting[handles[-1].id].args == (7, "c")
    assert [handle.fetch().reason for handle in handles[:2]] == [f"replaced by {h.id}" for h in handles[1:]]


def test_debounced_calls_put_each_other_off_no_longer_than_debounce_max(app: Mainspring) -> None:
    @app.task(debounce=30, debounce_max=timedelta(seconds=30), name="index")
    def index() -> None: ...

    first = index.enqueue().fetch()
    time.sleep(0.05)
    second = index.enqueue().fetch()
    assert second.record.run_at == first.record.run_at
    assert second.record.count == 2


def test_a_call_that_comes_while_the_debounced_one_runs_starts_a_new_one(app: Mainspring) -> None:
    started, goes, calls = threading.Event(), threading.Event(), []

    @app.task(debounce=0.01, name="index")
    def index(n: int) -> None:
        calls.append(n)
        started.set()
        goes.wait(30)

    app.start(work=True)
    first = index.enqueue(1)
    assert started.wait(30)
    second = index.enqueue(2)
    assert second.id != first.id
    goes.set()
    app.wait([first, second], timeout=60)
    assert calls == [1, 2]


def test_replace_takes_the_place_of_a_waiting_call(app: Mainspring) -> None:
    @app.task(unique="r", on_conflict="replace", name="report")
    def report(n: int) -> None: ...

    first, second = report.enqueue(1), report.enqueue(2)
    assert (first.status(), second.status()) == (Status.CANCELLED, Status.PENDING)
    handles = app.enqueue_many([report.call(3), report.call(4)])
    assert [run.args for run in app.find(status="pending")] == [(4,)]
    assert handles[-1].status() is Status.PENDING


def test_throttled_calls_are_the_first_of_their_window(app: Mainspring) -> None:
    @app.task(unique="user-{id}", throttle=86400 * 3650, name="ping")
    def ping(id: int, n: int = 0) -> int:
        return n

    first, again, other = ping.enqueue(7, n=1), ping.enqueue(7, n=2), ping.enqueue(8)
    assert first.id == again.id != other.id
    assert first.fetch().kwargs == {"n": 1}
    assert app.count() == 2


def test_a_unique_key_is_filled_in_with_the_arguments(app: Mainspring) -> None:
    @app.task(unique="order-{order}", name="bill")
    def bill(order: int) -> None: ...

    assert bill.enqueue(1).id == bill.enqueue(1).id != bill.enqueue(2).id


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"limit": 0}, "limit must be a whole number of at least 1"),
        ({"limit": "two"}, "limit must be"),
        ({"rate": "fast"}, "'100/m'"),
        ({"limit_key": "x"}, "give limit= or rate="),
        ({"limit": 1, "limit_key": 7}, "limit_key must be a text"),
        ({"expires": -1}, "expires must be"),
        ({"debounce": 1, "throttle": 1}, "give one of them"),
        ({"debounce_max": 1}, "give debounce="),
        ({"on_conflict": "repace"}, "did you mean 'replace'"),
        ({"burst": 3}, "give a rate"),
    ],
)
def test_wrong_options_are_refused_where_they_are_given(options: dict[str, Any], words: str) -> None:
    app = Mainspring("memory://")
    with pytest.raises((ValueError, TypeError), match=words):
        app.task(**options)


def test_a_key_that_cannot_be_filled_in_is_refused_at_the_call() -> None:
    app = Mainspring("memory://")

    @app.task(limit=1, limit_key="tenant-{user.tenant}")
    def sync(user: int) -> None: ...

    with pytest.raises(ValueError, match="cannot be filled in with the arguments user"):
        sync.enqueue(1)
