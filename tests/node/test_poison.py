"""One thing that goes wrong harms nobody else: a job, an outcome, a report, a listener, a module that exits."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from greenlet import GreenletExit

from mainspring import events
from mainspring.clock import SystemClock
from mainspring.codec import EncodeError
from mainspring.core.plan import Firing
from mainspring.core.quantities import LONGEST_DELAY_SECONDS
from mainspring.core.run import Beat, Call, Outcome, Result, Run, Status
from mainspring.errors import Retry, StoreUnavailable
from mainspring.jobstores.base import Hold, RunQuery
from mainspring.node.events.listeners import Listeners
from mainspring.node.heartbeat import MOST_MISSING_FUNCTIONS, describe
from mainspring.node.loop import Loop
from mainspring.triggers.interval import IntervalTrigger
from tests.node.bench import Bench

EXITS = [SystemExit, KeyboardInterrupt, GeneratorExit]


def runs(bench: Bench, **query: Any) -> list[Run]:
    return bench.store.find_runs(RunQuery(**query))


def statuses(bench: Bench) -> dict[str | None, Status]:
    return {run.job_id: run.status for run in runs(bench)}


def on_a_thread(work: Callable[[], object]) -> BaseException | None:
    """Do it where an interrupt from the keyboard cannot come from; return what it let out."""
    out: list[BaseException] = []

    def call() -> None:
        try:
            work()
        except BaseException as error:
            out.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return out[0] if out else None


# -- exits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*EXITS, BaseException])
def test_a_tick_that_exits_is_called_again_and_its_loop_goes_on(kind: type[BaseException]) -> None:
    calls: list[int] = []

    def tick() -> float:
        calls.append(1)
        if len(calls) == 1:
            raise kind
        return 0.0

    failures: list[BaseException] = []

    def failed(error: BaseException) -> float:
        failures.append(error)
        return 0.0

    loop = Loop("test", (tick,), SystemClock(), failed, lambda: len(calls) == 2)
    loop.start()
    loop.join()
    assert (len(calls), [type(error) for error in failures]) == (2, [kind])


def test_a_loop_that_cannot_even_say_that_it_failed_goes_on() -> None:
    def tick() -> float:
        raise ValueError

    def failed(error: BaseException) -> float:
        raise RuntimeError("no")

    assert Loop("test", (tick,), SystemClock(), failed, lambda: True).step() > 0


def test_a_loop_in_a_greenlet_that_is_ended_ends() -> None:
    def tick() -> float:
        raise GreenletExit

    with pytest.raises(GreenletExit):
        Loop("test", (tick,), SystemClock(), lambda error: 0.0, lambda: False).step()


@pytest.mark.parametrize("kind", EXITS)
def test_a_run_whose_module_exits_when_it_is_imported_is_given_back_and_the_others_run(
    bench: Bench, kind: type[BaseException]
) -> None:
    found = bench.node.prepare

    def prepare(run: Run) -> Run:
        if run.func == "evil:main":
            raise kind("usage: evil FILE")
        return found(run)

    bench.node.prepare = prepare
    now = bench.clock.now()
    bench.store.add_runs(
        [
            Run(id="evil", call=Call("evil:main"), queue=".default", run_at=now - 1, created_at=now),
            Run(id="good", call=Call("os:getcwd"), queue=".default", run_at=now, created_at=now),
        ]
    )
    bench.link.worker.look(".default")
    assert on_a_thread(bench.link.worker) is None
    assert list(bench.executor.given) == ["good"]
    assert bench.node.missing.first(10) == ["evil:main"]
    bench.link.worker.settles()
    (evil,) = [run for run in runs(bench) if run.id == "evil"]
    assert (evil.status, evil.attempt) == (Status.PENDING, 0)


@pytest.mark.parametrize("kind", [*EXITS, ValueError])
def test_a_listener_that_exits_harms_no_other(kind: type[BaseException]) -> None:
    heard: list[Any] = []

    def exits(event: Any) -> None:
        raise kind

    listeners = Listeners()
    listeners.add(exits)
    listeners.add(heard.append)
    event = events.SchedulerEvent(events.EVENT_SCHEDULER_STARTED)
    assert on_a_thread(lambda: listeners.call(event)) is None
    assert heard == [event]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, GreenletExit])
def test_what_is_meant_for_the_thread_goes_through_a_listener(kind: type[BaseException]) -> None:
    def interrupted(event: Any) -> None:
        raise kind

    listeners = Listeners()
    listeners.add(interrupted)
    with pytest.raises(kind):
        listeners.call(events.SchedulerEvent(events.EVENT_SCHEDULER_STARTED))


def test_a_trigger_that_exits_does_not_keep_the_others_from_firing(bench: Bench) -> None:
    bench.add("good")
    bad = bench.add("bad")

    class Exits(type(bad.trigger)):  # type: ignore[misc]
        def next_fire(self, previous: int | None, now: int) -> int | None:
            sys.exit("in the trigger")

    bench.store.remove_job("bad")
    bad.trigger = Exits(seconds=5, timezone="UTC")
    bench.store.add_job(bad)
    bench.link.scheduler()
    assert [run.job_id for run in runs(bench)] == ["good"]


def test_a_back_off_function_that_exits_ends_the_retries_and_loses_no_report(bench: Bench) -> None:
    bench.add(retries=3, backoff=lambda failures: sys.exit(failures))
    bench.link.scheduler()
    (run_id,) = bench.executor.given
    bench.executor.end(run_id, ValueError("no"))
    bench.link.worker()
    (run,) = runs(bench)
    assert (run.status, bench.link.claims) == (Status.FAILED, {})


# -- delays ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("delay", [1e14, 10**30, float("inf"), -5])
def test_a_retry_waits_no_longer_than_every_store_can_say(bench: Bench, counted: bool, delay: float) -> None:
    bench.add(seconds=1000, retries=1)
    bench.link.scheduler()
    (run_id,) = bench.executor.given
    bench.executor.end(run_id, Retry(delay, counted=counted))
    bench.link.worker.settles()
    (run,) = runs(bench)
    waits = LONGEST_DELAY_SECONDS if delay > 0 else 0
    assert (run.status, run.run_at) == (Status.PENDING, bench.clock.now() + waits * 1_000_000)


# -- outcomes --------------------------------------------------------------------------------------------------------


def ended(bench: Bench, *names: str) -> None:
    """Have a run of each job end with its name as the result."""
    for name in names:
        bench.add(name, seconds=1000)
    bench.link.scheduler()
    for run_id, (run, _) in list(bench.executor.given.items()):
        bench.executor.end(run_id, value=run.job_id)


class Picky:
    """Settles for a store, all or nothing, but not what it dislikes."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch, dislikes: Callable[[Outcome], bool]) -> None:
        self._settle, self.dislikes = bench.store.settle, dislikes
        monkeypatch.setattr(bench.store, "settle", self)

    def __call__(self, outcomes: Sequence[Outcome]) -> list[bool]:
        if any(map(self.dislikes, outcomes)):
            raise OverflowError("too large for a column")
        return self._settle(outcomes)


