"""The start and stop of a worker, and resources that live as long as it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator

import pytest

from mainspring import Mainspring, Needs
from mainspring.errors import ConfigurationError


def test_a_resource_is_opened_once_and_closed_at_the_stop_in_reverse_order() -> None:
    said: list[str] = []
    app = Mainspring("memory://")

    @app.on_worker_start
    def start() -> None:
        said.append("start")

    @app.on_worker_stop
    async def stop() -> None:
        await asyncio.sleep(0)
        said.append("stop")

    @app.resource
    def pool() -> Iterator[str]:
        said.append("open pool")
        yield "pool"
        said.append("close pool")

    @app.resource
    async def client(using: str = Needs(pool)) -> AsyncIterator[tuple[str, object]]:
        said.append("open client")
        yield using, asyncio.get_running_loop()
        said.append("close client")

    @app.task
    def plain(using: str = Needs(pool)) -> str:
        return using

    @app.task
    async def fetch(given: tuple[str, object] = Needs(client)) -> bool:
        return given == ("pool", asyncio.get_running_loop())

    with app:
        app.start(work=True)
        assert said == ["start", "open pool", "open client"]
        handles = [plain.enqueue(), plain.enqueue(), fetch.enqueue(), fetch.enqueue()]
        assert [each.result(timeout=10) for each in handles] == ["pool", "pool", True, True]
    assert said == ["start", "open pool", "open client", "close client", "close pool", "stop"]
    with app:  # the next start opens them again
        app.start(work=True)
    assert said[6:] == said[:6]


def test_a_process_that_does_not_work_opens_nothing_until_it_is_asked() -> None:
    said: list[str] = []
    app = Mainspring("memory://", inline=True)

    @app.on_worker_start
    def start() -> None:
        said.append("start")

    @app.resource
    def pool() -> Iterator[str]:
        said.append("open")
        yield "pool"
        said.append("close")

    @app.resource
    async def client() -> AsyncIterator[str]:
        said.append("open client")
        yield "client"
        said.append("close client")

    @app.task
    def plain(using: str = Needs(pool)) -> str:
        return using

    @app.task
    async def fetch(using: str = Needs(client)) -> str:
        return using

    with app:
        assert plain.enqueue().result() + plain.enqueue().result() == "poolpool"
        assert said == ["open"]
        assert fetch.enqueue().result() == "client"  # on a loop of its own, so it lives as long as the run
        assert said == ["open", "open client", "close client"]
    assert said[3:] == ["close"]


def test_a_start_that_fails_closes_what_is_open_and_can_be_repeated() -> None:
    said: list[str] = []
    app = Mainspring("memory://")

    @app.resource
    def pool() -> Iterator[str]:
        yield "pool"
        said.append("closed")

    @app.resource
    def broken(using: str = Needs(pool)) -> str:
        raise ConnectionRefusedError("no database")

    @app.task
    def work(given: str = Needs(broken)) -> None: ...

    @app.on_worker_stop
    def stop() -> None:
        said.append("never")

    with app:
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                app.start(work=True)
            assert not app.running
    assert said == ["closed", "closed"]


def test_an_error_at_the_stop_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    app = Mainspring("memory://")

    @app.on_worker_stop
    def stop() -> None:
        raise OSError("busy")

    with app, caplog.at_level(logging.ERROR, "mainspring.app"):
        app.start(work=True)
    assert "failed at the stop of the worker" in caplog.text


def test_a_resource_cannot_need_what_lives_as_long_as_a_run() -> None:
    app = Mainspring("memory://")

    def session() -> str:
        return "session"

    @app.resource
    def pool(using: str = Needs(session)) -> str:
        return using

    with pytest.raises(ConfigurationError, match="make that a resource, too"):

        @app.task
        def work(given: str = Needs(pool)) -> None: ...
