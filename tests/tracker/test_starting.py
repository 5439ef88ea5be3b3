"""A job is started, and its end is written."""

from __future__ import annotations

import logging
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine, select, text
from sqlalchemy.engine import Engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from mainspring.tracker import (
    NAIVE_EPOCH,
    JobAlreadySucceededError,
    JobExecutionError,
    JobIgnoredError,
    JobIsNotReadyToStartError,
    JobLockedError,
    JobUpdateError,
    Tracker,
    UnknownJobError,
    Updates,
)
from mainspring.tracker.errors import ColumnError
from tests.tracker.kit import Job, Page, PageStep, Patient, PatientStep, Result, Status, Step, add, row, start_as_peer


def test_a_job_that_succeeds_is_marked_so_with_its_updates_and_unlocked(engine: Engine) -> None:
    add(engine, "a", data={"version": 1})
    with Step.start(engine, "a") as (job, updates):
        held = row(engine, "a")
        assert (held.status, held.lock) == (Status.IN_PROGRESS, job.lock)
        assert job.data == {"version": 1}
        updates.set("data", {"version": 2})
        updates.set(key="size", value=3)
    after = row(engine, "a")
    assert (after.status, after.lock, after.retry, after.data, after.size) == (40, None, 0, {"version": 2}, 3)


def test_the_eleven_arguments_of_sqlalchemy_mate_do_the_same(engine: Engine) -> None:
    add(engine, "a")
    with start_as_peer(engine, "a") as (job, updates):
        assert job.is_locked(expire=900)
        updates.set("data", [1, 2])
    assert (row(engine, "a").status, row(engine, "a").data) == (40, [1, 2])


def set_and_fail(updates: Updates) -> None:
    updates.set("data", 2)
    _ = 1 / 0


def test_a_job_that_fails_is_counted_and_ignored_once_it_failed_too_often(engine: Engine) -> None:
    add(engine, "a", data=1)
    for retry, status in ((1, 30), (2, 30), (3, 50)):
        with pytest.raises(ZeroDivisionError), Step.start(engine, "a") as (_, updates):
            set_and_fail(updates)
        after = row(engine, "a")
        assert (after.status, after.retry, after.lock, after.data) == (status, retry, None, 1)
        assert after.errors["error"] == "ZeroDivisionError('division by zero')"
        assert after.errors["attempt"] == retry
    with pytest.raises(JobIgnoredError, match=r"Job 'a' is ignored: .* set its status to 10"), Step.start(engine, "a"):
        pass


def test_a_success_after_failures_begins_to_count_anew(engine: Engine) -> None:
    add(engine, "a")
    with Step.start(engine, "a", skip_error=True):
        raise OSError("disk")
    assert row(engine, "a").retry == 1
    with Step.start(engine, "a") as (job, _):
        assert job.retry == 1
    assert (row(engine, "a").status, row(engine, "a").retry) == (40, 0)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (Status.SUCCEEDED, JobAlreadySucceededError),
        (Status.IGNORED, JobIgnoredError),
        (Status.IN_PROGRESS, JobIsNotReadyToStartError),
        (7, JobIsNotReadyToStartError),
    ],
)
def test_a_status_from_which_the_step_does_not_start_is_refused_and_left_alone(
    engine: Engine, status: int, error: type[Exception]
) -> None:
    add(engine, "a", status=status)
    with pytest.raises(error) as refused, Step.start(engine, "a"):
        pass
    assert type(refused.value) is error
    assert (row(engine, "a").status, row(engine, "a").lock, row(engine, "a").lock_at) == (status, None, NAIVE_EPOCH)


def test_the_refusal_of_a_foreign_status_names_those_that_would_do(sqlite: Engine) -> None:
    add(sqlite, "a", status=7)
    with pytest.raises(JobIsNotReadyToStartError, match="Job 'a' has the status 7; Step starts from 10, 30"):
        Step.start(sqlite, "a").__enter__()


@pytest.mark.parametrize("more", [5, [5], (5, 6), {5, 6}])
def test_more_statuses_may_stand_for_pending(engine: Engine, more: Any) -> None:
    add(engine, "a", status=5)
    with start_as_peer(engine, "a", more_pending_status=more):
        pass
    assert row(engine, "a").status == 40


