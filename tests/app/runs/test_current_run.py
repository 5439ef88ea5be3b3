"""What a task can know and say about the run it is in."""

from __future__ import annotations

import logging
import time
from decimal import Decimal
from typing import Any

import pytest

from mainspring import Mainspring, current_run
from mainspring.core.run import Status
from mainspring.core.stored.settling import LOG_LINES
from mainspring.executors import current_run as run_logs
from mainspring.executors.current_run import LOG_CHARS, NotInRun
from tests.app.kit import EVERYWHERE, LASTING, LIMIT, LOCAL, Gate, MakeApp

log = logging.getLogger("shop")


def test_outside_a_run_there_is_none() -> None:
    with pytest.raises(NotInRun, match="inside a task"):
        current_run()


@EVERYWHERE
def test_a_task_knows_its_run(app: Mainspring) -> None:
    @app.task(retries=1, backoff=[0])
    def who() -> list[Any]:
        run = current_run()
        if run.attempt == 1:
            raise ValueError
        return [run.id, run.attempt, run.job_id, run.record.queue]

    app.start(work=True)
    handle = who.enqueue()
    assert handle.result(timeout=LIMIT) == [handle.id, 2, None, "default"]


@EVERYWHERE
def test_a_coroutine_knows_its_run(app: Mainspring) -> None:
    @app.task
    async def who() -> str:
        return current_run().id

    app.start(work=True)
    handles = [who.enqueue() for _ in range(3)]
    assert [handle.result(timeout=LIMIT) for handle in handles] == [handle.id for handle in handles]


@EVERYWHERE
def test_progress_and_data_can_be_seen_while_the_task_runs(app: Mainspring) -> None:
    gate = Gate()

    @app.task
    def work() -> None:
        current_run().progress(1, 4, "a quarter")
        current_run().update(file="a.csv", rows=[1, 2])
        gate.wait()
        current_run().update(rows=[3])
        current_run().progress(4, 4)

    app.start(work=True)
    handle = work.enqueue()
    gate.reached()
    deadline = time.monotonic() + LIMIT
    while (view := handle.fetch()).progress is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert (view.status, view.progress) == (Status.RUNNING, {"done": 1, "total": 4, "text": "a quarter"})
    assert view.data == {"file": "a.csv", "rows": [1, 2]}
    gate.open()
    view = handle.wait(timeout=LIMIT)
    assert (view.progress["done"], view.data) == (4, {"file": "a.csv", "rows": [3]})


@EVERYWHERE
def test_a_later_attempt_finds_the_data_of_an_earlier_one(app: Mainspring) -> None:
    @app.task(retries=1, backoff=[0])
    def resume() -> int:
        run = current_run()
        done: int = run.data.get("done", 0)
        if not done:
            run.update(done=10)
            raise ValueError
        return done

    app.start(work=True)
    assert resume.enqueue().result(timeout=LIMIT) == 10


@EVERYWHERE
def test_the_log_lines_of_a_task_are_kept_with_its_run(app: Mainspring) -> None:
    @app.task
    def talk(name: str) -> None:
        log.warning("hello %s \udcff", name)
        current_run().log("by hand")

    app.start(work=True)
    views = app.wait([talk.enqueue("Ada"), talk.enqueue("Bob")], LIMIT)
    for view, name in zip(views, ("Ada", "Bob"), strict=True):
        assert len(view.log) == 2
        assert view.log[0].endswith(f"WARNING shop: hello {name} \udcff")
        assert view.log[1] == "by hand"


def test_two_working_apps_in_one_process_keep_each_line_once(make_app: MakeApp) -> None:
    one, other = make_app(), make_app()

    def talk() -> None:
        log.warning("hello")

    one.start(work=True)
    other.start(work=True)
    assert len(one.enqueue(talk).wait(timeout=LIMIT).log) == 1
    other.stop()
    assert len(one.enqueue(talk).wait(timeout=LIMIT).log) == 1
    one.stop()
    assert not run_logs._keeping


