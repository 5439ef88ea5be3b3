"""A lock is held by one, lost after it has expired, and judged by the database's clock."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

import mainspring.tracker.mixin
from mainspring.tracker import JobIgnoredError, JobLockedError, UnknownJobError, Updates
from tests.tracker.kit import FAR_AHEAD, LONG_AGO, Job, Result, Status, Step, add, change, expire, row, start_as_peer


def test_a_locked_job_cannot_be_started_by_another(engine: Engine) -> None:
    add(engine, "a")
    with Step.start(engine, "a") as (_, mine):
        with pytest.raises(JobLockedError, match="Job 'a' is locked by somebody else"), Step.start(engine, "a"):
            pytest.fail("two have the job")
        mine.set("size", 1)
    assert (row(engine, "a").status, row(engine, "a").size) == (40, 1)


def test_skipping_errors_does_not_skip_the_refusal(sqlite: Engine) -> None:
    add(sqlite, "a")
    with Step.start(sqlite, "a"), pytest.raises(JobLockedError), Step.start(sqlite, "a", skip_error=True):
        pass


def test_a_job_whose_holder_died_is_started_again_and_the_attempt_counted(engine: Engine) -> None:
    add(engine, "a")
    dead = Step.start(engine, "a")
    dead.__enter__()
    expire(engine, "a")
    with Step.start(engine, "a") as (job, _):
        assert (job.status, job.retry) == (20, 1)
        assert job.errors["type"] == "LockExpired"
        assert "within 900 s" in job.errors["message"]
    assert (row(engine, "a").status, row(engine, "a").retry, row(engine, "a").lock) == (40, 0, None)


def test_a_lock_is_not_taken_over_before_it_expires(engine: Engine) -> None:
    add(engine, "a")
    Step.start(engine, "a").__enter__()
    with pytest.raises(JobLockedError), start_as_peer(engine, "a", expire=timedelta(minutes=15)):
        pass
    with start_as_peer(engine, "a", expire=0) as (job, _):
        assert job.retry == 1


def test_a_job_that_kills_every_holder_is_ignored_in_the_end(engine: Engine) -> None:
    add(engine, "a")
    for retry in range(3):
        job, _ = Step.start(engine, "a").__enter__()
        assert job.retry == retry
        expire(engine, "a")
    with pytest.raises(JobIgnoredError), Step.start(engine, "a"):
        pytest.fail("started a fourth time")
    after = row(engine, "a")
    assert (after.status, after.retry, after.lock) == (Status.IGNORED, 3, None)
    assert after.errors["type"] == "LockExpired"


def test_a_failure_after_a_takeover_counts_on(engine: Engine) -> None:
    add(engine, "a")
    Step.start(engine, "a").__enter__()
    expire(engine, "a")
    with Step.start(engine, "a", skip_error=True):
        raise OSError
    assert (row(engine, "a").status, row(engine, "a").retry) == (30, 2)


def test_a_pending_job_with_a_forgotten_lock_is_startable_once_that_expired(engine: Engine) -> None:
    add(engine, "a")
    Step.start(engine, "a").__enter__()
    change(engine, "a", status=10)
    with pytest.raises(JobLockedError), Step.start(engine, "a"):
        pass
    expire(engine, "a")
    with Step.start(engine, "a"):
        pass
    assert row(engine, "a").status == 40


@pytest.mark.parametrize("fails", [False, True])
def test_who_lost_the_lock_writes_nothing(engine: Engine, fails: bool) -> None:
    add(engine, "a", data="first")
    slow = Step.start(engine, "a", skip_error=True)
    _, updates = slow.__enter__()
    updates.set("data", "slow")
    expire(engine, "a")
    with Step.start(engine, "a") as (_, mine):
        mine.set("data", "quick")
    before = row(engine, "a")
    error = OSError("late") if fails else None
    with pytest.raises(JobLockedError, match="the lock of Job 'a' is lost") as lost:
        slow.__exit__(type(error) if error else None, error, None)
    assert lost.value.__cause__ is error
    after = row(engine, "a")
    assert (after.status, after.data, after.update_at, after.errors) == (40, "quick", before.update_at, before.errors)


def test_who_lost_the_lock_does_not_take_it_from_the_next_holder(engine: Engine) -> None:
    add(engine, "a")
    slow = Step.start(engine, "a")
    slow.__enter__()
    expire(engine, "a")
    with Step.start(engine, "a") as (job, _):
        with pytest.raises(JobLockedError):
            slow.__exit__(None, None, None)
        assert row(engine, "a").lock == job.lock
    assert row(engine, "a").status == 40


def test_what_the_loser_wrote_in_its_session_is_undone(engine: Engine) -> None:
    add(engine, "a")
    with Session(engine) as session:
        work = Step.start(session, "a")
        work.__enter__()
        change(engine, "a", lock="somebody else's")
        session.add(Result(id=1, job_id="a"))
        with pytest.raises(JobLockedError):
            work.__exit__(None, None, None)
    with Session(engine) as session:
        assert session.get(Result, 1) is None


def test_a_lock_past_its_time_that_nobody_took_still_ends_the_job(engine: Engine) -> None:
    add(engine, "a")
    with Step.start(engine, "a"):
        expire(engine, "a")
    assert row(engine, "a").status == 40


def test_a_job_deleted_meanwhile_is_a_lost_lock(engine: Engine) -> None:
    add(engine, "a")
    with pytest.raises(JobLockedError), Step.start(engine, "a"), engine.begin() as connection:
        connection.execute(Job.__table__.delete())  # type: ignore[attr-defined]


def test_a_heartbeat_keeps_the_lock_alive(engine: Engine) -> None:
    add(engine, "a")
    with Step.start(engine, "a") as (job, _):
        expire(engine, "a")
        job.heartbeat()
        assert row(engine, "a").lock_at > datetime.now(UTC).replace(tzinfo=None) - timedelta(minutes=5)
        with pytest.raises(JobLockedError), Step.start(engine, "a"):
            pass
    assert row(engine, "a").status == 40


def test_a_heartbeat_tells_that_the_lock_is_lost(engine: Engine) -> None:
    add(engine, "a")
    slow = Step.start(engine, "a")
    job, _ = slow.__enter__()
    expire(engine, "a")
    with Step.start(engine, "a"):
        with pytest.raises(JobLockedError):
            job.heartbeat()
        assert row(engine, "a").lock_at > LONG_AGO


def test_a_heartbeat_does_not_commit_what_the_given_session_is_in_the_middle_of(postgresql: Engine) -> None:
    add(postgresql, "a")
    with Session(postgresql) as session, Step.start(session, "a") as (job, _):
        session.add(Result(id=1, job_id="a"))
        session.flush()
        job.heartbeat()
        with Session(postgresql) as other:
            assert other.get(Result, 1) is None


def test_a_heartbeat_may_come_from_another_thread(engine: Engine) -> None:
    add(engine, "a")
    with Step.start(engine, "a") as (job, _):
        expire(engine, "a")
        thread = threading.Thread(target=job.heartbeat)
        thread.start()
        thread.join()
        assert row(engine, "a").lock_at > LONG_AGO


def test_a_job_that_was_not_started_here_has_no_heartbeat(sqlite: Engine) -> None:
    add(sqlite, "a")
    with pytest.raises(RuntimeError, match="Job was not started in this process"):
        row(sqlite, "a").heartbeat()


def test_a_wrong_clock_of_this_machine_decides_nothing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return FAR_AHEAD.replace(tzinfo=UTC)

    add(engine, "a")
    monkeypatch.setattr(mainspring.tracker.mixin, "datetime", Wrong)
    with Step.start(engine, "a") as (job, _):
        assert not row(engine, "a").is_locked(900)  # the estimate is fooled
        with pytest.raises(JobLockedError), Step.start(engine, "a"):
            pass
        assert job.lock_at < FAR_AHEAD
    assert row(engine, "a").update_at < FAR_AHEAD


def test_is_locked_estimates_from_the_time_of_the_lock(sqlite: Engine) -> None:
    add(sqlite, "a")
    assert not row(sqlite, "a").is_locked(900)
    row(sqlite, "a").lock_it(sqlite, 20)
    assert row(sqlite, "a").is_locked(expire=900)
    assert row(sqlite, "a").is_locked(timedelta(minutes=15))
    expire(sqlite, "a")
    assert not row(sqlite, "a").is_locked(900)


def test_lock_it_takes_a_free_lock_and_tells_it(engine: Engine) -> None:
    add(engine, "a")
    job = row(engine, "a")
    lock, lock_at = job.lock_it(engine_or_session=engine, in_progress_status=Status.IN_PROGRESS, debug=True)
    held = row(engine, "a")
    assert (held.status, held.lock, held.lock_at) == (20, lock, lock_at) == (job.status, job.lock, job.lock_at)
    with pytest.raises(JobLockedError, match="Job 'a' is locked"):
        row(engine, "a").lock_it(engine, 20)
    assert row(engine, "a").lock == lock


def test_lock_it_takes_over_an_expired_lock_if_asked_to(engine: Engine) -> None:
    add(engine, "a")
    first, _ = row(engine, "a").lock_it(engine, 20)
    with pytest.raises(JobLockedError):
        row(engine, "a").lock_it(engine, 20, expire=900)
    expire(engine, "a")
    with pytest.raises(JobLockedError):
        row(engine, "a").lock_it(engine, 20)
    with Session(engine) as session:
        second, _ = row(engine, "a").lock_it(session, 20, expire=900)
    assert row(engine, "a").lock == second != first


def test_lock_it_on_a_job_that_is_not_there_says_so(sqlite: Engine) -> None:
    with pytest.raises(UnknownJobError, match="there is no Job 'a'"):
        Job.create("a", 10).lock_it(sqlite, 20)


def test_an_update_under_a_lock_that_is_lost_is_refused(sqlite: Engine) -> None:
    add(sqlite, "a")
    job = row(sqlite, "a")
    job.lock_it(sqlite, 20)
    job.update(sqlite, Updates({"size": 1}))
    change(sqlite, "a", lock="another's")
    with pytest.raises(JobLockedError, match="nothing was written"):
        job.update(sqlite, Updates({"size": 2}))
    assert row(sqlite, "a").size == 1


@pytest.mark.parametrize("dead", [False, True])
def test_of_many_who_start_a_job_at_once_exactly_one_has_it(engine: Engine, dead: bool) -> None:
    add(engine, "a")
    if dead:
        Step.start(engine, "a").__enter__()
        expire(engine, "a")
    together = threading.Barrier(8)
    done = threading.Barrier(8)

    def work(number: int) -> bool:
        together.wait()
        try:
            with Step.start(engine, "a") as (_, updates):
                done.wait()
                updates.set("size", number)
        except JobLockedError:
            done.wait()
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        won = list(threads.map(work, range(8)))
    assert won.count(True) == 1
    assert (row(engine, "a").status, row(engine, "a").size) == (40, won.index(True))
