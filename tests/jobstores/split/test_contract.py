"""What the base of stores of jobs does for each of them: stamps, caps, errors, changes, and a store for the runs."""

from __future__ import annotations

import os
import pickle
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from mainspring.app import Mainspring
from mainspring.codec import Codec, Keyring
from mainspring.core.instants import SECOND
from mainspring.core.plan import DueJob, Place
from mainspring.errors import ConfigurationError, OutcomeUnknown, RecordTooLarge, StoreUnavailable, TooManyJobs
from mainspring.jobstores.base import RunQuery
from mainspring.jobstores.health import Health
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.jobstores.split import (
    ChangeSignal,
    JobRecord,
    RecordsJobStore,
    SplitJobStore,
    is_due,
    wake_of,
    wake_text,
)
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.schedulers.background import BackgroundScheduler
from mainspring.testing.conformance.helpers import CALL, LEASE, add_job, claim, due_one, fire, make_job, work
from tests.jobstores.split.kit import HOUR, open_firings
from tests.record_stores import DictRecords


class StampedRecords(DictRecords):
    """Compares its own stamps alone: a record that comes back without one is never written."""

    _stamps = 0

    def put(self, writes: Sequence[tuple[JobRecord, JobRecord | None]]) -> list[bool]:
        answers = []
        for record, seen in writes:
            stored = self.get([record.key])[0]
            answers.append((stored and stored.stamp) == (seen and seen.stamp))
            assert seen is None or seen.stamp is not None
            if answers[-1]:
                StampedRecords._stamps += 1
                record.stamp = StampedRecords._stamps
                assert super().put([(replace(record), stored)]) == [True]
        return answers

    def get(self, keys: Sequence[str]) -> list[JobRecord | None]:
        return [None if each is None else replace(each) for each in super().get(keys)]


def test_the_stamp_of_a_record_comes_back_with_it() -> None:
    jobs = StampedRecords()
    store = SplitJobStore(jobs, MemoryJobStore())
    add_job(store, every=HOUR)
    assert fire(store, due_one(store)) is not None
    assert open_firings(jobs) == 0
    [job] = store.get_all_jobs()
    store.update_job(job)
    store.add_jobs([make_job(store, "job")], replace=True)
    assert store.remove_jobs() == 1


class MovingRecords(DictRecords):
    """Reads the timetable and the records apart, and lets something happen in between."""

    between: Callable[[], object] | None = None

    def due(self, until: int, limit: int) -> tuple[list[JobRecord], int | None]:
        page, later = super().due(until, limit)
        between, self.between = self.between, None
        if between is not None:
            between()
        return [record for record in self.get([each.key for each in page]) if record is not None], later


def test_a_record_that_is_moved_while_due_ones_are_read_is_not_taken_for_one_left_open() -> None:
    jobs, runs = MovingRecords(), MemoryJobStore()
    store, other = SplitJobStore(jobs, runs), SplitJobStore(jobs, runs)
    add_job(store, every=HOUR)
    due = due_one(store)
    seen: list[Any] = []
    put = jobs.put

    def put_between(writes: Any) -> list[bool]:
        if seen:
            return put(writes)
        # Another scheduler reads the timetable as it was before the fire, and the record as it is after it.
        answers: list[bool] = []
        jobs.between = lambda: answers.extend(put(writes))
        seen.append(other.due(10, 0).jobs)
        return answers

    jobs.put = put_between  # type: ignore[method-assign]
    ids = fire(store, due, Place(".default", "node", "token", due.at + HOUR * 1_000_000))
    assert seen == [[]]
    assert ids is not None
    assert len(ids) == 1
    assert claim(store, ".default") == []  # the node that fired it has it


def test_a_record_is_due_by_its_own_time() -> None:
    record = JobRecord("job:a", 1, 5, b"")
    assert is_due(record, 5)
    assert not is_due(record, 4)
    assert not is_due(replace(record, wake=None), 5)
    assert not is_due(None, 5)


