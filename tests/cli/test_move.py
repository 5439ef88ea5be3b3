"""`mainspring move`: jobs and waiting runs go from one store to another, whatever kills the command meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mainspring import Mainspring
from mainspring.app.moving.marks import ARRIVING_AT, LEAVING_AT
from mainspring.app.moving.mover import Mover
from mainspring.cli import main
from mainspring.core.run import Run, Status
from mainspring.core.waiting.followups import FinishedRun
from mainspring.jobstores.base import JobStore, RunQuery
from tests.cli.kit import KEY, LIMIT
from tests.fragile import Fragile
from tests.servers import PostgreSQL, Redis
from tests.waiting import until

HELD = (LEAVING_AT, ARRIVING_AT)
WAITING = RunQuery(status=(Status.PENDING,))


def note(path: str, number: int, fail: bool = False) -> int:
    """Leave a line behind."""
    with open(path, "a") as file:
        file.write(f"{number}\n")
    if fail:
        raise ValueError("as it was told")
    return number


def told(run: FinishedRun) -> None:
    """Leave a line behind for the end of a run."""
    note(run.args[0], run.args[1] + 1)


def app_at(url: str, name: str = "mainspring") -> Mainspring:
    app = Mainspring(url, name=name, secret_key=KEY, timezone="UTC", queues=["mail"])
    app.task(note)
    return app


def fill(app: Mainspring, path: str = "") -> list[str]:
    """Leave jobs and runs of several kinds; return the ids of the runs that wait."""
    task = app.tasks.find(f"{__name__}:note")
    ids = [task.options(retention=0.001).enqueue(path, 0).id, task.options(delay=3600).enqueue(path, 1).id]
    ids.append(task.options(queue="mail", unique="k", priority=7, group="g").enqueue(path, 2).id)
    first = task.options(hook=app.task(told)).enqueue(path, 3)
    moved = task.enqueue(path, 5)
    app.move(moved, "mail")
    app.add_job(note, "interval", hours=1, id="hourly", args=[path, 6])
    app.add_job(note, "cron", hour=3, id="nightly", args=[path, 7], timezone="Europe/Berlin")
    app.pause_job("nightly")
    return [*ids, first.id, moved.id]


def startable(store: JobStore) -> dict[str, Run]:
    return {run.id: run for run in store.find_runs(WAITING, limit=1000) if run.run_at not in HELD}


def firing(store: JobStore) -> dict[str, int | None]:
    return {job.id: job.at for job in store.get_all_jobs() if job.at not in HELD}


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[Mainspring, Mainspring]]:
    """Two apps on SQLite, each with a key of the same text."""
    made = app_at(f"sqlite:///{tmp_path}/source.db"), app_at(f"sqlite:///{tmp_path}/target.db")
    yield made
    for app in made:
        app.close()


def test_a_run_that_starts_meanwhile_stays_and_leaves_no_copy(ends: tuple[Mainspring, Mainspring]) -> None:
    source, target = ends
    run_id = source.enqueue(note, "", 1).id

    class Claiming(Fragile):
        def __getattr__(self, name: str) -> Any:
            if name == "settle":  # somebody claims the run just before it is ended as moved
                self._store.claim([(["default"], 1)], node="n", token="t", lease=60.0)
            return getattr(self._store, name)

    hasty: Any = Claiming(source.store, [0], False)
    assert sum(Mover(hasty, target.store).move_runs()) == 0
    assert str(source.get(run_id).status) == "running"
    assert target.find() == []


def test_a_run_takes_its_hook_along_unless_it_has_started(ends: tuple[Mainspring, Mainspring]) -> None:
    source, target = ends
    task = source.tasks.find(f"{__name__}:note").options(hook=source.task(told))
    ids = [task.enqueue("", 1).id, task.enqueue("", 2).id]
    mover = Mover(source.store, target.store)
    assert (mover.look().runs, mover.look().stays) == (2, {})

    class Starting(Fragile):
        def _burn(self, write: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            source.store.claim([(["default"], 1)], node="n", token="t", lease=60)
            return write(*args, **kwargs)

    assert sum(Mover(Starting(source.store, [0], False), target.store).move_runs()) == 1  # type: ignore[arg-type]
    started, moved = sorted(ids, key=lambda run_id: str(source.get(run_id).status), reverse=True)
    assert [str(source.get(f"{run_id}~hook").status) for run_id in (started, moved)] == ["blocked", "cancelled"]
    assert {run.id: str(run.status) for run in target.find()} == {moved: "pending", f"{moved}~hook": "blocked"}


def test_a_unique_key_that_the_target_has_is_left_to_its_holder(ends: tuple[Mainspring, Mainspring]) -> None:
    source, target = ends
    for app in ends:
        app.tasks.find(f"{__name__}:note").options(unique="k").enqueue("", 1)
    assert sum(Mover(source.store, target.store).move_runs()) == 0
    assert (len(startable(source.store)), len(startable(target.store))) == (1, 1)


PROGRAM = """
import os, signal, sys
from mainspring.cli import main
from mainspring.app.moving import mover as moving

