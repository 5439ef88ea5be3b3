"""What follows from a run that has ended, and what a crash, an interruption or a wait lead to. Pure."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mainspring.core.ids import check_run_id
from mainspring.core.instants import SECOND
from mainspring.core.policy import Policy
from mainspring.core.run import MOST_CRASHES, ON, After, Call, Condition, Error, Report, Result, Run, Status
from mainspring.core.transitions import cancel, conclude, recover, retry, unkeyed
from mainspring.core.waiting.followups import (
    FinishedRun,
    finished_run,
    hook_of,
    with_hooks,
)
from mainspring.core.waiting.placeholders import RUN, Placeholder
from mainspring.errors import Retry, WorkerDied

NOW = 1_900_000_000 * SECOND


def ended(**changes: Any) -> Run:
    fields: dict[str, Any] = {
        "id": "r",
        "call": Call("shop:send", (1,), {"to": "x"}, "send"),
        "queue": "mail",
        "status": Status.SUCCEEDED,
        "created_at": NOW - SECOND,
        "run_at": NOW - SECOND,
        "started_at": NOW - 10,
        "finished_at": NOW,
        "attempt": 1,
        "result": 42,
    }
    return Run(**{**fields, **changes})


def running(**changes: Any) -> Run:
    plain = {"status": Status.RUNNING, "result": None, "finished_at": None, "token": "t", "node": "n", "lease_until": 1}
    return ended(**{**plain, **changes})


# -- hooks -------------------------------------------------------------------------------------------------------


def test_a_hook_comes_after_its_run_however_that_ends() -> None:
    run = ended(status=Status.PENDING, policy=Policy(hook="shop:hook"), group="g", priority=3)
    hook = hook_of(run)
    assert hook is not None
    assert (hook.id, hook.call.func, hook.args, hook.queue) == ("r~hook", "shop:hook", (Placeholder("r", RUN),), "mail")
    assert (hook.status, hook.after, hook.priority) == (Status.BLOCKED, (After("r", ON["end"]),), 3)
    assert hook_of(hook) is None


def test_runs_are_added_with_their_hooks_behind_them() -> None:
    plain, hooked = ended(id="a"), ended(id="b", policy=Policy(hook="shop:hook"))
    assert [run.id for run in with_hooks([plain, hooked, plain])] == ["a", "b", "b~hook", "a"]


@pytest.mark.parametrize("status", [Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.MISSED])
def test_a_hook_sees_how_its_run_ended(status: Status) -> None:
    error = Error("ValueError", "torn", "Traceback ...", NOW, 1)
    told = finished_run(ended(status=status, errors=(error,), group="g"))
    assert isinstance(told, FinishedRun)
    assert (told.id, told.args, told.kwargs, told.result, told.group) == ("r", (1,), {"to": "x"}, 42, "g")
    assert told.success is (status is Status.SUCCEEDED)
    assert told.error == (None if told.success else "ValueError: torn")


@pytest.mark.parametrize("run_id", ["r~1", "order/7~999", "r~1000", "r~", "r~!2", "r~hook", "r~hook2"])
def test_nobody_may_give_a_run_an_id_that_follows_from_another(run_id: str) -> None:
    with pytest.raises(ValueError, match="cannot end like that of a step"):
        check_run_id(run_id)


@pytest.mark.parametrize("run_id", ["order/7", "~/data.csv", "hook", "order~7b"])
def test_any_other_id_may_be_given(run_id: str) -> None:
    assert check_run_id(run_id) == run_id


def test_the_hook_is_told_of_each_end_when_a_person_has_sent_the_run_back() -> None:
    run = ended(status=Status.CANCELLED, attempt=0, policy=Policy(hook="shop:hook"))
    ids = []
    for _ in range(3):
        again = retry(run, NOW)
        ids += [each.id for each in again.then]
        run = cancel(again.run, NOW).run
    assert ids == ["r~hook2", "r~hook3", "r~hook4"]


# -- unique keys -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["cancel", "fail", "lose"])
def test_a_run_that_is_sent_back_asks_for_its_unique_key(end: str) -> None:
    run = running(unique="k", policy=Policy(delivery="at_most_once"))
    ends = {
        "cancel": lambda: cancel(run, NOW),
        "fail": lambda: conclude(Report(run, Result.RAISED, exception=ValueError()), NOW, 0.5),
        "lose": lambda: recover(run, NOW),
    }
    over = ends[end]().run
    assert over.unique is None
    again = retry(over, NOW)
    assert again.run.unique == "k"
    assert unkeyed(again).run.unique is None
    # Also if another had it the first time.
    assert retry(cancel(unkeyed(again).run, NOW).run, NOW).run.unique == "k"


# -- crashes -----------------------------------------------------------------------------------------------------


def died(run: Run) -> Report:
    error = Error("WorkerDied", "worker process 7 ended", "", NOW, run.attempt)
    return Report(run, Result.RAISED, exception=WorkerDied(7, -9), error=error, started_at=NOW - 5, finished_at=NOW)


def test_a_crash_is_counted_apart_and_the_run_waits_for_another_start() -> None:
    outcome = conclude(died(running()), NOW, 0.5)
    assert (outcome.condition, outcome.run.status) == (Condition.HELD, Status.PENDING)
    assert (outcome.run.crashes, outcome.run.failures, outcome.run.run_at) == (1, 0, NOW)
    assert [error.type for error in outcome.run.errors] == ["WorkerDied"]


def test_a_run_that_crashes_too_often_is_set_aside_with_the_reason() -> None:
    run = running()
    for number in range(1, MOST_CRASHES + 1):
        outcome = conclude(died(run), NOW, 0.5)
        assert (outcome.run.status, outcome.run.crashes) == (Status.PENDING, number)
        run = replace(outcome.run, status=Status.RUNNING)
    outcome = conclude(died(run), NOW, 0.5)
    assert (outcome.run.status, outcome.run.crashes) == (Status.BROKEN, MOST_CRASHES + 1)
    assert "crashed the process that executed it 4 times" in str(outcome.run.reason)
    again = retry(outcome.run, NOW).run
    assert (again.status, again.crashes) == (Status.PENDING, 0)


def test_a_crash_of_what_may_start_only_once_is_its_end() -> None:
    outcome = conclude(died(running(policy=Policy(delivery="at_most_once"))), NOW, 0.5)
    assert (outcome.run.status, outcome.run.reason) == (Status.FAILED, "lost")


def test_in_the_queue_of_an_executor_a_crash_is_a_failure_as_it_was() -> None:
    outcome = conclude(died(running(queue=".processes", policy=Policy(retries=1))), NOW, 0.5)
    assert (outcome.run.status, outcome.run.crashes, outcome.run.failures) == (Status.PENDING, 0, 1)


# -- interruptions and waiting -----------------------------------------------------------------------------------


def test_an_interrupted_run_waits_for_another_node_and_spends_nothing() -> None:
    outcome = conclude(Report(running(), Result.INTERRUPTED), NOW, 0.5)
    assert (outcome.condition, outcome.run.status, outcome.run.run_at) == (Condition.HELD, Status.PENDING, NOW)
    assert (outcome.run.interruptions, outcome.run.failures, outcome.run.errors) == (1, 0, ())


def test_a_run_of_a_lost_node_is_interrupted_too_but_only_if_its_lease_is_over() -> None:
    outcome = recover(running(), NOW)
    assert (outcome.condition, outcome.run.status) == (Condition.EXPIRED, Status.PENDING)
    assert outcome.run.interruptions == 1


@pytest.mark.parametrize("how", ["interrupted", "lost"])
def test_what_may_start_only_once_is_lost_by_an_interruption(how: str) -> None:
    run = running(policy=Policy(delivery="at_most_once", retries=5))
    outcome = recover(run, NOW) if how == "lost" else conclude(Report(run, Result.INTERRUPTED), NOW, 0.5)
    assert (outcome.run.status, outcome.run.reason) == (Status.FAILED, "lost")
    assert outcome.run.errors[-1].type == "NodeLost"


def test_waiting_uncounted_keeps_failures_and_errors_as_they_were() -> None:
    report = Report(running(failures=1), Result.RAISED, exception=Retry(60, "not yet", counted=False))
    report.error = Error("Retry", "not yet", "", NOW, 1)
    outcome = conclude(report, NOW, 0.5)
    assert (outcome.run.status, outcome.run.run_at) == (Status.PENDING, NOW + 60 * SECOND)
    assert (outcome.run.failures, outcome.run.errors) == (1, ())


def test_asking_to_be_tried_again_counts_and_is_refused_when_no_retry_is_left() -> None:
    error = Error("Retry", "later", "", NOW, 1)
    report = Report(running(policy=Policy(retries=1)), Result.RAISED, exception=Retry(5), error=error)
    outcome = conclude(report, NOW, 0.5)
    assert (outcome.run.status, outcome.run.run_at, outcome.run.failures) == (Status.PENDING, NOW + 5 * SECOND, 1)
    report.run = replace(report.run, failures=1)
    assert conclude(report, NOW, 0.5).run.status is Status.FAILED
