"""Fires that come while earlier runs of their job go on: they are skipped, wait, or cancel the others."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.run import Condition, Outcome, Report, Result, Run, Status
from mainspring.core.waiting.gates import Limit
from mainspring.errors import StoreUnavailable
from mainspring.jobstores.base import RunQuery, RunStanding
from mainspring.testing.conformance.helpers import claim
from tests.node.bench import Bench


def by_fire(bench: Bench) -> list[Run]:
    return sorted(bench.store.find_runs(RunQuery(), limit=1000), key=lambda run: run.fire_time or 0)


def statuses(bench: Bench) -> list[str]:
    return [str(run.status) for run in by_fire(bench)]


def begin(bench: Bench, overlap: str, **options: Any) -> str:
    """Fire a job, leave its run running, and let the next fire come due."""
    bench.add(seconds=10, overlap=overlap, **options)
    bench.link.scheduler()
    bench.clock.advance(10)
    bench.link.scheduler()
    return next(iter(bench.executor.given))


def end(bench: Bench, run_id: str) -> None:
    bench.executor.end(run_id)
    bench.link.worker()


def stop(bench: Bench, run_id: str) -> None:
    """End a run as its executor does that was told to stop it."""
    run, report = bench.executor.given.pop(run_id)
    now = bench.executor.now()
    report(Report(run, Result.CANCELLED, started_at=now, finished_at=now))
    bench.link.worker()


def test_by_default_a_fire_above_max_instances_is_missed(bench: Bench) -> None:
    begin(bench, "skip")
    assert statuses(bench) == ["running", "missed"]


def test_a_queued_fire_runs_as_soon_as_the_earlier_run_has_ended_here(bench: Bench) -> None:
    first = begin(bench, "queue")
    assert statuses(bench) == ["running"]
    end(bench, first)
    bench.link.scheduler()
    assert statuses(bench) == ["succeeded", "running"]
    assert by_fire(bench)[1].fire_time == by_fire(bench)[0].fire_time + 10 * SECOND  # type: ignore[operator]


def test_a_queued_fire_is_looked_at_again_within_two_seconds_wherever_the_earlier_run_ends(
    bench: Bench, other: Bench
) -> None:
    first = begin(bench, "queue")
    other.clock.advance(1)
    end(bench, first)  # and this node does not look again
    other.link.scheduler()
    assert statuses(bench) == ["succeeded"]
    other.clock.advance(2)
    other.link.scheduler()
    assert statuses(bench) == ["succeeded", "running"]


def test_a_scheduler_that_dies_while_a_fire_waits_loses_nothing(bench: Bench, other: Bench) -> None:
    begin(bench, "queue")
    bench.executor.end_all()
    bench.link.worker.settles()
    del bench  # no other tick of this node comes
    other.clock.advance(3)
    other.link.scheduler()
    assert statuses(other) == ["succeeded", "running"]


def test_queued_fires_that_wait_together_become_one_run(bench: Bench) -> None:
    first = begin(bench, "queue")
    bench.clock.advance(20)
    bench.link.scheduler()
    end(bench, first)
    bench.link.scheduler()
    assert statuses(bench) == ["succeeded", "running"]
    assert by_fire(bench)[1].count == 3


def test_without_coalescing_each_queued_fire_runs_one_after_another(bench: Bench) -> None:
    first = begin(bench, "queue", coalesce=False)
    bench.clock.advance(20)
    bench.link.scheduler()
    end(bench, first)
    bench.link.scheduler()
    for number in range(3):
        assert statuses(bench) == ["succeeded"] * (number + 1) + ["running"] + ["blocked"] * (2 - number)
        (run_id,) = bench.executor.given
        end(bench, run_id)
    assert statuses(bench) == ["succeeded"] * 4


def test_more_than_a_hundred_queued_fires_are_recorded_as_missed(bench: Bench) -> None:
    first = begin(bench, "queue", coalesce=False)
    bench.clock.advance(10 * 149)
    bench.link.scheduler()
    end(bench, first)
    bench.link.scheduler()
    missed = [run for run in by_fire(bench) if run.status is Status.MISSED]
    assert [(run.reason, run.count) for run in missed] == [("catch_up", 50)]


def test_a_queued_fire_past_its_grace_time_is_missed_as_late(bench: Bench) -> None:
    begin(bench, "queue", misfire_grace_time=3)
    bench.clock.advance(4)
    bench.link.scheduler()
    assert [(str(run.status), run.reason) for run in by_fire(bench)] == [("running", None), ("missed", "late")]


def test_a_queued_fire_keeps_the_other_jobs_of_the_page_going(bench: Bench) -> None:
    begin(bench, "queue")
    bench.add("k", seconds=10)
    bench.clock.advance(2)
    bench.link.scheduler()
    assert [run.job_id for run in bench.store.find_runs(RunQuery(job_id="k"))] == ["k"]


def test_a_queued_fire_waits_only_above_max_instances(bench: Bench) -> None:
    first = begin(bench, "queue", max_instances=2)
    bench.clock.advance(10)
    bench.link.scheduler()
    assert statuses(bench) == ["running", "running"]
    end(bench, first)
    bench.link.scheduler()
    assert statuses(bench) == ["succeeded", "running", "running"]


def test_a_fire_cancels_the_running_one_and_runs_when_that_has_ended(bench: Bench) -> None:
    first = begin(bench, "cancel_other")
    assert bench.executor.cancelled == [first]
    assert [(str(run.status), run.cancelling) for run in by_fire(bench)] == [("running", True)]
    stop(bench, first)
    bench.link.scheduler()
    assert [(str(run.status), run.reason) for run in by_fire(bench)] == [("cancelled", "superseded"), ("running", None)]
    [act] = bench.store.acts(about=f"run:{first}", limit=9)
    assert (act.by, act.verb) == ("its schedule", "cancel")


def test_a_run_is_told_to_stop_once(bench: Bench) -> None:
    first = begin(bench, "cancel_other")
    for _ in range(3):
        bench.clock.advance(2)
        bench.link.scheduler()
    assert bench.executor.cancelled == [first]
    assert len(bench.store.acts(about=f"run:{first}", limit=9)) == 1


def test_a_waiting_run_is_cancelled_and_the_fire_takes_its_place_in_one_look(bench: Bench) -> None:
    bench.add(seconds=10, overlap="cancel_other", executor="elsewhere")
    bench.link.scheduler()
    bench.clock.advance(10)
    bench.link.scheduler()
    assert [(str(run.status), run.reason) for run in by_fire(bench)] == [("cancelled", "superseded"), ("pending", None)]


def test_a_run_that_waits_for_a_slot_is_cancelled_by_a_later_fire_too(bench: Bench) -> None:
    bench.add(seconds=10, overlap="cancel_other", executor="elsewhere")
    bench.link.scheduler()
    [first] = by_fire(bench)
    holder = replace(first, id="holder", job_id=None, gate="gate", gate_spec=Limit(1).to_text())
    bench.store.add_runs([holder])
    bench.store.settle([Outcome(replace(first, gate="gate", gate_spec=Limit(1).to_text()), Condition.WAITING)])
    assert [run.id for run in claim(bench.store, first.queue, limit=1)] == ["holder"]
    assert claim(bench.store, first.queue) == []
    assert bench.store.standings([first.id]) == [RunStanding(Status.BLOCKED)]
    bench.clock.advance(10)
    bench.link.scheduler()
    fired = [run for run in by_fire(bench) if run.id != "holder"]
    assert [(str(run.status), run.reason) for run in fired] == [("cancelled", "superseded"), ("pending", None)]


def test_of_several_overdue_fires_that_cancel_each_other_the_last_runs(bench: Bench) -> None:
    bench.add(seconds=10, overlap="cancel_other", coalesce=False)
    bench.clock.advance(35)
    bench.link.scheduler()
    assert [(str(run.status), run.reason, run.count) for run in by_fire(bench)] == [
        ("missed", "superseded", 3),
        ("running", None, 1),
    ]


def test_only_as_many_runs_are_cancelled_as_a_fire_needs_slots(bench: Bench) -> None:
    bench.add(seconds=10, overlap="cancel_other", max_instances=2)
    for _ in range(3):
        bench.link.scheduler()
        bench.clock.advance(10)
    assert [run.cancelling for run in by_fire(bench)] == [True, False]


def test_a_scheduler_that_dies_between_the_cancel_and_the_fire_loses_nothing(
    bench: Bench, other: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.add(seconds=10, overlap="cancel_other", executor="elsewhere")
    bench.link.scheduler()
    bench.clock.advance(10)

    def gone(*_: object) -> None:
        raise StoreUnavailable("cut off", OSError("cut off"))

    with monkeypatch.context() as cut:
        cut.setattr(type(bench.store), "fire", gone)
        with pytest.raises(OSError, match="cut off"):
            bench.link.scheduler()
    assert statuses(other) == ["cancelled"]
    other.clock.advance(2)
    other.link.scheduler()
    other.clock.advance(2)
    bench.link.scheduler()
    assert statuses(other) == ["cancelled", "pending"]


def test_a_run_that_ends_well_though_it_was_to_be_stopped_has_no_such_reason(bench: Bench) -> None:
    first = begin(bench, "cancel_other")
    end(bench, first)
    bench.link.scheduler()
    assert [(str(run.status), run.reason) for run in by_fire(bench)] == [("succeeded", None), ("running", None)]