def test_an_unknown_id_is_a_value_error_that_names_it(engine: Engine) -> None:
    with pytest.raises(ValueError, match="there is no Job 'nobody'") as refused, Step.start(engine, "nobody"):
        pass
    assert isinstance(refused.value, UnknownJobError)
    assert refused.value.job_id == "nobody"


def test_times_are_utc_and_the_databases(engine: Engine) -> None:
    before = datetime.now(UTC).replace(tzinfo=None) - timedelta(minutes=5)
    Job.create_and_save(engine, "a", Status.PENDING)
    with Step.start(engine, "a"):
        pass
    after = row(engine, "a")
    assert before < after.create_at <= after.lock_at <= after.update_at < before + timedelta(minutes=10)


def test_a_saved_job_is_returned_with_its_values(engine: Engine) -> None:
    job = Job.create_and_save(engine, "a", Status.PENDING, data={"x": 1}, size=4)
    assert (job.id, job.status, job.lock, job.lock_at, job.retry) == ("a", 10, None, NAIVE_EPOCH, 0)
    assert (job.data, job.errors, job.size) == ({"x": 1}, {}, 4)
    assert isinstance(job.create_at, datetime)


def test_a_created_job_is_not_saved_before_its_session_is(engine: Engine) -> None:
    with Session(engine) as session:
        session.add_all(Job.create(f"j{n}", Status.PENDING) for n in range(3))
        session.add(Job(id="plain", status=10))
        assert row(engine, "j0") is None
        session.commit()
    assert [job.id for job in Job.query_by_status(engine, 10)] == ["j0", "j1", "j2", "plain"]
    assert (row(engine, "plain").retry, row(engine, "plain").errors, row(engine, "plain").lock_at) == (
        0,
        {},
        NAIVE_EPOCH,
    )


def test_jobs_are_found_by_status_least_recently_updated_first_or_last(engine: Engine) -> None:
    days = {"j0": (1, 9), "j1": (4, 5), "j2": (3, 6), "j3": (2, 7)}
    for name, (created, updated) in days.items():
        times = {"create_at": datetime(2026, 1, created), "update_at": datetime(2026, 1, updated)}
        add(engine, name, status=30 if name == "j0" else 10, **times)
    assert [job.id for job in Job.query_by_status(engine, 10)] == ["j1", "j2", "j3"]
    assert [job.id for job in Job.query_by_status(engine, Status.PENDING, limit=2)] == ["j1", "j2"]
    assert [job.id for job in Job.query_by_status(engine, [10, 30], older_task_first=False)] == ["j0", "j3", "j2", "j1"]
    with Session(engine) as session:
        assert [job.id for job in Job.query_by_status(session, 30)] == ["j0"]


def test_a_compound_key_is_a_tuple_or_a_mapping_or_comes_in_parts(engine: Engine) -> None:
    Page.create_and_save(engine, ("moby", 1), 10)
    Page.create_and_save(engine, {"id": 2, "book": "moby"}, 10)
    Page.create_and_save(engine, 3, 10, book="moby")
    with PageStep.start(engine, ("moby", 1)) as (job, _):
        assert (job.book, job.id) == ("moby", 1)
    with PageStep.start(engine, {"id": 2, "book": "moby"}):
        pass
    assert [(page.book, page.id) for page in Page.query_by_status(engine, 40)] == [("moby", 1), ("moby", 2)]
    work = PageStep.start_next(engine)
    assert work is not None
    with work as (job, _):
        assert (job.book, job.id) == ("moby", 3)
    with pytest.raises(ValueError, match=r"there is no Page \('moby', 9\)"), PageStep.start(engine, ("moby", 9)):
        pass


def test_an_integer_key_is_an_integer(engine: Engine) -> None:
    Patient.create_and_save(engine, 7, 10)
    with PatientStep.start(engine, 7) as (job, _):
        assert job.id == 7
    with pytest.raises(TypeError, match=r"Patient\.id is of type int, which 'x' is not"):
        PatientStep.start(engine, "x")


