"""What every executor must do; a class of tests for each executor inherits it and provides the executor."""

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mainspring.core.policy import Policy
from mainspring.core.run import Report, Result
from mainspring.errors import Cancel, RunTimeout
from mainspring.executors.base import BaseExecutor
from tests.executors import hostile, tasks
from tests.executors.helpers import Reports, make_run, timeout, wait_for_file, wait_until

Start = Callable[[], BaseExecutor]


class ExecutorContract:
    many = 2000
    in_this_process = True

    @pytest.fixture
    def start(self) -> Iterator[Start] | Start:
        """Return a function that makes an executor and starts it; shut it down in the end."""
        raise NotImplementedError

    @pytest.fixture
    def executor(self, start: Start) -> BaseExecutor:
        return start()

    @pytest.fixture
    def reports(self) -> Reports:
        return Reports()

    def restart(self, executor: BaseExecutor) -> None:
        executor.start(executor._scheduler, "again")

    def test_a_returned_value_is_reported_with_its_times(self, executor: BaseExecutor, reports: Reports) -> None:
        run = make_run(tasks.add, 1, kwargs={"b": 2})
        before = executor.now()
        executor.submit([run], reports)
        (report,) = reports.wait()
        assert (report.run, report.result, report.value) == (run, Result.RETURNED, 3)
        assert (report.exception, report.error) == (None, None)
        assert before <= report.started_at <= report.finished_at <= executor.now()

    def test_an_exception_is_reported_with_its_record(self, executor: BaseExecutor, reports: Reports) -> None:
        executor.submit([make_run(tasks.fail, "broken pipe", attempt=3)], reports)
        (report,) = reports.wait()
        assert report.result is Result.RAISED
        assert isinstance(report.exception, ValueError)
        assert report.exception.args == ("broken pipe",)
        assert report.error is not None
        assert (report.error.type, report.error.message, report.error.attempt) == ("ValueError", "broken pipe", 3)
        assert report.error.at == report.finished_at
        assert "in fail" in report.error.traceback
        assert "mainspring/executors" not in report.error.traceback

    def test_a_coroutine_function_is_run_to_its_end(self, executor: BaseExecutor, reports: Reports) -> None:
        executor.submit([make_run(tasks.add_later, 40, 2), make_run(tasks.fail_later)], reports)
        returned, raised = sorted(reports.wait(2), key=lambda report: report.result is Result.RAISED)
        assert (returned.result, returned.value) == (Result.RETURNED, 42)
        assert isinstance(raised.exception, ValueError)
        assert raised.error is not None
        assert "in fail_later" in raised.error.traceback

    @pytest.mark.parametrize(
        ("name", "kind"), [("exit", SystemExit), ("interrupt", KeyboardInterrupt), ("generator", GeneratorExit)]
    )
    def test_an_exception_that_ends_programs_only_fails_the_run(
        self, executor: BaseExecutor, reports: Reports, name: str, kind: type[BaseException]
    ) -> None:
        executor.submit([make_run(tasks.raise_named, name)], reports)
        (report,) = reports.wait()
        assert report.result is Result.RAISED
        assert type(report.exception) is kind
        executor.submit([make_run(tasks.add, 1)], reports)
        assert reports.wait(2)[1].value == 1

    def test_a_coroutine_that_raises_system_exit_only_fails_its_run(
        self, executor: BaseExecutor, reports: Reports
    ) -> None:
        executor.submit([make_run(tasks.exit_later)], reports)
        assert isinstance(reports.wait()[0].exception, SystemExit)
        executor.submit([make_run(tasks.add_later, 1)], reports)
        assert reports.wait(2)[1].value == 1

    @pytest.mark.parametrize("name", ["unprintable", "rude"])
    def test_an_exception_that_cannot_be_shown_is_reported(
        self, executor: BaseExecutor, reports: Reports, name: str
    ) -> None:
        executor.submit([make_run(tasks.raise_named, name)], reports)
        (report,) = reports.wait()
        assert report.result is Result.RAISED
        assert report.error is not None
        assert name.title() in report.error.type
        assert "raised" in report.error.message

    @pytest.mark.parametrize("kind", hostile.KINDS)
    def test_whatever_a_function_raises_fails_its_run_and_nothing_else(
        self, executor: BaseExecutor, reports: Reports, kind: str
    ) -> None:
        executor.submit([make_run(hostile.raise_hostile, kind), make_run(hostile.raise_hostile_later, kind)], reports)
        assert [report.result for report in reports.wait(2)] == [Result.RAISED] * 2
        assert all(report.error is not None for report in reports.all)
        executor.submit([make_run(tasks.add, 1), make_run(tasks.add_later, 1)], reports)
        assert [report.value for report in reports.wait(4)[2:]] == [1, 1]

    def test_an_exception_whose_attributes_cannot_be_set_is_reported_as_it_is(
        self, executor: BaseExecutor, reports: Reports
    ) -> None:
        executor.submit([make_run(hostile.raise_hostile, "frozen")], reports)
        (report,) = reports.wait()
        assert type(report.exception) is hostile.Frozen
        assert report.exception.code == 7
        assert report.error is not None
        assert report.error.message == "code 7"
        assert "in raise_hostile" in report.error.traceback
        assert "mainspring/executors" not in report.error.traceback

    @pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
    @pytest.mark.parametrize(("how", "code"), [("return", 0), ("raise", 1), ("exit", 3)])
    @pytest.mark.parametrize("func", [tasks.fork_and, tasks.fork_and_later])
    def test_a_process_that_a_run_forks_ends_with_the_function_and_executes_nothing_else(
        self, executor: BaseExecutor, reports: Reports, tmp_path: Path, func: Callable[..., object], how: str, code: int
    ) -> None:
        others = [make_run(tasks.note, str(tmp_path / "notes"), str(number)) for number in range(20)]
        executor.submit([make_run(func, how), *others], reports)
        ended = reports.wait(21)
        assert [report.value for report in ended if report.run.call.func is func] == [code]
        assert {report.result for report in ended} == {Result.RETURNED}
        assert sorted((tmp_path / "notes").read_text().split(), key=int) == [str(number) for number in range(20)]
        assert set(reports.counts.values()) == {1}

    def test_a_huge_cyclic_exception_is_reported_cut(self, executor: BaseExecutor, reports: Reports) -> None:
        executor.submit([make_run(tasks.raise_cyclic)], reports)
        (report,) = reports.wait()
        assert report.error is not None
        assert report.error.type == "ValueError"
        assert len(report.error.message) < 10_000
        assert len(report.error.traceback) < 100_000

    def test_cancel_raised_by_the_task_is_passed_on(self, executor: BaseExecutor, reports: Reports) -> None:
        executor.submit([make_run(tasks.give_up)], reports)
        (report,) = reports.wait()
        assert report.result is Result.RAISED
        assert isinstance(report.exception, Cancel)
        assert report.exception.reason == "not wanted"

    def test_a_reference_is_resolved(self, executor: BaseExecutor, reports: Reports) -> None:
        executor.submit([make_run("tests.executors.tasks:add", 2, 2)], reports)
        assert reports.wait()[0].value == 4

    def test_a_reference_that_leads_nowhere_fails_the_run(self, executor: BaseExecutor, reports: Reports) -> None:
        executor.submit([make_run("tests.executors.tasks:ad"), make_run("no.such.module:f")], reports)
        errors = [report.exception for report in reports.wait(2)]
        assert all(isinstance(error, LookupError) for error in errors)
        assert "did you mean 'add'" in " ".join(map(str, errors))

    def test_a_run_that_may_not_start_is_reported_with_the_reason_and_not_called(
        self, executor: BaseExecutor, reports: Reports, tmp_path: Path
    ) -> None:
        late, lapsed = (make_run(tasks.touch, str(tmp_path / "called")) for _ in range(2))
        fit = make_run(tasks.add, 1)
        reasons = {late.id: Result.LATE, lapsed.id: Result.UNSTARTED}
        executor.submit([late, lapsed, fit], reports, lambda run: reasons.get(run.id))
        found = {report.run.id: report.result for report in reports.wait(3)}
        assert found == {late.id: Result.LATE, lapsed.id: Result.UNSTARTED, fit.id: Result.RETURNED}
        assert not (tmp_path / "called").exists()

    def test_a_receiver_that_raises_harms_nobody(
        self, executor: BaseExecutor, reports: Reports, caplog: pytest.LogCaptureFixture
    ) -> None:
        def refuse(report: Report) -> None:
            reports(report)
            raise SystemExit("not now")

        with caplog.at_level(logging.CRITICAL, "mainspring"):
            executor.submit([make_run(tasks.add, 1), make_run(tasks.add_later, 2)], refuse)
            reports.wait(2)
            executor.submit([make_run(tasks.add, 3)], reports)
            assert reports.wait(3)[2].value == 3

    def test_every_run_of_several_submitters_is_reported_once(self, executor: BaseExecutor, reports: Reports) -> None:
        share = self.many // 4
        batches = [[make_run(tasks.add, number) for number in range(share)] for _ in range(4)]

        def submit(runs: list[object]) -> None:
            for start in range(0, share, 50):
                executor.submit(runs[start : start + 50], reports)  # type: ignore[arg-type]

        threads = [threading.Thread(target=submit, args=(batch,)) for batch in batches]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(report.result is Result.RETURNED for report in reports.wait(share * 4))
        executor.shutdown()
        assert set(reports.counts.values()) == {1}
        assert set(reports.counts) == {run.id for batch in batches for run in batch}

    def test_a_coroutine_past_its_time_out_fails(self, executor: BaseExecutor, reports: Reports) -> None:
        executor.submit([make_run(tasks.sleep_forever, policy=timeout(0.05))], reports)
        (report,) = reports.wait()
        assert report.result is Result.RAISED
        assert isinstance(report.exception, RunTimeout)
        assert report.exception.seconds == 0.05
        assert report.error is not None
        assert "0.05 s" in report.error.message
        executor.submit([make_run(tasks.add_later, 1)], reports)
        assert reports.wait(2)[1].value == 1

    def test_a_run_that_ends_before_its_time_out_is_left_alone(self, executor: BaseExecutor, reports: Reports) -> None:
        runs = [make_run(func, n, policy=timeout(300)) for n in range(20) for func in (tasks.add, tasks.add_later)]
        executor.submit(runs, reports)
        assert all(report.result is Result.RETURNED for report in reports.wait(40))

    def test_a_running_coroutine_can_be_cancelled(
        self, executor: BaseExecutor, reports: Reports, tmp_path: Path
    ) -> None:
        run = make_run(tasks.sleep_forever, str(tmp_path / "begun"), policy=Policy(retries=3))
        submitter = threading.Thread(target=executor.submit, args=([run], reports))
        submitter.start()
        wait_for_file(tmp_path / "begun")
        wait_until(lambda: executor.cancel(run.id))
        assert reports.wait()[0].result is Result.CANCELLED
        submitter.join()

    def test_cancelling_an_unknown_run_does_nothing(self, executor: BaseExecutor) -> None:
        assert not executor.cancel("nobody")

    def test_after_shutdown_runs_are_given_back(self, executor: BaseExecutor, reports: Reports) -> None:
        executor.shutdown()
        executor.submit([make_run(tasks.add, 1), make_run(tasks.add_later, 1)], reports)
        assert [report.result for report in reports.wait(2)] == [Result.UNSTARTED] * 2

    def test_shutdown_may_be_repeated(self, executor: BaseExecutor, reports: Reports) -> None:
        executor.submit([make_run(tasks.add, 1), make_run(tasks.add_later, 1)], reports)
        reports.wait(2)
        executor.shutdown()
        executor.shutdown(wait=False)
        executor.shutdown()
        assert len(reports.all) == 2

    @pytest.mark.parametrize("wait", [True, False])
    def test_it_can_be_started_again(self, executor: BaseExecutor, reports: Reports, wait: bool) -> None:
        executor.submit([make_run(tasks.add, 1), make_run(tasks.add_later, 1)], reports)
        reports.wait(2)
        executor.shutdown(wait)
        self.restart(executor)
        executor.submit([make_run(tasks.add, 2), make_run(tasks.add_later, 2)], reports)
        assert [report.value for report in reports.wait(4)] == [1, 1, 2, 2]

    def test_shutdown_waits_for_what_has_started(
        self, executor: BaseExecutor, reports: Reports, tmp_path: Path
    ) -> None:
        run = make_run(tasks.wait_for_file, str(tmp_path / "go"), str(tmp_path / "begun"))
        submitter = threading.Thread(target=executor.submit, args=([run], reports))
        submitter.start()
        wait_for_file(tmp_path / "begun")
        threading.Timer(0.05, (tmp_path / "go").touch).start()
        executor.shutdown()
        submitter.join()
        assert [report.value for report in reports.all] == ["seen"]

    def test_a_run_knows_that_it_must_not_wait_for_its_executor(self, executor: BaseExecutor, reports: Reports) -> None:
        assert not executor.executes_here()
        if self.in_this_process:
            executor.submit([make_run(executor.executes_here)], reports)
            assert reports.wait()[0].value is True
        assert not executor.executes_here()

    def test_it_must_be_started_first(self, executor: BaseExecutor, reports: Reports) -> None:
        with pytest.raises(RuntimeError, match="has not been started"):
            type(executor)().submit([make_run(tasks.add, 1)], reports)

    def test_nothing_is_withdrawn_when_nothing_waits(self, executor: BaseExecutor) -> None:
        assert executor.withdraw() == []
        assert executor.accepting
        assert executor.stuck == 0