def test_wake_times_sort_as_text() -> None:
    numbers = [*random.Random(5).sample(range(-(2**60), 2**60), 200), 0, -1, 1]
    assert sorted(map(wake_text, numbers)) == [wake_text(number) for number in sorted(numbers)]
    assert [wake_of(wake_text(number) + ",job") for number in numbers] == numbers
    assert {len(wake_text(number)) for number in numbers} == {20}


# -- caps ----------------------------------------------------------------------------------------------------------


class SmallRecords(DictRecords):
    server = "the small server"
    max_bytes = 4000
    max_jobs = 3


def test_a_job_that_its_store_cannot_hold_with_a_run_is_refused_when_it_is_added_or_changed() -> None:
    store = SplitJobStore(SmallRecords(), MemoryJobStore())
    with pytest.raises(RecordTooLarge, match="the small server takes 4,000 of one job") as caught:
        add_job(store, "large", call=replace(CALL, args=(os.urandom(2200),)))
    assert (caught.value.job_id, caught.value.most) == ("large", 4000)
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), ValueError)
    job = add_job(store, "job")
    job.call = replace(job.call, args=(os.urandom(2200),))
    with pytest.raises(RecordTooLarge):
        store.update_job(job)
    assert [each.id for each in store.get_all_jobs()] == ["job"]


def test_a_fire_that_its_store_cannot_hold_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = SmallRecords()
    store = SplitJobStore(jobs, MemoryJobStore())
    add_job(store)
    before = jobs.all()
    monkeypatch.setattr(SmallRecords, "max_bytes", 200)
    with pytest.raises(RecordTooLarge):
        fire(store, due_one(store))
    assert jobs.all() == before


def _overdue(store: SplitJobStore) -> tuple[DueJob, list[str]]:
    """Return a job that has to catch up more fires than one record holds, and the ids of its runs."""
    job = add_job(store, due_in=-99.5, every=2, coalesce=False, misfire_grace_time=None)
    stem = f"job@{job.incarnation}@"
    return due_one(store), [f"{stem}{(job.at or 0) + 2 * n * SECOND}" for n in range(50)]


def test_many_overdue_fires_are_made_in_parts_that_the_store_can_hold() -> None:
    jobs = SmallRecords()
    store = SplitJobStore(jobs, MemoryJobStore())
    due, ids = _overdue(store)
    inserted = fire(store, due)
    assert inserted is not None
    assert list(inserted)[: len(ids)] == ids
    runs = {run.id: run for run in store.find_runs(RunQuery(), limit=1000)}
    assert list(runs) == list(reversed(inserted))
    assert [run.id for run in claim(store, limit=1000)] == [inserted[0]]  # they still run one after another
    assert open_firings(jobs) == 0
    assert store.due(10, 0).jobs == []


