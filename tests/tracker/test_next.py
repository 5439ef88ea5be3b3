"""The oldest startable job is taken, by one; failed ones wait for their time."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest
from sqlalchemy import event, update
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from mainspring.tracker import Backoff, JobIsNotReadyToStartError, Tracker
from tests.tracker.kit import FAR_AHEAD, LONG_AGO, Job, Patient, PatientStep, Status, Step, add, change, expire, row


def take(engine: Engine, step: type[Tracker[Job]] = Step) -> str | None:
    """Run the next job, and tell its id."""
    work = step.start_next(engine)
    if work is None:
        return None
    with work as (job, _):
        id_ = str(job.id)
    return id_


def test_jobs_are_taken_oldest_first_whatever_startable_status_they_have(engine: Engine) -> None:
    class Wide(Tracker[Job]):
        pending = Status.PENDING
        more_pending = (5, 6)
        in_progress = Status.IN_PROGRESS
        failed = Status.FAILED
        succeeded = Status.SUCCEEDED
        ignored = Status.IGNORED

    wanted = [("d", 10), ("b", 30), ("a", 6), ("c", 5), ("e", 10)]
    for day, (id_, status) in enumerate(wanted):
        add(engine, id_, status=status, create_at=datetime(2026, 1, 1 + day))
    add(engine, "done", status=40, create_at=LONG_AGO)
    add(engine, "foreign", status=7, create_at=LONG_AGO)
    assert [take(engine, Wide) for _ in range(6)] == ["d", "b", "a", "c", "e", None]


def test_of_equal_age_the_smaller_id_is_first(engine: Engine) -> None:
    add(engine, "b", "a", "c", create_at=LONG_AGO)
    assert [take(engine) for _ in range(4)] == ["a", "b", "c", None]


def test_a_job_being_worked_on_is_passed_over(engine: Engine) -> None:
    add(engine, "a", create_at=LONG_AGO)
    add(engine, "b")
    with Step.start(engine, "a"):
        assert take(engine) == "b"
        assert take(engine) is None


def test_a_job_whose_holder_died_is_taken_over(engine: Engine) -> None:
    add(engine, "a")
    Step.start(engine, "a").__enter__()
    assert take(engine) is None
    expire(engine, "a")
    work = Step.start_next(engine)
    assert work is not None
    with work as (job, _):
        assert (job.id, job.retry) == ("a", 1)
    assert row(engine, "a").status == 40


def test_a_job_that_killed_its_last_holder_is_ignored_and_the_next_taken(engine: Engine) -> None:
    add(engine, "poison", status=20, retry=2, lock="x" * 32, lock_at=LONG_AGO, create_at=LONG_AGO)
    add(engine, "good")
    assert take(engine) == "good"
    after = row(engine, "poison")
    assert (after.status, after.retry, after.lock, after.errors["type"]) == (50, 3, None, "LockExpired")


def test_a_job_taken_and_never_entered_is_free_again_once_it_expired(engine: Engine) -> None:
    add(engine, "a")
    assert Step.start_next(engine) is not None
    assert row(engine, "a").status == 20
    expire(engine, "a")
    assert take(engine) == "a"


def test_the_oldest_is_taken_by_one_statement(postgresql: Engine) -> None:
    add(postgresql, "a")
    said: list[str] = []
    event.listen(postgresql, "before_cursor_execute", lambda *args: said.append(args[2]))
    with Session(postgresql) as session:
        work = Step.start_next(session)
    assert work is not None
    assert said[0].startswith("UPDATE tracker_job SET")
    assert "FOR UPDATE SKIP LOCKED" in said[0]
    assert [text.split()[0] for text in said] == ["UPDATE", "SELECT"]


def test_a_row_that_somebody_is_changing_does_not_hold_up_the_others(postgresql: Engine) -> None:
    add(postgresql, "busy", create_at=LONG_AGO)
    add(postgresql, "free")
    with postgresql.begin() as connection:
        connection.execute(update(Job).where(Job.id == "busy").values(size=1))
        assert take(postgresql) == "free"
    assert take(postgresql) == "busy"


def test_a_given_session_takes_the_next_as_well(engine: Engine) -> None:
    add(engine, "a")
    with Session(engine) as session:
        work = Step.start_next(session)
        assert work is not None
        with work as (job, _):
            assert job.id == "a"
        assert Step.start_next(session) is None
    assert row(engine, "a").status == 40


def test_threads_drain_a_table_and_each_job_runs_once(engine: Engine) -> None:
    with Session(engine) as session:
        session.add_all(Job.create(f"j{number:03}", 10) for number in range(120))
        session.commit()

    def drain(_: int) -> list[str]:
        return list(iter(lambda: take(engine), None))

    with ThreadPoolExecutor(5) as threads:
        taken = Counter(id_ for mine in threads.map(drain, range(5)) for id_ in mine)
    assert taken == {f"j{number:03}": 1 for number in range(120)}


def test_a_failed_job_waits_before_it_is_tried_again(engine: Engine) -> None:
    add(engine, 1, kind=Patient)
    for wait in (60, 120):
        with PatientStep.start(engine, 1, skip_error=True):
            raise OSError
        failed = row(engine, 1, Patient)
        assert failed.status == 30
        assert (failed.retry_at - failed.update_at).total_seconds() == pytest.approx(wait, abs=5)
        assert PatientStep.start_next(engine) is None
        with (
            pytest.raises(JobIsNotReadyToStartError, match=r"Patient 1 has failed and is tried again after 20\d\d-"),
            PatientStep.start(engine, 1),
        ):
            pass
        change(engine, 1, Patient, retry_at=LONG_AGO)
    work = PatientStep.start_next(engine)
    assert work is not None
    with work:
        pass
    assert (row(engine, 1, Patient).status, row(engine, 1, Patient).retry_at) == (40, None)


def test_a_job_sent_back_to_pending_by_a_person_does_not_wait(engine: Engine) -> None:
    add(engine, 1, kind=Patient, retry_at=FAR_AHEAD)
    with PatientStep.start(engine, 1):
        pass
    assert row(engine, 1, Patient).status == 40


def test_an_ignored_or_interrupted_job_has_no_time_to_wait_for(engine: Engine) -> None:
    add(engine, 1, kind=Patient, retry=2)
    with pytest.raises(KeyboardInterrupt), PatientStep.start(engine, 1):
        raise KeyboardInterrupt
    assert (row(engine, 1, Patient).status, row(engine, 1, Patient).retry_at) == (30, None)
    with PatientStep.start(engine, 1, skip_error=True):
        raise OSError
    assert (row(engine, 1, Patient).status, row(engine, 1, Patient).retry_at) == (50, None)


@pytest.mark.parametrize(
    ("backoff", "least", "most"),
    [(Backoff(first=100, jitter=0.5), 45, 105), (lambda failures: failures * 7.0, 6, 8), ([3, 4], 2, 4)],
)
def test_the_kernels_back_off_policies_are_taken(sqlite: Engine, backoff: object, least: float, most: float) -> None:
    policy = backoff

    class Waiting(PatientStep):
        backoff = policy  # type: ignore[assignment]

    add(sqlite, 1, kind=Patient)
    with Waiting.start(sqlite, 1, skip_error=True):
        raise OSError
    failed = row(sqlite, 1, Patient)
    assert least <= (failed.retry_at - failed.update_at).total_seconds() <= most
