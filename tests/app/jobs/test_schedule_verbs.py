"""What the app says of schedules: fires ahead, expected load, what differs from the code, what a backfill runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.core.instants import to_us
from mainspring.errors import MaxInstancesReachedError
from mainspring.testing.clock import VirtualClock
from tests.servers import Redis

KEY = "a key of the tests that is long enough"
LIMIT = 90.0
NOW = datetime(2026, 3, 27, 12, tzinfo=UTC)


def report(month: str = "", size: int = 1) -> str:
    """Do nothing."""
    return month * size


class Place:
    """A store that apps open anew, each as a new version of the code."""

    def __init__(self, url: str, name: str) -> None:
        self.url, self.name = url, name
        self.apps: list[Mainspring] = []

    def app(self, *schedules: dict[str, Any]) -> Mainspring:
        """Return an app that declares schedules of `report`, brought in line with the store."""
        made = Mainspring(self.url, name=self.name, secret_key=KEY, timezone="UTC")
        self.apps.append(made)
        for schedule in schedules:
            made.schedule(**{"id": "nightly", **schedule})(report)
        if schedules:
            made.reconcile()
        return made


@pytest.fixture(params=["sqlite", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A store on disk, and one on a server."""
    if request.param == "sqlite":
        made = Place(f"sqlite:///{tmp_path}/jobs.db", "mainspring")
    else:
        server: Redis = request.getfixturevalue("redis_server")
        made = Place(server.url, f"schedules-{tmp_path.name}")
    yield made
    last = made.app()
    for job in last.jobs():
        last.remove_job(job.id, cancel_runs=True)
    for run in last.find(limit=1000):
        last.delete(run.id)
    for app in made.apps:
        app.close()


DAILY: dict[str, Any] = {"trigger": "0 3 * * *", "timezone": "UTC", "kwargs": {"month": "may"}, "retries": 2}


def fields(app: Mainspring) -> dict[str, tuple[Any, Any]]:
    return {each.field: (each.code, each.store) for each in app.differences()}


def test_what_is_as_declared_differs_in_nothing(place: Place) -> None:
    app = place.app(DAILY, {"trigger": "interval", "minutes": 5, "id": "often"})
    assert app.differences() == []
    app.pause_job("nightly")
    assert app.differences() == []
    assert place.app(DAILY, {"trigger": "interval", "minutes": 5, "id": "often"}).differences() == []


def test_what_was_changed_by_hand_is_named_field_by_field(place: Place) -> None:
    app = place.app(DAILY)
    with app.acting("ann", "june is over"):
        app.modify_job("nightly", kwargs={"month": "june"}, retries=5, max_instances=3)
    assert {each.by for each in app.differences()} == {"ann"}
    app.reschedule_job("nightly", "0 4 * * *", timezone="UTC")
    found = fields(app)
    assert {name: values for name, values in found.items() if name != "trigger"} == {
        "kwargs": ({"month": "may"}, {"month": "june"}), "retries": (2, 5), "max_instances": (1, 3),
    }  # fmt: skip
    assert [trigger.describe() for trigger in found["trigger"]] == [
        "every day at 03:00, UTC",
        "every day at 04:00, UTC",
    ]


def test_without_the_code_the_store_knows_what_was_declared(place: Place) -> None:
    place.app(DAILY).modify_job("nightly", kwargs={"month": "june"}, queue="slow")
    stranger = place.app()
    assert fields(stranger) == {
        "queue": ("default", "slow"), "kwargs": ({"month": "may"}, {"month": "june"}),
    }  # fmt: skip
    stranger.modify_job("nightly", queue="default")
    assert fields(stranger) == {"kwargs": ({"month": "may"}, {"month": "june"})}
    adopted = stranger.adopt("nightly", "code")
    assert (dict(adopted.kwargs), stranger.differences()) == ({"month": "may"}, [])


def test_a_job_adopts_the_code_and_stays_paused(place: Place) -> None:
    app = place.app(DAILY)
    app.reschedule_job("nightly", "0 4 * * *", timezone="UTC")
    app.modify_job("nightly", retries=0)
    app.pause_job("nightly")
    adopted = app.adopt("nightly")
    assert (adopted.next_run_time, adopted.policy.retries, app.differences()) == (None, 2, [])
    assert adopted.trigger.describe() == "every day at 03:00, UTC"
    assert app.resume_job("nightly") is not None


