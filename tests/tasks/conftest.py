"""Apps that the verbs act on: at work in this process, or only a store whose runs are taken by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring import Mainspring, tasks
from tests.tasks import functions


@pytest.fixture(autouse=True)
def no_app(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start and end without an app, whatever the environment says."""
    for name in ("MAINSPRING_APP", "MAINSPRING_URL", "MAINSPRING_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    tasks.set_app(None)
    functions.events.clear()
    yield
    tasks.set_app(None)


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Mainspring]:
    """The app of the verbs, not started."""
    with _made(request.param, tmp_path) as app:
        tasks.set_app(app)
        yield app


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mainspring]:
    """An app that executes what is enqueued, for all tests of a module, since stopping it takes a while."""
    with _made(request.param, tmp_path_factory.mktemp("started")) as app:
        app.start(work=True)
        yield app


@pytest.fixture
def working(started: Mainspring) -> Mainspring:
    """The app of the verbs, executing what is enqueued; other tests of the module use it, too."""
    tasks.set_app(started)
    return started


def _made(kind: str, folder: Path) -> Mainspring:
    url = "memory://" if kind == "memory" else f"sqlite:///{folder}/jobs.db"
    return Mainspring(url, timezone="Europe/Berlin")
