"""What a page says is so: its words agree with one another, and with the store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.core.insight.metrics import Spread
from mainspring.core.instants import SECOND
from mainspring.core.run import Call, Run, Status
from mainspring.core.showing.redaction import parameters_text
from mainspring.dashboard import Accounts, DashboardApp, hash_password
from mainspring.dashboard.building import Builder, ViewKey
from mainspring.dashboard.memo import forget
from mainspring.dashboard.roles import Role
from mainspring.errors import StoreUnavailable
from tests.dashboard.client import Client
from tests.dashboard.shop import MINUTE, counted, make_shop, seed, seed_flow


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mainspring]:
    app = make_shop(f"sqlite:///{tmp_path_factory.mktemp('facts')}/shop.db")
    seed(app)
    seed_flow(app)
    yield app
    app.close()


@pytest.fixture
def look(shop: Mainspring) -> Client:
    return Client(DashboardApp(shop))


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Mainspring]:
    """An empty app that a test may change."""
    app = Mainspring(f"sqlite:///{tmp_path}/jobs.db", secret_key="k" * 32, timezone="UTC")
    yield app
    app.close()


def test_a_retried_run_is_late_by_its_first_start_only(look: Client) -> None:
    late = re.findall(r"failed \w{3} \d+ \w{3}, \d\d:\d\d ([\d.]+ \w+)", look.get("/jobs/reconcile-stripe").words)
    assert late == ["1.0 s"] * 5
    assert "31 s" not in look.get("/runs?job=reconcile-stripe&status=failed").words


def test_a_flow_has_one_name_and_one_state_in_the_list_and_on_its_page(look: Client) -> None:
    own = look.get("/flows/import%207")
    assert "waiting import 7 0 of 9" in look.get("/flows").words
    assert "<h1>import 7</h1>" in own.text
    assert "Waits for 9 of 9 steps" in own.words


def test_the_store_has_counted_what_the_shop_did(look: Client, shop: Mainspring) -> None:
    assert shop.counters()["failed"] == shop.count(status="failed")
    assert f"Succeeded, ever {shop.count(status='succeeded'):,}" in look.get("/system").words


def test_a_queue_is_growing_in_the_list_and_on_its_page(look: Client) -> None:
    assert "growing media More comes in than leaves" in look.get("/queues").words
    assert "Growing: more comes in than leaves" in look.get("/queues/media").words


def test_what_heals_itself_comes_last(look: Client) -> None:
    words = look.get("/").words
    assert words.index("Queue exports is unserved") < words.index("Job supplier-sync is late")
    assert words.index("Failed : 1 run of shop.carts:expire") < words.index("Job supplier-sync is late")


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/runs/nope", "There is no run called 'nope' here. A run that has ended is kept for 7 d"),
        ("/jobs/nope", "There is no job called 'nope' here. A job is kept until its last fire."),
        ("/queues/nope", "There is no queue called 'nope' here. A queue is there once"),
        ("/nodes/nope", "There is no node called 'nope' here. A node is there as long as it is heard from."),
        ("/flows/nope", "There is no flow called 'nope' here."),
        ("/tasks/nope", "There is no task called 'nope' here."),
    ],
)
def test_a_page_of_nothing_names_the_kind_and_leads_to_the_others(look: Client, path: str, sentence: str) -> None:
    answer = look.get(path)
    assert answer.status == 404
    assert sentence in answer.words
    assert "Try again" not in answer.words
    assert "Copy command" not in answer.words


def test_a_store_that_does_not_answer_is_named_once(shop: Mainspring, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> int:
        raise StoreUnavailable("Redis at localhost:6999/0 does not answer: Connection refused.")

    monkeypatch.setattr(shop.store, "beat", fail)
    said = Builder(shop, "", "x").live(ViewKey("/", Role.VIEW, "", "")).problem
    assert said == "Redis at localhost:6999/0 does not answer: Connection refused."


def test_a_run_that_never_started_has_raised_nothing(look: Client) -> None:
    words = look.get("/runs/cancelled01").words
    assert "before it started: wrong preset." in words
    assert "raised" not in words


def test_a_run_that_waits_is_not_said_to_run_for_no_time(look: Client) -> None:
    assert "of which 0 ms" not in look.get("/runs/export03").words
    assert "set for later" in look.get("/runs/later01").words
    assert "backing off" not in look.get("/runs/later01").words


def test_a_run_that_runs_longer_than_usual_is_not_said_to_end_now(look: Client) -> None:
    words = look.get("/runs/running02").words
    assert "should end about" not in words
    assert "running, 71 %" in words


def test_what_somebody_else_did_first_is_said_with_the_name(shop: Mainspring) -> None:
    client = Client(DashboardApp(shop))
    with shop.acting("eve"):
        shop.retry("loose0040")
    answer = client.post("/runs/loose0040/retry", x_part="1")
    assert answer.status == 400
    assert re.match(r"thumbs was already retried by eve, \d\d:\d\d:\d\d; it is waiting now", answer.json["text"])


def test_nothing_is_offered_where_there_is_nothing_to_do(look: Client) -> None:
    backfill = look.get("/jobs/nightly-backup/backfill")
    assert "There is nothing to run: 1 fire had a run." in backfill.words
    assert "Run 0 fires" not in backfill.words
    moved = look.get("/runs/bulk/move?id=loose0000")
    assert "No run can be moved. 1 is failed and stays as it is." in moved.words
    assert "Move 0" not in moved.words
    purge = look.get("/queues/mail/purge")
    assert "There is nothing to purge" in purge.words
    assert "Type" not in purge.words


def test_the_audit_reads_as_words(look: Client) -> None:
    words = look.get("/system/audit").words
    assert "modify job fields: misfire_grace_time, timeout" in words
    assert "mark text: deploy 2026.10.24-2" in words


def test_the_chart_of_a_frequent_job_names_hours(look: Client) -> None:
    assert len(re.findall(r"<text[^>]*>\w{3} \d\d:\d\d</text>", look.get("/jobs/reconcile-stripe").text)) >= 3


def test_a_viewer_is_not_sent_to_forms(shop: Mainspring) -> None:
    accounts = Accounts({"vera": ("view", hash_password("secret"))})
    client = Client(DashboardApp(shop, accounts=accounts))
    found = re.search(r'name="csrf" value="([^"]+)"', client.get("/login").text)
    assert found is not None
    form = {"name": "vera", "password": "wrong", "csrf": found[1]}
    refused = client.post("/login", form, csrf=False)
    assert 'value="vera"' in refused.text
    client.post("/login", {**form, "password": "secret"}, csrf=False)
    for path, label in (("/jobs", "Add job"), ("/runs", "Enqueue"), ("/jobs/fx-rates", "Edit")):
        assert f'disabled title="{label}: needs the role “operate”"' in client.get(path).text


def test_a_single_length_is_its_own_percentile() -> None:
    assert Spread(1, 76 * SECOND).percentile(0.95) == 76 * SECOND


def test_a_parameter_is_shown_without_the_quotes_of_its_annotation() -> None:
    def function(order: int, api_key: str = "secret") -> None: ...

    assert parameters_text(function) == "(order: int, api_key: str = ***) -> None"


def set_a_job_aside(app: Mainspring) -> None:
    """Add two jobs, one of which cannot be read."""
    made = app.task(name="one")(print)
    app.add_job(made, "interval", hours=1, id="sound")
    damaged = app.add_job(made, "interval", hours=1, id="damaged")
    assert app.store.set_aside(damaged.id, damaged.version, "bad_signature: altered")


def test_a_job_that_was_set_aside_is_listed_and_counted(app: Mainspring) -> None:
    set_a_job_aside(app)
    client = Client(DashboardApp(app))
    page = client.get("/jobs")
    assert "Jobs 1 broken 2 Timeline" in page.words
    assert "All 2 Broken 1" in page.words
    assert "broken damaged Set aside and not fired: bad_signature: altered." in page.words
    assert '<a class="name" href="/broken" title="damaged">' in page.text
    assert len(re.findall(r'<tr tabindex="0" data-key', page.text)) == 2
    assert "damaged" in client.get("/jobs?health=broken&q=dam").words
    assert "damaged" not in client.get("/jobs?health=down").words
    assert "Nothing matches" in client.get("/jobs?q=health:broken+nope").words


def test_the_system_counts_jobs_that_were_set_aside_apart_from_runs(app: Mainspring) -> None:
    set_a_job_aside(app)
    client = Client(DashboardApp(app))
    assert "Jobs 1 Jobs set aside 1 " in client.get("/system").words
    assert "Runs broken, ever 0 " in client.get("/system").words


def test_a_queue_whose_runs_have_all_ended_still_has_its_page(app: Mainspring) -> None:
    run = app.task(name="one")(print).options(queue="bulk").enqueue()
    app.cancel(run.id)
    client = Client(DashboardApp(app))
    page = client.get("/queues/bulk")
    assert page.status == 200
    assert "no living node serves queue 'bulk'; it is empty." in page.words
    assert "Nothing waits." in page.words
    assert run.id in page.text
    assert "Nothing waits in it." in client.get("/queues/bulk/pause").words
    for name in ("bulky", "!bulk", ".threads"):
        missing = client.get(f"/queues/{name}")
        assert missing.status == 404
        assert f"There is no queue called '{name}' here" in missing.words


def test_the_timeline_says_that_nobody_fires_jobs(app: Mainspring, look: Client) -> None:
    app.add_job(app.task(name="one")(print), "interval", minutes=10, id="often")
    words = Client(DashboardApp(app)).get("/timeline").words
    assert "No living node fires jobs. The next fire is at " in words
    assert "Nothing odd" not in words
    assert "No living node" not in look.get("/timeline").words


def count_a_success(app: Mainspring, minutes_ago: int) -> None:
    at = app.now() - minutes_ago * MINUTE
    call = Call("one", (), {}, "one")
    run = Run(id="x", call=call, created_at=at, run_at=at, started_at=at, finished_at=at, status=Status.SUCCEEDED)
    app.store.tallies(counted([run]))
    forget(app)


@pytest.mark.parametrize("earlier", [120, 3 * 24 * 60])
def test_only_a_young_store_shows_its_last_hour(app: Mainspring, earlier: int) -> None:
    client = Client(DashboardApp(app))
    assert 'aria-current="true">24 h</a>' in client.get("/").text
    count_a_success(app, 5)
    assert 'aria-current="true">1 h</a>' in client.get("/").text
    assert "Succeeded 1 h 1 " in client.get("/").words
    assert 'aria-current="true">24 h</a>' in client.get("/?range=24h").text
    count_a_success(app, earlier)
    assert 'aria-current="true">24 h</a>' in client.get("/").text


def test_the_overview_says_when_the_next_delayed_run_is_due(app: Mainspring) -> None:
    client, task = Client(DashboardApp(app)), app.task(name="one")(print)
    assert "Delayed 0 for later" in client.get("/").words
    app.enqueue_many(task.options(delay=3600 + number).call() for number in range(99))
    at, call = app.now() + 120 * MINUTE, Call("one", (), {}, "one")
    retried = Run(id="retried", call=call, queue="default", created_at=at, run_at=at, failures=1, attempt=1)
    app.store.add_runs([app.store.pack_run(retried)])
    task.options(after="retried").enqueue()
    forget(app)
    answer = client.get("/")
    due = min(run.record.run_at for run in app.find(status="pending"))
    assert re.findall(r'next <time [^>]*data-at="(\d+)"', answer.text) == [str(due), str(at)]
    assert re.search(r"Delayed 100 \+1 blocked next in .* Retrying 1 next in ", answer.words)
    task.enqueue()  # more are pending than are read
    forget(app)
    assert "Delayed 100 1 more blocked" in client.get("/").words
