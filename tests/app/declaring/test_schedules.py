"""Schedules declared in code: fired, compared with the store at start, and left as people changed them."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.core.run import Status
from mainspring.errors import ConflictingIdError
from mainspring.schedulers.background import BackgroundScheduler
from mainspring.triggers.combining import OrTrigger
from mainspring.triggers.cron import CronTrigger
from mainspring.triggers.interval import IntervalTrigger
from tests.app.kit import EVERYWHERE, KEY, LIMIT, LOCAL, MakeApp


def digest() -> str:
    return "digest"


def until_fired(app: Mainspring, job_id: str, number: int = 1) -> list[Any]:
    """Wait until a job has made so many runs and they have ended."""
    deadline = time.monotonic() + LIMIT
    while len(found := app.find(job=job_id, status="succeeded")) < number:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


@EVERYWHERE
def test_a_declared_schedule_fires_and_its_runs_are_executed(app: Mainspring) -> None:
    app.schedule("interval", seconds=0.05, id="often")(digest)
    app.start(work=True)
    runs = until_fired(app, "often", 2)
    assert {run.result for run in runs} == {"digest"}
    assert len({run.fire_time for run in runs}) == len(runs)


@LOCAL
@pytest.mark.parametrize(
    ("trigger", "options", "first"),
    [
        ("0 9 * * mon-fri", {"timezone": "Europe/Berlin"}, None),
        ("@daily", {}, None),
        ("interval", {"minutes": 5}, None),
        ("cron", {"hour": 9, "day_of_week": "mon-fri"}, None),
        ("date", {"run_date": "2090-01-01 09:00:00"}, datetime(2090, 1, 1, 9, tzinfo=UTC)),
        ("calendarinterval", {"months": 1}, None),
        (CronTrigger(hour=9, timezone="Asia/Tokyo"), {}, None),
    ],
)
def test_a_schedule_is_a_crontab_line_a_trigger_or_its_name(
    app: Mainspring, trigger: Any, options: dict[str, Any], first: datetime | None
) -> None:
    app.schedule(trigger, id="one", **options)(digest)
    assert app.reconcile().added == ["one"]
    job = app.get_job("one")
    assert job.next_run_time is not None
    if first is not None:
        assert job.next_run_time == first


@LOCAL
def test_a_schedule_stacks_with_a_task_in_either_order(app: Mainspring) -> None:
    @app.schedule("interval", hours=1, id="above")
    @app.task(queue="mail", retries=5)
    def above() -> None: ...

    @app.task(queue="mail", retries=5)
    @app.schedule("interval", hours=1, id="below")
    def below() -> None: ...

    app.reconcile()
    assert [(app.get_job(name).queue, app.get_job(name).policy.retries) for name in ("above", "below")] == [
        ("mail", 5),
        ("mail", 5),
    ]
    assert above.enqueue().fetch().queue == "mail"


@LOCAL
def test_one_function_may_have_several_schedules_of_different_ids(app: Mainspring) -> None:
    app.schedule("0 9 * * *", id="morning")(app.schedule("0 18 * * *", id="evening")(digest))
    assert sorted(app.reconcile().added) == ["evening", "morning"]
    with pytest.raises(ConflictingIdError, match="morning"):
        app.schedule("0 10 * * *", id="morning")(digest)


def test_a_second_schedule_of_a_function_is_told_to_take_an_id_of_its_own(make_app: MakeApp) -> None:
    app = make_app()
    app.schedule("0 3 * * *")(digest)
    with pytest.raises(ConflictingIdError) as caught:
        app.schedule("0 4 * * *")(digest)
    assert str(caught.value) == (
        f"the job id '{__name__}:digest' is taken; give each schedule an id of its own: @app.schedule(..., id='...')"
    )
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.job_id, str(copy)) == (caught.value.job_id, str(caught.value))


def test_a_schedule_without_its_time_is_refused(make_app: MakeApp) -> None:
    app = make_app()
    for function in (digest, app.task(digest)):
        with pytest.raises(TypeError, match=r"say when: @app\.schedule\(\"0 3 \* \* \*\"\)"):
            app.schedule(function)  # type: ignore[arg-type]


@pytest.mark.parametrize("trigger", ["0 3 * * *", "interval", CronTrigger(hour=3)])
def test_a_misspelt_option_of_a_schedule_gets_near_matches(make_app: MakeApp, trigger: Any) -> None:
    app = make_app()
    with pytest.raises(TypeError, match=r"'misfire_gracetime'.*; did you mean 'misfire_grace_time'"):
        app.schedule(trigger, misfire_gracetime=5)(digest)
    with pytest.raises(TypeError, match=r"'misfire_gracetime'.*; did you mean 'misfire_grace_time'"):
        app.add_job(digest, trigger, misfire_gracetime=5)


def test_a_misspelt_argument_of_a_trigger_gets_near_matches(make_app: MakeApp) -> None:
    app = make_app()
    with pytest.raises(TypeError, match=r"'timezon'.*; did you mean 'timezone'"):
        app.schedule("0 3 * * *", timezon="UTC")(digest)
    with pytest.raises(TypeError, match="'minuts'; did you mean 'minutes'"):
        app.schedule("interval", minuts=3)(digest)


@pytest.mark.parametrize("value", ["false", "all", 3, None, 0])
def test_coalesce_is_true_or_false(make_app: MakeApp, value: Any) -> None:
    app = make_app()
    with pytest.raises(TypeError, match="coalesce must be True or False, not"):
        app.schedule("0 3 * * *", coalesce=value)(digest)
    scheduler = BackgroundScheduler()
    with pytest.raises(TypeError, match="coalesce must be True or False, not"):
        scheduler.add_job(digest, "interval", hours=1, coalesce=value)


def test_a_mistake_in_a_schedule_is_seen_where_it_is_written(make_app: MakeApp) -> None:
    app = make_app()
    with pytest.raises(ValueError, match="hour"):
        app.schedule("0 25 * * *")(digest)
    with pytest.raises(ValueError, match=r"crontab '0 9 \* \*' has 4 fields, not 5: minute, hour"):
        app.schedule("0 9 * *")(digest)
    with pytest.raises(ValueError, match="has 6 fields, not 5"):
        app.add_job(digest, "0 0 9 * * *")
    with pytest.raises(TypeError, match="minuts"):
        app.schedule("interval", minuts=5)(digest)
    with pytest.raises(TypeError, match="not an argument of a crontab schedule"):
        app.schedule("0 9 * * *", minute=5)(digest)
    with pytest.raises(TypeError, match="takes 0 positional"):
        app.schedule("0 9 * * *", args=[1])(digest)


@pytest.fixture
def declare(make_app: MakeApp, tmp_path: Path) -> Any:
    """Make the app of the next release: same store, its schedules declared anew."""

    def declare(*schedules: tuple[Any, dict[str, Any]], **task_options: Any) -> Mainspring:
        app = make_app(f"sqlite:///{tmp_path}/jobs.db", secret_key=KEY)
        for trigger, options in schedules:
            app.task(**task_options)(digest)
            app.schedule(trigger, **{"id": "it", **options})(app.as_task(digest))
        return app

    return declare


@pytest.mark.parametrize(
    ("trigger", "options"),
    [
        ("interval", {"minutes": 5}),
        (IntervalTrigger(minutes=5), {}),
        ("calendarinterval", {"days": 2}),
        ("0 9 * * *", {"retries": 3, "args": [], "name": "nine"}),
    ],
)
def test_an_equal_declaration_changes_nothing(declare: Any, trigger: Any, options: dict[str, Any]) -> None:
    declare((trigger, options)).reconcile()
    app = declare((trigger, options))
    before = app.get_job("it")
    done = app.reconcile()
    after = app.get_job("it")
    assert (done.added, done.updated, done.unchanged, done.gone) == ([], [], ["it"], [])
    assert (after.version, after.next_run_time) == (before.version, before.next_run_time)


def test_a_trigger_made_anew_in_every_process_is_the_same_declaration(declare: Any) -> None:
    for _ in range(2):
        app = declare((OrTrigger([IntervalTrigger(minutes=5), CronTrigger(hour=3)]), {}))
        done = app.reconcile()
    assert done.unchanged == ["it"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("interval", {"minutes": 5}), ("interval", {"minutes": 6})),
        (("interval", {"minutes": 5}), ("0 9 * * *", {})),
        (("interval", {"minutes": 5}), ("interval", {"minutes": 5, "start_date": "2090-01-01"})),
        ((IntervalTrigger(minutes=5), {}), (IntervalTrigger(minutes=5, end_date="2090-01-01"), {})),
        ((CronTrigger(hour=9), {}), (CronTrigger(hour=9, start_date="2090-01-01"), {})),
        (("0 9 * * *", {"timezone": "UTC"}), ("0 9 * * *", {"timezone": "Europe/Berlin"})),
    ],
)
def test_a_changed_trigger_is_taken_over_with_its_time(declare: Any, before: Any, after: Any) -> None:
    declare(before).reconcile()
    app = declare(after)
    old = app.get_job("it")
    assert app.reconcile().updated == ["it"]
    new = app.get_job("it")
    assert new.trigger.to_data() != old.trigger.to_data()
    assert new.at == new.trigger.next_fire(None, app.now())
    assert declare(after).reconcile().unchanged == ["it"]


def test_a_changed_policy_is_taken_over_and_the_time_stays(declare: Any) -> None:
    declare(("interval", {"minutes": 5})).reconcile()
    before = declare().get_job("it")
    app = declare(("interval", {"minutes": 5, "retries": 3}), queue="mail", timeout=30)
    assert app.reconcile().updated == ["it"]
    after = app.get_job("it")
    assert (after.policy.retries, after.policy.timeout, after.queue) == (3, 30, "mail")
    assert (after.next_run_time, after.trigger.to_data()) == (before.next_run_time, before.trigger.to_data())


def test_the_options_of_the_task_are_part_of_the_declaration(declare: Any) -> None:
    declare(("0 9 * * *", {}), retries=1).reconcile()
    app = declare(("0 9 * * *", {}), retries=2)
    assert app.reconcile().updated == ["it"]
    assert app.get_job("it").policy.retries == 2


def test_what_people_paused_or_edited_stays_so(declare: Any) -> None:
    app = declare(("0 9 * * *", {}))
    app.reconcile()
    app.reschedule_job("it", "0 11 * * *")
    app.modify_job("it", max_instances=3)
    app.pause_job("it")
    again = declare(("0 9 * * *", {}))
    assert again.reconcile().unchanged == ["it"]
    job = again.get_job("it")
    assert (job.next_run_time, job.max_instances, "hour='11'" in str(job.trigger)) == (None, 3, True)


def test_a_paused_schedule_stays_paused_when_its_declaration_changes(declare: Any) -> None:
    app = declare(("0 9 * * *", {}))
    app.reconcile()
    app.pause_job("it")
    changed = declare(("0 10 * * *", {}))
    assert changed.reconcile().updated == ["it"]
    job = changed.get_job("it")
    assert (job.next_run_time, "hour='10'" in str(job.trigger)) == (None, True)


def test_a_schedule_gone_from_the_code_is_reported_and_removed_on_request(
    declare: Any, caplog: pytest.LogCaptureFixture
) -> None:
    declare(("0 9 * * *", {})).reconcile()
    app = declare()
    app.add_job(digest, "interval", hours=1, id="by hand")
    assert app.reconcile().gone == ["it"]
    assert "no longer declared" in caplog.text
    assert len(app.jobs()) == 2
    assert app.reconcile(remove=True).gone == ["it"]
    assert [job.id for job in app.jobs()] == ["by hand"]


@pytest.mark.parametrize(
    ("own", "other", "stays"),
    [
        ("shop:mail", "blog:nightly", True),
        ("company.shop.jobs:mail", "company.blog.jobs:nightly", True),
        ("shop.jobs:mail", "shop.reports:nightly", False),
        ("shop:mail", "shop:nightly", False),
        ("mail", "nightly", False),
    ],
)
def test_the_schedules_of_another_app_on_the_store_are_not_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, own: str, other: str, stays: bool
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with Mainspring(url) as blog, Mainspring(url) as shop:
        blog.schedule("0 9 * * *", id="nightly")(blog.task(name=other)(digest))
        blog.reconcile()
        mail = namespace_function(own.partition(":")[0])
        shop.schedule("0 9 * * *", id="daily")(shop.task(name=own)(mail))
        done = shop.reconcile(remove=True)
        assert (done.others, done.gone) == ((["nightly"], []) if stays else ([], ["nightly"]))
        assert {job.id for job in shop.jobs()} == ({"nightly", "daily"} if stays else {"daily"})
        assert ("code of other packages declared it" in caplog.text) == stays


def namespace_function(module: str) -> Any:
    """Make a function that seems to come from a module."""

    def mail() -> None: ...

    mail.__module__ = module
    return mail


def test_a_job_added_by_hand_is_not_replaced_by_a_schedule_of_its_id(declare: Any) -> None:
    app = declare()
    app.add_job(digest, "interval", hours=1, id="it")
    later = declare(("0 9 * * *", {}))
    assert later.reconcile().unchanged == ["it"]
    assert "interval" in str(later.get_job("it").trigger)


def test_starting_brings_the_store_in_line(declare: Any) -> None:
    app = declare(("0 9 * * *", {}))
    app.start()
    assert [job.id for job in app.jobs()] == ["it"]
    app.stop()
    worker = declare(("0 10 * * *", {}))
    worker.start(work=True, schedule=False)
    assert "hour='9'" in str(worker.get_job("it").trigger)


def test_a_restart_loses_no_overdue_fire(declare: Any) -> None:
    app = declare(("interval", {"hours": 1}))
    app.reconcile()
    due = app.get_job("it").next_run_time
    app.store.shift_clock(3700)
    again = declare(("interval", {"hours": 1}))
    again.store.shift_clock(3700)
    again.start(work=True)
    (run,) = until_fired(again, "it")
    assert run.fire_time == due
    assert again.get_job("it").next_run_time == due + timedelta(hours=1)


def test_two_apps_that_start_at_once_add_a_schedule_once(make_app: MakeApp, tmp_path: Path) -> None:
    apps = [make_app(f"sqlite:///{tmp_path}/jobs.db", secret_key=KEY) for _ in range(2)]
    for app in apps:
        app.schedule("interval", seconds=0.05, id="often")(digest)
        app.start(work=True)
    runs = until_fired(apps[0], "often", 10)
    assert len({run.fire_time for run in runs}) == len(runs)
    assert [len(app.jobs()) for app in apps] == [1, 1]


SCRIPT = """
import sys
from mainspring import Mainspring
app = Mainspring(sys.argv[1])