def test_only_the_outcome_that_cannot_be_written_fails_and_says_why(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(bench, "a", "b", "bad", "d", "e")
    Picky(bench, monkeypatch, lambda outcome: outcome.run.result == "bad")
    bench.link.worker.settles()
    assert statuses(bench) == dict.fromkeys("abde", Status.SUCCEEDED) | {"bad": Status.FAILED}
    (bad,) = runs(bench, job_id="bad")
    assert [(error.type, error.message) for error in bad.errors] == [("OverflowError", "too large for a column")]
    assert (bench.link.claims, bench.link.in_flight, bench.link.worker.unsettled) == ({}, {"default": 0}, 0)
    assert bench.codes().count(events.EVENT_JOB_ERROR) == 1


@pytest.mark.parametrize("problem", [EncodeError("result", "object", "cannot be stored"), SystemExit("in the packer")])
def test_only_the_outcome_that_cannot_be_packed_fails_and_says_why(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, problem: BaseException
) -> None:
    ended(bench, "a", "bad", "c")

    def pack(outcome: Outcome) -> Outcome:
        if outcome.run.result == "bad":
            raise problem
        return outcome

    monkeypatch.setattr(bench.store, "pack_outcome", pack)
    bench.link.worker.settles()
    assert statuses(bench) == {"a": Status.SUCCEEDED, "bad": Status.FAILED, "c": Status.SUCCEEDED}
    (bad,) = runs(bench, job_id="bad")
    assert str(problem) in bad.errors[0].message
    assert (bench.link.claims, bench.link.worker.unsettled) == ({}, 0)


def test_an_outcome_too_large_to_be_packed_is_shortened_and_says_the_same_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.add("wordy", seconds=1000)
    bench.link.scheduler()
    (run,) = bench.link.claims.values()
    bench.link.report.notes_of(run).write("a long line")
    bench.executor.end(run.id, value=7)

    def pack(outcome: Outcome) -> Outcome:
        if outcome.run.log:
            raise EncodeError("", "list", "is too large")
        return outcome

    monkeypatch.setattr(bench.store, "pack_outcome", pack)
    bench.link.worker.settles()
    (ended,) = runs(bench)
    assert (ended.status, ended.result, ended.log) == (Status.SUCCEEDED, 7, ())


def test_when_a_store_refuses_everything_no_success_becomes_a_failure(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(bench, "a", "b", "c")
    store = Picky(bench, monkeypatch, lambda outcome: True)
    for _ in range(2):
        with pytest.raises(OverflowError):
            bench.link.worker.settles()
    assert bench.link.worker.unsettled == 3
    store.dislikes = lambda outcome: False
    bench.link.worker.settles()
    assert {run.result for run in runs(bench, status=(Status.SUCCEEDED,))} == {"a", "b", "c"}


def test_what_cannot_be_written_in_any_form_is_kept_and_nobody_waits_for_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(bench, "a", "bad", "c")
    Picky(bench, monkeypatch, lambda outcome: outcome.run.job_id == "bad")
    with pytest.raises(OverflowError):
        bench.link.worker.settles()
    with pytest.raises(OverflowError):
        bench.link.worker.settles()
    assert statuses(bench) == {"a": Status.SUCCEEDED, "bad": Status.RUNNING, "c": Status.SUCCEEDED}
    assert [run.job_id for run in bench.link.claims.values()] == ["bad"]


def test_a_store_that_goes_away_while_outcomes_are_sorted_out_loses_none(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(bench, "a", "b", "bad", "d")
    picky = Picky(bench, monkeypatch, lambda outcome: outcome.run.result == "bad")

    def away(outcomes: Sequence[Outcome]) -> list[bool]:
        if [outcome.run.job_id for outcome in outcomes] == ["bad"]:
            raise StoreUnavailable("gone")
        return picky(outcomes)

    monkeypatch.setattr(bench.store, "settle", away)
    with pytest.raises(StoreUnavailable):
        bench.link.worker.settles()
    assert statuses(bench)["bad"] is Status.RUNNING
    monkeypatch.setattr(bench.store, "settle", picky)
    bench.link.worker.settles()
    assert statuses(bench) == dict.fromkeys("abd", Status.SUCCEEDED) | {"bad": Status.FAILED}


# -- fires -----------------------------------------------------------------------------------------------------------


def test_only_the_job_that_cannot_be_fired_stays_due(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = ["a", "b", "bad", "d", "e"]
    for name in names:
        bench.add(name, seconds=1000)
    fire = bench.store.fire

    def picky(firings: Sequence[Firing], lease: float) -> list[tuple[str, ...] | None]:
        if any(step.job_id == "bad" for step in firings):
            raise OverflowError("too large for a column")
        return fire(firings, lease)

    monkeypatch.setattr(bench.store, "fire", picky)
    assert bench.link.scheduler() <= 2.0
    assert sorted(run.job_id or "" for run in runs(bench)) == ["a", "b", "d", "e"]
    assert len(bench.executor.given) == 4
    assert "firing job 'bad' failed" in caplog.text
    monkeypatch.setattr(bench.store, "fire", fire)
    bench.clock.advance(2)
    bench.link.scheduler()
    assert sorted(run.job_id or "" for run in runs(bench)) == names


# -- reports ---------------------------------------------------------------------------------------------------------


def test_a_report_that_cannot_be_stored_keeps_neither_leases_nor_other_reports_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("talks", "bad", "silent"):
        bench.add(name, seconds=1000)
    bench.link.scheduler()
    claimed = {run.job_id: run for run in bench.link.claims.values()}
    for name in ("talks", "bad"):
        live = bench.link.report.notes_of(claimed[name])
        live.progress, live.changed = name, True
    extend = bench.store.extend

    def picky(beats: Sequence[Beat], lease: float) -> list[Hold]:
        if any(beat.progress == "bad" for beat in beats):
            raise EncodeError("progress", "type", "is not a number")
        return extend(beats, lease)

    monkeypatch.setattr(bench.store, "extend", picky)
    before = {run.job_id: run.lease_until or 0 for run in runs(bench)}
    bench.clock.advance(5)
    bench.link.heartbeat()
    after = {run.job_id: (run.lease_until or 0, run.progress) for run in runs(bench)}
    assert all(after[name][0] > lease for name, lease in before.items())
    assert {name: progress for name, (_, progress) in after.items()} == {"talks": "talks", "bad": None, "silent": None}
    assert bench.link.heartbeat.steady_since is not None


def test_what_a_run_says_after_its_end_is_kept_by_nobody(bench: Bench) -> None:
    bench.add()
    bench.link.scheduler()
    (run,) = bench.link.claims.values()
    bench.link.report.notes_of(run).write("in time")
    bench.executor.end_all()
    bench.link.worker()
    late = bench.link.report.notes_of(run)
    late.write("too late")
    bench.link.report.notes_changed(late)
    assert bench.link.notes == {}
    assert runs(bench)[0].log == ("in time",)


def test_what_a_run_says_while_its_end_is_being_settled_is_not_kept_either(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.add()
    bench.link.scheduler()
    (run,) = bench.link.claims.values()
    bench.executor.end_all()
    settle = bench.store.settle

    def slow(outcomes: Sequence[Outcome]) -> list[bool]:
        bench.link.report.notes_of(run).write("a little late")
        return settle(outcomes)

    monkeypatch.setattr(bench.store, "settle", slow)
    bench.link.worker()
    assert bench.link.notes == {}


# -- bounds and stopping ---------------------------------------------------------------------------------------------


def test_a_node_names_a_bounded_number_of_references_that_it_cannot_call(bench: Bench) -> None:
    now = bench.clock.now()
    calls = [Call(f"nowhere:f{number}") for number in range(2 * MOST_MISSING_FUNCTIONS)]
    bench.link.begin(
        [Run(id=call.func, call=call, queue=".default", created_at=now, token="t") for call in calls]  # type: ignore[arg-type]
    )
    assert len(describe(bench.link).missing) == MOST_MISSING_FUNCTIONS
    assert "nowhere:f199" in bench.node.missing


def test_each_reference_that_cannot_be_called_is_logged_once_however_many_there_are(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    calls = [Call(f"nowhere:f{number}") for number in range(2 * MOST_MISSING_FUNCTIONS)]
    for turn in ("a", "b", "c"):
        bench.link.begin([Run(id=f"{call.func}{turn}", call=call, queue=".default", token="t") for call in calls])
    told = [record for record in caplog.records if "this node cannot call" in record.getMessage()]
    assert len(told) == len(calls)


def test_a_trigger_that_recovers_and_fails_again_is_logged_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench.add()
    next_fire = IntervalTrigger.next_fire
    told = []
    for fails in (True, True, False, True, True):

        def answer(self: IntervalTrigger, previous: int | None, now: int, fails: bool = fails) -> int | None:
            if fails:
                raise RuntimeError("no")
            return next_fire(self, previous, now)

        monkeypatch.setattr(IntervalTrigger, "next_fire", answer)
        bench.link.scheduler()
        bench.clock.advance(100)
        told.append(len([record for record in caplog.records if "the trigger of job" in record.getMessage()]))
    assert told == [1, 1, 1, 2, 2]


def test_an_executor_that_was_there_in_between_is_missed_again(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.add(executor="other", max_instances=10)
    told = []
    for there in (False, False, True, False):
        if there:
            bench.node.executors["other"] = bench.executor
        else:
            bench.node.executors.pop("other", None)
        bench.link.scheduler()
        bench.clock.advance(100)
        told.append(len([record for record in caplog.records if "wants the executor" in record.getMessage()]))
    assert told == [1, 1, 1, 2]


def test_a_node_whose_store_is_down_ends_though_a_run_was_reported_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.add()
    bench.link.scheduler()
    (run,) = bench.link.claims.values()
    bench.link.begin([run])  # claimed again while it runs here: reported as BUSY
    bench.executor.end_all()
    assert [report.result for report in bench.link.worker.outbox] == [Result.BUSY, Result.RETURNED]

    def down(outcomes: Any) -> Any:
        raise StoreUnavailable("gone")

    monkeypatch.setattr(bench.store, "settle", down)
    bench.node.drain(finish=False)
    bench.link.work.step()
    assert bench.link.work._finished()


def test_a_lost_run_whose_record_cannot_be_written_again_has_failed(
    bench: Bench, other: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "bad", "c"):
        other.add(name, seconds=1000)
    other.link.scheduler()
    bench.link.heartbeat()
    bench.clock.advance(16)
    Picky(bench, monkeypatch, lambda outcome: outcome.run.job_id == "bad" and outcome.run.status is Status.PENDING)
    bench.link.janitor()
    assert statuses(bench) == {"a": Status.PENDING, "bad": Status.FAILED, "c": Status.PENDING}


def test_a_lost_run_that_cannot_be_recovered_keeps_no_other_from_it(
    bench: Bench, other: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "bad", "c"):
        other.add(name, seconds=1000)
    other.link.scheduler()
    bench.link.heartbeat()
    bench.clock.advance(16)
    Picky(bench, monkeypatch, lambda outcome: outcome.run.job_id == "bad")
    bench.link.janitor()
    assert statuses(bench) == {"a": Status.PENDING, "bad": Status.RUNNING, "c": Status.PENDING}
