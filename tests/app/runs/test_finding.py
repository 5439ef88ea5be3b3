"""Looking for runs: by task, job and time, page by page, and what a run shows of itself."""

from __future__ import annotations

import copy
import json
import logging
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from mainspring import Mainspring
from mainspring.core.run import Status
from mainspring.core.showing.run_view import RunView
from mainspring.errors import JobLookupError
from mainspring.schedulers.background import BackgroundScheduler
from mainspring.testing.conformance.helpers import add_run, make_run
from tests.app.kit import EVERYWHERE, KEY, LOCAL, MakeApp


def add(a: int, b: int) -> int:
    return a + b


def tear(text: str) -> None:
    raise ValueError(text)


@EVERYWHERE
def test_runs_are_found_by_their_task(app: Mainspring) -> None:
    plus, rip = (
        app.task(add),
        app.task(
            tear,
        ),
    )
    first = plus.enqueue(1, 2)
    rip.enqueue("in two")
    second = plus.enqueue(3, 4)
    for task in (plus, add, plus.name, "add"):
        assert {run.id for run in app.find(task=task)} == {first.id, second.id}
        assert app.count(task=task) == 2
    assert {run.task for run in app.find(task=plus)} == {f"{__name__}:add"}


@EVERYWHERE
def test_runs_are_found_that_were_made_since_a_time(app: Mainspring) -> None:
    store, now = app.store, app.now()
    for hours in range(4):
        store.add_runs([make_run(store, f"r{hours}", created_at=now - hours * 3600_000_000 - 1)])
    border = datetime.fromtimestamp(now / 1e6, UTC) - timedelta(hours=2)
    assert {run.id for run in app.find(since=border)} == {"r0", "r1"}
    assert {run.id for run in app.find(since=border.replace(tzinfo=None))} == {"r0", "r1"}  # read in the app's zone
    assert {run.id for run in app.find(since=timedelta(hours=2, minutes=30))} == {"r0", "r1", "r2"}
    assert app.count(since=border) == 2
    assert app.find(since=timedelta(seconds=-3600)) == []
    with pytest.raises(TypeError, match=r"back from now, such as timedelta\(hours=1\), not 60"):
        app.find(since=60)  # type: ignore[arg-type]


@EVERYWHERE
@pytest.mark.parametrize("task", [None, "add"])
def test_a_page_says_whether_there_are_more(app: Mainspring, task: str | None) -> None:
    plus = app.task(add)
    app.enqueue_many(plus.call(number, 1) for number in range(5))
    page = app.find(limit=3, task=task)
    assert (len(page), page.more) == (3, True)
    rest = app.find(limit=3, task=task, after=page[-1])
    assert (len(rest), rest.more) == (2, False)
    assert len({run.id for run in [*page, *rest]}) == 5
    assert not app.find(limit=5, task=task).more


def test_a_limit_below_one_is_refused(make_app: MakeApp) -> None:
    with pytest.raises(ValueError, match="limit must be at least 1, not 0"):
        make_app().find(limit=0)


@LOCAL
def test_a_job_that_is_not_there_and_has_left_no_runs_is_named(app: Mainspring) -> None:
    app.task(add)
    app.add_job(add, "interval", hours=1, args=[1, 2], id="nightly")
    assert app.find(job="nightly") == []
    for look in (app.find, app.count):
        with pytest.raises(JobLookupError, match=r"'nihgtly'.*did you mean 'nightly'"):
            look(job="nihgtly")
    made = app.run_now("nightly")
    app.remove_job("nightly")
    assert [run.id for run in app.find(job="nightly")] == [made.id]
    assert app.find(job="nightly", status="failed") == []


def test_a_task_that_nobody_here_knows_is_named(make_app: MakeApp, caplog: pytest.LogCaptureFixture) -> None:
    app = make_app()
    plus = app.task(add)
    with caplog.at_level(logging.WARNING, "mainspring.app"):
        assert app.find(task=plus) == []
        assert caplog.messages == []
        assert app.find(task="ad") == []
    (text,) = caplog.messages
    assert text == "this process knows no task 'ad', and no run of it is kept; did you mean 'add'?"


def test_a_run_shows_how_it_went(make_app: MakeApp) -> None:
    app = make_app(inline=True, secret_key=KEY)
    good, bad = app.task(add).enqueue(1, 2).fetch(), app.task(tear).enqueue("in\n two\x1b[2J").fetch()
    assert repr(good) == f"<Run {good.id} add succeeded in {good.duration:.3g} s>"
    assert repr(bad) == f"<Run {bad.id} tear failed in {bad.duration:.3g} s: ValueError: in two\\x1b[2J>"
    waiting = RunView(make_run(app.store, "r1", status=Status.MISSED, reason="late"), UTC)
    assert repr(waiting).endswith(" missed (late)>")


def test_the_times_of_a_run_are_aware_datetimes(make_app: MakeApp) -> None:
    app = make_app(inline=True, secret_key=KEY, timezone="Asia/Tokyo")
    run = app.task(tear).enqueue("in two").fetch()
    assert run.error is not None
    times = [run.created_at, run.run_at, run.started_at, run.finished_at, run.error.at]
    assert {time.tzinfo for time in times if time is not None} == {ZoneInfo("Asia/Tokyo")}
    view = RunView(make_run(app.store, last=3, lease_until=4), UTC)
    assert [view.last, view.lease_until] == [datetime(1970, 1, 1, 0, 0, 0, number, UTC) for number in (3, 4)]


def test_a_run_as_a_dict_is_plain_and_leaves_its_arguments_out(make_app: MakeApp) -> None:
    app = make_app(inline=True, secret_key=KEY)
    run = app.task(tear).enqueue("in two").fetch()
    shown = run.to_dict()
    assert (shown["id"], shown["task"], shown["status"], shown["queue"]) == (run.id, run.task, "failed", "default")
    assert (shown["duration"], shown["finished_at"]) == (run.duration, run.finished_at)
    assert shown["errors"][0]["message"] == "in two"
    assert not {"args", "kwargs", "call"} & shown.keys()
    json.dumps(shown, default=str)


def test_views_of_the_same_record_are_equal(make_app: MakeApp) -> None:
    app = make_app(inline=True, secret_key=KEY)
    run = app.task(add).enqueue(1, 2).fetch()
    assert {run, app.get(run.id), copy.copy(run)} == {run}
    assert run != app.task(add).enqueue(1, 2).fetch()


def test_a_scheduler_shows_runs_as_an_app_does() -> None:
    scheduler = BackgroundScheduler(timezone="Asia/Tokyo")
    with scheduler:
        store = scheduler._jobstores["default"]
        for number in range(3):
            add_run(store, f"r{number}", created_at=store.beat() - number * 3600_000_000, job_id="hourly")
        page = scheduler.get_runs("hourly", limit=2)
        assert ([run.id for run in page], page.more) == (["r0", "r1"], True)
        assert isinstance(page[0], RunView)
        assert page[0].created_at.tzinfo == ZoneInfo("Asia/Tokyo")
        recent = scheduler.get_runs(since=timedelta(minutes=90))
        assert ([run.id for run in recent], recent.more) == (["r0", "r1"], False)