def test_steps_of_a_pipeline_hand_a_job_on_by_their_statuses(engine: Engine) -> None:
    class Later(Tracker[Job]):
        pending = Status.SUCCEEDED
        in_progress = 41
        failed = 42
        succeeded = 43
        ignored = 44

    add(engine, "a")
    with pytest.raises(JobIsNotReadyToStartError), Later.start(engine, "a"):
        pass
    with Step.start(engine, "a", skip_error=True):
        raise OSError
    with Step.start(engine, "a"):
        pass
    with Later.start(engine, "a", skip_error=True) as (job, _):
        assert (job.status, job.retry) == (41, 0)
        raise OSError
    assert (row(engine, "a").status, row(engine, "a").retry) == (42, 1)
    with pytest.raises(JobIsNotReadyToStartError), Step.start(engine, "a"):
        pass
    with Later.start(engine, "a"):
        pass
    assert row(engine, "a").status == 43


def test_blocks_may_be_nested(engine: Engine) -> None:
    add(engine, "a", "b")
    with Step.start(engine, "a"), Step.start(engine, "b", skip_error=True):
        raise OSError
    assert [row(engine, id_).status for id_ in "ab"] == [40, 30]


def test_what_is_written_in_a_given_session_is_committed_with_the_status(engine: Engine) -> None:
    add(engine, "a")
    with Session(engine) as session, Step.start(session, "a") as (job, _):
        session.add(Result(id=1, job_id=job.id))
    with Session(engine) as session:
        assert session.scalars(select(Result.id)).all() == [1]
    assert row(engine, "a").status == 40


def test_what_is_written_in_a_given_session_is_undone_when_the_body_fails(engine: Engine) -> None:
    add(engine, "a")
    with Session(engine) as session, Step.start(session, "a", skip_error=True) as (job, _):
        session.add(Result(id=1, job_id=job.id))
        session.flush()
        raise OSError
    with Session(engine) as session:
        assert session.scalars(select(Result.id)).all() == []
    assert row(engine, "a").status == 30


def test_what_the_database_refuses_at_the_end_fails_the_job(engine: Engine) -> None:
    add(engine, "a")
    with Session(engine) as session, pytest.raises(Exception, match=r"(?i)null"), Step.start(session, "a"):
        session.add(Result(id=1))
    assert (row(engine, "a").status, row(engine, "a").lock) == (30, None)


def test_a_scoped_session_will_do(sqlite: Engine) -> None:
    sessions = scoped_session(sessionmaker(sqlite))
    Job.create_and_save(sessions, "a", 10)
    with Step.start(sessions, "a"):
        pass
    assert [job.id for job in Job.query_by_status(sessions, 40)] == ["a"]
    sessions.remove()


def test_a_session_bound_to_a_transaction_of_a_test_leaves_nothing(postgresql: Engine) -> None:
    with postgresql.connect() as connection, connection.begin() as outer:
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            Job.create_and_save(session, "a", 10)
            with Step.start(session, "a"):
                pass
            assert [job.status for job in Job.query_by_status(session, 40)] == [40]
        outer.rollback()
    assert row(postgresql, "a") is None


def test_an_object_that_the_session_has_already_stays_in_it(sqlite: Engine) -> None:
    add(sqlite, "a")
    with Session(sqlite) as session:
        mine = session.get_one(Job, "a")
        with Step.start(session, "a") as (job, _):
            assert job is not mine
        assert mine in session
        assert mine.status == 40


def test_changes_made_to_the_job_itself_are_not_saved(sqlite: Engine) -> None:
    add(sqlite, "a")
    with Step.start(sqlite, "a") as (job, _):
        job.size = 9
        job.status = 99
    assert (row(sqlite, "a").size, row(sqlite, "a").status) == (None, 40)


def test_an_update_may_be_an_expression(engine: Engine) -> None:
    add(engine, "a", size=1)
    with Step.start(engine, "a") as (_, updates):
        updates.set("size", Job.size + 1)
    assert row(engine, "a").size == 2


def test_no_connection_is_held_while_the_body_runs(engine: Engine) -> None:
    add(engine, "a")
    with Step.start(engine, "a"):
        assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("column", ["id", "status", "create_at", "update_at", "lock", "lock_at", "retry"])
def test_the_trackers_own_columns_cannot_be_set(column: str) -> None:
    with pytest.raises(KeyError, match=f"column '{column}' cannot be set"):
        Updates().set(column, 1)


def test_a_misspelt_column_names_the_near_one(sqlite: Engine) -> None:
    add(sqlite, "a")
    with Step.start(sqlite, "a") as (_, updates):
        with pytest.raises(ColumnError, match=r"the job has no column 'dta'; did you mean 'data'\?"):
            updates.set("dta", 1)
        with pytest.raises(KeyError, match="cannot be set"):
            updates.set("status", 1)
        with pytest.raises(TypeError, match="named by a text"):
            updates.set(3, 1)  # type: ignore[arg-type]
    assert row(sqlite, "a").status == 40


