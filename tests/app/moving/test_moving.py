"""`app.move_to`: flows, gates, history and jobs arrive equal, whatever kills the move, while nodes work on both."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from mainspring import Mainspring
from mainspring.app.moving.marks import ARRIVING_AT, LEAVING_AT, MOVED
from mainspring.app.moving.mover import TAKEN, Moved, Mover, move_store
from mainspring.app.moving.units import RUNNING, UNDERWAY
from mainspring.core import transitions
from mainspring.core.run import FINAL, UNFINISHED, WAITING, Report, Result, Run, describe
from mainspring.core.waiting.followups import FinishedRun
from mainspring.errors import ConfigurationError, ConflictingIdError
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.jobstores.split import SplitJobStore
from tests.fragile import Fragile, Killed
from tests.record_stores import DictRecords
from tests.servers import PostgreSQL, Redis
from tests.waiting import until

KEY: Final = "a key of the tests that is long enough"
LIMIT: Final = 90.0
SAME: Final = (
    *("id", "status", "queue", "priority", "group", "unique", "key", "args", "kwargs", "policy", "name", "job_id"),
    *("created_at", "run_at", "start_by", "fire_time", "started_at", "finished_at", "result", "errors", "reason"),
    *("failures", "attempt", "progress", "data", "log", "after", "delay", "waits", "gate", "gate_spec", "executor"),
)


def add(number: int, *more: int) -> int:
    """Return a sum, or fail for a negative number."""
    if number < 0:
        raise ValueError("negative")
    return number + sum(more)


def line(path: str, word: str) -> str:
    """Leave a line behind."""
    with open(path, "a") as file:
        file.write(f"{word}\n")
    return word


def hook(run: FinishedRun) -> str:
    """Take note of the end of a run."""
    return run.status


def nightly() -> None:
    """Do nothing, every night."""


def app_at(url: str, name: str) -> Mainspring:
    app = Mainspring(url, name=name, secret_key=KEY, timezone="UTC", queues=["mail"])
    app.task(add)
    app.task(line)
    app.task(hook)
    return app


def work_off(app: Mainspring, ids: list[str]) -> None:
    app.start(work=True, schedule=False)
    app.wait(ids, LIMIT)
    app.stop()


def end_due(app: Mainspring) -> None:
    """End the runs of the default queue that are due, without threads; negative numbers fail."""
    claimed = app.store.claim([(["default"], 100)], node="n", token=f"t{time.monotonic_ns()}", lease=60.0)
    outcomes = []
    for run in claimed.runs:
        result = Result.RAISED if run.args[0] < 0 else Result.RETURNED
        error = describe(ValueError("negative"), claimed.now, 1) if run.args[0] < 0 else None
        report = Report(run, result, run.args[0], None, error, claimed.now, claimed.now)
        outcomes.append(transitions.conclude(report, claimed.now, 0.0))
    app.store.settle(outcomes)


def fill(app: Mainspring) -> None:
    """Leave ended runs, a flow that is half done, a chain, runs of a gate, keyed and delayed ones, and jobs."""
    task = app.as_task(add)
    task.enqueue(1)
    task.options(retention=3600, unique="was").enqueue(-1)
    with app.flow("half") as flow:
        first = flow.add(task.call(2))
        later = flow.add(task.options(delay=3600).call(3))
        flow.add(task.options(name="sum").call(first.output, later.output))
    end_due(app)
    app.chain([task.options(delay=60).call(1), task.call(2)])
    app.gather([task.options(queue="mail").call(1), task.call(2)])
    app.enqueue_many(task.options(limit=1).call(number) for number in range(3))
    task.options(unique="k", priority=7, group="g", hook=app.as_task(hook)).enqueue(4)
    app.add_job(add, "interval", hours=1, id="hourly", args=[5], max_instances=3)
    app.add_job(add, "cron", hour=3, id="nightly", args=[6], timezone="Europe/Berlin")
    app.add_job(add, "date", run_date=datetime.now(UTC) + timedelta(days=1), id="once", args=[7])
    app.pause_job("nightly")
    app.limit_queue("mail", 3)
    app.pause_queue("mail")
    app.set_limit("tenant-7", 5)


def runs_of(store: JobStore, statuses: Any) -> dict[str, Run]:
    return {run.id: run for run in store.find_runs(RunQuery(status=tuple(statuses)), limit=1000)}


def startable(store: JobStore) -> set[str]:
    return {
        run.id
        for run in runs_of(store, WAITING).values()
        if run.run_at not in (LEAVING_AT, ARRIVING_AT) and not run.waits
    }


def jobs_of(store: JobStore) -> dict[str, tuple[Any, ...]]:
    fields = ("at", "nominal", "args", "queue", "executor", "max_instances", "policy", "declared", "misfire_grace_time")
    return {job.id: (str(job.trigger), *(getattr(job, name) for name in fields)) for job in store.get_all_jobs()}


def shown(runs: dict[str, Run]) -> dict[str, dict[str, Any]]:
    return {run_id: {name: getattr(run, name) for name in SAME} for run_id, run in runs.items()}


def check_arrived(source: JobStore, target: JobStore, before: dict[str, Run], jobs: dict[str, tuple[Any, ...]]) -> None:
    assert shown(runs_of(target, [*UNFINISHED, *FINAL])) == shown(before)
    assert jobs_of(target) == jobs
    assert jobs_of(source) == {}
    assert runs_of(source, UNFINISHED) == {}
    moved = {run_id for run_id, run in before.items() if run.status in UNFINISHED}
    assert {run.id for run in runs_of(source, FINAL).values() if run.reason == MOVED} == moved


@pytest.fixture
def make(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[str], Mainspring]]:
    """Make an app on a store of this kind, under a name of its own; leave nothing behind on servers."""
    made: list[Mainspring] = []

    def new(kind: str) -> Mainspring:
        name = f"moving{time.monotonic_ns()}"
        url = {"sqlite": f"sqlite:///{tmp_path}/{name}.db", "memory": "memory://"}.get(kind)
        server: Redis | PostgreSQL | None = None if url else request.getfixturevalue(f"{kind}_server")
        made.append(app_at(url or str(server and server.url), name))
        return made[-1]

    yield new
    for app in made:
        app.store.remove_jobs()
        for run in app.find(status=WAITING, limit=1000):
            app.cancel(run.id)
        app.store.delete_runs([run.id for run in app.find(limit=1000)])
        app.close()


@pytest.mark.parametrize(
    ("here", "there"), [("sqlite", "postgresql"), ("sqlite", "redis"), ("redis", "sqlite"), ("memory", "sqlite")]
)
def test_everything_arrives_equal_and_works_there(make: Callable[[str], Mainspring], here: str, there: str) -> None:
    source, target = make(here), make(there)
    fill(source)
    before, jobs = runs_of(source.store, [*UNFINISHED, *FINAL]), jobs_of(source.store)
    waiting = sum(run.status in UNFINISHED for run in before.values())
    moved = source.move_to(target)
    assert (moved.jobs, moved.runs, moved.ended, moved.stays) == (3, waiting - 1, len(before) - waiting, {})
    check_arrived(source.store, target.store, before, jobs)
    assert [queue.limit for queue in target.queues() if queue.name == "mail"] == [-3]
    assert target.limits() == {"tenant-7": 5}
    assert source.move_to(target) == Moved()
    check_arrived(source.store, target.store, before, jobs)
    target.resume_queue("mail")
    for run in target.find(status="pending", limit=100):
        target.postpone(run.id, timedelta(0))
    work_off(target, [run_id for run_id, run in before.items() if run.status in UNFINISHED])
    assert Counter(str(run.status) for run in target.find(limit=100)) == {"succeeded": len(before) - 1, "failed": 1}
    assert [run.result for run in target.find(limit=100) if run.name == "sum"] == [5]
    assert [run.result for run in target.find(limit=100) if run.id.endswith("~hook")] == ["succeeded"]


@pytest.mark.parametrize(("kind", "done"), [("memory", False), ("memory", True), ("sqlite", True)])
def test_a_kill_in_any_write_loses_and_doubles_nothing(
    make: Callable[[str], Mainspring], kind: str, done: bool
) -> None:
    number = 0
    while True:
        number += 1
        source, target = make(kind), make(kind)
        fill(source)
        before, jobs = runs_of(source.store, [*UNFINISHED, *FINAL]), jobs_of(source.store)
        could_start = startable(source.store)
        fuse = [number]
        burning: Any = [Fragile(app.store, fuse, done) for app in (source, target)]
        try:
            move_store(*burning)
        except Killed:
            both = Counter([*startable(source.store), *startable(target.store)])
            assert set(both) <= could_start
            assert all(times == 1 for times in both.values())
            able = [job.id for job in target.store.get_all_jobs() if job.at != ARRIVING_AT]
            assert not set(able).intersection(job.id for job in source.store.get_all_jobs())
            move_store(source.store, target.store)
            check_arrived(source.store, target.store, before, jobs)
            continue
        break
    assert number > 15


@pytest.fixture
def ends(make: Callable[[str], Mainspring]) -> tuple[Mainspring, Mainspring]:
    """Two apps on SQLite."""
    return make("sqlite"), make("sqlite")


def test_a_flow_that_is_underway_stays_and_moves_later(ends: tuple[Mainspring, Mainspring]) -> None:
    source, target = ends
    task = source.as_task(add)
    with source.flow() as flow:
        first = flow.add(task.options(priority=1).call(1))
        flow.add(task.call(first.output, flow.add(task.call(2)).output))
    claimed = source.store.claim([(["default"], 1)], node="n", token="t", lease=60.0)
    assert [run.id for run in claimed.runs] == [first.id]
    assert source.move_to(target) == Moved(stays={UNDERWAY: 2, RUNNING: 1})
    assert len(startable(source.store)) == 1
    assert target.find() == []
    report = Report(claimed.runs[0], Result.RETURNED, 1, None, None, claimed.now, claimed.now)
    source.store.settle([transitions.conclude(report, claimed.now, 0.0)])
    assert source.move_to(target, history=False) == Moved(runs=2, ended=1)
    assert target.get(first.id).result == 1  # the others come after it, so it went with them
    work_off(target, [run.id for run in target.find()])
    assert sorted(run.result for run in target.find()) == [1, 2, 3]


def test_a_flow_of_which_a_run_starts_meanwhile_is_given_back(ends: tuple[Mainspring, Mainspring]) -> None:
    source, target = ends
    source.gather([source.as_task(add).call(1), source.as_task(add).call(2)])
    before = shown(runs_of(source.store, WAITING))

    class Starting(Fragile):
        def _burn(self, write: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            started.extend(self._store.claim([(["default"], 1)], node="n", token="t", lease=60.0).runs)
            return write(*args, **kwargs)

    started: list[Run] = []
    hasty: Any = Starting(source.store, [0], False)
    assert move_store(hasty, target.store).runs == 0
    left = shown(runs_of(source.store, WAITING))
    assert left == {run_id: run for run_id, run in before.items() if run_id != started[0].id}
    assert target.find() == []


def test_runs_that_wait_for_a_slot_move(ends: tuple[Mainspring, Mainspring]) -> None:
    source, target = ends
    source.enqueue_many(source.as_task(add).options(limit=1).call(number) for number in range(3))
    source.store.claim([(["default"], 3)], node="n", token="t", lease=60.0)
    assert len(source.find(status="blocked")) == 2
    assert source.move_to(target) == Moved(runs=2, stays={RUNNING: 1})
    ids = [run.id for run in target.find()]
    work_off(target, ids)
    assert [str(run.status) for run in target.find()] == ["succeeded"] * 2


def test_a_move_waits_for_running_runs_and_their_flows(ends: tuple[Mainspring, Mainspring], tmp_path: Path) -> None:
    source, target = ends
    gate = tmp_path / "gate"
    task = source.task(wait_for)
    target.task(wait_for)
    first, second = source.chain([task.call(str(gate)), source.as_task(line).call(str(tmp_path / "lines"), "x")])
    source.start(work=True, schedule=False)
    try:
        until(lambda: str(source.get(first.id).status) == "running")
        mover = Mover(source.store, target.store)
        assert sum(mover.move_runs()) == 0
        later = mover.move_later_runs(lambda running: gate.touch())
        moved = sum(later)
    finally:
        source.stop()
    # Either node may have started the second one, but not both.
    assert (moved, len(startable(target.store))) in ((0, 0), (1, 1))
    assert str(source.get(second.id).status) == ("cancelled" if moved else "succeeded")


def wait_for(path: str) -> None:
    """Wait until a file is there."""
    until(Path(path).exists)


@pytest.mark.parametrize("there", ["sqlite", "redis"])
def test_nodes_that_work_on_both_fire_and_start_everything_once(
    make: Callable[[str], Mainspring], tmp_path: Path, there: str
) -> None:
    source, target = make("sqlite"), make(there)
    path = str(tmp_path / "lines")
    task = source.as_task(line)
    source.enqueue_many(task.call(path, str(number)) for number in range(300))
    for number in range(20):
        source.chain([task.call(path, f"a{number}"), task.call(path, f"b{number}")])
        due = datetime.now(UTC) + timedelta(milliseconds=100 * number)
        source.add_job(line, "date", run_date=due, id=f"j{number}", args=[path, f"j{number}"])
    expected = {*map(str, range(300)), *(f"{letter}{number}" for letter in "abj" for number in range(20))}
    source.start(work=True)
    target.start(work=True)
    try:
        moved = source.move_to(target, wait=True)
        until(lambda: len(Path(path).read_text().split()) >= len(expected))
        until(lambda: not runs_of(source.store, UNFINISHED) and not runs_of(target.store, UNFINISHED))
    finally:
        source.stop()
        target.stop()
    assert moved.jobs + moved.runs > 0
    assert Counter(Path(path).read_text().split()) == dict.fromkeys(expected, 1)


def test_mistakes_are_named_and_change_nothing(ends: tuple[Mainspring, Mainspring]) -> None:
    source, target = ends
    with pytest.raises(ConfigurationError, match="the same store"):
        source.move_to(source)
    source.add_job(add, "interval", hours=1, id="hourly", args=[1])
    target.add_job(add, "interval", hours=2, id="hourly", args=[1])
    run = source.as_task(add).options(unique="k").enqueue(1)
    before = jobs_of(source.store)
    with pytest.raises(ConflictingIdError):
        source.move_to(target)
    assert jobs_of(source.store) == before
    target.remove_job("hourly")
    target.as_task(add).options(unique="k").enqueue(1)
    assert source.move_to(target) == Moved(jobs=1, stays={TAKEN: 1})
    assert startable(source.store) == {run.id}


def test_a_move_goes_on_after_the_source_has_forgotten_what_moved(make: Callable[[str], Mainspring]) -> None:
    source, target = make("memory"), make("memory")
    ids = {call.id for call in source.enqueue_many(source.as_task(add).call(number) for number in range(3))}
    fuse = [3]  # held, copied, ended
    burning: Any = [Fragile(app.store, fuse, True) for app in (source, target)]
    with pytest.raises(Killed):
        move_store(*burning)
    assert source.store.delete_runs(list(ids)) == 3
    assert startable(target.store) == set()
    assert source.move_to(target) == Moved(runs=3)
    assert startable(target.store) == ids


def test_a_schedule_that_both_apps_declare_becomes_one(make: Callable[[str], Mainspring]) -> None:
    source, target = make("memory"), make("memory")
    for app in (source, target):
        app.schedule("cron", hour=3, id="nightly")(nightly)
        app.schedule("cron", hour=4, id="early")(nightly)
        app.jobs.reconcile()
    source.pause_job("nightly")
    target.skip_next("early")
    later = jobs_of(target.store)["early"]
    assert source.move_to(target) == Moved(jobs=2)
    assert target.get_job("nightly").next_run_time is None
    assert jobs_of(target.store)["early"] == later
    assert jobs_of(source.store) == {}


def test_a_move_from_a_store_to_which_a_move_was_not_finished_is_refused(make: Callable[[str], Mainspring]) -> None:
    first, second, third = make("memory"), make("memory"), make("memory")
    first.add_job(add, "interval", hours=1, id="hourly", args=[1])
    burning: Any = Fragile(second.store, [1], True)
    with pytest.raises(Killed):
        move_store(first.store, burning)
    with pytest.raises(ConfigurationError, match="'hourly' is still held here; repeat that move first"):
        second.move_to(third)


def test_runs_that_both_stores_keep_in_one_place_stay_as_they_are(make: Callable[[str], Mainspring]) -> None:
    source = make("sqlite")
    source.add_job(add, "interval", hours=1, id="hourly", args=[1])
    source.chain([source.as_task(add).call(1), source.as_task(add).call(2)])
    before = shown(runs_of(source.store, WAITING))
    target = SplitJobStore(DictRecords(), source.store)
    assert move_store(source.store, target) == Moved(jobs=1, stays={TAKEN: 2})
    assert shown(runs_of(source.store, [*UNFINISHED, *FINAL])) == before
    assert (jobs_of(source.store), list(jobs_of(target))) == ({}, ["hourly"])