def test_an_adopted_trigger_gives_the_next_time(place: Place) -> None:
    app = place.app(DAILY)
    app.reschedule_job("nightly", "0 4 * * *", timezone="UTC")
    adopted = app.adopt("nightly")
    assert adopted.next_run_time is not None
    assert adopted.next_run_time.hour == 3


def test_a_changed_declaration_takes_the_place_of_what_was_changed_by_hand(place: Place) -> None:
    place.app(DAILY).modify_job("nightly", retries=9, queue="slow")
    app = place.app({**DAILY, "retries": 3})
    job = app.get_job("nightly")
    assert (job.policy.retries, job.queue, app.differences()) == (3, "default", [])


def test_a_trigger_changed_by_hand_stays_when_something_else_is_declared_anew(place: Place) -> None:
    place.app(DAILY).reschedule_job("nightly", "0 4 * * *", timezone="UTC")
    app = place.app({**DAILY, "retries": 3})
    assert app.get_job("nightly").trigger.describe() == "every day at 04:00, UTC"
    assert set(fields(app)) == set(fields(place.app())) == {"trigger"}


def test_a_schedule_that_is_gone_from_the_code_is_listed_and_goes_on(place: Place) -> None:
    place.app(DAILY, {**DAILY, "id": "old"})
    app = place.app(DAILY)
    [gone] = app.differences()
    assert (gone.job, gone.field, gone.code, gone.store.describe()) == (
        "old",
        "schedule",
        None,
        "every day at 03:00, UTC",
    )
    assert app.get_job("old").next_run_time is not None


def test_a_job_that_no_code_declares_adopts_none(place: Place) -> None:
    app = place.app()
    app.add_job(report, "interval", hours=1, id="mine")
    assert app.differences() == []
    with pytest.raises(ValueError, match="was added by hand: no code declares it"):
        app.adopt("mine")
    with pytest.raises(ValueError, match="adopt"):
        app.adopt("mine", "store")


@pytest.fixture
def still() -> Iterator[Mainspring]:
    """An app in memory whose clock stands still."""
    clock = VirtualClock(to_us(NOW))
    app = Mainspring("memory://", timezone="UTC", clock=clock)
    app.task(report)
    yield app
    app.close()


def test_fires_of_all_jobs_are_listed_with_notes(still: Mainspring) -> None:
    still.add_job(report, "30 2 * * *", timezone="Europe/Berlin", id="night")
    still.add_job(report, "0 * * * *", id="hourly")
    found = still.fires(limit=3)
    assert [(fire.job_id, fire.at.hour) for fire in found] == [("hourly", 12), ("hourly", 13), ("hourly", 14)]
    nights = still.preview("night", 3, notes=True)
    assert [fire.note and fire.note.kind for fire in nights] == [None, "gap", None]
    assert still.preview("night", 2) == [fire.at for fire in nights[:2]]
    until = datetime(2026, 3, 29, 12, tzinfo=UTC)
    assert sum(fire.job_id == "night" for fire in still.fires(NOW, until, limit=1000)) == 2


def test_the_expected_load_counts_fires_and_busy_slots(still: Mainspring) -> None:
    still.add_job(report, "0 * * * *", id="hourly")
    steps = still.jobs.load(NOW, timedelta(hours=2), timedelta(hours=1))
    assert [(step.at.hour, step.fires, step.busy) for step in steps] == [(12, 1, 0.0), (13, 1, 0.0)]


def backfilled(app: Mainspring, since: datetime, **options: Any) -> tuple[list[int], list[int]]:
    done = app.backfill("daily", since, **options)
    return [fire.day for fire in done.fires], [fire.day for fire in done.known]


@pytest.fixture
def daily(place: Place) -> Mainspring:
    """An app with a job that fires each day at three, since long ago."""
    app = place.app()
    app.add_job(report, "0 3 * * *", timezone="UTC", id="daily", kwargs={"month": "x"})
    return app


