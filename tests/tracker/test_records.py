"""What is kept of an error: as much as the limits and the column allow, in any characters."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import JSON, String, TypeDecorator
from sqlalchemy.dialects import postgresql as pg
from sqlalchemy.engine import Engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from mainspring.core.run import MESSAGE_CHARS, TRACEBACK_CHARS
from mainspring.tracker import JobMixin, Tracker
from tests.tracker.kit import Step, add, expire, row, start_as_peer


class Oops(Exception):
    pass


def test_a_huge_error_is_cut(engine: Engine) -> None:
    add(engine, "a")
    with Step.start(engine, "a", skip_error=True):
        raise Oops("x" * 1_000_000)
    errors = row(engine, "a").errors
    assert len(errors["message"]) == len(errors["error"]) == MESSAGE_CHARS
    assert len(errors["traceback"]) < TRACEBACK_CHARS + 100
    assert errors["traceback"].startswith("Traceback")
    assert "left out" in errors["traceback"]


def _deep(left: int) -> None:
    if left:
        _deep(left - 1)
    raise Oops


@pytest.mark.parametrize(("limit", "frames"), [(10, 10), (3, 3), (None, 31), (0, 0), (-2, 2)])
def test_the_traceback_has_as_many_frames_as_wanted(sqlite: Engine, limit: int | None, frames: int) -> None:
    add(sqlite, "a")
    with start_as_peer(sqlite, "a", traceback_stack_limit=limit, skip_error=True):
        _deep(29)
    text = row(sqlite, "a").errors["traceback"]
    repeated = sum(int(part.split()[0]) for part in text.split("[Previous line repeated ")[1:])
    assert text.count('  File "') + repeated == frames


class _Narrow(TypeDecorator[Any]):
    """JSON in a column with room for `length` characters, as the database sees it."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> str | None:
        return None if value is None else json.dumps(value)

    def process_result_value(self, value: Any, dialect: Any) -> Any:
        return None if value is None else json.loads(value)


@pytest.fixture(params=["text", "json"])
def narrow(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Callable[[int], Any]]:
    """Declare a table whose errors have little room, and the step on it."""

    class Base(DeclarativeBase):
        pass

    def declare(length: int) -> Any:
        class Small(Base, JobMixin):
            __tablename__ = "tracker_small"
            errors: Mapped[Any] = mapped_column(
                String(length) if request.param == "text" else _Narrow(length), nullable=True
            )

        class SmallStep(Tracker[Small]):
            pending = 10
            in_progress = 20
            failed = 30
            succeeded = 40
            ignored = 50

        Base.metadata.create_all(engine)
        add(engine, "a", kind=Small)
        return SmallStep

    yield declare
    Base.metadata.drop_all(engine)


def error_kept(job: Any) -> str | None:
    """Return what was kept of an error, from a column of JSON or of text."""
    errors = json.loads(job.errors) if isinstance(job.errors, str) else job.errors
    return errors.get("error")  # type: ignore[no-any-return]


SERVERS = pytest.mark.parametrize("engine", ["postgresql", "mariadb"], indirect=True)  # SQLite knows no lengths


@SERVERS
@pytest.mark.parametrize(("length", "kept"), [(600, r"Oops\('xxxx.*"), (80, r"tests\.tracker.*"), (10, None)])
def test_an_error_larger_than_its_column_is_kept_as_far_as_it_fits(
    engine: Engine, narrow: Callable[[int], Any], length: int, kept: str | None
) -> None:
    step = narrow(length)
    with pytest.raises(Oops), step.start(engine, "a"):
        raise Oops("x" * 10_000)
    after = row(engine, "a", step.job)
    assert (after.status, after.retry, after.lock) == (30, 1, None)
    assert error_kept(after) is None if kept is None else re.fullmatch(kept, error_kept(after) or "")


@SERVERS
@pytest.mark.parametrize(("length", "kept"), [(600, r"LockExpired\(.*"), (80, "LockExpired"), (10, None)])
def test_a_small_column_does_not_keep_a_dead_holders_job_from_being_taken_over(
    engine: Engine, narrow: Callable[[int], Any], length: int, kept: str | None
) -> None:
    step = narrow(length)
    step.start(engine, "a").__enter__()
    expire(engine, "a", step.job)
    with step.start(engine, "a") as (job, _):
        assert job.retry == 1
        assert error_kept(job) is None if kept is None else re.fullmatch(kept, error_kept(job) or "")
    assert row(engine, "a", step.job).status == 40


def test_an_error_of_any_characters_is_kept_in_jsonb(postgresql: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Binary(Base, JobMixin):
        __tablename__ = "tracker_binary"
        errors: Mapped[Any] = mapped_column(JSON().with_variant(pg.JSONB(), "postgresql"), nullable=True)

    class BinaryStep(Tracker[Binary]):
        pending = 10
        in_progress = 20
        failed = 30
        succeeded = 40
        ignored = 50

    Base.metadata.create_all(postgresql)
    try:
        add(postgresql, "a", kind=Binary)
        with BinaryStep.start(postgresql, "a", skip_error=True):
            raise Oops("a\0b\udc80c")
        assert row(postgresql, "a", Binary).errors["message"] == "a\ufffdb?c"
    finally:
        Base.metadata.drop_all(postgresql)
