"""What follows from a run that has ended, and what a crash, an interruption or a wait lead to. Pure."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mainspring.core.followups import (
    MOST_STEPS,
    FinishedRun,
    briefly,
    follow_ups,
    is_hook,
    predecessors,
    step_id,
    step_of,
)
from mainspring.core.ids import check_run_id
from mainspring.core.instants import SECOND
from mainspring.core.policy import Policy
from mainspring.core.run import MOST_CRASHES, Call, Condition, Error, Report, Result, Run, Status
from mainspring.core.transitions import cancel, conclude, recover, retry, unkeyed
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


def step(number: int, **changes: Any) -> dict[str, Any]:
    policy = Policy(retries=number, priority=number)
    return {**step_of(Call("shop:next", (number,), {}, f"next {number}"), "shop:next", "slow", policy), **changes}


# -- follow-ups --------------------------------------------------------------------------------------------------


def test_nothing_follows_from_a_plain_run() -> None:
    assert follow_ups(ended(), NOW) == ()


def test_each_step_of_a_chain_carries_the_rest_and_a_number() -> None:
    run = ended(group="g", policy=Policy(then=(step(1), step(2))))
    (first,) = follow_ups(run, NOW)
    assert (first.id, first.queue, first.group, first.call.func, first.args) == ("r~1", "slow", "g", "shop:next", (1,))
    assert (first.status, first.run_at, first.priority, first.policy.retries) == (Status.PENDING, NOW, 1, 1)
    (second,) = follow_ups(replace(first, status=Status.SUCCEEDED), NOW)
    assert (second.id, second.policy.then, second.args) == ("r~2", (), (2,))
    assert follow_ups(replace(second, status=Status.SUCCEEDED), NOW) == ()


def test_a_step_may_wait_before_it_starts() -> None:
    delayed = step_of(Call("shop:next"), "shop:next", "slow", Policy(), 60.0)
    (first,) = follow_ups(ended(policy=Policy(then=(delayed,))), NOW)
    assert (first.created_at, first.run_at) == (NOW, NOW + 60 * SECOND)


@pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED, Status.MISSED, Status.BROKEN])
def test_a_chain_ends_where_a_run_does_not_succeed(status: Status) -> None:
    assert follow_ups(ended(status=status, policy=Policy(then=(step(1),))), NOW) == ()


@pytest.mark.parametrize("status", [Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.MISSED])
def test_a_hook_follows_however_a_run_ended(status: Status) -> None:
    error = Error("ValueError", "torn", "Traceback ...", NOW, 1)
    run = ended(status=status, errors=(error,), policy=Policy(hook="shop:hook"), group="g", job_id=None)
    (hook,) = follow_ups(run, NOW)
    (told,) = hook.args
    assert (hook.id, hook.call.func, hook.queue) == ("r~hook", "shop:hook", "mail")
    assert isinstance(told, FinishedRun)
    assert (told.id, told.args, told.kwargs, told.result, told.group) == ("r", (1,), {"to": "x"}, 42, "g")
    assert told.success is (status is Status.SUCCEEDED)
    assert told.error == (None if told.success else "ValueError: torn")
    assert follow_ups(replace(hook, status=Status.SUCCEEDED), NOW) == ()


def test_a_hook_and_a_step_both_follow() -> None:
    run = ended(policy=Policy(then=(step(1),), hook="shop:hook"))
    assert [each.id for each in follow_ups(run, NOW)] == ["r~1", "r~hook"]


def test_overdue_fires_follow_one_another_also_after_a_failure() -> None:
    run = ended(
        id="job@1@100", job_id="job", status=Status.FAILED, fire_time=100, start_by=150, later=(200, 300), result=None
    )
    (following,) = follow_ups(run, NOW)
    assert (following.id, following.fire_time, following.start_by, following.later) == ("job@1@200", 200, 250, (300,))


@pytest.mark.parametrize(
    ("run_id", "before"),
    [
        ("r", []),
        ("r~1", ["r"]),
        ("r~3", ["r~2", "r~1", "r"]),
        ("r~hook", ["r"]),
        ("r~hook2", ["r"]),
        ("r~2~hook", ["r~2", "r~1", "r"]),
        ("order/7", []),
        ("order/7~1", ["order/7"]),
        ("a\nb~1", ["a\nb"]),
        ("~1", []),
        ("r~0", []),
        ("r~01", []),
        ("r~20261116", []),
        ("r~hooks", []),
    ],
)
def test_the_runs_before_are_read_from_the_id(run_id: str, before: list[str]) -> None:
    assert list(predecessors(run_id)) == before
    assert is_hook(run_id) is ("~hook" in run_id and bool(before))


def test_the_last_step_of_the_longest_chain_is_known_by_its_id() -> None:
    line = list(predecessors(step_id("r", MOST_STEPS - 1)))
    assert (len(line), line[-1]) == (MOST_STEPS - 1, "r")
    (last,) = follow_ups(ended(id=step_id("r", MOST_STEPS - 2), policy=Policy(then=(step(1),))), NOW)
    assert last.id == step_id("r", MOST_STEPS - 1)


@pytest.mark.parametrize("run_id", ["r~1", "order/7~999", "r~hook", "r~hook2"])
def test_nobody_may_give_a_run_an_id_that_follows_from_another(run_id: str) -> None:
    with pytest.raises(ValueError, match="cannot end like that of a step"):
        check_run_id(run_id)


@pytest.mark.parametrize("run_id", ["order/7", "~/data.csv", "notes.txt~", "r~1000", "hook", "order~7b"])
def test_any_other_id_may_be_given(run_id: str) -> None:
    assert check_run_id(run_id) == run_id
    (first,) = follow_ups(ended(id=run_id, policy=Policy(then=(step(1),))), NOW)
    assert list(predecessors(first.id)) == [run_id]


def test_the_hook_is_told_of_each_end_when_a_person_has_sent_the_run_back() -> None:
    run = ended(status=Status.CANCELLED, attempt=0, policy=Policy(hook="shop:hook"))
    ids = []
    for _ in range(3):
        ids += [each.id for each in follow_ups(run, NOW)]
        run = cancel(retry(run, NOW).run, NOW).run
    assert ids == ["r~hook", "r~hook2", "r~hook3"]


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


def test_a_hook_can_be_given_less_and_nothing_else_can() -> None:
    run = ended(policy=Policy(then=(step(1),), hook="shop:hook"))
    following, hook = follow_ups(run, NOW)
    brief = briefly([following, hook])
    assert brief[0] is following
    (told,) = brief[1].args
    assert (told.id, told.status, told.args, told.kwargs, told.result) == ("r", "succeeded", (), {}, None)
    assert is_hook(hook.id)


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
    outcome = conclude(died(running(policy=Policy(delivery="at_most_once", hook="shop:hook"))), NOW, 0.5)
    assert (outcome.run.status, outcome.run.reason) == (Status.FAILED, "lost")
    assert [each.id for each in outcome.then] == ["r~hook"]


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


def test_a_cancelled_run_has_its_hook_and_ends_its_chain() -> None:
    run = ended(status=Status.PENDING, policy=Policy(then=(step(1),), hook="shop:hook"))
    outcome = cancel(run, NOW)
    assert (outcome.condition, outcome.run.status) == (Condition.WAITING, Status.CANCELLED)
    assert [each.id for each in outcome.then] == ["r~hook"]