@app.schedule({args})
@app.task(retries=2, retry_on=[OSError], backoff=[1, 2])
def digest(): ...

print(app.reconcile())
"""


def test_a_declaration_reads_the_same_in_every_process(tmp_path: Path) -> None:
    path = tmp_path / "declared.py"
    path.write_text(SCRIPT.format(args='"interval", minutes=5, kwargs={}, timezone="Europe/Berlin"'))
    said = []
    for seed in ("1", "2"):
        words = [sys.executable, str(path), f"sqlite:///{tmp_path}/jobs.db"]
        env = {**os.environ, "PYTHONHASHSEED": seed}
        said.append(subprocess.run(words, capture_output=True, text=True, check=True, env=env).stdout)
    assert said[0].startswith("Reconciliation(added=['declared:digest'], updated=[], unchanged=[]")
    assert said[1].startswith("Reconciliation(added=[], updated=[], unchanged=['declared:digest']")


@LOCAL
def test_a_missed_status_is_known_to_whoever_looks(app: Mainspring) -> None:
    app.add_job(digest, "interval", hours=1, id="late", misfire_grace_time=1)
    app.store.shift_clock(4000)
    app.start(work=True)
    deadline = time.monotonic() + LIMIT
    while not (found := app.find(job="late", status=Status.MISSED)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert found[0].reason == "late"
