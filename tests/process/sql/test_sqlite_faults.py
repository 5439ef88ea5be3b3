"""SQLite's file among processes that die, on disks that are full, locked or read-only: clear errors, nothing damaged.

Run as a script, this file is one of those processes.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from mainspring.core.policy import Policy
from mainspring.core.run import Call, Condition, Outcome, Run, Status
from mainspring.errors import OutcomeUnknown, StoreUnavailable
from mainspring.jobstores.base import RunQuery
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.jobstores.sqlalchemy.sqlite import dialect as sqlite_dialect
from mainspring.jobstores.sqlalchemy.sqlite import forks
from mainspring.testing.conformance.helpers import (
    LEASE,
    add_job,
    add_run,
    claim,
    current,
    fire,
    lapsed,
    make_run,
    succeed,
)

ROOT = Path(__file__).parents[3]
Spawn = Callable[..., "subprocess.Popen[str]"]
LOCK = """
import os, sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("DELETE FROM mainspring_runs")
os.write(1, b"inside\\n")
time.sleep(60)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Start another Python."""
    children: list[subprocess.Popen[str]] = []

    def begin(*words: str | Path) -> subprocess.Popen[str]:
        env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
        child = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True, env=env)
        children.append(child)
        return child

    yield begin
    for child in children:
        if child.returncode is None:
            child.kill()
            child.communicate()


@contextmanager
def opened(path: Path) -> Iterator[SQLAlchemyJobStore]:
    store = SQLAlchemyJobStore(f"sqlite:///{path}")
    try:
        yield store
    finally:
        store.shutdown()


def line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def check_integrity(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def failure(act: Callable[[], object]) -> StoreUnavailable:
    with pytest.raises(StoreUnavailable) as caught:
        act()
    return caught.value


# -- processes that die ------------------------------------------------------------------------------------------------


def test_processes_killed_while_they_write_leave_a_sound_file_and_all_that_was_acknowledged(
    path: Path, spawn: Spawn
) -> None:
    with opened(path) as store:
        store.beat()
        acknowledged: list[str] = []
        writers = [spawn(__file__, path) for _ in range(3)]
        for writer in writers:  # one dies after another, and the others go on
            for _ in range(10):
                acknowledged.append(line(writer))
                add_run(store, queue="own")
            writer.send_signal(signal.SIGKILL)
            acknowledged += writer.communicate()[0].splitlines()
            check_integrity(path)
        found = store.get_runs(acknowledged)
        assert len(acknowledged) == len(set(acknowledged)) >= 30
        assert {None if run is None else run.status for run in found} == {Status.SUCCEEDED}
        assert len(claim(store, "own")) == 30
        # What the dead held goes on with others when its leases end.
        store.shift_clock(2 * LEASE)
        held = [run for run in lapsed(store, 1000) if run.queue == "default"]
        back = [_waiting(run) for run in held]
        assert all(store.settle([Outcome(run, Condition.EXPIRED) for run in back]))
        again = claim(store)
        assert {run.id for run in again} >= {run.id for run in held}
        assert all(store.settle([succeed(store, run) for run in again]))
    check_integrity(path)


def _waiting(run: Run) -> Run:
    from msgspec.structs import replace

    return replace(run, status=Status.PENDING, node=None, lease_until=None)


def test_a_log_that_was_deleted_costs_what_was_in_it_and_nothing_else(path: Path, spawn: Spawn) -> None:
    with opened(path) as store:
        kept = add_run(store, queue="own")  # closing moves it from the log into the file
    child = spawn(__file__, path)
    lost = line(child)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    path.with_name("jobs.db-wal").unlink()
    with opened(path) as store:
        assert store.get_runs([lost]) == [None]
        after = add_run(store, queue="own")
        assert {run.id for run in claim(store, "own")} == {kept.id, after.id}
    check_integrity(path)


# -- a power failure ---------------------------------------------------------------------------------------------------


class Disk:
    """What a power failure leaves of a file: its state after the last commit that waited for the disk."""

    def __init__(self, store: SQLAlchemyJobStore, path: Path) -> None:
        store.beat()
        self._database: Any = store._open()
        self._path = path
        self._left = path.parent / "left" / path.name
        self._left.parent.mkdir()
        self._log = b""

    def waited(self) -> bool:
        """Return whether the last commit since the last look waited for the disk; if so, everything up to it is there.

        A transaction that changes no byte commits nothing, so it waits for nothing.
        """
        with self._database._turn:
            before, self._log = self._log, Path(f"{self._path}-wal").read_bytes()
            lasting = self._database._writer.execute("PRAGMA synchronous").fetchone() == (2,)
            waited = lasting and self._log != before
            if waited:
                for suffix in ("", "-wal"):
                    shutil.copy(f"{self._path}{suffix}", f"{self._left}{suffix}")
        return waited

    def opened(self) -> AbstractContextManager[SQLAlchemyJobStore]:
        """Open the file as it is after the failure."""
        return opened(self._left)


def test_a_run_whose_claim_a_power_failure_has_undone_is_claimed_again_and_ends_once(path: Path) -> None:
    with opened(path) as store:
        disk = Disk(store, path)
        run = add_run(store)
        assert disk.waited()
        [claimed] = claim(store)
        assert not disk.waited()
    with disk.opened() as after:
        [again] = claim(after)
        assert (again.id, again.attempt) == (run.id, 1)
        assert after.settle([succeed(after, claimed)]) == [False]
        assert after.settle([succeed(after, again)]) == [True]


def test_an_end_outlasts_a_power_failure_and_so_does_the_claim_before_it(path: Path) -> None:
    with opened(path) as store:
        disk = Disk(store, path)
        ended, held = add_run(store), add_run(store)
        claimed = claim(store, limit=1)
        other = claim(store)
        assert store.settle([succeed(store, run) for run in claimed]) == [True]
        assert disk.waited()
    with disk.opened() as after:
        assert [current(after, run).status for run in (ended, held)] == [Status.SUCCEEDED, Status.RUNNING]
        assert after.settle([succeed(after, run) for run in other]) == [True]


def test_a_claim_of_a_run_that_may_start_only_once_outlasts_a_power_failure(path: Path) -> None:
    with opened(path) as store:
        disk = Disk(store, path)
        run = add_run(store, policy=Policy(delivery="at_most_once"))
        disk.waited()
        database: Any = store._open()
        keep, kept_alone = database.keep_claim, []

        def keep_and_look(token: str) -> None:
            disk.waited()
            keep(token)
            kept_alone.append(disk.waited())

        database.keep_claim = keep_and_look
        [claimed] = claim(store)
        assert kept_alone == [True]
    with disk.opened() as after:
        assert claim(after) == []
        kept = current(after, run)
        assert (kept.status, kept.token, kept.attempt) == (Status.RUNNING, claimed.token, 1)


def test_jobs_are_hidden_without_a_wait_for_the_disk_and_a_fire_waits_for_it(path: Path) -> None:
    with opened(path) as store:
        disk = Disk(store, path)
        add_job(store)
        assert disk.waited()
        [hidden] = store.due(10, 60.0).jobs
        assert (store.due(10, 60.0).jobs, disk.waited()) == ([], False)
        with disk.opened() as after:
            [due] = after.due(10, 0.0).jobs
            assert (due.version, due.at) == (hidden.version, hidden.at)
        assert fire(store, hidden)
        assert disk.waited()


def test_a_claim_that_shares_its_commit_with_an_enqueue_waits_for_the_disk(path: Path) -> None:
    with opened(path) as store:
        disk = Disk(store, path)
        add_run(store)
        database: Any = store._open()
        acts = [lambda: claim(store), lambda: add_run(store, "shared")]
        threads = [threading.Thread(target=act) for act in acts]
        with database._turn:  # while somebody writes, the others come and wait
            for thread in threads:
                thread.start()
            while len(database._queue) < len(threads):
                pass
        for thread in threads:
            thread.join()
        assert disk.waited()
    with disk.opened() as after:
        assert current(after, make_run(after, "shared")).status in (Status.PENDING, Status.RUNNING)


def test_an_interrupt_while_the_setting_changes_lets_no_later_enqueue_be_lost(path: Path) -> None:
    with opened(path) as store:
        disk = Disk(store, path)
        add_run(store)
        database: Any = store._open()
        writer = database._writer

        class Interrupted:
            in_transaction = False

            def execute(self, statement: str) -> None:
                writer.execute(statement)
                raise KeyboardInterrupt

        database._writer = Interrupted()
        with pytest.raises(KeyboardInterrupt):
            database._begin(lasting=False)
        database._writer = writer
        assert writer.execute("PRAGMA synchronous").fetchone() == (1,)
        disk.waited()
        add_run(store)
        assert disk.waited()


def test_an_interrupt_on_the_way_into_a_condition_blocks_no_other_thread(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(condition: threading.Condition) -> bool:
        condition.acquire()
        raise KeyboardInterrupt

    with opened(path) as store:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Condition, "__enter__", interrupted)
            for act in (lambda: add_run(store), store.beat):
                with suppress(KeyboardInterrupt):
                    act()
        other = threading.Thread(target=add_run, args=(store, "other"), daemon=True)
        other.start()
        other.join(10)
        assert not other.is_alive()


def test_a_fork_waits_for_no_read_that_an_interrupt_has_ended(path: Path) -> None:
    with opened(path) as store:
        forks.readers.__enter__()  # an interrupt after this keeps the thread from leaving
        store.beat()
        began = time.monotonic()
        forks.readers.keep_out()
        forks.readers.let_in()
        assert time.monotonic() - began < 2


def test_the_error_of_a_write_is_gone_once_its_caller_has_dropped_it(path: Path) -> None:
    class Unlucky(Exception):
        pass

    def fail(tx: object) -> None:
        raise Unlucky

    with opened(path) as store:
        database: Any = store._open()
        for _ in range(3):
            with pytest.raises(Unlucky):
                database.write(fail)
        gc.collect()
        # Not `isinstance`, which asks objects that other tests have left for their class.
        assert not [each for each in gc.get_objects() if type(each) is Unlucky]


# -- a disk that is full -----------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    if not _mount("-t", "tmpfs", "-o", "size=2m", "small", place):
        pytest.skip("NOT TESTED, a full disk: this user may not mount a file system")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def _mount(*words: str | Path) -> bool:
    return shutil.which("mount") is not None and subprocess.run(["mount", *words], capture_output=True).returncode == 0


def test_a_full_disk_is_told_with_what_to_do_and_with_room_it_goes_on(small_disk: Path) -> None:
    path = small_disk / "jobs.db"
    with opened(path) as store:
        acknowledged: list[str] = []
        while True:
            runs = [make_run(store) for _ in range(50)]
            try:
                store.add_runs(runs)
            except StoreUnavailable as caught:
                error = caught
                break
            acknowledged += [run.id for run in runs]
        assert not isinstance(error, OutcomeUnknown)
        said = str(error)
        assert f"the disk of {path} is full; free some space there, and the store goes on" in said
        assert "sqlite:///" in said
        assert len(acknowledged) >= 50

        # All of it or nothing was written, and it can be read.
        assert store.stats(RunQuery()).matching == len(acknowledged)
        assert store.get_runs([run.id for run in runs]) == [None] * len(runs)
        assert "is full" in str(failure(lambda: store.add_runs(runs)))

        assert _mount("-o", "remount,size=16m", small_disk)
        assert store.add_runs(runs) == [run.id for run in runs]
        claimed = claim(store, limit=10_000)
        assert {run.id for run in claimed} == {*acknowledged, *(run.id for run in runs)}
        assert all(store.settle([succeed(store, run) for run in claimed]))
        health = store.health()
        assert health.level == "volatile"
        assert "is on a tmpfs, which is memory" in health.reasons[0]
    check_integrity(path)


def test_callers_that_share_a_commit_are_told_of_a_full_disk_that_has_undone_it(small_disk: Path) -> None:
    path = small_disk / "jobs.db"
    with opened(path) as store:
        database: Any = store._open()
        database._writer.execute("PRAGMA cache_size = -100")  # pages go to the disk before the commit
        runs = [make_run(store, call=Call("f", (os.urandom(700_000),), {})) for _ in range(4)]
        with ThreadPoolExecutor(len(runs)) as pool:
            with database._turn:  # while somebody writes, the others come and wait
                writes = [pool.submit(store.add_runs, [run]) for run in runs]
                while len(database._queue) < len(writes):
                    pass
            said = [str(each.exception()) for each in writes]
        assert all("is full; free some space there" in each for each in said), said
        assert store.get_runs([run.id for run in runs]) == [None] * len(runs)
        assert add_run(store)
    check_integrity(path)


# -- a file that is locked ---------------------------------------------------------------------------------------------


def test_a_file_locked_for_long_is_told_and_read_meanwhile_and_goes_on_when_its_holder_is_killed(
    path: Path, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_dialect, "STEP_TIMEOUT_SECONDS", 0.2)
    with opened(path) as store:
        held = add_run(store)
        [held] = claim(store)
        child = spawn("-c", LOCK, path)
        assert line(child) == "inside"
        run = make_run(store)
        for act in (lambda: store.add_runs([run]), lambda: store.settle([succeed(store, held)])):
            said = str(failure(act))
            assert f"other processes have kept {path} locked for 0.2 s; the store goes on when they release it" in said
            assert "database is locked" in said
        assert current(store, held).status is Status.RUNNING
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert store.settle([succeed(store, held)]) == [True]
        assert store.add_runs([run]) == [run.id]
    check_integrity(path)


# -- a file that cannot be written -------------------------------------------------------------------------------------


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that any user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="mainspring-public-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@contextmanager
def without_rights() -> Iterator[None]:
    """Be somebody whom permissions concern, which root is not."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.parametrize("mode", ["file", "folder"])
