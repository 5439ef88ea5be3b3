import asyncio
import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import ThreadPoolExecutor as Futures
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from mainspring.core.instants import to_us
from mainspring.core.run import Result
from mainspring.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, EVENT_JOB_MISSED, JobExecutionEvent
from mainspring.executors.asyncio import AsyncIOExecutor
from mainspring.executors.base import BaseExecutor, MaxInstancesReachedError, run_coroutine_job, run_job
from mainspring.executors.debug import DebugExecutor
from mainspring.executors.pool import ThreadPoolExecutor
from tests.executors import tasks
from tests.executors.helpers import Reports, make_run, wait_until

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def make_job(func: Any, *args: Any, **fields: Any) -> Any:
    defaults: dict[str, Any] = {"id": "j", "name": "job", "kwargs": {}, "misfire_grace_time": None, "max_instances": 1}
    return SimpleNamespace(func=func, args=args, **(defaults | fields))


class Scheduler:
    def __init__(self) -> None:
        self.events: list[JobExecutionEvent] = []

    def _dispatch_event(self, event: JobExecutionEvent) -> None:
        self.events.append(event)


@pytest.fixture
def reports() -> Reports:
    return Reports()


class TestRunJob:
    def test_each_run_time_gives_an_event_with_the_value(self) -> None:
        times = [NOW, NOW + timedelta(seconds=1)]
        events = run_job(make_job(tasks.add, 1, kwargs={"b": 2}), "store", times, "log")
        assert [(event.code, event.scheduled_run_time, event.retval) for event in events] == [
            (EVENT_JOB_EXECUTED, time, 3) for time in times
        ]
        assert {(event.job_id, event.jobstore) for event in events} == {("j", "store")}

    def test_an_exception_gives_an_error_event_and_the_next_time_is_run(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.CRITICAL, "log"):
            events = run_job(make_job(tasks.raise_named, "exit"), "store", [NOW, NOW], "log")
        assert [event.code for event in events] == [EVENT_JOB_ERROR] * 2
        assert isinstance(events[0].exception, SystemExit)
        assert "in raise_named" in (events[0].traceback or "")

    def test_a_run_time_past_the_grace_is_missed(self, caplog: pytest.LogCaptureFixture) -> None:
        recent = datetime.now(UTC)
        with caplog.at_level(logging.CRITICAL, "log"):
            events = run_job(
                make_job(tasks.add, 1, misfire_grace_time=600), "store", [NOW - timedelta(900), recent], "log"
            )
        assert [event.code for event in events] == [EVENT_JOB_MISSED, EVENT_JOB_EXECUTED]

    def test_without_a_grace_nothing_is_missed(self) -> None:
        (event,) = run_job(make_job(tasks.add, 1), "store", [datetime(1999, 1, 1, tzinfo=UTC)], "log")
        assert event.code == EVENT_JOB_EXECUTED

    def test_a_coroutine_function_is_not_dropped(self) -> None:
        (event,) = run_job(make_job(tasks.add_later, 1, 2), "store", [NOW], "log")
        assert event.retval == 3

    def test_coroutine_functions_are_awaited(self, caplog: pytest.LogCaptureFixture) -> None:
        recent = datetime.now(UTC)
        with caplog.at_level(logging.CRITICAL, "log"):
            good = asyncio.run(run_coroutine_job(make_job(tasks.add_later, 1, 2), "store", [NOW], "log"))
            bad = asyncio.run(run_coroutine_job(make_job(tasks.fail_later), "store", [NOW], "log"))
            job = make_job(tasks.add_later, 1, misfire_grace_time=600)
            late = asyncio.run(run_coroutine_job(job, "store", [NOW - timedelta(900), recent], "log"))
        assert good[0].retval == 3
        assert isinstance(bad[0].exception, ValueError)
        assert [event.code for event in late] == [EVENT_JOB_MISSED, EVENT_JOB_EXECUTED]


