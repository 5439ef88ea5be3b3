"""Many calls on their way to the store: a full batch is stored while the caller makes the next."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.app.declaring.task import TaskCall
from mainspring.errors import OutcomeUnknown, StoreUnavailable
from mainspring.jobstores.base import Answers
from mainspring.jobstores.records.rows import RunRow
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from tests.app.kit import LIMIT, MakeApp


def plain(number: int) -> int:
    return number


class Watched(SQLAlchemyJobStore):
    """A store that notes who adds how many runs, and may be made to fail before or after."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.remote = True  # as it were
        self.added: list[tuple[int, str]] = []
        self.before: Callable[[int], Any] = lambda batch: None
        self.after: Callable[[int], Any] = lambda batch: None

    def _add_run_rows(self, rows: Sequence[RunRow]) -> Answers[str | None]:
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
    assert [count for count, _ in store.added] == [1000, 7]  # a marker, 1,001 calls, their joins and the collector
    app.start(work=True)
    assert gathered.result(timeout=LIMIT) == list(range(1001))


def test_a_reply_that_stays_lost_tells_the_ids_to_repeat_with(app: Mainspring, store: Watched) -> None:
    task = app.task(plain)

    def lose(batch: int) -> None:
        raise OutcomeUnknown("the line was cut")

    store.after = lose
    with pytest.raises(OutcomeUnknown, match="the line was cut") as caught:
        task.enqueue(1)
    (run_id,) = caught.value.run_ids
    with pytest.raises(OutcomeUnknown) as again:
        task.options(id=run_id, shard="tenant").enqueue(1)
    with pytest.raises(OutcomeUnknown) as once_more:
        task.options(id=again.value.run_ids[0], shard="tenant").enqueue(1)
    assert once_more.value.run_ids == again.value.run_ids
    store.after = lambda batch: None
    assert task.options(id=run_id).enqueue(1).fetch().args == (1,)
    assert app.count() == 2


def test_it_tells_them_also_if_the_store_is_gone_when_it_is_asked_again(app: Mainspring, store: Watched) -> None:
    store.after, store.before = fail(OutcomeUnknown("the line was cut"), 0), fail(StoreUnavailable("it is away"), 1)
    with pytest.raises(OutcomeUnknown, match="the line was cut") as caught:
        app.enqueue_many(app.task(plain).call(number) for number in range(3))
    assert [run.args for run in app.store.get_runs(caught.value.run_ids) if run] == [(0,), (1,), (2,)]


def test_of_many_calls_it_tells_those_of_its_batch_and_how_many_are_stored(app: Mainspring, store: Watched) -> None:
    store.before = lambda batch: fail(OutcomeUnknown("the line was cut"), batch)(batch) if batch else None
    with pytest.raises(OutcomeUnknown) as caught:
        app.enqueue_many(app.task(plain).call(number) for number in range(1500))
    assert len(caught.value.run_ids) == 500
    assert caught.value.__notes__ == ["the first 1,000 calls are stored"]


def test_an_error_among_many_calls_tells_how_many_are_stored(app: Mainspring, store: Watched) -> None:
    task = app.task(plain)
    with pytest.raises(TypeError) as caught:
        app.enqueue_many([*(task.call(number) for number in range(1500)), task.call(object())])  # type: ignore[arg-type]
    assert caught.value.__notes__ == ["the first 1,000 calls are stored"]
    assert app.count() == 1000


def test_an_error_before_anything_is_stored_tells_nothing(app: Mainspring, store: Watched) -> None:
    with pytest.raises(TypeError) as caught:
        app.enqueue_many([app.task(plain).call(1), app.task(plain).call(object())])  # type: ignore[arg-type]
    assert not hasattr(caught.value, "__notes__")


def test_an_error_tells_that_what_was_on_its_way_may_be_lost(app: Mainspring, store: Watched) -> None:
    task, wrong = app.task(plain), threading.Event()

    def look(batch: int) -> None:
        assert wrong.wait(LIMIT)
        raise StoreUnavailable("it is away")

    def calls() -> Iterator[TaskCall[int]]:
        yield from (task.call(number) for number in range(1000))
        wrong.set()
        raise RuntimeError("no more")

    store.before = look
    with pytest.raises(RuntimeError, match="no more") as caught:
        app.enqueue_many(calls())
    assert caught.value.__notes__ == ["the calls of the batch before may not be stored: StoreUnavailable('it is away')"]
