"""A step or a table that is declared wrongly is refused at once, with what would be right."""

from __future__ import annotations

import subprocess
import sys
from enum import Enum
from typing import Any

import pytest
from sqlalchemy import DateTime, String
from sqlalchemy.engine import Engine
from sqlalchemy.exc import ArgumentError
from sqlalchemy.orm import DeclarativeBase, Mapped, declarative_base, mapped_column

from mainspring.errors import ConfigurationError, install_command
from mainspring.tracker import NAIVE_EPOCH, JobMixin, Tracker
from tests.tracker.kit import Job, Page, PageStep, Patient, Status, Step, add, row, start_as_peer

STATUSES: dict[str, Any] = {"pending": 10, "in_progress": 20, "failed": 30, "succeeded": 40, "ignored": 50}


def declare(name: str = "Wrong", /, **settings: Any) -> type[Tracker[Any]]:
    """Declare a step of the table Job."""
    return type(name, (Tracker,), {"job": Job, "__qualname__": name} | STATUSES | settings)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"failed": 20}, "Wrong: in_progress and failed are both 20"),
        ({"ignored": Status.FAILED}, "Wrong: failed and ignored are both 30"),
        ({"more_pending": (5, 40)}, "Wrong: succeeded and more_pending are both 40"),
        ({"pending": "10"}, "Wrong: pending is '10'; a status is a whole number or a member of an IntEnum"),
        ({"pending": True}, "Wrong: pending is True; a status is"),
        ({"pending": 1.0}, "Wrong: pending is 1.0; a status is"),
        ({"more_pending": "5"}, "Wrong: more_pending is '5'; a status is"),
        ({"expire": -1}, "Wrong: expire is -1; it is a number of seconds"),
        ({"expire": "900"}, "Wrong: expire is '900'; it is a number of seconds"),
        ({"expire": float("nan")}, "Wrong: expire is nan; it is a number of seconds"),
        ({"max_retry": -1}, "Wrong: max_retry is -1; it is a number of attempts"),
        ({"max_retry": 2.5}, r"Wrong: max_retry is 2\.5"),
        ({"traceback_stack_limit": "all"}, "Wrong: traceback_stack_limit is 'all'"),
        ({"give_up_on": "ValueError"}, "Wrong: give_up_on has 'ValueError'; it is an exception class"),
        ({"retry_on": (OSError, 3)}, "Wrong: retry_on has 3"),
        ({"backoff": [1]}, "Wrong has a backoff, but Job has no column retry_at; add BackoffMixin"),
        ({"backoff": 5, "job": Patient}, "Wrong: backoff is 5; it is a Backoff, a list of seconds, or a function"),
        ({"backoff": [1, -1], "job": Patient}, "Wrong: backoff is -1; it is a number of seconds"),
        ({"max_retries": 5}, r"Wrong has no setting 'max_retries'; did you mean 'max_retry'"),
        ({"expires": 5}, r"Wrong has no setting 'expires'; did you mean 'expire'"),
    ],
)
def test_a_wrong_setting_is_named_with_what_would_be_right(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        declare(**settings)


@pytest.mark.parametrize("missing", STATUSES)
def test_a_missing_status_is_named(missing: str) -> None:
    rest = {name: code for name, code in STATUSES.items() if name != missing}
    with pytest.raises(ConfigurationError, match=f"Short lacks the status {missing}"):
        type("Short", (Tracker,), {"job": Job} | rest)


def test_a_step_without_a_table_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"Lost names no table; declare it as `class Lost\(Tracker\[Job\]\)`"):
        type("Lost", (Tracker,), STATUSES)


def test_settings_may_be_shared_by_a_base_without_statuses(sqlite: Engine) -> None:
    class Shared(Tracker[Job]):
        expire = 5
        max_retry = 1

    class Own(Shared):
        pending = Status.PENDING
        in_progress = Status.IN_PROGRESS
        failed = Status.FAILED
        succeeded = Status.SUCCEEDED
        ignored = Status.IGNORED

    add(sqlite, "a")
    with Own.start(sqlite, "a", skip_error=True):
        raise OSError
    assert row(sqlite, "a").status == 50
    with pytest.raises(ConfigurationError, match="Shared declares no statuses: pending, in_progress"):
        Shared.start(sqlite, "a")


def test_the_table_may_be_named_by_an_attribute(sqlite: Engine) -> None:
    add(sqlite, "a")
    with declare("Step").start(sqlite, "a"):
        pass
    assert row(sqlite, "a").status == 40


@pytest.mark.parametrize(
    "settings",
    [
        {"pending": 1, "failed": 2, "succeeded": 3, "ignored": 4},  # the same in_progress
        {"pending": 20, "in_progress": 2, "failed": 3, "succeeded": 4, "ignored": 5},  # starts what another works on
        {"pending": 1, "in_progress": 2, "failed": 3, "succeeded": 30, "ignored": 5},  # ends where another retries
        {"pending": 1, "in_progress": 40, "failed": 3, "succeeded": 4, "ignored": 5},  # works in another's result
    ],
)
def test_a_status_that_another_step_needs_for_itself_is_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match=r"Wrong and Step both use the status \d+ of Job; only succeeded and"):
        declare(**settings)


