"""What it costs while people watch: how often the store is looked at, and what watched views share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from mainspring import Mainspring
from mainspring.dashboard import building
from mainspring.dashboard.building import Builder, ViewKey
from mainspring.dashboard.page import View
from mainspring.dashboard.pages import queues
from mainspring.dashboard.pages.work.queues import QueueRow
from mainspring.dashboard.roles import Role
from mainspring.dashboard.web import live
from mainspring.dashboard.web.live import LiveHub, LiveState
from tests.dashboard.shop import make_shop

VIEWS = [ViewKey(path, Role.VIEW, "", "") for path in ("/", "/queues", "/queues?q=mail")]


@pytest.fixture
def app() -> Iterator[Mainspring]:
    app = make_shop("memory://")
    yield app
    app.close()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pages for which the queues were counted."""
    found: list[str] = []
    read = queues._read_rows

    def counted(view: View) -> list[QueueRow]:
        found.append(view.here)
        return read(view)

    monkeypatch.setattr(queues, "_read_rows", counted)
    monkeypatch.setattr(building, "SHARED_SECONDS", 3600.0)
    return found


def test_a_store_that_changes_all_the_time_is_not_asked_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "WAIT_SECONDS", 60.0)
    monkeypatch.setattr(live, "_pause", lambda least, cost: least if least == 60.0 else 0.0)
    asked = []

    def changes(timeout: float) -> bool:
        asked.append(timeout)
        return True

    async def watch() -> None:
        monkeypatch.setattr(live, "STEADY_SECONDS", 0.0)
        hub: LiveHub[str] = LiveHub(lambda key: LiveState({}, 0), changes)
        states = hub.watch("/")
        for _ in range(50):
            await anext(states)
        await states.aclose()  # type: ignore[attr-defined]

    asyncio.run(watch())
    assert asked == [60.0]


def test_watched_views_count_the_queues_once_for_all(app: Mainspring, looks: list[str]) -> None:
    builder = Builder(app, "", "token")
    for key in VIEWS:
        assert not builder.live(key).problem
    assert looks == ["/"]


def test_a_change_lets_watched_views_read_anew(app: Mainspring, looks: list[str]) -> None:
    builder = Builder(app, "", "token")
    builder.live(VIEWS[0])
    builder.changed(("runs",))
    builder.live(VIEWS[1])
    assert looks == ["/", "/queues"]


def test_a_page_that_somebody_opens_is_read_for_them(app: Mainspring, looks: list[str]) -> None:
    builder = Builder(app, "", "token")
    builder.live(VIEWS[0])
    page, params = builder.find("/queues")
    frame = {"zone_chosen": "", "theme": "", "who": None, "toast": None, "logs_in": False, "part": False}
    assert builder.page(VIEWS[1], page, params, frame).status == 200
    assert looks == ["/", "/queues"]
