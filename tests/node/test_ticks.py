"""The four ticks, called by hand."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from mainspring import events
from mainspring.core.instants import SECOND
from mainspring.core.run import BY_HAND_PREFIX, Outcome, Run, Status
from mainspring.errors import StoreUnavailable
from mainspring.jobstores.base import RunQuery
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.node.loop import LONGEST_SLEEP_SECONDS, Loop
from mainspring.node.scheduler import DUE_PAGE_JOBS
from mainspring.testing.clock import VirtualClock
from mainspring.testing.conformance.helpers import lapsed
from tests.executors import hostile
from tests.node.bench import Bench


def runs(bench: Bench, **query: Any) -> list[Run]:
    return bench.store.find_runs(RunQuery(**query))


def test_a_due_job_is_fired_and_starts_on_this_node(bench: Bench) -> None:
    bench.add()
    bench.link.scheduler()
    (run,) = runs(bench)
    assert (run.status, run.node, run.attempt, list(bench.executor.given)) == (
        Status.RUNNING,
        bench.node.id,
        1,
        [run.id],
    )


def test_the_scheduler_sleeps_until_the_next_fire_time(bench: Bench) -> None:
    bench.add(seconds=3)
    assert bench.link.scheduler() == pytest.approx(3.0)


def test_the_scheduler_never_sleeps_longer_than_its_limit(bench: Bench) -> None:
    bench.add(seconds=1000)
    assert bench.link.scheduler() == LONGEST_SLEEP_SECONDS


def test_a_run_that_ended_is_settled_with_its_result(bench: Bench) -> None:
    bench.add()
    bench.link.scheduler()
    (run_id,) = bench.executor.given
    bench.executor.end(run_id, value=42)
    bench.link.worker()
    (run,) = runs(bench)
    assert (run.status, run.result, bench.link.claims) == (Status.SUCCEEDED, 42, {})


def test_submission_and_execution_are_told_in_this_order(bench: Bench) -> None:
    bench.add()
    bench.link.scheduler()
    bench.executor.end_all()
    bench.link.worker()
    assert bench.codes() == [events.EVENT_JOB_SUBMITTED, events.EVENT_JOB_EXECUTED]


def test_several_overdue_fires_are_submitted_once_with_all_times_and_run_one_after_another(bench: Bench) -> None:
    bench.add(seconds=10, coalesce=False)
    bench.clock.advance(35)
    bench.link.scheduler()
    (submitted,) = bench.events
    assert len(submitted.scheduled_run_times) == 4
    started = []
    for _ in range(4):
        (run_id,) = bench.executor.given
        started.append(run_id)
        bench.executor.end(run_id)
        bench.link.worker()
    assert len(set(started)) == 4
    assert bench.executor.given == {}
    assert [e.code for e in bench.events[1:]] == [events.EVENT_JOB_EXECUTED] * 4


def test_a_fire_while_the_job_still_runs_is_missed_with_that_reason(bench: Bench) -> None:
    bench.add(seconds=10)
    bench.link.scheduler()
    bench.clock.advance(10)
    bench.link.scheduler()
    bench.clock.advance(10)
    bench.link.scheduler()
    (missed,) = runs(bench, status=(Status.MISSED,))
    assert (missed.reason, missed.count) == ("max_instances", 2)
    assert bench.codes()[1:] == [events.EVENT_JOB_MAX_INSTANCES] * 2


def test_max_instances_counts_the_runs_of_other_nodes(bench: Bench, other: Bench) -> None:
    bench.add(seconds=10)
    bench.link.scheduler()
    bench.clock.advance(10)
    other.link.scheduler()
    assert other.executor.given == {}
    assert other.codes() == [events.EVENT_JOB_MAX_INSTANCES]


def test_a_late_fire_is_missed_and_told(bench: Bench) -> None:
    bench.add(seconds=100, misfire_grace_time=5)
    bench.clock.advance(6)
    bench.link.scheduler()
    (missed,) = runs(bench)
    assert (missed.status, missed.reason) == (Status.MISSED, "late")
    assert bench.codes() == [events.EVENT_JOB_MISSED]


def test_two_schedulers_fire_a_due_job_once(bench: Bench, other: Bench) -> None:
    for n in range(50):
        bench.add(f"j{n}")
    bench.link.scheduler()
    other.link.scheduler()
    assert len(runs(bench)) == 50


def test_what_no_slot_is_free_for_waits_in_the_queue_and_is_claimed_when_one_is(bench: Bench) -> None:
    for n in range(25):
        bench.add(f"j{n}")
    bench.link.scheduler()
    assert len(bench.executor.given) == 10
    assert len(runs(bench, status=(Status.PENDING,))) == 15
    for _ in range(3):
        bench.executor.end_all()
        bench.link.worker()
    assert len(runs(bench, status=(Status.SUCCEEDED,))) == 25


def test_slow_runs_are_claimed_one_per_slot_and_quick_ones_in_batches(bench: Bench) -> None:
    for n in range(500):
        bench.add(f"j{n}", seconds=1000)
    bench.link.scheduler()
    bench.executor.end_all()  # they took no time at all
    bench.link.worker()
    assert len(bench.executor.given) == 110  # a hundred more, until it is known how many end
    bench.clock.advance(0.11)
    bench.executor.end_all()
    bench.link.worker()
    assert len(bench.executor.given) == 380  # all that are left
    bench.executor.end_all()
    bench.node.pace["default"] = 60.0
    bench.clock.advance(1000)
    bench.link.worker()
    bench.node.pace["default"] = 60.0
    bench.link.scheduler()
    assert len(bench.executor.given) == 10


def test_a_run_for_an_executor_this_node_lacks_waits_with_a_warning(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.add(executor="gpu")
    bench.add("k", executor="gpu")
    bench.link.scheduler()
    assert [(run.status, run.queue) for run in runs(bench)] == [(Status.PENDING, ".gpu")] * 2
    assert len([r for r in caplog.records if "'gpu'" in r.message]) == 1


def test_a_job_for_the_queue_goes_to_its_queue(bench: Bench) -> None:
    bench.add(executor="queue", queue="mail")
    bench.link.scheduler()
    assert [(run.status, run.queue) for run in runs(bench)] == [(Status.PENDING, "mail")]


def test_a_failed_run_with_retries_left_comes_back_after_its_back_off(bench: Bench) -> None:
    bench.add(seconds=1000, retries=1, backoff=[5])
    bench.link.scheduler()
    (run_id,) = bench.executor.given
    bench.executor.end(run_id, ValueError("first"))
    assert bench.link.worker() <= 5
    bench.clock.advance(4.9)
    bench.link.worker()
    assert bench.executor.given == {}
    bench.clock.advance(0.2)
    bench.link.worker()
    bench.executor.end(run_id, ValueError("second"))
    bench.link.worker()
    (run,) = runs(bench)
    assert (run.status, run.attempt, [e.message for e in run.errors]) == (Status.FAILED, 2, ["first", "second"])
    assert bench.codes() == [events.EVENT_JOB_SUBMITTED, events.EVENT_RUN_RETRIED, events.EVENT_JOB_ERROR]


@pytest.mark.parametrize("kind", hostile.KINDS)
def test_an_exception_that_resists_its_handlers_keeps_no_other_run_from_being_told(bench: Bench, kind: str) -> None:
    bench.add("hostile", seconds=1000, retries=1)
    bench.add("good", seconds=1000)
    bench.link.scheduler()
    for run_id in list(bench.executor.given):
        bench.executor.end(run_id, hostile.KINDS[kind]() if run_id.startswith("hostile") else None)
    bench.link.worker()
    assert events.EVENT_JOB_EXECUTED in bench.codes()
    assert [run.status for run in runs(bench) if run.job_id == "hostile"] != [Status.RUNNING]


def test_a_back_off_function_that_raises_ends_the_retries_and_not_the_worker(bench: Bench) -> None:
    def broken(failures: int) -> float:
        raise RuntimeError("no idea")

    bench.add(retries=3, backoff=broken)
    bench.link.scheduler()
    bench.executor.end(next(iter(bench.executor.given)), ValueError())
    bench.link.worker()
    assert [run.status for run in runs(bench)] == [Status.FAILED]


def test_a_node_says_more_often_that_it_lives_than_it_renews_leases(bench: Bench) -> None:
    said: list[object] = []
    renewed: list[object] = []
    bench.add(seconds=1000)
    bench.link.scheduler()
    beat, extend = bench.store.beat, bench.store.extend

    def noted_beat(*given: Any, **more: Any) -> int:
        said.append(given)
        return beat(*given, **more)

    def noted_extend(*given: Any) -> Any:
        renewed.append(given)
        return extend(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.store, "beat", noted_beat)
        patch.setattr(bench.store, "extend", noted_extend)
        for _ in range(12):
            bench.clock.advance(bench.link.heartbeat())
    assert len([given for given in said if given]) == 12
    assert len(renewed) == 3


def test_a_lease_is_renewed_while_the_node_beats(bench: Bench) -> None:
    bench.add(seconds=1000)
    bench.link.scheduler()
    for _ in range(10):
        bench.clock.advance(5)
        bench.link.heartbeat()
    assert lapsed(bench.store) == []


def test_the_runs_of_a_dead_node_are_recovered_by_another_that_has_been_heard_for_a_lease(
    bench: Bench, other: Bench
) -> None:
    bench.add(seconds=1000)
    bench.link.scheduler()
    (run_id,) = bench.executor.given
    other.link.heartbeat()
    bench.clock.advance(16)
    other.link.heartbeat()
    other.link.janitor()
    other.link.worker()
    assert list(other.executor.given) == [run_id]
    assert other.codes() == [events.EVENT_RUN_LOST, events.EVENT_RUN_RECOVERED]
    # The dead wake up: their word changes nothing.
    bench.executor.end(run_id)
    bench.link.worker()
    assert bench.codes()[-1] == events.EVENT_RUN_LOST
    other.executor.end(run_id, value="theirs")
    other.link.worker()
    (run,) = runs(bench)
    assert (run.status, run.result, run.interruptions, run.failures) == (Status.SUCCEEDED, "theirs", 1, 0)


def test_what_was_taken_by_hand_is_recovered_by_a_node_that_has_just_come(bench: Bench, other: Bench) -> None:
    bench.add(seconds=1000)
    bench.node.id = f"{BY_HAND_PREFIX}{bench.node.id}"
    bench.link.scheduler()
    bench.clock.advance(16)
    other.link.heartbeat()
    other.link.janitor()
    assert [run.status for run in runs(bench)] == [Status.PENDING]


def test_a_node_that_has_just_come_back_calls_nobody_dead(bench: Bench, other: Bench) -> None:
    bench.add(seconds=1000)
    bench.link.scheduler()
    bench.clock.advance(60)
    other.link.heartbeat()
    other.link.janitor()
    assert [run.status for run in runs(bench)] == [Status.RUNNING]


def test_a_lost_lease_stops_the_run_here(bench: Bench, other: Bench) -> None:
    bench.add(seconds=1000)
    bench.link.scheduler()
    other.link.heartbeat()
    bench.clock.advance(16)
    other.link.heartbeat()
    other.link.janitor()
    bench.link.heartbeat()
    assert bench.executor.cancelled == list(bench.executor.given)


def test_a_beat_while_an_outcome_is_being_written_does_not_take_the_run_for_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench.add(seconds=1000)
    bench.link.scheduler()
    settle = bench.store.settle

    def settle_slowly(outcomes: Sequence[Outcome]) -> list[bool]:
        written = settle(outcomes)
        bench.link.heartbeat()  # of another thread, before this one knows that it is written
        return written

    monkeypatch.setattr(bench.store, "settle", settle_slowly)
    bench.executor.end_all()
    bench.link.worker()
    assert [run.status for run in runs(bench)] == [Status.SUCCEEDED]
    warnings = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert (bench.executor.cancelled, warnings) == ([], [])


def test_a_cancelled_run_is_stopped_by_its_holder(bench: Bench) -> None:
    bench.add(seconds=1000)
    bench.link.scheduler()
    (run_id,) = bench.executor.given
    bench.store.cancel([run_id])
    bench.link.heartbeat()
    assert bench.executor.cancelled == [run_id]


def test_a_paused_node_fires_and_claims_nothing_but_settles(bench: Bench) -> None:
    bench.add()
    bench.link.scheduler()
    bench.node.pause()
    bench.clock.advance(100)
    bench.link.scheduler()
    bench.executor.end_all()
    bench.link.worker()
    assert [run.status for run in runs(bench)] == [Status.SUCCEEDED]


def test_a_trigger_that_raises_does_not_keep_the_others_from_firing(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.add("good")
    bad = bench.add("bad")

    class Broken(type(bad.trigger)):  # type: ignore[misc]
        def next_fire(self, previous: int | None, now: int) -> int | None:
            raise ZeroDivisionError("in the trigger")

    bench.store.remove_job("bad")
    bad.trigger = Broken(seconds=5, timezone="UTC")
    bench.store.add_job(bad)
    bench.link.scheduler()
    assert [run.job_id for run in runs(bench)] == ["good"]
    assert "the trigger of job 'bad' failed" in caplog.text
    assert bench.store.lookup_job("bad") is not None


def test_outcomes_survive_a_store_that_is_down(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.add(seconds=1000)
    bench.link.scheduler()
    bench.executor.end_all()
    settle = bench.store.settle

    def down(outcomes: Any) -> Any:
        raise StoreUnavailable("gone")

    monkeypatch.setattr(bench.store, "settle", down)
    with pytest.raises(StoreUnavailable):
        bench.link.worker()
    monkeypatch.setattr(bench.store, "settle", settle)
    bench.link.worker()
    assert [run.status for run in runs(bench)] == [Status.SUCCEEDED]


def test_runs_leased_by_a_fire_whose_reply_was_lost_are_asked_for_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.add(seconds=1000)
    fire = bench.store.fire

    def reply_lost(firings: Any, lease: float) -> Any:
        fire(firings, lease)
        raise StoreUnavailable("the reply was lost")

    monkeypatch.setattr(bench.store, "fire", reply_lost)
    with pytest.raises(StoreUnavailable):
        bench.link.scheduler()
    bench.link.worker()
    assert len(bench.executor.given) == 1


@pytest.mark.parametrize("chance", [0.0, 0.999])
def test_the_janitor_looks_at_least_every_third_of_a_lease(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, chance: float
) -> None:
    monkeypatch.setattr(bench.node.clock, "random", lambda: chance)

    assert 0 < bench.link.janitor() <= bench.node.lease / 3


def test_when_the_store_answers_again_the_heartbeat_does_not_wait_for_its_next_try(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*args: Any, **options: Any) -> Any:
        raise StoreUnavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(bench.store, "beat", down)
        bench.link.care.step()
        assert bench.link.heartbeat.steady_since is None

    bench.link.answered()
    bench.link.care.step()

    assert bench.link.heartbeat.steady_since is not None


def test_an_outage_is_logged_once_and_its_end_too(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    delays = [bench.link._failed(StoreUnavailable("gone")) for _ in range(12)]
    bench.link.answered()
    bench.link.answered()
    assert len([r for r in caplog.records if "failed" in r.message]) == 1
    assert len([r for r in caplog.records if "answers again" in r.message]) == 1
    assert [r.exc_info for r in caplog.records] == [None, None]  # an outage is no riddle: a line, and no traceback
    assert "trying again until it answers: gone" in caplog.text
    assert bench.codes() == [events.EVENT_STORE_DOWN, events.EVENT_STORE_UP]
    assert len(set(delays)) == 12  # spread, so that nodes do not come back all at once
    assert delays[0] <= 1.25
    assert all(7.5 <= delay <= 12.5 for delay in delays[-7:])


def test_a_wake_up_during_a_tick_is_not_lost(bench: Bench) -> None:
    calls = []

    def tick() -> float:
        calls.append(1)
        if len(calls) == 1:
            loop.wake(tick)
        return 60.0

    loop = Loop("t", [tick], bench.clock, lambda error: 1.0, lambda: False)
    assert loop.step() == 0.0
    assert loop.step() == pytest.approx(60.0)
    assert len(calls) == 2


def test_fired_at_the_microsecond(bench: Bench) -> None:
    job = bench.add(seconds=10)
    bench.link.scheduler()
    (run,) = runs(bench)
    assert run.fire_time == job.at
    assert run.id == f"j@{job.incarnation}@{job.at}"
    stored = bench.store.lookup_job("j")
    assert stored is not None
    assert stored.at == (job.at or 0) + 10 * SECOND


def test_after_a_sleep_of_the_machine_what_runs_here_is_not_taken_for_dead(bench: Bench) -> None:
    bench.add(seconds=1000)
    bench.link.scheduler()
    bench.link.heartbeat()
    bench.clock.advance(100)
    bench.link.janitor()
    assert [run.status for run in runs(bench)] == [Status.RUNNING]


def test_a_tick_that_did_not_ask_the_store_does_not_end_its_outage(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.link.now()  # asks the store, once
    bench.link._failed(StoreUnavailable("gone"))
    bench.link.worker()
    assert "answers again" not in caplog.text
    bench.link.scheduler()
    assert "answers again" in caplog.text


def test_a_scheduler_that_comes_too_late_again_and_again_lets_others_go_first(clock: VirtualClock) -> None:
    store = MemoryJobStore(clock)
    prompt, standby = Bench(clock, store), Bench(clock, store)
    prompt.add(seconds=10)
    waits = []
    for _ in range(12):
        prompt.link.scheduler()
        prompt.executor.end_all()
        prompt.link.worker()
        waits.append(standby.link.scheduler())
        clock.advance(10)
    assert max(waits[:2]) <= 5.0
    assert standby.link.scheduler._patience == 1.0
    assert prompt.link.scheduler._patience == 0.0


def test_a_scheduler_that_has_fired_a_whole_page_does_not_think_that_others_were_first(bench: Bench) -> None:
    for number in range(DUE_PAGE_JOBS):
        bench.add(f"j{number}")
    assert bench.link.scheduler() == 0.0
    assert bench.link.scheduler() > 0
    bench.clock.advance(10)
    assert bench.link.scheduler() == 0.0
    assert bench.link.scheduler() > 0
    assert bench.link.scheduler._patience == 0.0


def test_a_standby_is_prompt_again_once_it_has_fired(clock: VirtualClock) -> None:
    store = MemoryJobStore(clock)
    bench = Bench(clock, store)
    bench.link.scheduler._patience = 1.0
    bench.add(seconds=10)
    bench.link.scheduler()
    assert len(bench.executor.given) == 1
    assert bench.link.scheduler._patience == 0.0


def test_when_the_clock_of_the_store_is_put_forward_the_living_renew_their_leases_before_others_take_their_runs(
    bench: Bench, other: Bench
) -> None:
    bench.add(seconds=10_000)
    bench.link.scheduler()
    for seconds in (0, 5, 5, 5):
        bench.clock.advance(seconds)
        bench.link.heartbeat()
        other.link.heartbeat()
        other.link.janitor()
    bench.store.shift_clock(3600)
    for _ in range(4):
        other.link.janitor()
        assert [run.status for run in runs(bench)] == [Status.RUNNING]
        bench.link.heartbeat()
        other.link.heartbeat()
        bench.clock.advance(5)
    bench.clock.advance(16)  # and now it dies
    other.link.heartbeat()
    other.link.janitor()
    assert [run.status for run in runs(bench)] == [Status.PENDING]


def test_the_runs_of_the_dead_are_recovered_though_many_of_ones_own_have_expired_too(
    clock: VirtualClock, store: MemoryJobStore
) -> None:
    bench, dead = Bench(clock, store, slots=150), Bench(clock, store)
    for number in range(120):
        bench.add(f"mine{number}", seconds=1000)
    bench.link.scheduler()
    clock.advance(0.001)
    dead.add("theirs", seconds=1000)
    dead.link.scheduler()
    bench.link.heartbeat()
    clock.advance(16)
    bench.link.janitor()
    found = {run.job_id: run.status for run in store.find_runs(RunQuery(), limit=200)}
    assert found.pop("theirs") is Status.PENDING
    assert set(found.values()) == {Status.RUNNING}