def test_what_cannot_be_written_is_named_at_once_and_works_when_it_is_permitted(public: Path, mode: str) -> None:
    path = public / "jobs.db"
    place = path if mode == "file" else public
    with without_rights(), opened(path) as store:
        run = add_run(store)
    place.chmod(0o444 if mode == "file" else 0o555)
    with without_rights(), opened(path) as store:
        said = str(failure(lambda: store.add_runs([make_run(store)])))
    assert f"{place} cannot be written by this user, or its disk is mounted read-only; permit writing" in said
    public.chmod(0o777)
    for each in (each for each in public.iterdir() if each.is_file()):
        each.chmod(0o666)  # what SQLite has made beside the file has the file's rights
    with without_rights(), opened(path) as store:
        assert [each.id for each in claim(store)] == [run.id]
    check_integrity(path)


def test_a_folder_that_is_not_there_and_a_file_that_is_one_are_named(tmp_path: Path) -> None:
    for path, words in (
        (tmp_path / "no" / "such" / "jobs.db", f"there is no folder {tmp_path}/no/such; make it, or correct the URL"),
        (tmp_path, f"{tmp_path} is a folder; name a file in the URL"),
    ):
        with opened(path) as store:
            assert words in str(failure(store.beat))


def test_a_file_that_is_no_database_is_named_and_left_alone(path: Path) -> None:
    path.write_bytes(b"not a database, but somebody's letter\n" * 100)
    before = path.read_bytes()
    with opened(path) as store:
        assert f"{path} is damaged or is not an SQLite database" in str(failure(store.beat))
    assert path.read_bytes() == before


