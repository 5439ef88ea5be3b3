"""Several nodes, each in a process of its own, on one store: what one does the others see, and what the dead left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import create_engine, inspect, text

from mainspring.core.instants import SECOND, from_us, to_us
from mainspring.core.run import FINAL, Run, Status
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.schedulers.background import BackgroundScheduler
from mainspring.testing.conformance.helpers import new_token
from tests.process.node_program import FOLDER, POINTS, hold, make_scheduler, note, notes, open_store

ROOT = Path(__file__).parents[2]
LIMIT = 90.0
NODES = 8
EVERY, JOBS = 1.0, 5  # a hundred fires may wait: a minute and a half for all processes to start
UNFINISHED = RunQuery(status=(Status.PENDING, Status.RUNNING))


def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT
    while not true():
        assert time.monotonic() < deadline, f"it takes too long until {what}: {Counter(notes())}"
        time.sleep(0.02)


class Stage:
    """A store, a node of the test's own that fires nothing, and others in processes of their own."""

    def __init__(self, url: str, name: str, stack: ExitStack) -> None:
        self.url, self._name, self._stack = url, name, stack
        self.store: JobStore = open_store(url, name)
        self.director: BackgroundScheduler = make_scheduler(self.store, lease=60)
        self.director.start(paused=True)
        stack.callback(self.director.shutdown)

    def start(self, way: str = "well", *, lease: float = 1.0, threads: int = 4, delay: float = 0.0) -> Any:
        """Start a node."""
        words = [self.url, self._name, str(lease), str(threads), way, str(delay)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
        child = subprocess.Popen([sys.executable, "-m", "tests.process.node_program", *words], env=env, cwd=ROOT)
        self._stack.callback(child.wait)
        self._stack.callback(child.kill)
        return child

    def runs(self, job_id: str) -> list[Run]:
        return list(self.store.find_runs(RunQuery(job_id=job_id), limit=10_000))


@pytest.fixture(params=["sqlite", "postgresql", "redis"])
def stage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    kind, name = request.param, f"n{os.getpid()}{new_token().replace('-', '')}"
    url = f"sqlite:///{tmp_path}/jobs.db" if kind == "sqlite" else request.getfixturevalue(f"{kind}_server").url
    with ExitStack() as stack:
        yield Stage(url, name, stack)
    if kind == "redis":
        with redis.Redis.from_url(url) as client:
            client.delete(*client.scan_iter(f"*{name}*", 1000), "")
    elif kind == "postgresql":
        engine = create_engine(url)
        with engine.begin() as connection:
            for table in inspect(connection).get_table_names():
                if table.startswith(name):
                    connection.execute(text(f'DROP TABLE "{table}" CASCADE'))
        engine.dispose()


def noted(word: str) -> int:
    return sum(said == word for said, _ in notes())


def test_eight_nodes_fire_every_instant_once_though_they_are_killed_at_every_point(stage: Stage) -> None:
    options: dict[str, Any] = {"coalesce": False, "misfire_grace_time": None, "max_instances": 1000}
    jobs = {
        job_id: stage.director.add_job(note, "interval", ["x"], id=job_id, seconds=EVERY, **options).next_run_time
        for job_id in (f"job-{number}" for number in range(JOBS))
    }
    deaths = [(point, delay) for delay in (0.0, 0.001) for point in POINTS]
    doomed = [stage.start(point, delay=delay) for point, delay in deaths[:NODES]]
    for point, delay in deaths[NODES:]:
        until(lambda: any(child.poll() is not None for child in doomed), "one more is killed")
        doomed.append(stage.start(point, delay=delay))
        doomed.remove(next(child for child in doomed if child.poll() is not None))
    until(lambda: all(child.poll() == -signal.SIGKILL for child in doomed), "the last of them is killed")
    since = stage.store.beat()
    stage.start()
    until(lambda: all(times(stage, job_id)[-1:] > [since + SECOND] for job_id in jobs), "all that they left was fired")
    for job_id in jobs:
        stage.director.remove_job(job_id)
    # Not by counts: a run that is given back meanwhile may be in none of them.
    until(lambda: all(run.status in FINAL for job_id in jobs for run in stage.runs(job_id)), "all has been executed")
    for job_id, first in jobs.items():
        found = times(stage, job_id)
        assert first is not None
        assert found == [to_us(first) + number * int(EVERY * SECOND) for number in range(len(found))]
        assert {(run.status, run.failures, run.crashes) for run in stage.runs(job_id)} == {(Status.SUCCEEDED, 0, 0)}


def times(stage: Stage, job_id: str) -> list[int]:
    return sorted(run.fire_time or 0 for run in stage.runs(job_id))


def test_the_runs_of_a_job_are_counted_across_nodes(stage: Stage) -> None:
    for _ in range(2):
        stage.start(threads=1, lease=60)
    until(lambda: noted("ready") == 2, "the nodes take part")
    stage.director.add_job(hold, "interval", ["gate"], id="held", seconds=0.1, max_instances=2)

    def refused() -> int:
        return sum(run.count for run in stage.runs("held") if run.status is Status.MISSED)

    until(lambda: noted("began") >= 2, "each node has one")
    before = refused()
    until(lambda: refused() >= before + 10, "more are refused")
    assert len({pid for word, pid in notes() if word == "began"}) == noted("began") == 2
    assert stage.store.stats(UNFINISHED).matching == 2


@pytest.mark.parametrize("way", ["listen", "look"])
def test_what_one_node_does_to_jobs_another_that_sleeps_until_tomorrow_heeds(stage: Stage, way: str) -> None:
    director = stage.director
    director.add_job(note, "interval", ["moved"], id="moved", days=1)
    stage.start(way, lease=60)
    until(lambda: noted("ready") == 1, "the node takes part")
    for number in range(1, 4):
        director.add_job(note, "date", ["added"])
        until(lambda number=number: noted("added") == number, "a job that was added is fired")  # type: ignore[misc]
    director.modify_job("moved", next_run_time=from_us(stage.store.beat()))
    until(lambda: noted("moved") == 1, "a job that was changed is fired")
    director.reschedule_job("moved", trigger="interval", seconds=0.1)
    until(lambda: noted("moved") >= 3, "a job with another trigger is fired by it")

    def fires_no_more(marker: str) -> None:
        since = stage.store.beat()
        director.add_job(note, "date", [marker])
        until(lambda: noted(marker) == 1, "another job is fired")
        assert max(run.fire_time or 0 for run in stage.runs("moved")) <= since

    director.pause_job("moved")
    fires_no_more("paused")
    before = noted("moved")
    director.resume_job("moved")
    until(lambda: noted("moved") >= before + 3, "a job that was resumed is fired")
    director.remove_job("moved")
    fires_no_more("removed")


@pytest.mark.parametrize("stage", ["postgresql", "redis"], indirect=True)
def test_what_happens_while_a_node_is_deaf_is_heeded_when_it_hears_again(stage: Stage) -> None:
    stage.start("listen", lease=60)
    until(lambda: noted("ready") == 1, "the node takes part")
    for number in range(1, 4):
        until(lambda: end_hearing(stage.url) > 0, "the node hears")
        stage.director.add_job(note, "date", ["added"])
        until(lambda number=number: noted("added") == number, "a job that was added is fired")  # type: ignore[misc]


def end_hearing(url: str) -> int:
    """End the connections over which nodes are told of changes; return how many there were."""
    if url.startswith("redis"):
        with redis.Redis.from_url(url) as client:
            return int(client.execute_command("CLIENT", "KILL", "TYPE", "pubsub"))
    engine = create_engine(url)
    with engine.begin() as connection:
        ended = connection.execute(
            text("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
        ).scalar_one()
    engine.dispose()
    return int(ended)


def test_a_node_that_wakes_up_after_its_lease_changes_nothing(stage: Stage, tmp_path: Path) -> None:
    stage.director.add_job(hold, "date", ["gate"], id="held")
    sleeper = stage.start("freeze", threads=1)
    until(lambda: ("began", sleeper.pid) in notes(), "the run begins")
    (tmp_path / "freeze").touch()
    until(lambda: ("freezes", sleeper.pid) in notes(), "the node is frozen")
    run = taken_over(stage, tmp_path)
    sleeper.send_signal(signal.SIGCONT)
    until(lambda: ("lost", sleeper.pid) in notes(), "the sleeper knows that it has lost the run")
    assert stage.runs("held") == [run]


def test_what_a_killed_node_executed_another_begins_again(stage: Stage, tmp_path: Path) -> None:
    stage.director.add_job(hold, "date", ["gate"], id="held")
    killed = stage.start()
    until(lambda: ("began", killed.pid) in notes(), "the run begins")
    killed.kill()
    taken_over(stage, tmp_path)


def taken_over(stage: Stage, folder: Path) -> Run:
    """Have the run executed by a node that is well; what has happened to it before is no fault of its own."""
    well = stage.start(threads=1)
    until(lambda: ("began", well.pid) in notes(), "the run begins again")
    (folder / "gate").touch()
    until(lambda: stage.store.stats(UNFINISHED).matching == 0, "the run has ended")
    (run,) = stage.runs("held")
    assert (run.status, run.result) == (Status.SUCCEEDED, well.pid)
    assert (run.interruptions, run.crashes, run.failures) == (run.attempt - 1, 0, 0)
    return run
