"""Apps on every kind of store, closed when the test ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring
from tests.app.kit import KEY, MakeApp

_names = count(1)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take nothing from the environment of whoever runs the tests."""
    monkeypatch.delenv("MAINSPRING_URL", raising=False)
    monkeypatch.delenv("MAINSPRING_SECRET_KEY", raising=False)


@pytest.fixture
def make_app() -> Iterator[MakeApp]:
    """Make apps that are closed when the test ends."""
    with ExitStack() as stack:

        def make(url: Any = "memory://", **options: Any) -> Mainspring:
            app = Mainspring(url, **{"timezone": "UTC", **options})
            stack.callback(app.close)
            return app

        yield make


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store of the kind that the test asks for."""
    if request.param == "memory":
        return "memory://"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    found: str = request.getfixturevalue(f"{request.param}_server").url
    return found


@pytest.fixture
def app(url: str, make_app: MakeApp) -> Iterator[Mainspring]:
    """An app of its own name on the store, with a key."""
    app = make_app(url, name=f"app{next(_names)}", secret_key=KEY)
    yield app
    app.close()
    if "postgresql" in url or "mysql" in url or "mariadb" in url:
        _drop_tables(url, app.name)


def _drop_tables(url: str, name: str) -> None:
    from sqlalchemy import MetaData, create_engine

    engine = create_engine(url)
    tables = MetaData()
    tables.reflect(engine, only=lambda table, _: table.startswith(name))
    tables.drop_all(engine)
    engine.dispose()
