"""Why a job, a queue, a node or the whole system stands as it does; and how jobs fare."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from mainspring import Mainspring
from mainspring.app.insight.gathering import Gatherer
from mainspring.core.insight.explanation import NodeFacts, QueueFacts, Scene
from mainspring.core.insight.health import JobState, health_of
from mainspring.core.insight.runs import explain_run
from mainspring.core.insight.subjects import explain_job
from mainspring.core.instants import SECOND, to_us
from mainspring.core.job import Job
from mainspring.core.run import Call, Run, Status
from mainspring.errors import JobLookupError
from mainspring.testing.conformance.helpers import (
    add_job,
    add_run,
    break_,
    claim,
    due_one,
    fail,
    fire,
    make_run,
    settle,
    start,
    succeed,
)
from mainspring.triggers.cron import CronTrigger
from tests.app.insight.kit import EVERY_STORE, announce
from tests.app.kit import LASTING, LOCAL, MakeApp


def said(app: Mainspring, name: str) -> str:
    told = app.explain(name)
    assert told.sentence.endswith(".")
    return f"[{told.kind} {told.state}] {told.sentence}"


def queued(app: Mainspring, id: str = "job", **fields: Any) -> Job:
    return add_job(app.store, id, executor="queue", **fields)


# -- jobs ----------------------------------------------------------------------------------------------------------


@EVERY_STORE
def test_a_new_job_says_when_it_fires_first(app: Mainspring) -> None:
    queued(app, due_in=7200)
    announce(app)
    assert re.fullmatch(
        r"\[job new\] New: no fire of it has ended yet\. It fires next at .+ UTC, in (1 h 59 min|2 h)\.",
        said(app, "job"),
    )
    assert app.health("job").state == "new"


@EVERY_STORE
def test_a_job_is_up_after_a_success_and_down_after_failures(app: Mainspring) -> None:
    queued(app, every=3600)
    announce(app)
    fire(app.store, due_one(app.store))
    [run] = claim(app.store)
    assert settle(app.store, succeed(app.store, run))
    assert said(app, "job").startswith("[job up] Up: its last fire succeeded. It fires next at ")
    for _ in range(2):
        app.store.shift_clock(3600)
        announce(app)
        fire(app.store, due_one(app.store))
        [run] = claim(app.store)
        assert settle(app.store, fail(app.store, run, "no answer"))
    assert said(app, "job").startswith(
        "[job down] Down: its last 2 fires failed: ValueError: no answer. It fires next at "
    )
    assert app.explain("job").actions == (f"explain {run.id}",)
    assert app.healths()["job"].run_id == run.id


@EVERY_STORE
def test_a_job_is_late_because_its_run_waits_and_says_why(app: Mainspring) -> None:
    queued(app, due_in=-90, every=3600)
    announce(app, "node-1", "other")
    fire(app.store, due_one(app.store))
    told = said(app, "job")
    assert re.match(r"\[job late\] Late: a fire that was due 1 min 3\d s ago waits\. That run: waits: no living", told)


@EVERY_STORE
def test_a_job_is_down_if_nobody_fires_it_or_for_too_long(app: Mainspring) -> None:
    queued(app, due_in=-90)
    assert said(app, "job").startswith("[job down] Down: no living node fires jobs.")
    announce(app)
    assert said(app, "job").startswith("[job late] Late: a fire that was due 1 min ")
    app.store.shift_clock(3000)
    announce(app)
    assert re.match(r"\[job down\] Down: a fire that was due 51 min \d+ s ago has not fired\.", said(app, "job"))


@EVERY_STORE
def test_a_job_is_late_after_a_missed_fire(app: Mainspring) -> None:
    queued(app, due_in=-600, every=3600, misfire_grace_time=30.0)
    announce(app)
    fire(app.store, due_one(app.store))
    why = "its last fire was missed: it was too late, and its misfire_grace_time is shorter"
    assert said(app, "job").startswith(f"[job late] Late: {why}. It fires next at ")


@EVERY_STORE
def test_a_paused_job_is_no_trouble(app: Mainspring) -> None:
    queued(app, due_in=None)
    assert said(app, "job").startswith("[job paused] Paused")
    assert app.explain("job").actions == ("jobs resume job", "jobs run job")


@LOCAL
def test_a_job_that_is_not_there_has_no_health(app: Mainspring) -> None:
    with pytest.raises(JobLookupError):
        app.health("nightly")


def test_a_job_says_what_the_clock_does_to_its_next_fire() -> None:
    zone = ZoneInfo("Europe/Berlin")
    now = to_us(datetime(2027, 3, 27, 12, tzinfo=UTC))
    trigger = CronTrigger.from_crontab("30 2 * * *", zone)
    job = Job("nightly", Call("m:f"), trigger, executor="queue", at=trigger.next_fire(None, now))
    node = NodeFacts(id="n", host="web", pid=1)
    told = explain_job(job, health_of(job, [], now), Scene(now=now, zone=zone, lease=15, nodes=(node,)))
    assert "in 13 h" in told.sentence
    assert "(02:30 does not exist that day: the clock goes from 02:00 to 03:00)" in told.sentence


# -- health, judged by hand ----------------------------------------------------------------------------------------

NOW = to_us(datetime(2026, 5, 4, 12, tzinfo=UTC))


def hourly() -> Job:
    trigger = CronTrigger.from_crontab("0 * * * *", "UTC")
    return Job("job", Call("m:f"), trigger, executor="queue", at=NOW + 3600 * SECOND)


def ended(minutes: int, status: Status = Status.SUCCEEDED, length: int = 60, reason: str | None = None) -> Run:
    began = NOW - minutes * 60 * SECOND
    over = began + length * SECOND
    return Run(
        id=f"r{minutes}", call=Call("m:f"), status=status, created_at=began, run_at=began, fire_time=began,
        started_at=began, finished_at=over, reason=reason,
    )  # fmt: skip


def test_a_run_that_goes_on_is_late_only_after_the_time_that_runs_usually_take() -> None:
    history = [ended(60 * n + 60, length=600) for n in range(10)]
    running = Run(id="r", call=Call("m:f"), status=Status.RUNNING, run_at=NOW, fire_time=NOW, started_at=NOW)
    job = hourly()
    job.at = NOW + 7200 * SECOND
    assert health_of(job, [running, *history], NOW + 640 * SECOND).state is JobState.UP
    late = health_of(job, [running, *history], NOW + 700 * SECOND)
    assert (late.state, late.run_id) == (JobState.LATE, "r")
    assert late.why == "a fire that was due 11 min 40 s ago still runs"


def test_a_first_run_that_goes_on_is_not_late() -> None:
    running = Run(id="r", call=Call("m:f"), status=Status.RUNNING, run_at=NOW, fire_time=NOW, started_at=NOW)
    assert health_of(hourly(), [running], NOW + 3000 * SECOND).state is JobState.NEW


@pytest.mark.parametrize(
    ("given", "late_at", "down_at"),
    [
        ({"late_after": 120.0, "down_after": 300.0}, 120, 300),
        ({"late_after": 120.0}, 120, 3600),
        ({"late_after": 400_000.0}, 400_000, 800_000),
        ({"down_after": 20.0}, 20, 20),
        ({"down_after": 900.0}, 660, 900),
    ],
)
def test_a_job_says_itself_when_it_is_late_and_down(given: dict[str, float], late_at: int, down_at: int) -> None:
    history = [ended(60 * n + 60, length=600) for n in range(10)]
    running = Run(id="r", call=Call("m:f"), status=Status.RUNNING, run_at=NOW, fire_time=NOW, started_at=NOW)
    job = hourly().evolve(**given)
    job.at = NOW + 1_000_000 * SECOND

    def state(seconds: float) -> JobState:
        return health_of(job, [running, *history], NOW + int(seconds * SECOND)).state

    assert state(late_at) is JobState.UP
    assert state(late_at + 1) is (JobState.LATE if late_at < down_at else JobState.DOWN)
    assert state(down_at) is (JobState.LATE if late_at < down_at else JobState.UP)
    assert state(down_at + 1) is JobState.DOWN


def test_a_first_run_that_goes_on_is_late_if_the_job_says_when() -> None:
    running = Run(id="r", call=Call("m:f"), status=Status.RUNNING, run_at=NOW, fire_time=NOW, started_at=NOW)
    job = hourly().evolve(late_after=60)
    assert health_of(job, [running], NOW + 61 * SECOND).state is JobState.LATE


@EVERY_STORE
def test_when_a_job_is_late_and_down_is_declared_stored_and_modified(app: Mainspring) -> None:
    def tidy_up() -> None:
        """Stand for a task."""

    task = app.task(name="tests:tidy_up")(tidy_up)
    app.schedule("interval", hours=1, id="declared", late_after=120)(task)
    app.jobs.reconcile()
    app.add_job(task, "interval", hours=1, id="added", late_after=timedelta(minutes=1), down_after=90)
    assert [(job.late_after, job.down_after) for job in map(app.get_job, ("declared", "added"))] == [
        (120, None),
        (60, 90),
    ]
    app.modify_job("added", late_after=None, down_after=30)
    assert (app.get_job("added").late_after, app.get_job("added").down_after) == (None, 30)
    app.modify_job("declared", down_after=180)
    [changed] = app.differences()
    assert (changed.field, changed.code, changed.store) == ("down_after", None, 180)


@LOCAL
def test_times_that_cannot_be_are_named(app: Mainspring) -> None:
    def add(**given: Any) -> None:
        app.add_job(print, "interval", hours=1, id="job", **given)

    with pytest.raises(TypeError, match="late_after must be None or a positive number of seconds, not 0"):
        add(late_after=0)
    with pytest.raises(TypeError, match="down_after must be None or a positive number of seconds, not 'soon'"):
        add(down_after="soon")
    with pytest.raises(ValueError, match=r"down_after \(30 s\) must be at least late_after \(60 s\)"):
        add(late_after=60, down_after=30)
    add(late_after=60)
    with pytest.raises(ValueError, match=r"down_after \(30 s\) must be at least late_after \(60 s\)"):
        app.modify_job("job", down_after=30)
    with pytest.raises(TypeError, match="did you mean 'late_after'"):
        app.add_job(print, "interval", hours=1, late_aftr=60)


def test_a_success_after_failures_is_up_again() -> None:
    assert health_of(hourly(), [ended(5), ended(65, Status.FAILED)], NOW).state is JobState.UP
    down = health_of(hourly(), [ended(5, Status.BROKEN, reason="bad_data"), ended(65)], NOW)
    assert (down.state, down.why) == (JobState.DOWN, "its last fire could not be executed: bad_data")


def test_fires_that_a_person_left_out_are_no_trouble() -> None:
    assert health_of(hourly(), [ended(5, Status.MISSED, reason="paused"), ended(65)], NOW).state is JobState.UP
    assert health_of(hourly(), [ended(5, Status.MISSED, reason="late"), ended(65)], NOW).state is JobState.LATE


@LASTING
def test_a_job_that_cannot_be_read_or_was_set_aside_says_so(app: Mainspring, url: str, make_app: MakeApp) -> None:
    queued(app, due_in=3600)
    other = make_app(url, name=app.name, secret_key="another key, of which nobody else knows")
    told = other.explain("job")
    assert (told.state, told.sentence[:35]) == ("unreadable", "It cannot be read here: unknown_key")
    other.jobs()  # looks at all jobs as a scheduler does, and so sets it aside
    assert said(app, "job").startswith("[job broken] Set aside and not fired: unknown_key")
    assert app.explain().parts[0].id == "job"


# -- queues, nodes, the system -------------------------------------------------------------------------------------


@EVERY_STORE
def test_a_queue_is_paused_unserved_waiting_or_flowing(app: Mainspring) -> None:
    assert said(app, "default") == "[queue unserved] Unserved: no living node serves queue 'default'; it is empty."
    add_run(app.store, "r", due_in=-90)
    add_run(app.store, "s", due_in=3600)
    assert re.fullmatch(
        r"\[queue unserved\] Unserved: no living node serves queue 'default', and it holds 1 run waiting and 1 for "
        r"later; the oldest has been due for 1 min 3\d s\.",
        said(app, "default"),
    )
    announce(app)
    assert said(app, "default").startswith(
        "[queue waiting] Waiting: 1 node serves queue 'default', and none of its runs is running."
    )
    [_] = claim(app.store)
    assert said(app, "default") == (
        "[queue flowing] Flowing: 1 node serves queue 'default', nothing waits, 1 run goes on, 1 is for later."
    )
    app.pause_queue("default")
    assert said(app, "default").startswith("[queue paused] Paused")


@EVERY_STORE
def test_a_node_runs_stops_or_is_silent(app: Mainspring) -> None:
    announce(app, "n1", "default", "mail", missing=("shop:push",), stuck=2)
    told = said(app, "web:7")
    assert told.startswith("[node running] Running: it serves default, mail and has been up for ")
    assert told.endswith(
        " It has lost 2 threads to runs that did not end when they were stopped. It cannot import shop:push."
    )
    announce(app, "n1", state="draining")
    assert said(app, "n1").startswith("[node draining] Stopping: it takes no more runs")
    app.store.shift_clock(20)
    assert re.match(r"\[node silent\] Silent for 2\d s: it should be heard from every 5 s\.", said(app, "n1"))


@EVERY_STORE
def test_the_system_names_what_needs_a_person_and_nothing_else(app: Mainspring) -> None:
    announce(app)
    queued(app, due_in=3600)
    well = app.explain()
    assert (well.kind, well.state) == ("system", "well")
    assert well.sentence == "All is well: 1 job, 1 queue, 1 node."
    add_run(app.store, "r", queue="mail")
    run = start(app.store, "b")
    assert settle(app.store, break_(app.store, run))
    told = app.explain()
    assert told.state == "needs you"
    assert [(each.kind, each.id, each.state) for each in told.parts] == [
        ("run", "b", "broken"),
        ("queue", "mail", "unserved"),
    ]
    assert told.sentence == "2 things need you, first run 'b': Set aside: unreadable."
    assert told.actions == ("explain b", "worker MODULE:APP -Q mail")
    assert told.to_dict()["parts"][0]["id"] == "b"


@LOCAL
def test_without_a_living_node_all_is_not_well(app: Mainspring) -> None:
    told = app.explain()
    assert told.state == "idle"
    assert told.sentence == "Nothing waits, but no node is alive to fire or execute anything: 0 jobs, 1 queue, 0 nodes."
    assert told.actions == ("worker MODULE:APP",)


@LOCAL
def test_what_is_paused_is_named(app: Mainspring) -> None:
    announce(app)
    queued(app, due_in=3600)
    app.pause_job("job")
    app.pause_queue("default")
    told = app.explain()
    assert told.sentence == "Nothing is wrong: 1 job, 1 queue, 1 node; paused: job 'job', queue 'default'."
    add_run(app.store, "r")
    told = app.explain()
    assert told.state == "needs you"
    assert [(each.kind, each.id, each.state, each.actions) for each in told.parts] == [
        ("queue", "default", "paused", ("queues resume default",))
    ]


@LOCAL
def test_runs_that_failed_lately_need_a_person_once_for_each_task(app: Mainspring) -> None:
    announce(app)
    for name in ("one", "two"):
        assert settle(app.store, fail(app.store, start(app.store, name)))
    told = app.explain()
    assert [(each.kind, each.state, each.ids) for each in told.parts] == [("run", "failed", ("two", "one"))]
    assert re.match(r"Failed: 2 runs of \S+ within the last hour, the last .* ago: \w+: ", told.parts[0].sentence)
    assert told.parts[0].actions == ("runs show two", "errors")
    app.store.shift_clock(3700)
    announce(app)
    assert app.explain().state == "well"


@LOCAL
def test_runs_that_no_node_can_call_need_a_person(app: Mainspring) -> None:
    add_run(app.store, "r")
    announce(app, "n1", "default", missing=(app.get("r").task,))
    told = app.explain()
    assert [(each.kind, each.id, each.state) for each in told.parts] == [("run", "r", "unserved")]
    assert "1 run of " in told.parts[0].sentence
    assert "1 living node cannot import it" in told.parts[0].sentence
    assert told.parts[0].actions == ("check", "runs show r")


@LOCAL
def test_all_statuses_of_random_runs_have_a_sentence(app: Mainspring) -> None:
    scene = Gatherer(app).scene()
    for status in Status:
        for number in range(40):
            flags = [bool(number >> bit & 1) for bit in range(6)]
            run = make_run(
                app.store, "r", due_in=3600.0 if flags[0] else -60.0, status=status, attempt=number % 3,
                started_at=scene.now - 5 * SECOND if flags[1] else None, cancelling=flags[2],
                finished_at=scene.now if flags[3] else None, reason="late" if flags[4] else None,
                lease_until=scene.now + 9 if flags[5] else None, failures=number % 4,
            )  # fmt: skip
            told = explain_run(run, scene, QueueFacts(name="default", paused=flags[3]))
            assert told.state
            assert re.fullmatch(r"[A-Z].{8,}\.", told.sentence), told.sentence
