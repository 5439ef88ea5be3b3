"""Functions around every execution, and those who listen to what happens."""

from __future__ import annotations

import logging
import os
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.app import middleware as middleware_module
from mainspring.errors import RunFailed
from tests.app.kit import EVERYWHERE, LIMIT, LOCAL, MakeApp


def plain(number: int) -> int:
    return number + 1


@LOCAL
def test_middleware_is_called_around_tasks_outermost_first(app: Mainspring) -> None:
    seen: list[str] = []

    def layer(name: str) -> Any:
        def around(run: Any, call_next: Any) -> Any:
            seen.append(f"{name} in")
            value = call_next()
            seen.append(f"{name} out")
            return value * 10

        return around

    app.middleware(layer("outer"))
    app.middleware(layer("inner"))
    app.start(work=True)
    assert app.task(plain).enqueue(1).result(timeout=LIMIT) == 200
    assert seen == ["outer in", "inner in", "inner out", "outer out"]


@LOCAL
def test_middleware_added_while_the_app_works_counts_from_then_on(app: Mainspring) -> None:
    task = app.task(plain)
    app.start(work=True)
    assert task.enqueue(1).result(timeout=LIMIT) == 2

    @app.middleware
    def negate(run: Any, call_next: Any) -> Any:
        return -call_next()

    assert task.enqueue(1).result(timeout=LIMIT) == -2


@EVERYWHERE
def test_middleware_is_around_functions_that_are_no_tasks_and_knows_the_run(app: Mainspring) -> None:
    seen: list[tuple[str, int]] = []

    @app.middleware
    def note(run: Any, call_next: Any) -> Any:
        seen.append((run.id, run.attempt))
        return call_next()

    app.start(work=True)
    handle = app.enqueue(plain, 1)
    assert handle.result(timeout=LIMIT) == 2
    assert seen == [(handle.id, 1)]


@LOCAL
def test_middleware_of_a_coroutine_may_be_plain_or_a_coroutine(app: Mainspring) -> None:
    seen: list[str] = []

    @app.middleware
    async def first(run: Any, call_next: Any) -> Any:
        seen.append("before")
        value = call_next()
        while hasattr(value, "__await__"):
            value = await value
        seen.append("after")
        return value

    @app.middleware
    def second(run: Any, call_next: Any) -> Any:
        return call_next()

    @app.task
    async def double(number: int) -> int:
        seen.append("task")
        return number * 2

    app.start(work=True)
    assert double.enqueue(2).result(timeout=LIMIT) == 4
    assert seen == ["before", "task", "after"]


@LOCAL
def test_middleware_that_raises_fails_the_run_and_may_hide_a_failure(app: Mainspring) -> None:
    @app.task
    def fail() -> None:
        raise ValueError("torn")

    @app.middleware
    def mend(run: Any, call_next: Any) -> Any:
        try:
            return call_next()
        except ValueError:
            return "mended"

    app.start(work=True)
    assert fail.enqueue().result(timeout=LIMIT) == "mended"

    @app.middleware
    def refuse(run: Any, call_next: Any) -> Any:
        raise PermissionError("not today")

    with pytest.raises(RunFailed, match="not today"):
        app.task(plain).enqueue(1).result(timeout=LIMIT)


@LOCAL
def test_a_back_off_function_is_not_inside_the_middleware(app: Mainspring) -> None:
    seen: list[str] = []

    @app.middleware
    def note(run: Any, call_next: Any) -> Any:
        seen.append("around")
        return call_next()

    @app.task(retries=1, backoff=f"{__name__}:at_once")
    def fail() -> None:
        raise ValueError

    app.start(work=True)
    assert fail.enqueue().wait(timeout=LIMIT).attempt == 2
    assert seen == ["around", "around"]


def at_once(failures: int) -> float:
    return 0.0


@LOCAL
def test_those_who_listen_are_told_before_and_after(app: Mainspring) -> None:
    seen: list[Any] = []
    app.on("pre_enqueue", lambda run: seen.append(("enqueue", run.name)))
    app.on("pre_execute", lambda run: seen.append(("execute", run.attempt)))

    @app.on("post_execute")
    def after(run: Any, value: Any, error: Any) -> None:
        seen.append(("done", value, type(error)))

    @app.task
    def fail() -> None:
        raise ValueError

    app.start(work=True)
    app.task(plain).enqueue(1).result(timeout=LIMIT)
    fail.enqueue().wait(timeout=LIMIT)
    assert seen == [
        ("enqueue", "plain"),
        ("execute", 1),
        ("done", 2, type(None)),
        ("enqueue", "fail"),
        ("execute", 1),
        ("done", None, ValueError),
    ]


@LOCAL
def test_a_listener_may_prevent_what_is_to_come_and_does_no_harm_afterwards(
    app: Mainspring, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(run: Any) -> None:
        raise PermissionError("no more today")

    def stumble(run: Any, value: Any, error: Any) -> None:
        raise RuntimeError("stumbled")

    task = app.task(plain)
    app.on("post_execute", stumble)
    app.start(work=True)
    assert task.enqueue(1).result(timeout=LIMIT) == 2
    assert "stumbled" in caplog.text
    app.on("pre_enqueue", refuse)
    with pytest.raises(PermissionError):
        task.enqueue(1)
    assert app.count() == 1


def test_an_event_that_does_not_exist_is_told_with_near_matches(make_app: MakeApp) -> None:
    app = make_app()
    with pytest.raises(ValueError, match="did you mean 'pre_enqueue'"):
        app.on("pre_enqeue", print)
    with pytest.raises(TypeError, match="callable"):
        app.on("pre_enqueue", 17)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="middleware is a function"):
        app.middleware("x")  # type: ignore[type-var]


@LOCAL
def test_an_error_reporter_is_told_of_failures_and_does_no_harm(
    app: Mainspring, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[tuple[str, str]] = []

    def report(error: BaseException, run: Any) -> None:
        told.append((str(error), run.id))
        raise RuntimeError("the reporter is broken")

    monkeypatch.setattr(middleware_module, "error_reporters", lambda: (report,))

    @app.task
    def fail() -> None:
        raise ValueError("torn")

    app.start(work=True)
    with caplog.at_level(logging.ERROR):
        view = fail.enqueue().wait(timeout=LIMIT)
    assert told == [("torn", view.id)]
    assert view.error is not None
    assert view.error.type == "ValueError"
    assert "an error reporter failed" in caplog.text


def test_a_task_in_a_process_of_its_own_has_its_middleware(make_app: MakeApp) -> None:
    from tests.app.isolated import app, pid

    app.start(work=True)
    try:
        marked = pid.enqueue().result(timeout=LIMIT)
    finally:
        app.close()
    assert marked < 0
    assert -marked != os.getpid()
