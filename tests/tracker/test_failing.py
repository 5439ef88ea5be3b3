"""Whatever a body raises or leaves behind, the job is marked, its lock is free, and the error is told."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError

from mainspring.errors import Cancel, Retry
from mainspring.tracker import JobUpdateError
from tests.executors.hostile import Frozen
from tests.tracker.kit import Job, Patient, PatientStep, Step, add, change, row, start_as_peer


class Oops(Exception):
    pass


class Nameless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


@pytest.mark.parametrize("error", [Oops("no"), SystemExit(3), ExceptionGroup("two", [Oops(), OSError()]), Nameless()])
def test_what_a_body_raises_fails_the_job_and_goes_on(engine: Engine, error: BaseException) -> None:
    add(engine, "a")
    with pytest.raises(type(error)) as raised, Step.start(engine, "a"):
        raise error
    assert raised.value is error
    after = row(engine, "a")
    assert (after.status, after.retry, after.lock) == (30, 1, None)
    assert type(error).__name__ in after.errors["error"]
    assert type(error).__name__ in after.errors["type"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("skip_error", [False, True])
def test_an_interruption_frees_the_job_without_a_charge_and_is_never_swallowed(
    engine: Engine, kind: type[BaseException], skip_error: bool
) -> None:
    add(engine, "a")
    with pytest.raises(kind), Step.start(engine, "a", skip_error=skip_error):
        raise kind
    after = row(engine, "a")
    assert (after.status, after.retry, after.lock, after.errors["type"]) == (30, 0, None, kind.__name__)
    with Step.start(engine, "a"):
        pass


def test_an_interruption_at_the_last_attempt_does_not_give_the_job_up(sqlite: Engine) -> None:
    add(sqlite, "a", retry=2)
    with pytest.raises(KeyboardInterrupt), Step.start(sqlite, "a"):
        raise KeyboardInterrupt
    assert (row(sqlite, "a").status, row(sqlite, "a").retry) == (30, 2)


def test_an_interruption_is_not_hidden_by_a_lost_lock(sqlite: Engine) -> None:
    add(sqlite, "a")

    def body() -> None:
        change(sqlite, "a", lock="another's")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Step.start(sqlite, "a"):
        body()
    assert (row(sqlite, "a").status, row(sqlite, "a").lock) == (20, "another's")


def test_a_body_closed_from_outside_frees_its_job(sqlite: Engine) -> None:
    def steps() -> Iterator[None]:
        with Step.start(sqlite, "a"):
            yield

    add(sqlite, "a")
    body = steps()
    next(body)
    body.close()  # type: ignore[attr-defined]
    assert (row(sqlite, "a").status, row(sqlite, "a").lock) == (30, None)


def test_an_error_is_skipped_if_asked_and_told_to_the_log(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    add(engine, "a")
    with start_as_peer(engine, "a", skip_error=True):
        raise Oops("no")
    assert row(engine, "a").status == 30
    assert caplog.messages == ["Job 'a' failed, which is skipped: Oops"]


def test_system_exit_is_not_skipped(sqlite: Engine) -> None:
    add(sqlite, "a")
    with pytest.raises(SystemExit), Step.start(sqlite, "a", skip_error=True):
        raise SystemExit


def test_what_cannot_be_json_is_a_clear_error_and_the_job_failed_and_free(engine: Engine) -> None:
    add(engine, "a", data="old")
    with (
        pytest.raises(
            JobUpdateError, match=r"the updates of Job 'a' cannot be stored \(data, size\): .*set is not JSON"
        ),
        Step.start(engine, "a", skip_error=True) as (_, updates),
    ):
        updates.values.update(data={1, 2}, size=1)
    after = row(engine, "a")
    assert (after.status, after.retry, after.lock, after.data, after.size) == (30, 1, None, "old", None)
    assert "JobUpdateError" in after.errors["type"]
    with Step.start(engine, "a") as (_, updates):
        updates.set("data", [1, 2])
    assert row(engine, "a").data == [1, 2]


def test_what_is_too_long_for_its_column_is_a_clear_error(postgresql: Engine) -> None:
    add(postgresql, "a")
    with pytest.raises(JobUpdateError, match=r"\(name\): .*too long"), Step.start(postgresql, "a") as (_, updates):
        updates.set("name", "x" * 21)
    assert (row(postgresql, "a").status, row(postgresql, "a").lock) == (30, None)


def test_a_value_that_the_driver_cannot_send_is_a_clear_error(engine: Engine) -> None:
    add(engine, "a")
    with pytest.raises(JobUpdateError, match=r"\(size\)"), Step.start(engine, "a") as (_, updates):
        updates.set("size", object())
    assert (row(engine, "a").status, row(engine, "a").lock) == (30, None)


def test_a_job_whose_data_is_no_json_is_not_created(engine: Engine) -> None:
    with pytest.raises(ValueError, match="Job 'a' cannot be stored: Object of type set is not JSON serializable"):
        Job.create_and_save(engine, "a", 10, data={1, 2})
    assert row(engine, "a") is None


@pytest.mark.parametrize("error", [Oops(), Frozen(7)])
def test_a_database_that_is_gone_at_the_end_hides_no_error(
    sqlite: Engine, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    add(sqlite, "a")

    def gone(*_: Any) -> None:
        raise OperationalError("UPDATE", {}, Exception("the server has gone away"))

    def body() -> None:
        event.listen(sqlite, "before_cursor_execute", gone)
        raise error

    with pytest.raises(type(error)) as raised, Step.start(sqlite, "a", skip_error=True):
        body()
    event.remove(sqlite, "before_cursor_execute", gone)
    assert "could not be marked failed: OperationalError" in raised.value.__notes__[0]
    assert "its lock has to expire" in caplog.text
    assert row(sqlite, "a").status == 20


def test_a_failed_write_of_success_is_raised_and_the_job_failed(sqlite: Engine) -> None:
    add(sqlite, "a")
    seen: list[int] = []

    def once(*_: Any) -> None:
        if not seen:
            seen.append(1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Step.start(sqlite, "a"):
        event.listen(sqlite, "before_cursor_execute", once)
    assert (row(sqlite, "a").status, row(sqlite, "a").lock) == (30, None)


def test_a_step_that_collided_with_another_is_repeated(sqlite: Engine) -> None:
    class Deadlock(Exception):
        sqlstate = "40P01"

    add(sqlite, "a")
    collisions = [3, 3]

    def collide(*_: Any) -> None:
        if collisions[-1]:
            collisions[-1] -= 1
            raise OperationalError("UPDATE", {}, Deadlock())

    event.listen(sqlite, "before_cursor_execute", collide)
    with Step.start(sqlite, "a"):
        assert collisions.pop() == 0
    assert collisions == [0]
    event.remove(sqlite, "before_cursor_execute", collide)
    assert (row(sqlite, "a").status, row(sqlite, "a").retry) == (40, 0)


def test_cancel_gives_a_job_up_at_once(engine: Engine) -> None:
    add(engine, "a")
    with pytest.raises(Cancel), Step.start(engine, "a"):
        raise Cancel("not a picture")
    assert (row(engine, "a").status, row(engine, "a").retry) == (50, 1)


def test_what_a_step_gives_up_on_is_ignored_at_once(sqlite: Engine) -> None:
    class Strict(Step):
        give_up_on = (ValueError,)

    class Lenient(Step):
        retry_on = (OSError,)

    for step, error, status in (
        (Strict, ValueError, 50),
        (Strict, OSError, 30),
        (Lenient, OSError, 30),
        (Lenient, Oops, 50),
    ):
        id_ = f"{step.__name__}-{error.__name__}"
        add(sqlite, id_)
        with pytest.raises(error), step.start(sqlite, id_):
            raise error
        assert row(sqlite, id_).status == status


def test_no_attempts_at_all_means_ignored_after_the_first(sqlite: Engine) -> None:
    for max_retry in (0, 1):
        add(sqlite, f"{max_retry}")
        with start_as_peer(sqlite, f"{max_retry}", max_retry=max_retry, skip_error=True):
            raise Oops
        assert (row(sqlite, f"{max_retry}").status, row(sqlite, f"{max_retry}").retry) == (50, 1)


def test_a_retry_asked_for_by_the_body_waits_as_long_as_it_says(sqlite: Engine) -> None:
    add(sqlite, 1, kind=Patient)
    with PatientStep.start(sqlite, 1, skip_error=True):
        raise Retry(3600)
    after = row(sqlite, 1, Patient)
    assert 3590 < (after.retry_at - after.update_at).total_seconds() < 3610


def test_an_engine_is_not_made_of_a_url() -> None:
    with pytest.raises(TypeError, match=r"not 'sqlite://'; make one with sqlalchemy\.create_engine"):
        Step.start("sqlite://", "a")  # type: ignore[arg-type]


def test_a_database_whose_clock_is_unknown_is_named() -> None:
    from sqlalchemy.dialects import oracle

    from mainspring.tracker.clock import now_for

    with pytest.raises(ValueError, match="not of 'oracle'"):
        now_for(None).compile(dialect=oracle.dialect())  # type: ignore[no-untyped-call]


def test_a_work_is_entered_once(sqlite: Engine) -> None:
    add(sqlite, "a")
    work = Step.start(sqlite, "a")
    with work:
        pass
    with pytest.raises(RuntimeError, match="entered before"), work:
        pass


def test_memory_databases_work_too() -> None:
    engine = create_engine("sqlite://")
    Job.metadata.create_all(engine)
    add(engine, "a")
    with Step.start(engine, "a") as (job, _):
        job.heartbeat()
    assert row(engine, "a").status == 40
    engine.dispose()


@pytest.mark.parametrize("answer", ["soon", None])
def test_a_wrong_back_off_does_not_keep_the_lock(sqlite: Engine, answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Odd(PatientStep):
        backoff = staticmethod(lambda failures: 1 / 0 if answer is None else answer)  # type: ignore[assignment]

    add(sqlite, 1, kind=Patient)
    with Odd.start(sqlite, 1, skip_error=True):
        raise Oops
    after = row(sqlite, 1, Patient)
    assert (after.status, after.lock, after.retry_at) == (30, None, None)
    assert "the job does not wait" in caplog.text


def test_an_answer_lost_after_the_success_was_written_is_not_called_a_failure(
    sqlite: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = sqlite.dialect.do_commit

    def lose(connection: Any) -> None:
        commit(connection)
        monkeypatch.setattr(sqlite.dialect, "do_commit", commit)
        raise sqlite3.OperationalError("the connection was lost")

    add(sqlite, "a")
    with pytest.raises(OperationalError, match="the connection was lost") as raised, Step.start(sqlite, "a"):
        monkeypatch.setattr(sqlite.dialect, "do_commit", lose)
    assert raised.value.__notes__ == ["Job 'a' is not locked by this worker any more"]
    assert (row(sqlite, "a").status, row(sqlite, "a").errors) == (40, {})