@LOCAL
def test_the_log_of_a_run_is_bounded_and_keeps_the_last_lines(app: Mainspring) -> None:
    @app.task
    def chatter(lines: int, size: int) -> None:
        run = current_run()
        for number in range(lines):
            run.log(f"{number} ".ljust(size, "x"))

    app.start(work=True)
    many, large = app.wait([chatter.enqueue(LOG_LINES * 3, 5), chatter.enqueue(500, 4096)], LIMIT)
    assert len(many.log) == LOG_LINES
    assert many.log[-1].startswith(f"{LOG_LINES * 3 - 1} ")
    assert sum(map(len, large.log)) <= LOG_CHARS
    assert large.log[-1].startswith("499 ")


@LOCAL
@pytest.mark.parametrize(
    "value",
    [object(), {1: 2}, Decimal(1), b"x", 2**70, [[object()]], "x" * 70_000, "\udcff"],
    ids=["object", "number as key", "decimal", "bytes", "large number", "deep object", "long", "half a character"],
)
def test_what_is_no_plain_data_is_refused_in_the_task(app: Mainspring, value: Any) -> None:
    told: list[Exception] = []

    def work() -> str:
        try:
            current_run().update(value=value)
        except (TypeError, ValueError) as error:
            told.append(error)
        return "went on"

    app.task(name="work")(work)
    app.start(work=True)
    view = app.enqueue("work").wait(timeout=LIMIT)
    assert (view.result, view.data, len(told)) == ("went on", None, 1)
    assert "value" in str(told[0]) or "bytes" in str(told[0])


@LOCAL
def test_progress_is_told_in_numbers(app: Mainspring) -> None:
    @app.task
    def work() -> None:
        current_run().progress("half")  # type: ignore[arg-type]

    app.start(work=True)
    view = work.enqueue().wait(timeout=LIMIT)
    assert view.error is not None
    assert "takes numbers" in view.error.message


class Float64(float):
    """A number that is a float and more, as numpy's is."""


@LOCAL
def test_progress_in_numbers_of_another_kind_is_kept_in_plain_ones(app: Mainspring) -> None:
    @app.task
    def work() -> None:
        current_run().progress(Float64(0.5), Float64(2))

    app.start(work=True)
    view = work.enqueue().wait(timeout=LIMIT)
    assert (view.status, view.progress) == (Status.SUCCEEDED, {"done": 0.5, "total": 2.0, "text": ""})
    assert view.progress is not None
    assert type(view.progress["done"]) is float


@LASTING
def test_data_that_has_become_unstorable_does_not_make_a_success_a_failure(app: Mainspring) -> None:
    @app.task
    def work() -> int:
        rows: list[Any] = [1]
        current_run().update(rows=rows)
        rows.append(object())
        return 5

    app.start(work=True)
    view = work.enqueue().wait(timeout=LIMIT)
    assert (view.status, view.result, view.data) == (Status.SUCCEEDED, 5, None)


def test_a_run_in_a_process_of_its_own_can_say_all_this_too(make_app: MakeApp) -> None:
    from tests.app.isolated import app, talk

    app.start(work=True)
    try:
        view = talk.enqueue(3).wait(timeout=LIMIT)
    finally:
        app.close()
    assert view.result[0] == 3
    assert (view.progress["done"], view.data) == (3, {"place": "child"})
    assert len(view.log) == 1
    assert view.log[0].endswith("WARNING shop: from a child")


def test_a_task_that_is_called_directly_may_do_without_a_run(make_app: MakeApp) -> None:
    app = make_app(inline=True)

    @app.task
    def convert(pages: int) -> str:
        run = current_run(None)
        if run is not None:
            run.progress(pages, pages)
        return "directly" if run is None else run.id

    assert convert(3) == "directly"
    handle = convert.enqueue(3)
    assert handle.result() == handle.id
    assert current_run("nobody") == "nobody"
    with pytest.raises(NotInRun, match=r"current_run\(None\) gives None"):
        current_run()
