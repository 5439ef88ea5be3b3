"""The table of transitions, its drawing in the docs, and the functions that apply it agree."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from mainspring.core.policy import Policy
from mainspring.core.run import (
    FINAL,
    ON,
    TRANSITIONS,
    After,
    Call,
    Condition,
    Outcome,
    Report,
    Result,
    Run,
    Status,
    describe,
)
from mainspring.core.transitions import cancel, change, conclude, drop, recover, retry, send_back, send_back_one, stop
from mainspring.errors import Cancel, Retry, WorkerDied

PAGE = (Path(__file__).parents[2] / "docs" / "states.md").read_text()
NOW = 1_763_000_000_123_457


def work() -> None: ...


def held(**fields: object) -> Run:
    base = Run(id="j@1@5", call=Call(work), status=Status.RUNNING, token="t", attempt=1, node="n", lease_until=9)
    return msgspec.structs.replace(base, **fields)


def raised(run: Run, error: BaseException) -> Report:
    return Report(run, Result.RAISED, exception=error, error=describe(error, NOW, run.attempt), finished_at=NOW)


def test_the_documented_table_is_the_table_in_the_code() -> None:
    rows = re.findall(r"^\| (.+?) \| (\S+) \| (\S+) \| (\S+) \| (.+?) \|$", PAGE, re.MULTILINE)
    documented = [row for row in rows if row[0] not in ("verb", "---")]
    assert documented == [
        (t.verb, str(t.before or "-"), str(t.after), str(t.condition or "-"), t.when) for t in TRANSITIONS
    ]


def test_the_drawing_shows_every_transition_and_no_other() -> None:
    drawn = set(re.findall(r"^    (\S+) --> (\w+): (.+)$", PAGE, re.MULTILINE))
    assert drawn == {(str(t.before or "[*]"), str(t.after), t.verb) for t in TRANSITIONS}


def test_final_statuses_are_left_only_by_a_person() -> None:
    assert {t.condition for t in TRANSITIONS if t.before in FINAL} == {Condition.FINISHED}


def permitted(before: Run, outcome: Outcome) -> bool:
    return any(
        (t.before, t.after, t.condition) == (before.status, outcome.run.status, outcome.condition) for t in TRANSITIONS
    )


REPORTS = [
    (Report(held(), Result.RETURNED, value=7), Status.SUCCEEDED),
    (raised(held(), ValueError("x")), Status.FAILED),
    (raised(held(policy=Policy(retries=1)), ValueError("x")), Status.PENDING),
    (raised(held(policy=Policy(retries=1)), Retry(5)), Status.PENDING),
    (raised(held(), Cancel("enough")), Status.CANCELLED),
    (Report(held(), Result.CANCELLED), Status.CANCELLED),
    (Report(held(), Result.LATE), Status.MISSED),
    (Report(held(), Result.UNSTARTED), Status.PENDING),
    (Report(held(), Result.BUSY), Status.PENDING),
    (Report(held(), Result.INTERRUPTED), Status.PENDING),
    (raised(held(), WorkerDied(7, -9)), Status.PENDING),
    (raised(held(crashes=3), WorkerDied(7, -9)), Status.BROKEN),
    (raised(held(policy=Policy(delivery="at_most_once")), WorkerDied(7, -9)), Status.FAILED),
    (raised(held(queue=".default"), WorkerDied(7, -9)), Status.FAILED),
]


@pytest.mark.parametrize(("report", "status"), REPORTS, ids=lambda value: str(getattr(value, "result", value)))
def test_each_report_leads_to_a_permitted_status_under_the_token_it_was_claimed_with(
    report: Report, status: Status
) -> None:
    outcome = conclude(report, NOW, 0.5)
    assert outcome.run.status is status
    assert outcome.run.token == report.run.token
    assert permitted(report.run, outcome)
    assert (outcome.run.unique is None) or status is Status.PENDING


def test_a_lost_run_becomes_claimable_and_is_charged_an_interruption_not_a_failure() -> None:
    outcome = recover(held(), NOW)
    assert permitted(held(), outcome)
    assert (outcome.run.status, outcome.run.interruptions, outcome.run.failures) == (Status.PENDING, 1, 0)


def test_a_lost_run_that_may_start_only_once_fails() -> None:
    run = held(policy=Policy(delivery="at_most_once"))
    outcome = recover(run, NOW)
    assert permitted(run, outcome)
    assert outcome.run.errors[-1].type == "NodeLost"


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_a_lost_run_that_was_to_be_stopped_is_cancelled(delivery: str) -> None:
    run = held(policy=Policy(delivery=delivery), cancelling=True, unique="key")
    outcome = recover(run, NOW)
    assert permitted(run, outcome)
    assert (outcome.run.status, outcome.run.unique) == (Status.CANCELLED, None)


@pytest.mark.parametrize("report", [report for report, status in REPORTS if status is Status.PENDING])
def test_what_may_not_wait_again_is_cancelled_with_all_that_was_known_of_it(report: Report) -> None:
    refused = conclude(report, NOW, 0.5)
    instead = stop(refused, NOW)
    assert permitted(report.run, instead)
    assert (instead.run.status, instead.run.errors) == (Status.CANCELLED, refused.run.errors)


def test_a_cancelled_run_is_kept_though_a_success_would_not_be() -> None:
    run = held(status=Status.PENDING, policy=Policy(retention=0))
    assert cancel(run, NOW).run.policy.retention is None


@pytest.mark.parametrize("status", [Status.BLOCKED, Status.PENDING])
def test_a_run_that_waits_can_be_cancelled_and_changed(status: Status) -> None:
    run = held(status=status)
    assert permitted(run, cancel(run, NOW))
    assert permitted(run, change(run, priority=7))


@pytest.mark.parametrize("status", [Status.BLOCKED, Status.PENDING, Status.RUNNING])
def test_a_refused_run_is_cancelled_with_the_reason_and_not_charged_a_start(status: Status) -> None:
    run = held(status=status, refused="a", unique="key", started_at=7 if status is Status.RUNNING else None)
    outcome = drop(run, "came after fetch, which failed", NOW)
    assert permitted(run, outcome)
    ended = outcome.run
    assert (ended.status, ended.reason) == (Status.CANCELLED, "came after fetch, which failed")
    assert (ended.unique, ended.key, ended.refused, ended.starts) == (None, "key", "a", ())
    assert ended.attempt == (0 if status is Status.RUNNING else 1)


def test_the_report_on_a_refused_run_leads_to_its_end_though_the_other_run_is_gone() -> None:
    outcome = conclude(Report(held(refused="a"), Result.REFUSED), NOW, 0.5)
    assert outcome.run.status is Status.CANCELLED
    assert outcome.run.reason == "came after a, which has not ended as it should"


@pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED, Status.BROKEN])
def test_a_person_may_send_an_ended_run_back(status: Status) -> None:
    run = held(status=status, failures=3, finished_at=4)
    outcome = retry(run, NOW)
    assert permitted(run, outcome)
    assert (outcome.run.failures, outcome.run.finished_at, outcome.run.run_at) == (0, None, NOW)


@pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED, Status.BROKEN])
def test_a_run_that_came_after_others_is_sent_back_to_be_judged_by_them(status: Status) -> None:
    run = held(status=status, after=(After("a"),), refused="a")
    outcome = retry(run, NOW)
    assert permitted(run, outcome)
    assert (outcome.run.status, outcome.run.refused, outcome.run.after) == (Status.BLOCKED, None, run.after)


def test_a_run_that_is_sent_back_gets_a_hook_for_its_next_end() -> None:
    run = held(id="r", status=Status.FAILED, policy=Policy(hook="shop:hook"))
    (hook,) = retry(run, NOW).then
    assert (hook.id, hook.after, hook.status) == ("r~hook2", (After("r", ON["end"]),), Status.BLOCKED)
    (hook,) = retry(msgspec.structs.replace(run, retried=1), NOW).then
    assert hook.id == "r~hook3"


def test_a_run_is_sent_back_together_with_the_runs_that_it_refused() -> None:
    after, hooked = (After("r"),), Policy(hook="shop:hook")
    run = held(id="r", status=Status.FAILED)
    cancelled = held(id="s", status=Status.CANCELLED, after=after, refused="r", policy=hooked)
    marked = held(id="t", status=Status.PENDING, after=after, refused="r", policy=hooked)
    back = send_back(run, [cancelled, marked], NOW)
    assert all(permitted(before, outcome) for before, outcome in zip([run, cancelled, marked], back, strict=True))
    assert [(each.run.id, each.run.status, each.run.refused) for each in back] == [
        ("r", Status.PENDING, None),
        ("s", Status.BLOCKED, None),
        ("t", Status.BLOCKED, None),
    ]
    # The hook of the marked one still waits for its end.
    assert [[hook.id for hook in each.then] for each in back] == [[], ["s~hook2"], []]


@pytest.mark.parametrize("status", [Status.SUCCEEDED, Status.BLOCKED, Status.PENDING, Status.RUNNING, Status.MISSED])
def test_other_runs_cannot_be_sent_back_and_the_error_says_which_can(status: Status) -> None:
    with pytest.raises(ValueError, match=rf"run 'j@1@5' is {status}; only a run that is failed, cancelled, broken"):
        retry(held(status=status), NOW)


def test_a_retry_waits_as_long_as_the_task_asked() -> None:
    outcome = conclude(raised(held(policy=Policy(retries=1)), Retry(5)), NOW, 0.5)
    assert outcome.run.run_at == NOW + 5_000_000


def test_what_was_not_started_is_not_charged_an_attempt() -> None:
    assert conclude(Report(held(), Result.UNSTARTED), NOW, 0.0).run.attempt == 0


def test_what_its_node_was_not_done_with_waits_a_second_however_old_it_is() -> None:
    run = conclude(Report(held(created_at=NOW - 3_600_000_000), Result.BUSY), NOW, 0.0).run
    assert (run.run_at, run.attempt) == (NOW + 1_000_000, 0)


def test_errors_of_every_attempt_are_kept_up_to_a_bound() -> None:
    run = held(policy=Policy(retries=100))
    for attempt in range(1, 31):
        run = conclude(
            raised(msgspec.structs.replace(run, attempt=attempt, status=Status.RUNNING), ValueError(str(attempt))),
            NOW,
            0.0,
        ).run
    assert [error.message for error in run.errors] == [str(n) for n in range(11, 31)]
    assert run.failures == 30


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_exception_that_cannot_be_shown_is_still_recorded() -> None:
    record = describe(Silent(), NOW, 1)
    assert record.type.endswith("Silent")
    assert "RuntimeError" in record.message


def test_a_huge_traceback_is_cut_in_the_middle() -> None:
    record = describe(ValueError("x" * 1_000_000), NOW, 1)
    assert len(record.traceback) < 66_000
    assert "characters left out" in record.traceback
    assert len(record.message) == 4096


@pytest.mark.parametrize("status", [Status.PENDING, Status.CANCELLED])
def test_a_refused_run_that_is_sent_back_waits_again_for_its_delay_and_one_that_ran_does_not(status: Status) -> None:
    run = held(status=status, after=(After("first"),), delay=60, run_at=NOW)
    assert send_back_one(msgspec.structs.replace(run, refused="first"), NOW).run.run_at == -60
    assert retry(msgspec.structs.replace(run, status=Status.FAILED), NOW).run.run_at == NOW