class TestSubmitJob:
    @pytest.fixture(params=[ThreadPoolExecutor, DebugExecutor, AsyncIOExecutor])
    def executor(self, request: pytest.FixtureRequest) -> Iterator[BaseExecutor]:
        executor = request.param()
        executor.start(Scheduler(), "default")
        yield executor
        executor.shutdown()

    @pytest.mark.parametrize("func", [tasks.add, tasks.add_later])
    def test_events_go_to_the_scheduler(self, executor: BaseExecutor, func: Any) -> None:
        executor.submit_job(make_job(func, 1, 2), [NOW, NOW])
        events = executor._scheduler.events
        wait_until(lambda: len(events) == 2)
        assert [(event.code, event.retval) for event in events] == [(EVENT_JOB_EXECUTED, 3)] * 2

    def test_it_must_be_started_first(self) -> None:
        with pytest.raises(RuntimeError, match="has not been started"):
            ThreadPoolExecutor().submit_job(make_job(tasks.add, 1), [NOW])

    def test_no_more_instances_than_allowed_are_unfinished(self) -> None:
        executor = ThreadPoolExecutor(4)
        executor.start(Scheduler(), "default")
        go = threading.Event()
        job = make_job(go.wait, 60, max_instances=2)
        executor.submit_job(job, [NOW])
        executor.submit_job(job, [NOW])
        with pytest.raises(MaxInstancesReachedError, match=r"'j' already has its maximum of 2"):
            executor.submit_job(job, [NOW])
        go.set()
        wait_until(lambda: len(executor._scheduler.events) == 2)
        executor.submit_job(job, [NOW])
        wait_until(lambda: len(executor._scheduler.events) == 3)
        executor.shutdown()

    def test_a_job_given_back_at_shutdown_is_an_error_in_the_log(self, caplog: pytest.LogCaptureFixture) -> None:
        executor = ThreadPoolExecutor()
        executor.start(Scheduler(), "default")
        executor.shutdown()
        executor.submit_job(make_job(tasks.add, 1), [NOW])
        assert "job j could not be run" in caplog.text


class Written(BaseExecutor):
    """As somebody wrote it for APScheduler: nothing but these methods, no call of our __init__."""

    def __init__(self) -> None:
        self._pool = Futures(2)

    def shutdown(self, wait: bool = True) -> None:
        self._pool.shutdown(wait)

    def _do_submit_job(self, job: Any, run_times: Sequence[datetime]) -> None:
        def callback(future: Future[list[JobExecutionEvent]]) -> None:
            error = future.exception()
            if error:
                self._run_job_error(job.id, error, error.__traceback__)
            else:
                self._run_job_success(job.id, future.result())

        future = self._pool.submit(run_job, job, job._jobstore_alias, run_times, self._logger.name)
        future.add_done_callback(callback)


