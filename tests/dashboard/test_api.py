"""The JSON API: every endpoint is described, answers are as described, and nothing is changed by looking."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from mainspring import Mainspring
from mainspring.core.run import Status
from mainspring.dashboard import Accounts, DashboardApp, hash_password
from mainspring.dashboard.api.endpoints import ENDPOINTS, ROOT
from mainspring.dashboard.api.openapi import openapi
from tests.dashboard.client import Answer, Client
from tests.dashboard.story import LIMIT, Story, make_story

_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}


def check(value: Any, shape: dict[str, Any], where: str = "answer") -> None:
    """Compare a value with its schema, as far as our schemas go."""
    if "$ref" in shape:
        return check(value, openapi()["components"]["schemas"][shape["$ref"].rpartition("/")[2]], where)
    for each in shape.get("allOf", ()):
        check(value, each, where)
    if "anyOf" in shape:
        shape = next((each for each in shape["anyOf"] if _fits(value, each)), shape["anyOf"][0])
        return check(value, shape, where)
    kinds = shape.get("type")
    if kinds is None:
        return None
    wanted = [kinds] if isinstance(kinds, str) else kinds
    assert any(isinstance(value, _TYPES[kind]) for kind in wanted), f"{where} is {value!r}, not {kinds}"
    assert not (isinstance(value, bool) and "boolean" not in wanted), where
    if isinstance(value, dict):
        assert not set(shape.get("required", ())) - set(value), f"{where} lacks {shape['required']}"
        for name, inner in shape.get("properties", {}).items():
            if name in value:
                check(value[name], inner, f"{where}.{name}")
        if isinstance(shape.get("additionalProperties"), dict):
            for name, each in value.items():
                check(each, shape["additionalProperties"], f"{where}.{name}")
    if isinstance(value, list):
        for number, each in enumerate(value):
            check(each, shape["items"], f"{where}[{number}]")
    return None


def _fits(value: Any, shape: dict[str, Any]) -> bool:
    return shape.get("type") != "null" if value is not None else shape.get("type") == "null"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """A shop that nobody changes."""
    with make_story(tmp_path_factory.mktemp("api")) as story:
        story.app.add_job(story.capture, "interval", hours=1, args=[7], id="hourly/capture")
        yield story


@pytest.fixture(scope="module")
def look(told: Story) -> Client:
    """A client that only looks."""
    return Client(DashboardApp(told.app))


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Mainspring]:
    """An app that a test may change."""
    app = Mainspring(f"sqlite:///{tmp_path}/jobs.db", secret_key="k" * 32, timezone="UTC")
    app.task(name="shop:one")(print)
    yield app
    app.close()


def send(client: Client, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    content = json.dumps(body or {}).encode()
    return client.send(method, f"{ROOT}{path}", content, **{"content-type": "application/json", **headers})


# -- the document --------------------------------------------------------------------------------------------------


def test_every_route_is_described_and_every_description_has_a_route(told: Story) -> None:
    from mainspring.dashboard.api.serving import Api
    from mainspring.dashboard.web.visitors import Visitors

    routes = Api(told.app, Visitors(None, None), lambda request: None).routes()
    served = {
        (method, route.path.replace(":path", ""))
        for route in routes
        for method in route.methods or ()
        if method != "HEAD" and "{path" not in route.path and not route.path.endswith("openapi.json")
    }
    described = {(method.upper(), path) for path, found in openapi()["paths"].items() for method in found}
    assert served == described == {(each.method, f"{ROOT}{each.path}") for each in ENDPOINTS}


def test_the_document_is_whole(look: Client) -> None:
    document = look.get(f"{ROOT}/openapi.json").json
    assert document["openapi"] == "3.1.0"
    text = json.dumps(document)
    for name in re.findall(r'"#/components/schemas/(\w+)"', text):
        assert name in document["components"]["schemas"]
    ids = [each["operationId"] for found in document["paths"].values() for each in found.values()]
    assert len(ids) == len(set(ids))
    for path, found in document["paths"].items():
        for each in found.values():
            named = {given["name"] for given in each["parameters"] if given["in"] == "path"}
            assert named == set(re.findall(r"\{(\w+)\}", path))


def test_the_page_lists_every_endpoint(look: Client) -> None:
    words = look.get("/api").words
    assert all(f"{ROOT}{each.path}" in words for each in ENDPOINTS)


# -- looking -------------------------------------------------------------------------------------------------------


def test_every_answer_is_as_described(told: Story, look: Client) -> None:
    key = told.app.errors().groups[0].key
    bulk = told.app.apply("retry", "status:failed", trial=True)
    assert bulk.wait(LIMIT)
    names = {
        "/runs/{id}": told.failed,
        "/runs/{id}/story": told.failed,
        "/jobs/{id}": "hourly/capture",
        "/queues/{name}": "exports",
        "/nodes/{id}": told.app.nodes()[0].id,
        "/errors/{key}": key,
        "/bulk/{id}": bulk.id,
    }
    for endpoint in ENDPOINTS:
        if endpoint.method != "GET" or endpoint.do is None:
            continue
        path = re.sub(r"\{\w+\}", quote(names.get(endpoint.path, ""), safe=""), endpoint.path)
        answer = look.get(f"{ROOT}{path}")
        assert answer.status == 200, (path, answer.text)
        check(answer.json, {"$ref": f"#/components/schemas/{endpoint.answer}"}, endpoint.path)
        assert "canary" not in answer.text


def test_every_run_is_as_described(told: Story, look: Client) -> None:
    runs = look.get(f"{ROOT}/runs?limit=100").json["runs"]
    assert len(runs) == told.app.count()
    for run in runs:
        answer = look.get(f"{ROOT}/runs/{run['id']}")
        check(answer.json, {"$ref": "#/components/schemas/WholeRun"})
        assert "canary" not in answer.text


def test_runs_are_found_by_filter_or_by_keys_and_paged(look: Client, told: Story) -> None:
    by_filter = look.get(f"{ROOT}/runs?filter=status:waiting+queue:exports").json["runs"]
    by_keys = look.get(f"{ROOT}/runs?status=waiting&queue=exports").json["runs"]
    assert {run["id"] for run in by_filter} == {run["id"] for run in by_keys} == set(told.waiting)
    first = look.get(f"{ROOT}/runs?limit=2&queue=exports").json
    second = look.get(f"{ROOT}/runs?limit=2&queue=exports&after={quote(first['next'])}").json
    assert len({run["id"] for run in first["runs"] + second["runs"]}) == 4
    assert look.get(f"{ROOT}/runs/count?queue=exports").json == {"number": 4, "exact": True}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/runs?status=faild", 400),
        ("/runs?limit=1000000000", 400),
        ("/runs?after=zz", 400),
        ("/tasks?since=1000000000d", 400),
        ("/runs/nobody", 404),
        ("/jobs/nobody", 404),
        ("/queues/nobody", 404),
        ("/nodes/nobody", 404),
        ("/errors/nobody", 404),
        ("/bulk/nobody", 404),
        ("/nobody", 404),
        ("/jobs/nobody/badge.svg", 404),
    ],
)
def test_what_cannot_be_answered_says_why(look: Client, path: str, status: int) -> None:
    answer = look.get(f"{ROOT}{path}")
    assert answer.status == status
    check(answer.json, {"$ref": "#/components/schemas/Problem"})


def test_runs_are_exported_as_csv_and_json(look: Client, told: Story) -> None:
    answer = look.get(f"{ROOT}/runs.csv?queue=exports")
    assert "attachment" in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert {row["id"] for row in rows} == {*told.waiting, told.cancelled}
    lines = [json.loads(line) for line in look.get(f"{ROOT}/runs.json").text.splitlines()]
    assert len(lines) == told.app.count()
    assert "canary" not in look.get(f"{ROOT}/runs.csv").text


def test_a_formula_in_a_csv_is_text(app: Mainspring) -> None:
    app.task(name="=cmd()")(print).enqueue(1)
    rows = list(csv.DictReader(io.StringIO(Client(DashboardApp(app)).get(f"{ROOT}/runs.csv").text)))
    assert rows[0]["task"] == "'=cmd()"


def test_an_export_that_is_cut_says_so(look: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.dashboard.api.serving.MOST_EXPORTED", 2)
    lines = look.get(f"{ROOT}/runs.json").text.splitlines()
    assert len(lines) == 3
    assert "the rest is left out" in lines[-1]
    assert "the rest is left out" in look.get(f"{ROOT}/runs.csv").text.splitlines()[-1]


def test_a_badge_shows_the_health_of_a_job(look: Client) -> None:
    answer = look.get(f"{ROOT}/jobs/{quote('hourly/capture', safe='')}/badge.svg")
    assert answer.headers["content-type"].startswith("image/svg+xml")
    assert "hourly/capture: new" in answer.text


# -- acting --------------------------------------------------------------------------------------------------------


def test_a_run_is_enqueued_changed_cancelled_retried_and_deleted(app: Mainspring) -> None:
    client = Client(DashboardApp(app))
    body = {"task": "shop:one", "args": [1], "options": {"queue": "mail"}, "in": "2h", "why": "by hand"}
    run = send(client, "POST", "/runs", body).json
    check(run, {"$ref": "#/components/schemas/Run"})
    assert (run["kind"], run["queue"]) == ("delayed", "mail")
    changed = send(client, "POST", f"/runs/{run['id']}/change", {"queue": "slow", "priority": 7, "in": 0}).json
    assert (changed["queue"], changed["priority"], changed["kind"]) == ("slow", 7, "waiting")
    assert send(client, "DELETE", f"/runs/{run['id']}").status == 400
    assert send(client, "POST", f"/runs/{run['id']}/cancel").json["status"] == "cancelled"
    assert send(client, "POST", f"/runs/{run['id']}/retry", {"in": 60}).json["status"] == "pending"
    copied = send(client, "POST", f"/runs/{run['id']}/again", {"args": [2]}).json
    assert copied["copied_from"] == run["id"]
    app.cancel(run["id"])
    assert send(client, "DELETE", f"/runs/{run['id']}").json == {"deleted": run["id"]}
    assert app.count() == 1


def test_jobs_and_queues_obey(app: Mainspring) -> None:
    app.add_job("shop:one", "interval", hours=1, args=[1], id="one")
    client = Client(DashboardApp(app))
    assert send(client, "POST", "/jobs/one/pause").json["paused"] is True
    assert send(client, "POST", "/jobs/one/resume").json["paused"] is False
    before = app.get_job("one")
    assert before is not None
    assert send(client, "POST", "/jobs/one/skip").json["next_run_time"] != before.next_run_time
    check(send(client, "POST", "/jobs/one/run").json, {"$ref": "#/components/schemas/Run"})
    assert send(client, "POST", "/queues/mail/pause", {"why": "rest"}).json == {"name": "mail", "paused": True}
    assert app.audit(limit=1)[0].why == "rest"
    assert send(client, "POST", "/queues/mail/resume").json["paused"] is False
    assert send(client, "POST", "/queues/default/purge").status == 400
    assert send(client, "POST", "/queues/default/purge", {"name": "default"}).json == {"cancelled": 1}
    assert send(client, "DELETE", "/jobs/one", {"cancel_runs": True}).json == {"deleted": "one"}
    assert app.jobs() == []
    assert send(client, "POST", "/jobs/one/pause").status == 404


def test_many_runs_are_tried_changed_and_stopped(app: Mainspring) -> None:
    task = app.as_task("shop:one")
    app.enqueue_many(task.call(number) for number in range(5))
    client = Client(DashboardApp(app))
    trial = send(client, "POST", "/bulk", {"verb": "cancel", "filter": "status:pending", "trial": True}).json
    assert (trial["changed"], trial["trial"]) == (5, True)
    assert app.count(status="pending") == 5
    begun = send(client, "POST", "/bulk", {"verb": "cancel", "filter": "status:pending"}).json
    found = app.bulk(begun["id"])
    assert found is not None
    assert found.wait(LIMIT)
    done = client.get(f"{ROOT}/bulk/{begun['id']}").json
    check(done, {"$ref": "#/components/schemas/Bulk"})
    assert (done["state"], done["changed"]) == ("done", 5)
    assert send(client, "DELETE", f"/bulk/{begun['id']}").status == 200
    assert send(client, "POST", "/bulk", {"verb": "explode", "filter": ""}).status == 400


@pytest.mark.parametrize(
    "body",
    [
        {"task": 5},
        {"task": "nobody"},
        {"task": "shop:one", "args": "no"},
        {"task": "shop:one", "options": {"hook": "os:system"}},
        {"task": "shop:one", "in": "soon"},
        {"task": "mainspring:collect"},
        {},
    ],
)
def test_a_bad_body_is_a_400(app: Mainspring, body: dict[str, Any]) -> None:
    assert send(Client(DashboardApp(app)), "POST", "/runs", body).status == 400
    assert app.count() == 0


def test_only_json_from_our_own_site_changes_anything(app: Mainspring) -> None:
    run = app.as_task("shop:one").enqueue(1).id
    client, path = Client(DashboardApp(app)), f"/runs/{run}/cancel"
    assert client.send("POST", f"{ROOT}{path}", b"why=x", **{"content-type": "text/plain"}).status == 415
    assert send(client, "POST", path, origin="https://evil.example").status == 403
    assert send(client, "POST", path, **{"sec-fetch-site": "cross-site"}).status == 403
    assert send(client, "DELETE", f"/runs/{run}", **{"sec-fetch-site": "same-site"}).status == 403
    assert client.send("POST", f"{ROOT}{path}", b"[1]", **{"content-type": "application/json"}).status == 400
    assert client.send("POST", f"{ROOT}{path}", b"{" * 9, **{"content-type": "application/json"}).status == 400
    assert app.get(run).status is Status.PENDING


def test_roles_hold_for_the_api_too(app: Mainspring) -> None:
    accounts = {"vic": ("view", hash_password("pw-vic")), "op": ("operate", hash_password("pw-op"))}
    client = Client(DashboardApp(app, accounts=Accounts(accounts)))

    def basic(name: str, password: str) -> dict[str, str]:
        return {"authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}

    assert client.get(f"{ROOT}/runs").status == 401
    assert client.get(f"{ROOT}/openapi.json").status == 401
    assert client.get(f"{ROOT}/runs.csv").status == 401
    assert client.get(f"{ROOT}/runs", **basic("vic", "pw-vic")).status == 200
    assert client.get(f"{ROOT}/runs", **basic("vic", "wrong")).status == 401
    for endpoint in ENDPOINTS:
        if endpoint.method != "GET":
            path = re.sub(r"\{\w+\}", "x", endpoint.path)
            assert send(client, endpoint.method, path, **basic("vic", "pw-vic")).status == 403
    assert send(client, "POST", "/queues/mail/pause", **basic("op", "pw-op")).status == 200
    assert app.audit(limit=1)[0].by == "op"


def test_looking_changes_nothing(told: Story, look: Client) -> None:
    def dump() -> Any:
        app = told.app
        runs = [(run.id, run.status, run.attempt) for run in app.find(limit=1000)]
        return runs, [job.id for job in app.jobs()], [act.record.id for act in app.audit()], app.queues()

    before = dump()
    for endpoint in ENDPOINTS:
        look.get(f"{ROOT}{re.sub(r'[{][a-z]+[}]', told.failed, endpoint.path)}")
    after = dump()
    assert before[:3] == after[:3]