writes = ("add_runs", "settle", "add_job", "update_job", "remove_jobs")
make, left = moving.Mover.__init__, [int(sys.argv[1])]

def dying(write):
    def call(*args, **kwargs):
        answer = write(*args, **kwargs)
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer
    return call

def fragile(self, *stores):
    for store in stores:
        for name in writes:
            setattr(store, name, dying(getattr(store, name)))
    make(self, *stores)

moving.Mover.__init__ = fragile
main(["move", "--from", sys.argv[2], "--to", sys.argv[3], "--yes"])
"""


# The job takes four writes, then each page of runs does: hold, copy, end, let go.
@pytest.mark.parametrize("count", [3, 6, 7])
def test_a_command_that_was_killed_goes_on_when_it_is_called_again(
    ends: tuple[Mainspring, Mainspring], count: int
) -> None:
    source, target = ends
    task = source.as_task(note)
    ids = [call.id for call in source.enqueue_many(task.call("", n) for n in range(250))]
    first, second = source.chain([task.call("", 1), task.call("", 2)])
    source.add_job(note, "interval", hours=1, id="hourly", args=["", 6])
    urls = [str(app.url) for app in ends]
    program = [sys.executable, "-c", PROGRAM, str(count), *urls]
    killed = subprocess.run(program, capture_output=True, text=True, env=environment(), timeout=LIMIT)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    both = Counter([*startable(source.store), *startable(target.store)])
    assert all(times == 1 for times in both.values())
    done = call_move(*urls, "--yes")
    assert done.exit_code == 0, done.output
    assert startable(source.store) == {}
    assert set(startable(target.store)) == {*ids, first.id}
    assert [str(app.get(second.id).status) for app in ends] == ["cancelled", "blocked"]
    assert list(firing(target.store)) == ["hourly"]


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
    return {**kept, "MAINSPRING_SECRET_KEY": KEY}


def call_move(source: str, target: str, *words: str, name: str = "mainspring") -> Result:
    arguments = ["move", "--from", source, "--to", target, "--name", name, *words]
    found = CliRunner(env={"MAINSPRING_SECRET_KEY": KEY, "MAINSPRING_APP": None, "MAINSPRING_URL": None}).invoke(
        main, arguments
    )
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found


def test_nodes_that_work_meanwhile_start_each_run_once(ends: tuple[Mainspring, Mainspring], tmp_path: Path) -> None:
    source, target = ends
    path = str(tmp_path / "lines")
    runs = 400
    source.enqueue_many(source.as_task(note).call(path, number) for number in range(runs))
    source.start(work=True)
    target.start(work=True)
    try:
        assert call_move(str(source.url), str(target.url), "--yes").exit_code == 0
        for app in ends:
            for run in app.find(status=["pending", "running"], limit=1000):
                app.wait([run.id], LIMIT)
    finally:
        source.stop()
        target.stop()
    lines = Counter(Path(path).read_text().split())
    assert lines == {str(number): 1 for number in range(runs)}


@pytest.fixture
def places(
    request: pytest.FixtureRequest, redis_server: Redis, postgresql_server: PostgreSQL, tmp_path: Path
) -> Iterator[tuple[Mainspring, Mainspring]]:
    """Two apps, on Redis and on PostgreSQL."""
    made = app_at(redis_server.url, "cli_move"), app_at(postgresql_server.url, "cli_move")
    yield made
    for app in made:
        app.store.remove_jobs()
        for run in app.find(status="pending", limit=1000):
            app.cancel(run.id)
        for run in app.find(limit=1000):
            app.delete(run.id)
        app.close()


@pytest.mark.parametrize("back", [False, True], ids=["redis to postgresql", "postgresql to redis"])
def test_jobs_and_runs_move_between_servers(places: tuple[Mainspring, Mainspring], tmp_path: Path, back: bool) -> None:
    source, target = places[::-1] if back else places
    path = str(tmp_path / "lines")
    ids = fill(source, path)
    urls = str(source.url), str(target.url)
    dry = call_move(*urls, "--dry-run", name="cli_move")
    assert (dry.exit_code, dry.stdout) == (0, "2 jobs and 5 runs would be moved\n")
    assert len(startable(source.store)) == 5
    source.pause_queue("mail")
    done = call_move(*urls, "--yes", name="cli_move")
    assert (done.exit_code, done.stdout) == (0, "moved 2 jobs and 5 runs\n"), done.output
    assert (set(startable(target.store)), firing(source.store)) == (set(ids), {})
    assert {queue.name for queue in target.queues() if queue.paused} == {"mail"}
    target.resume_queue("mail")
    source.resume_queue("mail")
    target.start(work=True, schedule=False)
    until(lambda: Path(path).exists() and len(Path(path).read_text().split()) >= 5)
    target.stop()
    assert sorted(Path(path).read_text().split()) == ["0", "2", "3", "4", "5"]


def test_a_retrying_run_keeps_its_failures(ends: tuple[Mainspring, Mainspring], tmp_path: Path) -> None:
    source, target = ends
    task = source.as_task(note).options(retries=3, backoff=3600)
    run_id = task.enqueue(str(tmp_path / "lines"), 1, fail=True).id
    source.start(work=True, schedule=False)
    until(lambda: source.get(run_id).failures > 0)
    source.stop()
    assert sum(Mover(source.store, target.store).move_runs()) == 1
    run = target.get(run_id)
    assert (run.failures, str(run.error), run.run_at) == (1, "ValueError: as it was told", source.get(run_id).run_at)


def test_ids_that_are_taken_are_named_and_nothing_is_moved(ends: tuple[Mainspring, Mainspring]) -> None:
    source, target = ends
    fill(source)
    target.add_job(note, "interval", hours=2, id="hourly", args=["", 1])
    refused = call_move(str(source.url), str(target.url), "--yes")
    assert (
        refused.exit_code,
        "the target has jobs of the same ids ('hourly'); nothing was moved" in refused.stderr,
    ) == (
        1,
        True,
    )
    assert len(startable(source.store)) == 5


def test_a_move_to_another_name_without_history(ends: tuple[Mainspring, Mainspring]) -> None:
    source = ends[0]
    ids = fill(source)
    source.cancel(ids[1])
    done = call_move(str(source.url), str(source.url), "--to-name", "other", "--no-history", "--yes")
    assert (done.exit_code, done.stdout) == (0, "moved 2 jobs and 4 runs\n"), done.output
    with app_at(str(source.url), "other") as other:
        assert set(startable(other.store)) == {*ids} - {ids[1]}
        assert other.find(status="cancelled") == []
    done = call_move(str(source.url), str(source.url), "--to-name", "other", "--yes")
    assert (done.exit_code, done.stdout) == (0, "moved 0 jobs and 0 runs, 1 ended run copied\n"), done.output


def test_mistakes_are_named(ends: tuple[Mainspring, Mainspring]) -> None:
    source, target = (str(app.url) for app in ends)
    fill(ends[0])
    same = call_move(source, source, "--yes")
    assert (same.exit_code, "name the same store" in same.stderr) == (2, True)
    asked = call_move(source, target)
    assert (asked.exit_code, "2 jobs and 5 runs will be moved. Go on? Say so with --yes" in asked.stderr) == (2, True)
    gone = call_move(source, "redis://127.0.0.1:1/0", "--yes")
    assert gone.exit_code == 3
    absent = call_move("sqlite:////nowhere/at/all.db", target, "--yes")
    assert (absent.exit_code, "there is no file" in absent.stderr) == (1, True)
    unknown = call_move(source, "postgers://db/shop", "--yes")
    assert (unknown.exit_code, "postgers" in unknown.stderr) == (1, True)
    memory = call_move(source, "memory://", "--yes")
    assert (memory.exit_code, "name two that last" in memory.stderr) == (2, True)
    helped = CliRunner().invoke(main, ["move", "-h"])
    assert (helped.exit_code, "mainspring move --from " in helped.output) == (0, True)
