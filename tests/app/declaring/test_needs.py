"""Parameters that a worker provides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Annotated

import pytest

from mainspring import Mainspring, Needs
from mainspring.errors import ConfigurationError
from mainspring.testing import Kit


@pytest.fixture
def app() -> Iterator[Mainspring]:
    with Mainspring("memory://") as app:
        yield app


def settings() -> dict[str, int]:
    return {"limit": 3}


Settings = Annotated[dict[str, int], Needs(settings)]


def test_a_value_is_provided_by_default_value_and_by_annotation(app: Mainspring) -> None:
    @app.task
    def one(number: int, given: dict[str, int] = Needs(settings)) -> int:
        return number * given["limit"]

    @app.task
    def other(number: int, given: Settings) -> int:
        return number + given["limit"]

    app.start(work=True)
    assert one.enqueue(2).result(timeout=10) == 6
    assert app.enqueue(other.name, 2).result(timeout=10) == 5


def test_a_generator_ends_after_the_run_also_if_that_fails(app: Mainspring) -> None:
    said: list[str] = []

    def session() -> Iterator[str]:
        said.append("begin")
        try:
            yield "session"
        except ZeroDivisionError:
            said.append("roll back")
            raise
        finally:
            said.append("end")

    @app.task
    def divide(number: int, given: str = Needs(session)) -> float:
        said.append(given)
        return 1 / number

    with Kit(app) as kit:
        divide.enqueue(1)
        divide.enqueue(0)
        assert sorted(run.status for run in kit.run_due()) == ["failed", "succeeded"]
    assert said == ["begin", "session", "end", "begin", "session", "roll back", "end"]


def test_providers_may_need_each_other_and_each_is_called_once_for_a_run(app: Mainspring) -> None:
    calls: list[str] = []

    def base() -> int:
        calls.append("base")
        return 1

    def left(number: int = Needs(base)) -> int:
        return number + 1

    def right(number: int = Needs(base)) -> int:
        return number + 2

    @app.task
    def add(one: int = Needs(left), other: int = Needs(right)) -> int:
        return one + other

    assert (add(), calls) == (5, ["base"])


def test_a_direct_call_may_give_the_value_and_an_enqueue_may_not(app: Mainspring) -> None:
    @app.task
    def show(given: dict[str, int] = Needs(settings)) -> int:
        return given["limit"]

    assert (show(), show(given={"limit": 9})) == (3, 9)
    with pytest.raises(TypeError, match="takes no argument 'given'"):
        show.enqueue(given={"limit": 9})


def test_coroutine_functions_await_their_providers(app: Mainspring) -> None:
    said: list[str] = []

    async def client() -> AsyncIterator[str]:
        await asyncio.sleep(0)
        yield "client"
        said.append("closed")

    async def token(using: str = Needs(client)) -> str:
        return f"token of {using}"

    @app.task
    async def fetch(page: int, using: str = Needs(token), limit: dict[str, int] = Needs(settings)) -> str:
        return f"{page} by {using}, {limit['limit']}"

    app.start(work=True)
    assert fetch.enqueue(1).result(timeout=10) == "1 by token of client, 3"
    assert said == ["closed"]


def test_mistakes_are_refused_where_they_are_declared(app: Mainspring) -> None:
    async def later() -> int:
        return 1

    def lacking(dsn: str) -> str:
        return dsn

    def circle(again: int = Needs(lambda: 1)) -> int:
        return again

    circle.__defaults__ = (Needs(circle),)

    def waits(number: int = Needs(later)) -> int:
        return number

    def early(given: int = Needs(settings), number: int = 0) -> None: ...

    def unknown(given: Annotated[int, "Needs(nowhere)"]) -> None: ...

    unknown.__annotations__["given"] = "Annotated[int, Needs(nowhere)]"

    def provided_by(provider: object) -> object:
        def func(given: object = Needs(provider)) -> None: ...  # type: ignore[arg-type]

        return func

    for func, text in (
        (provided_by(lacking), "'dsn' that nothing provides"),
        (provided_by(circle), "need each other: .*circle -> .*circle"),
        (waits, "cannot wait for 'number'"),
        (early, "before 'number': put it last"),
        (unknown, "cannot be evaluated here"),
    ):
        with pytest.raises(ConfigurationError, match=text):
            app.task(func)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="not 7"):
        Needs(7)  # type: ignore[arg-type]


def test_a_function_called_past_its_task_says_so(app: Mainspring) -> None:
    def show(given: dict[str, int] = Needs(settings)) -> int:
        return given.get("limit", 0)

    with pytest.raises(ConfigurationError, match=r"Needs\(settings\) was not provided"):
        show()