def test_steps_may_meet_in_pending_and_succeeded_and_a_step_may_be_declared_again() -> None:
    declare("After", pending=40, in_progress=141, failed=142, succeeded=143, ignored=144)
    declare("Before", pending=1, in_progress=241, failed=242, succeeded=10, ignored=244)
    declare("After", pending=40, in_progress=141, failed=142, succeeded=143, ignored=145)
    declare("Again", **STATUSES)


def test_what_eleven_arguments_get_wrong_is_named_too(sqlite: Engine) -> None:
    with pytest.raises(ValueError, match=r"Job\.start: pending and failed are both 10"):
        start_as_peer(sqlite, "a", failed_status=10)
    with pytest.raises(ValueError, match=r"Job\.start: expire is None"):
        start_as_peer(sqlite, "a", expire=None)


def test_statuses_of_any_int_enum_are_stored_as_numbers(engine: Engine) -> None:
    class Peer(int, Enum):  # whose text is not its number
        WAITING = 10

    job = Job.create_and_save(engine, "a", Peer.WAITING)
    assert type(job.status) is int
    assert [found.id for found in Job.query_by_status(engine, Peer.WAITING)] == ["a"]


@pytest.mark.parametrize("status", ["10", None, 1.5, True])
def test_a_status_that_is_no_number_is_refused(sqlite: Engine, status: Any) -> None:
    with pytest.raises(ValueError, match=r"Job: status is .*; a status is a whole number"):
        Job.create("a", status)
    with pytest.raises(ValueError, match="a status is a whole number"):
        Job.query_by_status(sqlite, status)


def test_an_id_of_the_wrong_type_or_length_is_refused(sqlite: Engine) -> None:
    with pytest.raises(TypeError, match=r"Job\.id is of type str, which 7 is not"):
        Step.start(sqlite, 7)
    with pytest.raises(TypeError, match=r"Job\.id is of type str, which None is not"):
        Step.start(sqlite, None)
    with pytest.raises(ValueError, match=r"Page has the primary key \(book, id\): its id is 2 values, not 'moby'"):
        PageStep.start(sqlite, "moby")
    with pytest.raises(ValueError, match=r"Page has the primary key \(book, id\), not \(book, page\)"):
        PageStep.start(sqlite, {"book": "moby", "page": 1})
    with pytest.raises(TypeError, match=r"Page\.id is of type int, which True is not"):
        Page.create(("moby", True), 10)


def test_a_misspelt_column_of_a_new_job_names_the_near_one() -> None:
    with pytest.raises(KeyError, match=r"no column 'nmae'; did you mean 'name'\?"):
        Job.create("a", 10, nmae="x")


def test_the_mixin_itself_has_no_table(sqlite: Engine) -> None:
    with pytest.raises(TypeError, match="'JobMixin' is not a mapped class; declare"):
        JobMixin.query_by_status(sqlite, 10)
    with pytest.raises(TypeError, match="'Plain' is not a mapped class"):
        declare(job=type("Plain", (), {}))


def test_a_class_without_a_primary_key_is_refused_when_it_is_declared() -> None:
    base = declarative_base()
    with pytest.raises(ArgumentError, match="could not assemble any primary key columns"):
        type("Keyless", (base, JobMixin), {"__tablename__": "keyless", "id": mapped_column(String(10))})


def test_a_mapped_class_without_the_columns_is_refused() -> None:
    class Base(DeclarativeBase):
        pass

    class Bare(Base):
        __tablename__ = "bare"
        id: Mapped[int] = mapped_column(primary_key=True)
        status: Mapped[int]

    with pytest.raises(ConfigurationError, match="Bare lacks the column create_at, update_at, lock"):
        declare(job=Bare)


def test_columns_may_be_renamed_in_the_database_and_keep_a_time_zone(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Zoned(Base, JobMixin):
        __tablename__ = "tracker_zoned"
        status: Mapped[int] = mapped_column("state")
        create_at: Mapped[Any] = mapped_column(DateTime(timezone=True))
        lock_at: Mapped[Any] = mapped_column(DateTime(timezone=True))

    class ZonedStep(Tracker[Zoned]):
        pending = 10
        in_progress = 20
        failed = 30
        succeeded = 40
        ignored = 50

    Base.metadata.create_all(engine)
    try:
        add(engine, "a", kind=Zoned)
        work = ZonedStep.start_next(engine)
        assert work is not None
        with work as (job, _):
            assert job.is_locked(900)
            assert not job.is_locked(0)
            assert ZonedStep.start_next(engine) is None
        assert row(engine, "a", Zoned).status == 40
    finally:
        Base.metadata.drop_all(engine)


def test_the_columns_are_those_of_sqlalchemy_mate() -> None:
    class Base(DeclarativeBase):
        pass

    class Plain(Base, JobMixin):
        __tablename__ = "plain"

    names = ["id", "status", "create_at", "update_at", "lock", "lock_at", "retry", "data", "errors"]
    assert sorted(Plain.__table__.columns.keys()) == sorted(names)
    assert Plain.create("a", 10).lock_at == NAIVE_EPOCH


def test_importing_mainspring_does_not_import_the_tracker_nor_sqlalchemy() -> None:
    code = "import sys, mainspring; sys.exit('sqlalchemy' in sys.modules or 'mainspring.tracker' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_without_sqlalchemy_the_extra_is_named() -> None:
    code = "import sys; sys.modules['sqlalchemy'] = None\nimport mainspring.tracker"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    needed = f"mainspring.tracker needs SQLAlchemy, which is not installed: {install_command('sqlalchemy')}"
    assert f"ImportError: {needed}" in done.stderr