def test_a_scheduler_that_dies_between_two_parts_loses_and_doubles_none(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, runs = SmallRecords(), MemoryJobStore()
    store, other = SplitJobStore(jobs, runs), SplitJobStore(jobs, runs)
    due, ids = _overdue(store)
    add_fired, calls = store._add_fired, iter(range(100))

    def die(*args: Any) -> list[bool]:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return add_fired(*args)

    monkeypatch.setattr(store, "_add_fired", die)
    with pytest.raises(KeyboardInterrupt):
        fire(store, due)
    other.shift_clock(LEASE + 1)
    assert fire(other, due_one(other)) is not None
    found = [run.id for run in other.find_runs(RunQuery(), limit=1000)]
    assert set(ids) <= set(found)
    assert len(found) == len(set(found))
    assert open_firings(jobs) == 0


def test_a_store_of_few_jobs_says_when_it_is_full() -> None:
    store = SplitJobStore(SmallRecords(), MemoryJobStore())
    store.add_jobs([make_job(store, "a"), make_job(store, "b")])
    with pytest.raises(TooManyJobs, match="takes 3 jobs, and would have 4"):
        store.add_jobs([make_job(store, "c"), make_job(store, "d")])
    assert len(store.get_all_jobs()) == 2
    store.add_jobs([make_job(store, "c")])
    store.add_jobs([make_job(store, "a")], replace=True)


# -- errors --------------------------------------------------------------------------------------------------------


class DriverError(Exception):
    pass


class LostReply(DriverError):
    pass


class FailingRecords(DictRecords):
    server = "the server"
    unsure = (LostReply,)
    refused = (DriverError,)


@pytest.mark.parametrize(
    ("error", "what", "kind"),
    [
        (LostReply, "write", OutcomeUnknown),
        (LostReply, "read", StoreUnavailable),
        (DriverError, "write", StoreUnavailable),
        (DriverError, "read", StoreUnavailable),
    ],
)
def test_errors_of_a_driver_become_ours_without_a_password(error: Any, what: Any, kind: Any) -> None:
    with pytest.raises(StoreUnavailable) as caught, FailingRecords().asked(what):
        raise error("no route to x://ann:secret@host")
    assert type(caught.value) is kind
    assert str(caught.value).startswith("the server ")
    assert "secret" not in str(caught.value)


def test_other_errors_pass() -> None:
    with pytest.raises(ZeroDivisionError), FailingRecords().asked("write"):
        _ = 1 / 0


# -- changes -------------------------------------------------------------------------------------------------------


class FollowedRecords(DictRecords):
    """Listens to a queue of messages."""

    def __init__(self) -> None:
        super().__init__()
        self.told, self.followed = threading.Semaphore(0), 0

    def follow(self, stopped: threading.Event) -> None:
        self.followed += 1
        while not stopped.is_set():
            if self.told.acquire(timeout=0.05):
                self.changes.stir()


def test_a_follower_listens_from_the_first_wait_until_the_end() -> None:
    jobs = FollowedRecords()
    assert jobs.followed == 0
    cursor = jobs.wait(0, 0)
    jobs.told.release()
    assert jobs.wait(cursor, 30) != cursor
    jobs.shutdown()
    assert jobs.followed == 1
    cursor = jobs.wait(0, 0)
    jobs.told.release()
    assert jobs.wait(cursor, 30) != cursor
    assert jobs.followed == 2
    jobs.shutdown()


def test_a_follower_that_fails_follows_again_and_its_failure_counts_as_a_change() -> None:
    began: list[int] = []
    fails, again = threading.Event(), threading.Event()

    def follow(stopped: threading.Event) -> None:
        began.append(1)
        if len(began) == 1:
            fails.wait(30)
            raise ConnectionError("away")
        again.set()
        stopped.wait()

    changes = ChangeSignal([follow])
    cursor = changes.wait(0, 0)
    fails.set()
    while changes.wait(cursor, 0.01) == cursor:
        pass
    assert again.wait(30)
    changes.stop()
    assert changes.join()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_after_a_fork_it_begins_anew() -> None:
    jobs = FollowedRecords()
    jobs.wait(0, 0)
    reading, writing = os.pipe()
    with jobs.changes._changed:  # the fork may come while another thread has the lock
        child = os.fork()
        if not child:
            try:
                cursor = jobs.wait(0, 0)
                jobs.told.release()
                os.write(writing, b"yes" if jobs.wait(cursor, 30) != cursor else b"no")
            finally:
                os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 10) == b"yes"
    os.close(reading)
    os.close(writing)
    jobs.shutdown()


# -- a store for the runs ------------------------------------------------------------------------------------------


class DictJobStore(RecordsJobStore):
    """A store as a package would ship it."""

    def __init__(self, url: str = "", *, runs: Any = None, codec: Any = None, name: str = "mainspring") -> None:
        super().__init__(DictRecords(), runs=runs, codec=codec, name=name)


