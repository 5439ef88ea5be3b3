"""The log lines about runs: one for each, where it is executed, with its arguments masked and cut."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from msgspec.structs import replace

from mainspring.core.policy import Policy
from mainspring.core.run import Call, Condition, Error, Outcome, Report, Result, Run, Status
from mainspring.errors import Retry
from mainspring.events import EVENT_JOB_EXECUTED
from mainspring.node.events.run_events import RunEvents
from tests.node.bench import Bench

TRACE = """Traceback (most recent call last):
  File "/home/ann/shop.py", line 7, in send
    requests.post(url)
  File "/venv/lib/python3.11/site-packages/requests/api.py", line 59, in request
    return session.request()
  File "/venv/lib/python3.11/site-packages/requests/sessions.py", line 589, in request
    resp = self.send(prep)
TimeoutError: no answer
"""


def send(to: str, password: str = "") -> None: ...


def made(**changes: Any) -> Run:
    call = Call(send, ("ann",), {"password": "hunter2"}, "send", task="shop:send")
    run = Run(id="r1", call=call, queue="mail", attempt=1, started_at=1_000_000, finished_at=1_020_000)
    return replace(run, **changes)


@pytest.fixture
def events(caplog: pytest.LogCaptureFixture) -> RunEvents:
    caplog.set_level(logging.INFO, "mainspring.runs")
    return RunEvents()


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def settle(events: RunEvents, run: Run, report: Report | None = None) -> None:
    events.settled(Outcome(run, Condition.HELD), "default", report)


def test_a_run_that_succeeds_is_one_line_with_its_arguments_masked(
    events: RunEvents, caplog: pytest.LogCaptureFixture
) -> None:
    run = made(status=Status.SUCCEEDED)

    settle(events, run, Report(run, Result.RETURNED))

    assert lines(caplog) == [("INFO", "send('ann', password=***) r1 succeeded in 0.02 s")]
    [record] = caplog.records
    facts = {name: getattr(record, name) for name in ("run_id", "task", "queue", "attempt", "status", "took")}
    assert facts == {
        "run_id": "r1",
        "task": "shop:send",
        "queue": "mail",
        "attempt": 1,
        "status": "succeeded",
        "took": 0.02,
    }


def test_a_run_that_succeeds_after_retries_says_at_which_attempt(
    events: RunEvents, caplog: pytest.LogCaptureFixture
) -> None:
    settle(events, made(status=Status.SUCCEEDED, attempt=3))

    assert lines(caplog) == [("INFO", "send('ann', password=***) r1 succeeded in 0.02 s at attempt 3")]


def test_a_retry_is_a_warning_that_says_which_one_follows_and_when(
    events: RunEvents, caplog: pytest.LogCaptureFixture
) -> None:
    before = made(policy=Policy(retries=5), failures=1)
    error = Error("TimeoutError", "no answer", TRACE, 0, 2)
    after = replace(before, status=Status.PENDING, failures=2, run_at=5_020_000)

    settle(events, after, Report(before, Result.RAISED, None, TimeoutError(), error, 1_000_000, 1_020_000))

    text = "send('ann', password=***) r1 failed at shop.py:send; retry 2 of 5 in 4 s: TimeoutError: no answer"
    assert lines(caplog) == [("WARNING", text)]


def test_a_crash_is_a_warning_and_spends_no_retry(events: RunEvents, caplog: pytest.LogCaptureFixture) -> None:
    before = made()
    error = Error("WorkerDied", "process 7 ended by signal 9", "", 0, 1)
    report = Report(before, Result.RAISED, None, RuntimeError(), error, 1_000_000, 1_020_000)

    settle(events, replace(before, status=Status.PENDING, crashes=1, run_at=1_020_000), report)

    [(level, text)] = lines(caplog)
    assert level == "WARNING"
    assert "it is executed again, alone, and no retry is spent: WorkerDied: process 7" in text


def test_a_run_that_asks_to_run_again_is_no_warning(events: RunEvents, caplog: pytest.LogCaptureFixture) -> None:
    before = made()
    report = Report(before, Result.RAISED, None, Retry(delay=4, counted=False), None, 1_000_000, 1_020_000)

    settle(events, replace(before, status=Status.PENDING, run_at=5_020_000), report)

    assert lines(caplog) == [("INFO", "send('ann', password=***) r1 asked to run again in 4 s")]


def test_a_failure_for_good_is_an_error_with_the_frames_of_libraries_folded(
    events: RunEvents, caplog: pytest.LogCaptureFixture
) -> None:
    error = Error("TimeoutError", "no answer", TRACE, 0, 1)

    settle(events, made(status=Status.FAILED, attempt=3, errors=(error,)))

    [(level, text)] = lines(caplog)
    assert level == "ERROR"
    assert text.splitlines() == [
        "send('ann', password=***) r1 failed for good after 3 attempts in 0.02 s at shop.py:send: "
        "TimeoutError: no answer",
        "Traceback (most recent call last):",
        '  File "/home/ann/shop.py", line 7, in send',
        "    requests.post(url)",
        "  ... 2 frames in requests ...",
        "TimeoutError: no answer",
    ]


def test_a_cancelled_run_says_why(events: RunEvents, caplog: pytest.LogCaptureFixture) -> None:
    settle(events, made(status=Status.CANCELLED, started_at=None, reason="the order\nwas withdrawn"))

    assert lines(caplog) == [("INFO", "send('ann', password=***) r1 cancelled: the order was withdrawn")]


def test_a_broken_run_is_an_error(events: RunEvents, caplog: pytest.LogCaptureFixture) -> None:
    settle(events, made(status=Status.BROKEN, reason="it crashed 3 processes"))

    assert lines(caplog) == [
        ("ERROR", "send('ann', password=***) r1 is set aside as broken: it crashed 3 processes"),
    ]


def test_a_run_that_nobody_can_look_up_shows_no_positional_arguments(
    events: RunEvents, caplog: pytest.LogCaptureFixture
) -> None:
    settle(events, made(status=Status.SUCCEEDED, call=Call("shop:send", ("ann", "hunter2"), {"n": 1}, "send")))

    assert lines(caplog) == [("INFO", "send(n=1, …) r1 succeeded in 0.02 s")]


def test_a_listener_is_told_whether_or_not_the_log_is_read(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "mainspring.runs")
    events, told = RunEvents(), list[Any]()
    events.listeners.add(told.append)

    settle(events, made(status=Status.SUCCEEDED))

    assert ([event.code for event in told], lines(caplog)) == ([EVENT_JOB_EXECUTED], [])


# -- what the ticks say ------------------------------------------------------------------------------------------------


def test_a_batch_with_nobody_reading_writes_nothing_and_looks_at_no_argument(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, "mainspring.runs")
    looks: list[object] = []
    monkeypatch.setattr("mainspring.node.events.run_log.call_text", lambda *given: looks.append(given))
    bench.add(seconds=1000)
    bench.link.scheduler()
    bench.executor.end_all()
    bench.link.worker()

    assert (looks, lines(caplog)) == ([], [])


def test_a_run_is_logged_once_where_it_ended(bench: Bench, other: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mainspring.runs")
    bench.add(seconds=1000)
    bench.link.scheduler()
    bench.executor.end_all()
    for node in (bench, other):
        node.link.worker()
        node.link.janitor()

    [(level, text)] = lines(caplog)
    assert level == "INFO"
    assert text.startswith("work() j@")


def test_every_missed_and_skipped_fire_is_a_warning_with_its_reason(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mainspring.runs")
    bench.add("busy", seconds=10)
    bench.add("late", seconds=100, misfire_grace_time=1)
    bench.clock.advance(5)
    bench.link.scheduler()
    bench.clock.advance(10)
    bench.link.scheduler()

    assert lines(caplog) == [
        (
            "WARNING",
            'job "work" (late) missed its run time 2026-01-01 00:00:00 UTC: it could not start within its grace time',
        ),
        (
            "WARNING",
            'job "work" (busy) was skipped at 2026-01-01 00:00:10 UTC: '
            "max_instances reached, its last run has not ended",
        ),
    ]


def test_a_job_that_is_skipped_again_and_again_warns_less_and_less_often(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mainspring.runs")
    bench.add("busy", seconds=10)
    for _ in range(12):
        bench.clock.advance(10)
        bench.link.scheduler()
    said = [re.search(r"in a row: (\d+)", text) for _, text in lines(caplog)]
    assert [1 if found is None else int(found[1]) for found in said] == [1, 2, 4, 8]


def test_the_run_of_a_dead_node_is_a_warning_of_whoever_recovers_it(
    bench: Bench, other: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.add(seconds=1000)
    bench.link.scheduler()
    other.link.heartbeat()
    for _ in range(4):
        other.clock.advance(5)
        other.link.heartbeat()
    other.link.janitor()

    said = [text for _, text in lines(caplog) if "was lost with its node" in text]
    assert len(said) == 1
    assert said[0].endswith("was lost with its node and waits to be executed again")
