"""Runs, errors, tasks, nodes, broken records and the system, without a browser."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from mainspring import Mainspring
from mainspring.core.run import Status
from mainspring.dashboard import DashboardApp
from mainspring.dashboard.memo import remembered_soon
from tests.dashboard.client import Client
from tests.dashboard.story import EVIL, LIMIT, Story, make_story


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """A shop that nobody changes."""
    with make_story(tmp_path_factory.mktemp("told")) as story:
        yield story


@pytest.fixture(scope="module")
def look(told: Story) -> Client:
    """A client that only looks."""
    return Client(DashboardApp(told.app))


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Mainspring]:
    """An empty app that a test may change."""
    app = Mainspring(f"sqlite:///{tmp_path}/jobs.db", secret_key="k" * 32, timezone="UTC")
    yield app
    app.close()


def test_an_app_is_closed_when_the_dashboard_reads_no_more(app: Mainspring) -> None:
    began, go_on = threading.Event(), threading.Event()

    def read() -> int:
        began.set()
        assert go_on.wait(LIMIT)
        return app.count()  # this would open a closed store, for nobody to close it again

    assert remembered_soon(app, "number", 60.0, read, patience=0.0) is None
    assert began.wait(LIMIT)
    closing = threading.Thread(target=app.close)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive()
    go_on.set()
    closing.join(LIMIT)
    assert not closing.is_alive()
    assert remembered_soon(app, "number", 60.0, read) == 0
    assert app.store._opened is None  # type: ignore[attr-defined]


def pages(story: Story) -> list[str]:
    """Return the address of every page about work."""
    key = story.app.errors().groups[0].key
    node = story.app.nodes()[0].id
    return [
        *("/runs", "/runs?status=failed", "/runs/new", "/runs/new?task=capture", f"/runs/new?again={story.failed}"),
        *(f"/runs/{run}" for run in (story.good, story.failed, story.running, story.waiting[0], story.delayed)),
        *(f"/runs/{run}" for run in (story.cancelled, story.evil_run)),
        *("/timeline", "/timeline?by=queue", "/timeline?by=node&range=6h", "/timeline?range=7d", "/api"),
        *(
            "/queues",
            "/queues/exports",
            "/queues/payments",
            "/errors",
            f"/errors/{key}",
            "/tasks",
            f"/tasks/{quote(f'evil:{EVIL}', safe='')}",
        ),
        *("/tasks/shop.payments:capture", "/nodes", f"/nodes/{node}", "/broken", "/system", "/system/audit"),
        "/system/audit?" + urlencode({"kind": "run", "target": story.cancelled}),
    ]


def test_every_page_answers_and_escapes_what_users_wrote(told: Story, look: Client) -> None:
    for page in pages(told):
        answer = look.get(page)
        assert answer.status == 200, (page, answer.words[:300])
        assert "<img src=x" not in answer.text, page
        assert "<script>alert" not in answer.text, page
        assert "could not be shown" not in answer.words, page
        assert not re.search(r'\sstyle="|<script(?! type="module" src)|\son\w+="', answer.text), page


@pytest.mark.parametrize("server", ["redis_server", "postgresql_server"])
def test_the_pages_answer_on_servers_too(server: str, request: pytest.FixtureRequest) -> None:
    story = Story(request.getfixturevalue(server).url, name="shop_on_servers")
    try:
        story.tell()
        client = Client(DashboardApp(story.app))
        key = story.app.errors().groups[0].key
        for page in (
            *("/runs", "/runs?task=capture", f"/runs/{story.failed}", f"/runs/{story.waiting[0]}", "/queues/exports"),
            *(f"/errors/{key}", "/tasks", "/nodes", "/broken", "/system", "/system/audit", "/timeline?by=queue"),
            *("/api/v1/runs?limit=3", "/api/v1/stats", "/api/v1/queues"),
        ):
            answer = client.get(page)
            assert answer.status == 200, (page, answer.words[:300])
            assert "could not be shown" not in answer.words, page
        counted(client, "/runs")
        assert "Failed for good" in client.get(f"/runs/{story.failed}").words
    finally:
        story.close()


def test_no_page_shows_a_secret(told: Story, look: Client) -> None:
    for page in pages(told):
        text = look.get(page).text
        assert "sk_live_canary" not in text
        assert "token_canary" not in text


def test_runs_show_what_each_says(told: Story, look: Client) -> None:
    words = look.get("/runs").words
    for each in ("succeeded", "failed", "62 %", "waiting", "delayed", "cancelled", "order=1, api_key=***"):
        assert each in words
    assert "ConnectionError: stripe did not answer" in words


def counted(look: Client, url: str) -> str:
    """Return the words of a page once the counts are there: a page does not wait for them long."""
    deadline = time.monotonic() + LIMIT
    while True:
        words = look.get(url).words
        if re.search(r"All \d", words) or time.monotonic() > deadline:
            return words
        time.sleep(0.05)


def test_facets_count_the_runs_by_status(told: Story, look: Client) -> None:
    expected = "All 9 Waiting 3 Delayed 1 Running 1 Succeeded 2 Failed 1 Cancelled 1"
    assert expected in counted(look, "/runs")
    assert "All 2 Delayed 1 Succeeded 1" in counted(look, "/runs?task=capture")
    assert "All 4 Waiting 3 Cancelled 1" in counted(look, "/runs?queue=exports&status=waiting")


def test_a_filter_in_the_url_or_in_the_box_says_the_same(told: Story, look: Client) -> None:
    by_keys, typed = look.get("/runs?queue=exports&status=waiting"), look.get("/runs?q=queue:exports+status:waiting")
    found = [re.findall(r'tr tabindex="0" data-key="([^"]+)"', answer.text) for answer in (by_keys, typed)]
    assert sorted(found[0]) == sorted(found[1]) == sorted(told.waiting)
    assert "status=waiting" in typed.text


def test_a_word_without_a_key_is_searched_for(look: Client, told: Story) -> None:
    assert told.failed in look.get("/runs?q=stripe").text
    assert told.good not in look.get("/runs?q=stripe").text


@pytest.mark.parametrize(
    "query",
    ["status=faild", "q=statsu:failed", "since=yesterday", "q=%22open", "took=30s", "starts=many", "task=a*b"],
)
def test_a_bad_filter_is_a_400_with_the_sentence(look: Client, query: str) -> None:
    answer = look.get(f"/runs?{query}")
    assert answer.status == 400
    assert "That filter cannot be read." in answer.words
    assert "Drop the filter" in answer.words


@pytest.mark.parametrize("query", ["after=-1", "limit=0", "limit=1000000000", "after=" + "9" * 900, "limit=x"])
def test_a_bad_parameter_is_a_400(look: Client, query: str) -> None:
    assert look.get(f"/runs?{query}").status == 400


def test_nothing_matches_offers_to_drop_each_condition(look: Client) -> None:
    words = look.get("/runs?queue=exports&status=failed").words
    assert "Nothing matches" in words
    assert "Drop queue:exports" in words


def test_pages_go_on_where_the_last_ended(app: Mainspring) -> None:
    task = app.task(name="one")(print)
    made = [task.enqueue(number).id for number in range(7)]
    client, url, seen = Client(DashboardApp(app)), "/runs?limit=3", []
    while url:
        text = client.get(url).text
        seen += re.findall(r'tr tabindex="0" data-key="([^"]+)"', text)
        if len(seen) == 3:
            task.enqueue(99)  # rows that arrive do not move the pages
        found = re.search(r'href="([^"]+)" data-page="older"', text)
        url = found[1].replace("&amp;", "&") + "&limit=3" if found else ""
    assert seen == made[::-1]


def test_a_run_says_why_what_happened_and_where_it_broke(told: Story, look: Client) -> None:
    words = look.get(f"/runs/{told.failed}").words
    assert "Failed for good" in words
    assert "Start 1" in words
    assert "Start 2" in words
    assert "in reconcile" in words
    assert "12 of 20 charges" in words
    assert "slow answer" in words
    assert "token = ***" in words
    assert "ConnectionError" in look.get(f"/runs/{told.failed}?start=1").words


def test_a_run_that_waits_says_that_nobody_serves_it(told: Story, look: Client) -> None:
    assert "no living node serves queue 'exports'" in look.get(f"/runs/{told.waiting[0]}").words


def test_a_run_that_is_not_there_is_a_404_with_the_explanation(look: Client) -> None:
    answer = look.get("/runs/nobody")
    assert answer.status == 404
    assert "nobody" in answer.words
    assert "SQLite" in answer.words  # the sidebar stands: the store does answer
    assert re.search(r'href="/runs" aria-current="page"', answer.text)


def test_errors_name_what_the_failures_share(told: Story, look: Client) -> None:
    words = look.get("/errors").words
    assert "ConnectionError" in words
    assert "story.py:reconcile" in words
    assert look.get("/errors?since=1000000000d").status == 400
    assert "No error matches" in look.get("/errors?q=nothinglikeit").words


def test_nodes_show_what_they_execute(told: Story, look: Client) -> None:
    words = look.get("/nodes").words
    assert "1 of 4 slots" in words
    assert "transcode clip=88213" in words
    assert "code 1.0" in words


def test_a_queue_says_what_waits_in_it_and_who_serves_it(look: Client) -> None:
    words = look.get("/queues/exports").words
    assert "Unserved" in words
    assert "Waiting by task shop.exports:export 3" in words
    assert "1 of 4 slots" in look.get("/queues/payments").words
    assert look.get("/queues/nobody").status == 404


def test_the_timeline_has_a_track_for_each_queue(told: Story, look: Client) -> None:
    assert "Nothing to draw" in look.get("/timeline").words
    assert look.get("/timeline?range=1000y").status == 400
    assert "payments" in look.get("/timeline?by=queue").words


def test_the_system_shows_findings_settings_and_what_people_did(look: Client) -> None:
    words = look.get("/system").words
    for each in (
        "What the doctor found",
        "Answers in",
        "set: what is stored is signed",
        "cancel",
    ):
        assert each in words


# -- actions -------------------------------------------------------------------------------------------------------


def test_a_run_is_cancelled_retried_changed_and_deleted(app: Mainspring) -> None:
    run = app.task(name="one")(print).enqueue(1).id
    client = Client(DashboardApp(app))
    assert client.post(f"/runs/{run}/cancel", {"next": f"/runs/{run}"}, accept="text/html").status == 303
    assert app.get(run).status is Status.CANCELLED
    said = client.post(f"/runs/{run}/retry", x_part="1").json
    assert said["undo"].endswith("/cancel")
    assert app.get(run).status is Status.PENDING
    assert client.post(f"/runs/{run}/change", {"queue": "slow", "priority": "7", "at": "2h"}, x_part="1").status == 200
    assert (app.get(run).queue, app.get(run).priority) == ("slow", 7)
    assert client.post(f"/runs/{run}/delete", x_part="1").status == 400
    app.cancel(run)
    assert client.post(f"/runs/{run}/delete", x_part="1").json["go"] == "/runs"
    assert app.count() == 0


def test_an_action_that_comes_too_late_says_how_it_stands(app: Mainspring) -> None:
    run = app.task(name="one")(print).enqueue(1).id
    client = Client(DashboardApp(app))
    answer = client.post(f"/runs/{run}/retry", x_part="1")
    assert (answer.status, answer.json["bad"]) == (400, True)
    assert "waiting by now" in answer.json["text"]


def test_selected_runs_are_asked_about_and_changed(app: Mainspring) -> None:
    task = app.task(name="one")(print)
    runs = [task.enqueue(number).id for number in range(4)]
    app.cancel(runs[0])
    client = Client(DashboardApp(app))
    asked = client.get("/runs/bulk/cancel?" + "&".join(f"id={run}" for run in runs)).words
    assert "3 runs can be cancelled. 1 is cancelled and stays as it is." in asked
    assert client.get("/runs/bulk/cancel").status == 400
    said = client.post("/runs/bulk/cancel", {"ids": " ".join(runs[:3])}, x_part="1").json
    assert said["text"].startswith("2 runs cancelled; 1 left")
    assert app.count(status="pending") == 1


def test_all_that_match_are_changed_after_a_trial_and_progress_is_shown(app: Mainspring) -> None:
    task = app.task(name="one")(print)
    for number in range(5):
        task.enqueue(number)
    client = Client(DashboardApp(app))
    asked = client.get("/runs/bulk/move?match=status:pending").words
    assert "5 runs can be moved." in asked
    assert app.count(queue="slow") == 0
    said = client.post("/runs/bulk/move", {"match": "status:pending", "queue": "slow"}, x_part="1").json
    bulk = app.bulk(said["go"].rpartition("/")[2])
    assert bulk is not None
    assert bulk.wait(LIMIT)
    assert "5 moved" in client.get(said["go"]).words
    assert app.count(queue="slow") == 5
    assert app.audit(limit=1)[0].verb == "move_all"


def test_deleting_many_has_to_be_typed(app: Mainspring) -> None:
    task = app.task(name="one")(print)
    for handle in app.enqueue_many(task.call(number) for number in range(120)):
        app.cancel(handle.id)
    client = Client(DashboardApp(app))
    assert "Type delete to confirm" in client.get("/runs/bulk/delete?match=status:cancelled").words
    assert client.post("/runs/bulk/delete", {"match": "status:cancelled"}, x_part="1").status == 400
    assert app.count() == 120
    said = client.post("/runs/bulk/delete", {"match": "status:cancelled", "typed": "delete"}, x_part="1").json
    bulk = app.bulk(said["go"].rpartition("/")[2])
    assert bulk is not None
    assert bulk.wait(LIMIT)
    assert app.count(queue="default") == 0


def test_a_task_is_enqueued_by_the_form(app: Mainspring) -> None:
    @app.task(name="shop:mail")
    def mail(to: str, copies: int = 1, password: str = "") -> None: ...

    client = Client(DashboardApp(app))
    form = client.get("/runs/new?task=shop:mail").text
    assert 'name="arg.copies" value="1"' in form
    assert 'type="password"' in form
    sent = {"task": "shop:mail", "arg.to": "ann", "arg.copies": "3", "queue": "mail", "delay": "2h", "priority": "5"}
    said = client.post("/runs/new/enqueue", sent, x_part="1").json
    run = app.get(said["go"].rpartition("/")[2])
    assert (run.kwargs, run.queue, run.priority) == ({"to": "ann", "copies": 3}, "mail", 5)
    assert client.post("/runs/new/enqueue", {"task": "shop:mail"}, x_part="1").status == 400  # `to` is missing
    assert client.post("/runs/new/enqueue", {"task": "nobody"}, x_part="1").status == 400


def test_running_again_keeps_what_nobody_touched_and_every_secret(app: Mainspring) -> None:
    @app.task(name="shop:mail")
    def mail(to: tuple[str, ...], copies: int = 1, password: str = "") -> None: ...

    first = mail.enqueue(("ann", "bob"), 2, password="hunter2").id
    client = Client(DashboardApp(app))
    form = client.get(f"/runs/new?again={first}").text
    assert "hunter2" not in form
    sent = {"again": first, "arg.to": '["ann", "bob"]', "arg.copies": "5", "arg.password": ""}
    said = client.post("/runs/new/enqueue", sent, x_part="1").json
    run = app.get(said["go"].rpartition("/")[2])
    assert run.kwargs == {"to": ("ann", "bob"), "copies": 5, "password": "hunter2"}
    assert run.copied_from == first


def test_a_broken_run_is_listed_by_reason_restored_and_discarded(app: Mainspring, tmp_path: Path) -> None:
    other = Mainspring(f"sqlite:///{tmp_path}/jobs.db", secret_key="other key of thirty-two bytes!!!", timezone="UTC")
    strange = other.task(name="one")(print).enqueue(1).id
    app.task(name="one")(print)
    app.start(work=True)
    app.wait([strange], LIMIT)
    client = Client(DashboardApp(app))
    words = client.get("/broken").words
    assert "1 record was set aside." in words
    assert strange in client.get("/broken").text
    assert client.post(f"/broken/{strange}/discard", x_part="1").status == 400
    assert client.post(f"/broken/{strange}/discard", {"typed": "discard"}, x_part="1").status == 200
    assert "Nothing is broken." in client.get("/broken").words
    other.close()


def test_the_audit_names_the_person_and_pages(app: Mainspring) -> None:
    for number in range(60):
        with app.acting("ann", f"reason {number}"):
            app.pause_queue("mail")
    client = Client(DashboardApp(app))
    first = client.get("/system/audit")
    assert "reason 59" in first.words
    older = re.search(r'href="([^"]+)" data-page="older"', first.text)
    assert older is not None
    assert "reason 0" in client.get(older[1].replace("&amp;", "&")).words
    assert client.get("/system/audit?after=zz").status == 400
    assert client.get("/system/audit?kind=queue").status == 400


def test_a_moment_is_marked(app: Mainspring) -> None:
    client = Client(DashboardApp(app))
    assert client.post("/system/mark", {"text": "deploy 7"}, x_part="1").status == 200
    assert app.marks()[0].text == "deploy 7"
    assert client.post("/system/mark", {"text": " "}, x_part="1").status == 400


@pytest.mark.parametrize(
    "asked",
    [
        "from=-2h&to=now",
        "from=2026-10-24T12:00&to=2026-10-24T18:00",
        "from=2026-10-24T12:00:00%2B02:00&to=2026-10-24T12:05:00%2B02:00",
        "from=%2B3d&to=%2B5d",
        "from=-3h",
        "by=queue&from=-30m&to=%2B30m",
        "by=node&from=-30m",
    ],
)
def test_a_timeline_shows_the_stretch_that_somebody_chose(look: Client, asked: str) -> None:
    answer = look.get(f"/timeline?{asked}")
    assert answer.status == 200
    assert "could not be shown" not in answer.text
    assert "Back to now" in answer.words


@pytest.mark.parametrize("asked", ["from=now&to=-1h", "from=tomorrow", "from=1999-01-01", "from=now&to=now"])
def test_a_stretch_that_cannot_be_shown_says_why(look: Client, asked: str) -> None:
    assert look.get(f"/timeline?{asked}").status == 400


def test_a_chosen_stretch_shows_the_runs_in_it_and_no_others(told: Story, look: Client) -> None:
    shown = look.get("/timeline?by=queue&from=-1h&to=now").text
    assert f"/runs/{told.good}" in shown
    assert f"/runs/{told.good}" not in look.get("/timeline?by=queue&from=-4h&to=-3h").text