def test_a_backfill_says_first_what_it_would_run(daily: Mainspring) -> None:
    trial = daily.backfill("daily", datetime(2026, 1, 1), datetime(2026, 1, 4), trial=True)
    assert ([fire.day for fire in trial.fires], trial.known, trial.run) == ([1, 2, 3], [], None)
    assert daily.find(job="daily") == []


def test_a_backfill_runs_each_fire_once_one_after_another(daily: Mainspring) -> None:
    span = datetime(2026, 1, 1), datetime(2026, 1, 4)
    done = daily.backfill("daily", *span)
    assert done.run is not None
    assert [act.verb for act in daily.audit() if act.target == "daily"][:1] == ["backfill"]
    with pytest.raises(MaxInstancesReachedError):
        daily.backfill("daily", datetime(2026, 2, 1), datetime(2026, 2, 2))
    job = daily.get_job("daily")
    ids = [f"daily@{job.incarnation}@{to_us(fire)}" for fire in done.fires]
    daily.start(work=True, schedule=False)
    for run_id in ids:
        wait_for(daily, run_id)
    daily.stop()
    runs = daily.find(job="daily")
    assert [run.id for run in reversed(runs)] == ids
    assert [run.fire_time for run in reversed(runs)] == done.fires
    times = [time for run in reversed(runs) for time in (run.record.started_at or 0, run.record.finished_at or 0)]
    assert times == sorted(times)
    again = daily.backfill("daily", *span)
    assert ([fire.day for fire in again.known], again.fires, again.run) == ([1, 2, 3], [], None)
    more = daily.backfill("daily", datetime(2025, 12, 31), datetime(2026, 1, 4), trial=True)
    assert [fire.day for fire in more.fires] == [31]


def test_a_backfill_ends_when_its_job_is_removed_with_its_runs(daily: Mainspring) -> None:
    run = daily.backfill("daily", datetime(2026, 1, 1), datetime(2026, 1, 4)).run
    daily.remove_job("daily", cancel_runs=True)
    assert run is not None
    assert (str(run.status()), daily.count(status="pending")) == ("cancelled", 0)


def test_a_backfill_passes_over_a_fire_whose_run_was_just_deleted(daily: Mainspring) -> None:
    first = daily.backfill("daily", datetime(2026, 1, 1), datetime(2026, 1, 2)).run
    assert first is not None
    daily.cancel(first)
    daily.delete(first)
    done = daily.backfill("daily", datetime(2026, 1, 1), datetime(2026, 1, 3))
    assert ([fire.day for fire in done.known], [fire.day for fire in done.fires]) == ([1], [2])
    assert done.run is not None
    assert str(done.run.status()) == "pending"


def wait_for(app: Mainspring, run_id: str) -> None:
    """Wait for a run that another run will leave behind."""
    import time

    limit = time.monotonic() + LIMIT
    while not (found := app.store.get_runs([run_id])[0]) or found.finished_at is None:
        assert time.monotonic() < limit, f"{run_id} has not ended"
        time.sleep(0.01)


def test_a_backfill_looks_at_the_past_only_and_not_at_too_much(daily: Mainspring) -> None:
    assert backfilled(daily, datetime(2100, 1, 1), trial=True) == ([], [])
    daily.add_job(report, "* * * * *", timezone="UTC", id="minutely")
    with pytest.raises(ValueError, match="more than 1,000 fires"):
        daily.backfill("minutely", datetime(2026, 1, 1))


def test_with_jitter_a_fire_is_known_by_its_run(daily: Mainspring) -> None:
    daily.add_job(report, "cron", hour=3, jitter=600, timezone="UTC", id="about")
    job = daily.get_job("about")
    first = datetime(2026, 1, 1, 3, tzinfo=UTC)
    from mainspring.core.plan import Place, make_runs

    daily.store.add_runs(make_runs(job, job.incarnation, Place("default"), [to_us(first + timedelta(seconds=77))], 0))
    found = daily.backfill("about", datetime(2026, 1, 1), datetime(2026, 1, 3), trial=True)
    assert (found.known, [fire.day for fire in found.fires]) == ([first], [2])
