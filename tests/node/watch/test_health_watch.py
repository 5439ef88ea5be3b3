"""The janitor tells of schedules whose health changes."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.events import EVENT_JOB_HEALTH, EVENT_JOB_MISSED
from mainspring.jobstores.base import JobStore
from mainspring.node.events.listeners import Listeners
from mainspring.node.watch import lookouts
from tests.node.bench import Bench


def changes(bench: Bench) -> list[tuple[str, str | None, str]]:
    found = [each for each in bench.events if each.code == EVENT_JOB_HEALTH]
    bench.events.clear()
    return [(each.job_id, each.before, each.health) for each in found]


def end_one(bench: Bench, **how: Any) -> None:
    bench.link.scheduler()
    (run_id,) = bench.executor.given
    bench.executor.end(run_id, **how)
    bench.link.worker()


def test_a_change_is_told_once_with_the_reason(bench: Bench) -> None:
    bench.add(seconds=1000)
    bench.link.janitor()
    assert changes(bench) == []  # it is new, and nobody wants to hear that
    end_one(bench, error=ValueError("no answer"))
    bench.clock.advance(90)
    bench.link.janitor()
    [told] = [each for each in bench.events if each.code == EVENT_JOB_HEALTH]
    assert (told.before, told.health, told.reason) == ("new", "down", "its last fire failed: ValueError: no answer")
    bench.events.clear()
    bench.clock.advance(90)
    bench.link.janitor()
    assert changes(bench) == []
    bench.clock.advance(900)
    end_one(bench, value=1)
    bench.link.janitor()
    assert changes(bench) == [("j", "down", "up")]


def test_trouble_is_told_at_the_first_look(bench: Bench) -> None:
    bench.add(seconds=1000)
    bench.clock.advance(100)
    bench.link.janitor()
    assert changes(bench) == [("j", None, "late")]


def test_a_look_judges_a_page_and_the_next_one_goes_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookouts, "MOST_JUDGED", 2)
    for name in ("a", "b", "c"):
        bench.add(name, seconds=1000)
    bench.clock.advance(100)
    bench.link.janitor()
    assert [job_id for job_id, _, _ in changes(bench)] == ["a", "b"]
    bench.clock.advance(90)
    bench.link.janitor()
    assert [job_id for job_id, _, _ in changes(bench)] == ["c"]


def test_without_a_listener_nothing_is_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("nobody listens")

    monkeypatch.setattr(type(bench.store), "examine_jobs", refuse)
    listeners = Listeners()
    listeners.add(print, EVENT_JOB_MISSED)
    monkeypatch.setattr(bench.node.events, "listeners", listeners)
    assert isinstance(bench.store, JobStore)
    bench.clock.advance(100)
    bench.link.janitor()