class Manual(BaseExecutor):
    """Answers when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[tuple[Any, Sequence[datetime]]] = []

    def _do_submit_job(self, job: Any, run_times: Sequence[datetime]) -> None:
        self.jobs.append((job, run_times))


@pytest.fixture
def written() -> Iterator[Written]:
    executor = Written()
    executor.start(Scheduler(), "mine")
    yield executor
    executor.shutdown()


@pytest.fixture
def manual() -> Manual:
    executor = Manual()
    executor.start(Scheduler(), "mine")
    return executor


class TestWrittenForAPScheduler:
    def test_runs_are_executed_and_reported(
        self, written: Written, reports: Reports, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.CRITICAL, "mainspring"):
            runs = [
                make_run(tasks.add, 1, job_id="a"),
                make_run(tasks.fail, "no", job_id="b"),
                make_run(tasks.add_later, 5),
            ]
            written.submit(runs, reports)
            by_id = {report.run.id: report for report in reports.wait(3)}
        assert by_id[runs[0].id].value == 1
        assert isinstance(by_id[runs[1].id].exception, ValueError)
        assert by_id[runs[1].id].error is not None
        assert by_id[runs[2].id].value == 5
        assert written._scheduler.events == []

    def test_hundreds_of_runs_of_one_job_are_reported_once(self, written: Written, reports: Reports) -> None:
        runs = [make_run(tasks.add, n, job_id="same") for n in range(500)]
        written.submit(runs, reports)
        reports.wait(500)
        assert set(reports.counts.values()) == {1}
        assert len(reports.counts) == 500

    def test_it_sees_a_job_with_the_runs_attributes(self, manual: Manual, reports: Reports) -> None:
        run = make_run("tests.executors.tasks:add", 1, kwargs={"b": 2}, job_id="a", fire_time=to_us(NOW))
        manual.submit([run], reports)
        ((job, run_times),) = manual.jobs
        assert (job.id, job.func, job.args, job.kwargs) == ("a", tasks.add, (1,), {"b": 2})
        assert job.misfire_grace_time is None
        assert list(run_times) == [NOW]

    def test_answers_are_matched_first_in_first_out(self, manual: Manual, reports: Reports) -> None:
        one, two = make_run(tasks.add, 1, job_id="a"), make_run(tasks.add, 2, job_id="a")
        manual.submit([one, two], reports)
        for value in (10, 20):
            manual._run_job_success("a", [JobExecutionEvent(EVENT_JOB_EXECUTED, "a", "default", NOW, retval=value)])
        assert [(report.run, report.value) for report in reports.all] == [(one, 10), (two, 20)]

    def test_an_answer_without_events_is_a_success(self, manual: Manual, reports: Reports) -> None:
        manual.submit([make_run(tasks.add, 1, job_id="a")], reports)
        manual._run_job_success("a", [])
        assert [(report.result, report.value) for report in reports.all] == [(Result.RETURNED, None)]

    def test_events_become_reports(self, manual: Manual, reports: Reports) -> None:
        manual.submit([make_run(tasks.add, 1, job_id="a") for _ in range(3)], reports)
        failure = ValueError("there")
        manual._run_job_success(
            "a", [JobExecutionEvent(EVENT_JOB_ERROR, "a", "default", NOW, exception=failure, traceback="far away")]
        )
        manual._run_job_success("a", [JobExecutionEvent(EVENT_JOB_MISSED, "a", "default", NOW)])
        manual._run_job_error("a", RuntimeError("the pool is broken"))
        raised, missed, broken = reports.all
        assert (raised.result, raised.exception) == (Result.RAISED, failure)
        assert raised.error is not None
        assert raised.error.traceback == "far away"
        assert missed.result is Result.LATE
        assert str(broken.exception) == "the pool is broken"

    def test_an_answer_too_many_is_only_logged(
        self, manual: Manual, reports: Reports, caplog: pytest.LogCaptureFixture
    ) -> None:
        manual.submit([make_run(tasks.add, 1, job_id="a")], reports)
        manual._run_job_success("a", [])
        manual._run_job_success("a", [])
        manual._run_job_error("a", RuntimeError())
        assert len(reports.all) == 1
        assert caplog.text.count("answered once too often") == 2

    def test_a_submission_that_raises_fails_its_run_only(self, manual: Manual, reports: Reports) -> None:
        def refuse(job: Any, run_times: Sequence[datetime]) -> None:
            if job.id == "bad":
                raise OSError("no room")
            Manual._do_submit_job(manual, job, run_times)

        manual._do_submit_job = refuse  # type: ignore[method-assign]
        manual.submit([make_run(tasks.add, 1, job_id="bad"), make_run(tasks.add, 2, job_id="good")], reports)
        assert [str(report.exception) for report in reports.all] == ["no room"]
        manual._run_job_success("good", [])
        assert len(reports.all) == 2

    def test_a_reference_that_leads_nowhere_fails_its_run(self, manual: Manual, reports: Reports) -> None:
        manual.submit([make_run("no.such:thing")], reports)
        assert isinstance(reports.all[0].exception, LookupError)

    def test_a_late_run_is_not_submitted(self, manual: Manual, reports: Reports) -> None:
        manual.submit([make_run(tasks.add, 1)], reports, lambda run: Result.LATE)
        assert [report.result for report in reports.all] == [Result.LATE]
        assert manual.jobs == []

    def test_it_may_answer_inline_under_its_lock(self, reports: Reports) -> None:
        class Inline(BaseExecutor):
            def _do_submit_job(self, job: Any, run_times: Sequence[datetime]) -> None:
                with self._lock:
                    self._run_job_success(job.id, run_job(job, "default", run_times, self._logger.name))

        executor = Inline()
        executor.start(Scheduler(), "mine")
        executor.submit([make_run(tasks.add, 4)], reports)
        assert reports.all[0].value == 4

    def test_submit_job_still_dispatches_its_events(self, manual: Manual) -> None:
        manual.submit_job(make_job(tasks.add, 1), [NOW])
        event = JobExecutionEvent(EVENT_JOB_EXECUTED, "j", "default", NOW)
        manual._run_job_success("j", [event])
        assert manual._scheduler.events == [event]

    def test_an_executor_that_defines_nothing_is_told_what_to_define(self, reports: Reports) -> None:
        executor = BaseExecutor()
        executor.start(Scheduler(), "mine")
        with pytest.raises(NotImplementedError, match=r"must define submit\(\) or _do_submit_job\(\)"):
            executor.submit([make_run(tasks.add, 1)], reports)
