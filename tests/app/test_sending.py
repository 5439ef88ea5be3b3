"""Many calls on their way to the store: a full batch is stored while the caller makes the next."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.errors import OutcomeUnknown, StoreUnavailable
from mainspring.jobstores.rows import RunRow
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.registry import TaskCall
from tests.app.kit import LIMIT, MakeApp


def plain(number: int) -> int:
    return number


class Watched(SQLAlchemyJobStore):
    """A store that notes who adds how many runs, and may be made to fail before or after."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.added: list[tuple[int, str]] = []
        self.before: Callable[[int], Any] = lambda batch: None
        self.after: Callable[[int], Any] = lambda batch: None

    def _add_run_rows(self, rows: Sequence[RunRow]) -> list[str]:
        batch = len(self.added)
        self.added.append((len(rows), threading.current_thread().name))
        self.before(batch)
        ids = super()._add_run_rows(rows)
        self.after(batch)
        return ids


@pytest.fixture
def store(tmp_path: Path) -> Watched:
    """A store of its own."""
    return Watched(f"sqlite:///{tmp_path}/jobs.db")


@pytest.fixture
def app(store: Watched, make_app: MakeApp) -> Mainspring:
    """An app on that store."""
    return make_app(store)


def fail(error: Exception, at: int) -> Callable[[int], None]:
    """Return what raises at one batch."""

    def look(batch: int) -> None:
        if batch == at:
            raise error

    return look


def test_a_full_batch_is_stored_while_the_caller_makes_the_next(app: Mainspring, store: Watched) -> None:
    task, going_on = app.task(plain), threading.Event()

    def calls() -> Iterator[TaskCall[int]]:
        for number in range(1500):
            if number == 1200:
                going_on.set()
            yield task.call(number)

    seen = []
    store.before = lambda batch: seen.append(batch or going_on.wait(LIMIT))
    handles = app.enqueue_many(calls())
    assert seen == [True, 1]
    assert [view.args[0] for view in (handles[0].fetch(), handles[1200].fetch())] == [0, 1200]
    assert app.count() == len({handle.id for handle in handles}) == 1500


def test_fewer_than_a_batch_are_stored_without_a_thread(app: Mainspring, store: Watched) -> None:
    app.enqueue_many(app.task(plain).call(number) for number in range(999))
    assert store.added == [(999, threading.current_thread().name)]


def test_a_lost_reply_is_asked_for_again_and_nothing_is_stored_twice(app: Mainspring, store: Watched) -> None:
    store.after = fail(OutcomeUnknown("the line was cut"), 0)
    handles = app.enqueue_many(app.task(plain).call(number) for number in range(2000))
    assert [count for count, _ in store.added] == [1000] * 3
    assert app.count() == len({handle.id for handle in handles}) == 2000


def test_after_a_batch_that_the_store_refused_none_is_stored(app: Mainspring, store: Watched) -> None:
    store.before = fail(StoreUnavailable("it is away"), 1)
    with pytest.raises(StoreUnavailable, match="it is away"):
        app.enqueue_many(app.task(plain).call(number) for number in range(5000))
    assert [count for count, _ in store.added] == [1000, 1000]
    assert app.count() == 1000


def test_a_wrong_call_is_told_when_what_came_before_it_is_stored(app: Mainspring, store: Watched) -> None:
    task = app.task(plain)
    with pytest.raises(TypeError, match="number"):
        app.enqueue_many(task.call() if number == 1500 else task.call(number) for number in range(2000))  # type: ignore[call-arg]
    assert app.count() == 1000


def test_what_is_gathered_goes_the_same_way(app: Mainspring, store: Watched) -> None:
    task = app.task(plain)
    gathered = app.gather(task.call(number) for number in range(1001))
    assert [count for count, _ in store.added] == [1, 1000, 1]
    app.start(work=True)
    assert gathered.result(timeout=LIMIT) == list(range(1001))
