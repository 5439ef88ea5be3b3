"""What a job may call."""

from __future__ import annotations

import asyncio
import functools
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.schedulers.compat import functions
from tests.schedulers.compat.functions import Counter, add
from tests.schedulers.compat.kit import Heard, Package


@pytest.fixture
def scheduler(package: Package) -> Any:
    return package.started()


def outcome(package: Package, scheduler: Any, *args: Any, **options: Any) -> Any:
    """Return what a job returned, or raise what it raised."""
    heard = Heard(scheduler, package.events.EVENT_JOB_EXECUTED | package.events.EVENT_JOB_ERROR)
    job = scheduler.add_job(*args, misfire_grace_time=None, **options)
    event = heard.wait(package.events.EVENT_JOB_EXECUTED | package.events.EVENT_JOB_ERROR, job_id=job.id)
    if event.exception is not None:
        raise event.exception
    return event.retval


def test_a_function_by_its_name(package: Package, scheduler: Any) -> None:
    functions.called.clear()
    assert outcome(package, scheduler, "tests.schedulers.compat.functions:ring") == "ding"
    assert functions.called.is_set()


def test_a_method_by_its_name(package: Package, scheduler: Any) -> None:
    assert outcome(package, scheduler, "tests.schedulers.compat.functions:Counter.make") == "Counter"


def test_a_function_with_arguments(package: Package, scheduler: Any) -> None:
    assert outcome(package, scheduler, add, args=(1,), kwargs={"b": 10}) == 11


def test_a_bound_method_changes_its_own_object(package: Package, scheduler: Any) -> None:
    counter = Counter()
    assert outcome(package, scheduler, counter.up, args=[3]) == 3
    assert counter.count == 3


def test_a_class_method(package: Package, scheduler: Any) -> None:
    assert outcome(package, scheduler, Counter.make) == "Counter"


def test_a_partial(package: Package, scheduler: Any) -> None:
    assert outcome(package, scheduler, functools.partial(add, 1), kwargs={"b": 1}) == 2


def test_a_lambda_and_a_nested_function(package: Package, scheduler: Any) -> None:
    def nested() -> str:
        return "nested"

    assert outcome(package, scheduler, lambda: "lambda") == "lambda"
    assert outcome(package, scheduler, nested) == "nested"


def test_an_object_that_can_be_called(package: Package, scheduler: Any) -> None:
    class Greeter:
        def __call__(self, name: str) -> str:
            return f"hello {name}"

    assert outcome(package, scheduler, Greeter(), args=["you"]) == "hello you"


def test_a_class(package: Package, scheduler: Any) -> None:
    assert isinstance(outcome(package, scheduler, Counter), Counter)


def test_a_built_in(package: Package, scheduler: Any) -> None:
    assert outcome(package, scheduler, len, args=[[1, 2]]) == 2


def test_arguments_are_shared_objects_in_memory(package: Package, scheduler: Any) -> None:
    basket: list[int] = []
    outcome(package, scheduler, basket.append, args=[1])
    assert basket == [1]


def test_an_object_that_cannot_be_copied_is_an_argument_in_memory(package: Package, scheduler: Any) -> None:
    lock = threading.Lock()
    assert outcome(package, scheduler, lambda given: given is lock, args=[lock])


def test_a_job_that_calls_sys_exit_harms_nobody(package: Package, scheduler: Any) -> None:
    with pytest.raises(SystemExit):
        outcome(package, scheduler, exit_now)
    assert outcome(package, scheduler, add, args=[1]) == 3


def exit_now() -> None:
    raise SystemExit(3)


def test_a_coroutine_function_runs_to_its_end_in_a_thread_pool(ours: Package) -> None:
    async def wait_a_moment(value: int) -> int:
        await asyncio.sleep(0)
        return value

    scheduler = ours.started()
    assert outcome(ours, scheduler, wait_a_moment, args=[5]) == 5
    assert outcome(ours, scheduler, functools.partial(wait_a_moment, 6)) == 6


def test_a_process_pool_runs_jobs_elsewhere(package: Package) -> None:
    import os

    scheduler = package.started(executors={"default": {"type": "processpool", "max_workers": "1"}})
    assert outcome(package, scheduler, os.getpid) != os.getpid()


def test_the_debug_executor_runs_jobs_inline(package: Package) -> None:
    scheduler = package.started(executors={"default": {"type": "debug"}})
    assert outcome(package, scheduler, add, args=[1]) == 3


def test_a_policy_is_given_beside_the_triggers_arguments(ours: Package) -> None:
    scheduler, attempts = ours.started(), []

    def flaky() -> int:
        attempts.append(1)
        if len(attempts) < 3:
            raise ConnectionError("not yet")
        return len(attempts)

    due = datetime.now(UTC)
    assert outcome(ours, scheduler, flaky, "date", run_date=due, retries=3, backoff=[0.01]) == 3


def test_a_run_past_its_time_out_is_stopped(ours: Package) -> None:
    scheduler = ours.started()

    def spin() -> None:
        while True:
            threading.Event().wait(0.01)

    with pytest.raises(TimeoutError, match=r"0\.2 s"):
        outcome(ours, scheduler, spin, timeout=0.2)