def test_without_a_store_for_the_runs_they_are_in_memory_and_it_says_so(caplog: pytest.LogCaptureFixture) -> None:
    store = DictJobStore()
    scheduler = BackgroundScheduler(jobstores={"default": store})
    scheduler.start()
    scheduler.shutdown()
    assert isinstance(store.runs, MemoryJobStore)
    said = [record.message for record in caplog.records if "known to this process only" in record.message]
    assert len(said) == 1


@pytest.mark.parametrize("order", [["default", "other"], ["other", "default"]])
def test_without_a_store_for_the_runs_they_are_in_the_default_store(
    tmp_path: Path, order: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    stores = {"default": SQLAlchemyJobStore(f"sqlite:///{tmp_path}/jobs.db"), "other": DictJobStore()}
    done = threading.Event()
    scheduler = BackgroundScheduler(jobstores={alias: stores[alias] for alias in order})
    scheduler.add_listener(lambda event: done.set(), mask=2**12)
    scheduler.start()
    scheduler.add_job(work, jobstore="other", misfire_grace_time=None)
    assert done.wait(30)
    scheduler.shutdown()
    store = stores["other"]
    assert isinstance(store, DictJobStore)
    assert store.runs is stores["default"]
    assert "known to this process only" not in caplog.text


def test_the_runs_are_signed_as_their_store_signs(tmp_path: Path) -> None:
    codec = Codec(Keyring(["k" * 32]))
    store = DictJobStore(runs=SQLAlchemyJobStore(f"sqlite:///{tmp_path}/jobs.db", codec=codec))
    assert store._packer.codec is codec


def test_an_app_names_the_store_of_its_runs_by_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mainspring.jobstores import opening

    monkeypatch.setattr(opening, "_plug_in", lambda scheme: DictJobStore)
    url = f"sqlite:///{tmp_path}/runs.db"
    app = Mainspring("dict://here", name="shop", store_options={"runs": url}, secret_key="k" * 32)
    store = app.store
    assert isinstance(store, DictJobStore)
    assert isinstance(store.runs, SQLAlchemyJobStore)
    assert store.runs._packer.codec is store._packer.codec
    assert store.runs._tablename == "shop_jobs"
    app.close()


@pytest.mark.parametrize("started", [False, True])
def test_a_store_of_the_runs_that_it_opened_is_closed_with_it(tmp_path: Path, started: bool) -> None:
    store = DictJobStore(runs=f"sqlite:///{tmp_path}/runs.db")
    for _ in range(2):
        if started:
            store.start(None, "default")
        assert store.find_runs(RunQuery()) == []
        store.shutdown()
    assert not (tmp_path / "runs.db-wal").exists()  # the last connection removes it


def test_what_is_no_store_cannot_keep_runs() -> None:
    with pytest.raises(ConfigurationError, match="runs= takes a store or its URL, not int"):
        DictJobStore(runs=5)


def test_it_names_its_client_and_cannot_be_pickled() -> None:
    store = DictJobStore()
    store.jobs.client = "<the client>"  # type: ignore[attr-defined]
    assert repr(store) == "<DictJobStore (client=<the client>)>"
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(store)


class HealthyRecords(DictRecords):
    said = Health(durable=True, replicas=1, reasons=("two of three have it",), version="Server 3", warnings=("full",))

    def health(self) -> Health:
        return self.said


def test_the_health_is_that_of_the_weaker_store_with_both_reasons() -> None:
    found = SplitJobStore(HealthyRecords(), MemoryJobStore()).health()
    assert (found.level, found.version, found.warnings) == ("volatile", "Server 3", ("full",))
    assert found.reasons[0] == "jobs: two of three have it"
    assert found.reasons[1].startswith("runs: everything is in the memory")
    both = SplitJobStore(HealthyRecords(), SplitJobStore(HealthyRecords(), MemoryJobStore())).health()
    assert both.level == "volatile"


def test_records_are_plain_bytes_to_their_store() -> None:
    jobs = DictRecords()
    add_job(SplitJobStore(jobs, MemoryJobStore()))
    [record] = jobs.all()
    assert isinstance(msgspec.msgpack.decode(record.data), list)