def test_every_part_of_a_compound_key_is_the_trackers(sqlite: Engine) -> None:
    Page.create_and_save(sqlite, ("moby", 1), 10)
    with PageStep.start(sqlite, ("moby", 1)) as (_, updates), pytest.raises(KeyError, match="part of the primary key"):
        updates.set("book", "dick")


def test_a_column_slipped_past_set_fails_the_job(sqlite: Engine) -> None:
    add(sqlite, "a")
    with pytest.raises(ColumnError, match="'status' cannot be set"), Step.start(sqlite, "a") as (_, updates):
        updates.values["status"] = 99
    assert (row(sqlite, "a").status, row(sqlite, "a").lock) == (30, None)


def test_a_job_can_be_updated_apart_from_a_start(engine: Engine) -> None:
    add(engine, "a")
    row(engine, "a").update(engine, Updates({"data": {"x": 1}}))
    assert row(engine, "a").data == {"x": 1}
    with pytest.raises(KeyError, match="'lock' cannot be set"):
        row(engine, "a").update(engine, Updates({"lock": None}))
    with pytest.raises(ValueError, match="there is no Job 'b'"):
        Job.create("b", 10).update(engine, Updates({"data": 1}))


def test_debug_prints_each_step_without_any_logging_set_up(
    sqlite: Engine, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    add(sqlite, "a", "b", "c")
    with start_as_peer(sqlite, "b"):
        pass
    assert capsys.readouterr().out == ""
    with start_as_peer(sqlite, "a", debug=True) as (job, _):
        job.heartbeat()
    assert capsys.readouterr().out.splitlines() == [
        "Job 'a': locked, set status = 20, attempt 1",
        "Job 'a': lock renewed",
        "Job 'a': succeeded, set status = 40 and unlocked",
    ]
    assert caplog.messages == []
    with caplog.at_level(logging.DEBUG, logger="mainspring.tracker"), start_as_peer(sqlite, "c"):
        pass
    assert caplog.messages[0] == "Job 'c': locked, set status = 20, attempt 1"
    assert capsys.readouterr().out == ""


def test_a_job_in_its_block_can_be_pickled(sqlite: Engine) -> None:
    add(sqlite, "a", data={"x": 1})
    with Step.start(sqlite, "a") as (job, _):
        assert pickle.loads(pickle.dumps(job)).data == {"x": 1}


def test_errors_are_one_tree_and_survive_pickling() -> None:
    assert issubclass(JobLockedError, JobExecutionError)
    assert issubclass(JobAlreadySucceededError, JobIsNotReadyToStartError)
    assert issubclass(JobIgnoredError, JobIsNotReadyToStartError)
    assert issubclass(JobIsNotReadyToStartError, JobExecutionError)
    assert not issubclass(UnknownJobError, JobExecutionError)
    for kind in (JobLockedError, JobIgnoredError, JobUpdateError, UnknownJobError):
        copy = pickle.loads(pickle.dumps(kind("no", ("moby", 1))))
        assert (type(copy), str(copy), copy.job_id) == (kind, "no", ("moby", 1))


def test_rows_of_other_statuses_are_left_alone(engine: Engine) -> None:
    add(engine, "mine")
    add(engine, "other", status=99)
    with engine.begin() as connection:
        before = connection.execute(text("SELECT * FROM tracker_job WHERE id = 'other'")).all()
    work = Step.start_next(engine)
    assert work is not None
    with work as (job, _):
        assert job.id == "mine"
    assert Step.start_next(engine) is None
    with engine.begin() as connection:
        assert connection.execute(text("SELECT * FROM tracker_job WHERE id = 'other'")).all() == before


def test_a_taken_id_is_an_integrity_error_with_pg8000_too(postgresql: Engine) -> None:
    """Its errors carry a dict where those of other drivers carry a code."""
    engine = create_engine(postgresql.url.set(drivername="postgresql+pg8000"))
    Job.create_and_save(engine, "a", Status.PENDING)
    with pytest.raises(IntegrityError):
        Job.create_and_save(engine, "a", Status.PENDING)
    engine.dispose()