# -- the other processes -----------------------------------------------------------------------------------------------


def _write(path: str) -> None:
    """Add, claim and settle runs, and name each when its end is acknowledged."""
    store = SQLAlchemyJobStore(f"sqlite:///{path}")
    number = 0
    while True:
        number += 1
        add_run(store, f"{os.getpid()}-{number}")
        for run in claim(store, limit=1, node=str(os.getpid()), token=f"{os.getpid()}-{number}"):
            assert store.settle([succeed(store, run)]) == [True]
            os.write(1, f"{run.id}\n".encode())


# -- another file in its place ---------------------------------------------------------------------------------------


def backup(path: Path) -> Path:
    """Make the file of another store that holds the run `restored`."""
    other = SQLAlchemyJobStore(f"sqlite:///{path}.backup")
    add_run(other, "restored")
    other.shutdown()
    return Path(f"{path}.backup")


def test_a_file_that_is_replaced_while_it_is_in_use_is_opened_anew(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SQLAlchemyJobStore(f"sqlite:///{path}")
    run = add_run(store, "before")
    backup(path).replace(path)  # and the write-ahead log of the old file stays where it is
    assert [each.id for each in claim(store)] == ["restored"]
    assert current(store, make_run(store, "restored")).status is Status.RUNNING
    assert store.get_runs([run.id]) == [None]
    assert "was replaced by another file" in caplog.text
    store.shutdown()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT id, status FROM mainspring_runs").fetchall() == [("restored", "running")]


def test_a_connection_that_comes_too_late_for_the_old_file_is_refused(path: Path) -> None:
    store = SQLAlchemyJobStore(f"sqlite:///{path}")
    add_run(store, "before")
    database: Any = store._open()
    backup(path).replace(path)
    open_before: list[sqlite3.Connection] = []  # to the old file; these can still be had
    with pytest.raises(StoreUnavailable, match="replaced by another file"):
        open_before.extend(database._connect() for _ in range(100))
    for connection in open_before:
        connection.close()
    assert [each.id for each in claim(store)] == ["restored"]
    store.shutdown()


def test_whoever_closes_the_old_file_leaves_the_log_of_the_new_one_alone(path: Path) -> None:
    store = SQLAlchemyJobStore(f"sqlite:///{path}")
    add_run(store)
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink()
    backup(path).replace(path)
    other = SQLAlchemyJobStore(f"sqlite:///{path}")
    add_run(other, "new")
    store.shutdown()
    assert {run.id for run in other.find_runs(RunQuery())} == {"restored", "new"}
    other.shutdown()


def test_a_file_that_is_deleted_while_it_is_in_use_is_an_outage_until_it_is_back(path: Path) -> None:
    store = SQLAlchemyJobStore(f"sqlite:///{path}")
    add_run(store, "before")
    away = path.rename(path.with_suffix(".away"))
    with pytest.raises(StoreUnavailable, match="was deleted while it was in use; put it back"):
        claim(store)
    assert not path.exists()
    away.rename(path)
    assert [run.id for run in claim(store)] == ["before"]
    store.shutdown()


if __name__ == "__main__":
    _write(sys.argv[1])
