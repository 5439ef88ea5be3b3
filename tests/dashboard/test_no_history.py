"""The dashboard over a store that keeps no history: it shows what is known, and says what is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from examples.reference_store import ReferenceStore
from mainspring import Mainspring
from mainspring.dashboard import DashboardApp
from mainspring.dashboard.looks.times import NO_TIME
from mainspring.testing.conformance.helpers import fail, settle, start, succeed
from tests.dashboard.client import Client

NOT_KEPT = "ReferenceStore keeps no history"


@pytest.fixture
def app() -> Iterator[Mainspring]:
    with Mainspring(ReferenceStore(), timezone="UTC") as app:

        @app.schedule("0 3 * * *", id="nightly")
        @app.task(name="shop:send")
        def send() -> None: ...

        settle(app.store, succeed(app.store, start(app.store, "good")))
        settle(app.store, fail(app.store, start(app.store, "bad")))
        app.pause_queue("default")
        send.enqueue()
        app.start()
        yield app


@pytest.fixture
def look(app: Mainspring) -> Client:
    return Client(DashboardApp(app))


def test_every_page_stands_without_history(look: Client, app: Mainspring) -> None:
    [group] = app.errors().groups
    pages = ("/", "/runs", "/runs/good", "/runs/bad", "/jobs", "/jobs/nightly", "/jobs/nightly?range=year", "/timeline")
    others = ("/queues", "/queues/default", "/errors", f"/errors/{group.key}", "/tasks/shop:send", "/nodes", "/system")
    for page in (*pages, *others, f"/nodes/{app.nodes()[0].id}", "/flows", "/broken"):
        answer = look.get(page)
        assert answer.status == 200, page
        assert "could not be shown" not in answer.words, page


def test_no_number_stands_for_what_was_not_counted(look: Client) -> None:
    overview = look.get("/").words
    assert f"Succeeded 24 h {NO_TIME} this store does not count" in overview
    assert NOT_KEPT in overview
    assert "No run has ended" not in overview
    assert NOT_KEPT in look.get("/queues").words
    assert "This store keeps no history" in look.get("/tasks/shop:send").words
    assert NOT_KEPT in look.get("/jobs/nightly?range=year").words


def test_nobody_is_said_to_have_done_nothing(look: Client) -> None:
    assert "Nobody has done anything" not in look.get("/system").words
    assert NOT_KEPT in look.get("/system").words
    assert "Touched by this store does not keep it" in look.get("/runs/good").words


@pytest.mark.parametrize("page", ["/system/audit", "/tasks", "/runs?q=by:ann"])
def test_a_page_made_of_history_says_why_it_is_empty(look: Client, page: str) -> None:
    answer = look.get(page)
    assert NOT_KEPT in answer.words
    assert "No history is kept" in answer.words


@pytest.mark.parametrize("path", ["/api/v1/audit", "/api/v1/metrics", "/api/v1/tasks"])
def test_the_api_refuses_what_is_not_kept(look: Client, path: str) -> None:
    answer = look.get(path)
    assert answer.status == 409
    assert NOT_KEPT in answer.json["error"]


def test_errors_are_counted_from_the_runs_that_are_kept(app: Mainspring, look: Client) -> None:
    [group] = app.errors().groups
    assert (group.count, group.counted) == (1, [])
    assert group.type in look.get("/errors").words
