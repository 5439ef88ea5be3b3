"""Tables and steps that the tracker's tests share."""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum
from typing import Any

from sqlalchemy import ForeignKey, Index, String, update
from sqlalchemy.engine import Engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from mainspring.tracker import BackoffMixin, JobMixin, Tracker

LONG_AGO = datetime(2020, 1, 1)
FAR_AHEAD = datetime(2100, 1, 1)


class Base(DeclarativeBase):
    pass


class Status(IntEnum):
    PENDING = 10
    IN_PROGRESS = 20
    FAILED = 30
    SUCCEEDED = 40
    IGNORED = 50


class Job(Base, JobMixin):
    """As a user of sqlalchemy_mate has it, with columns of their own."""

    __tablename__ = "tracker_job"

    name: Mapped[str | None] = mapped_column(String(20))
    size: Mapped[int | None]


class Patient(Base, BackoffMixin, JobMixin):
    """Waits before it is tried again."""

    __tablename__ = "tracker_patient"

    id: Mapped[int] = mapped_column(primary_key=True)


class Page(Base, JobMixin):
    """Has a compound primary key."""

    __tablename__ = "tracker_page"

    book: Mapped[str] = mapped_column(String(20), primary_key=True)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Result(Base):
    """What a body writes besides."""

    __tablename__ = "tracker_result"

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("tracker_job.id"))


class Step(Tracker[Job]):
    pending = Status.PENDING
    in_progress = Status.IN_PROGRESS
    failed = Status.FAILED
    succeeded = Status.SUCCEEDED
    ignored = Status.IGNORED
    expire = 900
    max_retry = 3


class PatientStep(Tracker[Patient]):
    pending = 10
    in_progress = 20
    failed = 30
    succeeded = 40
    ignored = 50
    backoff = (60.0, 120.0)


class PageStep(Tracker[Page]):
    pending = 10
    in_progress = 20
    failed = 30
    succeeded = 40
    ignored = 50


def add(engine: Engine, *ids: Any, status: int = Status.PENDING, kind: Any = Job, **columns: Any) -> None:
    """Insert jobs."""
    for id_ in ids:
        kind.create_and_save(engine, id_, status, **columns)


def row(engine: Engine, id_: Any, kind: Any = Job) -> Any:
    """Read a job."""
    with Session(engine) as session:
        return session.get(kind, id_)


def change(engine: Engine, id_: Any, kind: Any = Job, **columns: Any) -> None:
    """Change a job behind the tracker's back."""
    with engine.begin() as connection:
        connection.execute(update(kind).where(kind.id == id_).values(**columns))


def expire(engine: Engine, id_: Any, kind: Any = Job) -> None:
    """Let a lock be as old as if its holder had died long ago."""
    change(engine, id_, kind, lock_at=LONG_AGO)


def start_as_peer(engine: Any, id_: Any, **options: Any) -> Any:
    """Start a job with sqlalchemy_mate's eleven arguments."""
    arguments: dict[str, Any] = {
        "engine": engine,
        "id": id_,
        "pending_status": Status.PENDING.value,
        "in_progress_status": Status.IN_PROGRESS.value,
        "failed_status": Status.FAILED.value,
        "succeeded_status": Status.SUCCEEDED.value,
        "ignored_status": Status.IGNORED.value,
        "expire": 900,
        "max_retry": 3,
    }
    return Job.start(**(arguments | options))


class Drained(Base, JobMixin):
    """What many processes work on."""

    __tablename__ = "tracker_drained"
    __table_args__ = (Index("tracker_drained_next", "status", "create_at"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    successes: Mapped[int | None]


class DrainStep(Tracker[Drained]):
    pending = 10
    in_progress = 20
    failed = 30
    succeeded = 40
    ignored = 50
    max_retry = 1000
