"""What it costs while people watch: how often the store is looked at, and what watched views share."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator

import pytest
from starlette.requests import Request

from mainspring import Mainspring
from mainspring.core.instants import SECOND
from mainspring.dashboard import DashboardApp, building
from mainspring.dashboard.building import Builder, ViewKey
from mainspring.dashboard.memo import forget
from mainspring.dashboard.page import View
from mainspring.dashboard.pages import queues
from mainspring.dashboard.pages.work.queues import QueueRow
from mainspring.dashboard.roles import Role
from mainspring.dashboard.web import live
from mainspring.dashboard.web.live import LiveHub, LiveState
from tests.dashboard.client import Client
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


def test_a_page_is_sent_no_state_from_before_it_was_read(app: Mainspring, looks: list[str]) -> None:
    """Neither what was rendered for others, nor what is rendered later from what others have read."""
    client = Client(dashboard := DashboardApp(app))
    assert client.get("/live/regions?view=/queues").status == 200
    app.pause_queue("mail")
    page = re.search(r'data-now="(\d+)"', client.get("/queues").text)
    assert page is not None
    assert client.get(f"/live/regions?view=/queues&read_at={page[1]}").status == 304
    state = dashboard._builder.live(VIEWS[1])
    assert "paused" not in state.regions["table"].html
    assert state.is_older_than(int(page[1]))

    dashboard._builder.changed(("queues",))
    forget(app)

    newer = client.get(f"/live/regions?view=/queues&read_at={page[1]}")
    assert newer.status == 200
    assert "paused" in newer.json["regions"]["table"]["html"]
    assert newer.json["read_at"] >= int(page[1])


def test_a_stream_leaves_out_what_is_older_than_its_page(app: Mainspring) -> None:
    dashboard = DashboardApp(app)
    older, newer = (LiveState({}, 0, needs=number, read_at=number) for number in (70, 90))

    async def first_state(read_at: str) -> str:
        async def watch(key: ViewKey) -> AsyncIterator[LiveState]:
            yield older
            yield newer

        dashboard.hub.watch = watch  # type: ignore[method-assign]
        scope = {"type": "http", "headers": [], "query_string": f"view=/&read_at={read_at}".encode()}
        parts = [part async for part in dashboard._stream(Request(scope), VIEWS[0]._replace(role=Role.OPERATE))]
        return next(part for part in parts if part.startswith("data: "))

    assert '"needs": 90' in asyncio.run(first_state("80"))
    assert '"needs": 70' in asyncio.run(first_state("70"))
    assert '"needs": 70' in asyncio.run(first_state(str(70 + 60 * SECOND))), "the clock was put back"
    assert '"needs": 70' in asyncio.run(first_state("tomorrow"))


def test_a_page_that_somebody_opens_is_read_for_them(app: Mainspring, looks: list[str]) -> None:
    builder = Builder(app, "", "token")
    builder.live(VIEWS[0])
    page, params = builder.find("/queues")
    frame = {"zone_chosen": "", "theme": "", "who": None, "toast": None, "logs_in": False, "part": False}
    assert builder.page(VIEWS[1], page, params, frame).status == 200
    assert looks == ["/", "/queues"]
