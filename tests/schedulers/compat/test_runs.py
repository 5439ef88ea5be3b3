"""The record of what was fired, asked of the scheduler."""

from __future__ import annotations

import threading

import pytest

from mainspring.core.run import Status
from mainspring.errors import UnknownAlias
from mainspring.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED
from mainspring.schedulers.background import BackgroundScheduler


def fail() -> None:
    raise ValueError("not today")


def test_every_fire_can_be_asked_for_by_job_status_and_store() -> None:
    ended = threading.Semaphore(0)
    scheduler = BackgroundScheduler(timezone="UTC")
    scheduler.add_listener(lambda event: ended.release(), EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
    with scheduler:
        scheduler.add_job(len, args=["four"], id="good")
        scheduler.add_job(fail, id="bad")
        assert ended.acquire(timeout=30)
        assert ended.acquire(timeout=30)
        assert {run.job_id for run in scheduler.get_runs()} == {"good", "bad"}
        (good,) = scheduler.get_runs("good")
        assert (good.status, good.result, good.attempt) == (Status.SUCCEEDED, 4, 1)
        (bad,) = scheduler.get_runs(status="failed", jobstore="default")
        assert (bad.job_id, bad.errors[0].type, bad.errors[0].message) == ("bad", "ValueError", "not today")
        assert len(scheduler.get_runs(limit=1)) == 1
        assert scheduler.get_runs("nobody") == []
    assert len(scheduler.get_runs()) == 2  # the record outlives the scheduler's life


def test_a_wrong_status_or_store_is_named() -> None:
    with BackgroundScheduler(timezone="UTC") as scheduler:
        with pytest.raises(ValueError, match="no status is called 'done'"):
            scheduler.get_runs(status="done")
        with pytest.raises(UnknownAlias, match="'elsewhere'"):
            scheduler.get_runs(jobstore="elsewhere")
