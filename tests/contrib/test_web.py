"""Flask and ASGI frameworks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, current_app, g

from mainspring import Mainspring
from mainspring.contrib.flask import FlaskMainspring
from mainspring.errors import ConfigurationError, RunFailed

LIMIT = 90.0


@pytest.fixture
def jobs() -> Iterator[FlaskMainspring]:
    jobs = FlaskMainspring()
    yield jobs
    jobs.close()


def test_tasks_run_in_the_context_of_the_flask_app(jobs: FlaskMainspring, tmp_path: Path) -> None:
    @jobs.task
    def plain() -> tuple[str, bool]:
        fresh = "seen" not in g
        g.seen = True
        return current_app.config["SHOP"], fresh

    @jobs.task
    async def waiting() -> str:
        await asyncio.sleep(0)
        return str(current_app.config["SHOP"])

    flask_app = Flask("shop")
    flask_app.config.update(SHOP="tea", MAINSPRING_URL=f"sqlite:///{tmp_path}/jobs.db", MAINSPRING_SECRET_KEY="k" * 32)
    jobs.init_app(flask_app)
    assert flask_app.extensions["mainspring"] is jobs
    assert jobs.url == f"sqlite:///{tmp_path}/jobs.db"
    assert jobs.codec.signed
    jobs.start(work=True)
    assert [plain.enqueue().result(timeout=LIMIT) for _ in range(2)] == [("tea", True)] * 2
    assert waiting.enqueue().result(timeout=LIMIT) == "tea"
    with pytest.raises(ConfigurationError, match="started already"):
        jobs.init_app(flask_app)


def test_a_worker_without_the_flask_app_says_what_is_missing(jobs: FlaskMainspring) -> None:
    @jobs.task
    def plain() -> None: ...

    jobs.inline = True
    with pytest.raises(RunFailed, match="must call init_app"):
        plain.enqueue().result()


def test_the_dashboard_is_mounted_beside_the_routes(jobs: FlaskMainspring) -> None:
    flask_app = Flask("shop")
    flask_app.config.update(MAINSPRING_URL="memory://", MAINSPRING_DASHBOARD="jobs/")
    flask_app.get("/")(lambda: "shop")
    jobs.init_app(flask_app)
    client = flask_app.test_client()
    assert client.get("/").text == "shop"
    page = client.get("/jobs/runs", base_url="http://127.0.0.1")
    assert (page.status_code, "mainspring" in page.text) == (200, True)


def test_a_lifespan_starts_and_stops_the_app() -> None:
    app = Mainspring("memory://")
    double = app.task(name="double")(lambda number: 2 * number)

    async def serve() -> Any:
        lifespan = app.aio.lifespan(work=True, threads=2)
        for _ in range(2):  # a server may be started again in one process, as tests do
            async with lifespan(object()):
                assert app.running
                found = await (await app.aio.enqueue(double, 21))
            assert not app.running
        return found

    assert asyncio.run(serve()) == 42
