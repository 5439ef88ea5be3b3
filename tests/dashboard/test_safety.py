"""Who may reach it, who may act, and what every answer carries."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter, deque
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.dashboard import Accounts, DashboardApp, hash_password
from mainspring.dashboard.building import Builder, ViewKey
from mainspring.dashboard.serving import DashboardServer
from mainspring.dashboard.web.live import LiveState
from mainspring.dashboard.web.sessions import TRIES, LoginLimit, SessionKey
from mainspring.dashboard.web.visitors import own_path
from mainspring.errors import ConfigurationError
from mainspring.jobstores.values import NodeInfo
from tests.dashboard.client import Answer, Client
from tests.dashboard.shop import make_shop, seed

SAME_PAGES = 4
"""How many pages that differ only in an id are looked at."""
PAGES_READ = 60
"""How many pages are searched for links."""
PASSWORD = "correct horse"
HASHED = hash_password(PASSWORD)
ACCOUNTS = {"ann": ("admin", HASHED), "otto": ("operate", HASHED), "vera": ("view", HASHED)}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mainspring]:
    app = make_shop(f"sqlite:///{tmp_path_factory.mktemp('safe')}/shop.db")
    seed(app)
    yield app
    app.close()


@pytest.fixture
def app() -> Mainspring:
    return Mainspring("memory://", queues=["mail"])


def guarded(app: Mainspring) -> DashboardApp:
    return DashboardApp(app, accounts=Accounts(ACCOUNTS), hosts=["jobs.example.org"])


def log_in(app: DashboardApp, name: str, password: str = PASSWORD) -> tuple[Client, Answer]:
    client = Client(app)
    token = _token(client.get("/login").text)
    answer = client.post("/login", {"name": name, "password": password, "csrf": token}, csrf=False)
    return client, answer


def _token(text: str) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', text)
    assert found is not None
    return found[1]


# -- reaching it ---------------------------------------------------------------------------------------------------


def test_another_address_than_loopback_needs_accounts(app: Mainspring) -> None:
    with pytest.raises(ConfigurationError, match="has no accounts"):
        DashboardServer(DashboardApp(app), host="0.0.0.0", port=0)


def test_with_accounts_any_address_will_do(app: Mainspring) -> None:
    server = DashboardServer(guarded(app), host="0.0.0.0", port=0)
    assert server.port > 0
    server.stop()


def test_a_busy_port_means_the_next(app: Mainspring) -> None:
    first = DashboardServer(DashboardApp(app), port=0)
    second = DashboardServer(DashboardApp(app), port=first.port)
    assert second.port > first.port
    with pytest.raises(ConfigurationError, match="is busy"):
        DashboardServer(DashboardApp(app), port=first.port, exact=True)
    first.stop()
    second.stop()


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8300@evil.com",
        "localhost:x",
        "local host",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "",
    ],
)
def test_a_foreign_host_is_refused(app: Mainspring, host: str) -> None:
    assert Client(DashboardApp(app), host=host).get("/queues").status == 421


@pytest.mark.parametrize("host", ["localhost:8300", "127.0.0.1", "[::1]:8300", "LOCALHOST"])
def test_our_own_hosts_are_answered(app: Mainspring, host: str) -> None:
    assert Client(DashboardApp(app), host=host).get("/queues").status == 200


def test_without_accounts_a_proxy_is_refused(app: Mainspring) -> None:
    assert Client(DashboardApp(app)).get("/queues", x_forwarded_for="203.0.113.9").status == 403


# -- what every answer carries -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/jobs", "/nowhere", "/login", "/healthz", "/metrics"])
def test_every_answer_has_the_policy_and_no_cors(app: Mainspring, path: str) -> None:
    headers = Client(DashboardApp(app)).get(path).headers
    assert "default-src 'self'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert not [name for name in headers if name.startswith("access-control")]


def test_files_have_hashed_names_and_may_be_kept_for_ever(app: Mainspring) -> None:
    client = Client(DashboardApp(app))
    names = re.findall(r"/static/[\w-]+\.[0-9a-f]{12}\.(?:css|js)", client.get("/queues").text)
    assert len(names) == 2
    for name in names:
        answer = client.get(name)
        assert answer.status == 200
        assert "immutable" in answer.headers["cache-control"]
    assert client.get("/static/dashboard.css").status == 404
    assert client.get("/static/..%2fasgi.py").status == 404


def test_style_and_scripts_stay_small() -> None:
    from mainspring.dashboard.web.files import static_files

    files = static_files()
    assert len(files["dashboard.css"].packed) <= 14_000
    assert sum(len(file.packed) for name, file in files.items() if name.endswith(".js")) <= 20_000


# -- acting --------------------------------------------------------------------------------------------------------


def test_a_form_needs_its_token(app: Mainspring) -> None:
    client = Client(DashboardApp(app))
    client.get("/queues")
    for token in ("", "0" * 64, "ü"):
        answer = client.post("/queues/mail/pause", {"csrf": token}, csrf=False)
        assert answer.status == 403
    assert not next(queue for queue in app.queues() if queue.name == "mail").paused


def test_the_token_of_another_browser_does_not_serve(app: Mainspring) -> None:
    dashboard = DashboardApp(app)
    other, mine = Client(dashboard), Client(dashboard)
    mine.get("/queues")
    token = _token(other.get("/queues").text)
    assert mine.post("/queues/mail/pause", {"csrf": token}, csrf=False).status == 403


@pytest.mark.parametrize(
    "headers", [{"sec_fetch_site": "cross-site"}, {"sec_fetch_site": "same-site"}, {"origin": "https://evil.example"}]
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_another_site_cannot_act(app: Mainspring, method: str, headers: dict[str, str]) -> None:
    client = Client(DashboardApp(app))
    token = _token(client.get("/queues").text)
    body = f"csrf={token}".encode()
    answer = client.send(
        method, "/queues/mail/pause", body, content_type="application/x-www-form-urlencoded", **headers
    )
    assert answer.status == 403
    assert not next(queue for queue in app.queues() if queue.name == "mail").paused


def test_an_act_names_the_person_and_the_reason(app: Mainspring) -> None:
    client, _ = log_in(guarded(app), "otto")
    token = _token(client.get("/queues").text)
    answer = client.post("/queues/mail/pause", {"csrf": token, "why": "printer swap"}, csrf=False)
    assert answer.status == 303
    act = app.audit(kind="queue", target="mail", limit=1)[0]
    assert (act.verb, act.by, act.why) == ("pause_queue", "otto", "printer swap")


def test_an_operator_makes_nodes_quiet_and_only_an_admin_stops_them_by_their_name(app: Mainspring) -> None:
    app.store.beat(NodeInfo(id="web:7:a", host="web", pid=7, started_at=app.now(), cluster="web:1"), ttl=60)
    otto, _ = log_in(guarded(app), "otto")
    token = _token(otto.get("/queues").text)
    assert otto.post("/nodes/web%3A7/quiet", {"csrf": token}, csrf=False).status == 303
    assert otto.post("/nodes/web%3A1/stop", {"csrf": token, "typed": "web:1"}, csrf=False).status == 403
    assert "Stop: needs the role “admin”" in otto.get("/nodes").text
    ann, _ = log_in(guarded(app), "ann")
    token = _token(ann.get("/queues").text)
    assert ann.post("/nodes/web%3A1/stop", {"csrf": token, "typed": "web"}, csrf=False).status == 400
    assert [act.verb for act in app.audit()] == ["quiet_node"]
    assert ann.post("/nodes/web%3A1/stop", {"csrf": token, "typed": "web:1"}, csrf=False).status == 303
    assert ann.post("/nodes/other/stop", {"csrf": token, "typed": "other"}, csrf=False).status == 404
    assert [(act.verb, act.target, act.by) for act in app.audit(kind="node", target="web:1")] == [
        ("stop_node", "web:1", "ann"),
        ("quiet_node", "web:1", "otto"),
    ]


def every_action(app: Mainspring) -> list[str]:
    """Return the address of every action, with something that exists in its place."""
    names = {"id:path": "nightly-backup", "name:path": "mail", "key": "0" * 12, "name": "mail", "id": "nightly-backup"}
    found = []
    for action in Builder(app, "", "x").actions:
        path = action.path
        for name, value in names.items():
            path = path.replace(f"{{{name}}}", value)
        found.append(path)
    return found


def test_who_may_only_look_can_do_nothing(shop: Mainspring) -> None:
    client, _ = log_in(guarded(shop), "vera")
    token = _token(client.get("/queues").text)
    before = _dump(shop)
    addresses = every_action(shop)
    assert len(addresses) > 10
    for address in addresses:
        answer = client.post(address, {"csrf": token, "typed": "mail"}, csrf=False, x_part="1")
        assert answer.status == 403, address
    assert _dump(shop) == before


def test_who_may_only_look_sees_every_button_disabled_with_the_reason(shop: Mainspring) -> None:
    client, _ = log_in(guarded(shop), "vera")
    run = shop.find(status="failed", limit=1)[0].id
    for path in ("/queues", "/jobs", "/jobs/nightly-backup", "/nodes", "/runs", f"/runs/{run}", "/errors", "/system"):
        text = client.get(path).text
        assert "You may look, not change." in text, path
        assert 'form="acts"' not in text, path
        assert 'id="acts"' not in text, path
        assert "data-act" not in text.replace('id="dialog"', ""), path
        assert "needs the role" in text, path


def test_looking_at_everything_changes_nothing(shop: Mainspring) -> None:
    client = Client(DashboardApp(shop))
    before, seen, shapes = _dump(shop), set[str](), Counter[str]()
    left = deque(["/", "/more", "/jobs/new", *every_action(shop)])
    while left:
        path = left.popleft()
        shape = re.sub(r"[0-9a-f@%]{6,}", "#", path.partition("?")[0])
        shapes[shape] += 1
        if path in seen or shapes[shape] > SAME_PAGES:
            continue
        seen.add(path)
        answer = client.get(path)
        assert answer.status < 500, (path, answer.words[:200])
        if "text/html" in answer.headers.get("content-type", "") and len(seen) < PAGES_READ:
            found = re.findall(r'(?:href|action|formaction)="(/[^"#]*)"', answer.text)
            left += [unescape(each) for each in found if "/static/" not in each]
    assert len(seen) > 100
    assert _dump(shop) == before


def _dump(app: Mainspring) -> dict[str, list[Any]]:
    """Return all that a store holds but for what nodes say of themselves."""
    assert isinstance(app.url, str)
    with sqlite3.connect(app.url.removeprefix("sqlite:///")) as database:
        tables = [row[0] for row in database.execute("select name from sqlite_master where type = 'table'")]
        return {
            table: sorted(map(repr, database.execute(f"select * from {table}")))
            for table in tables
            if "node" not in table
        }


# -- logging in ----------------------------------------------------------------------------------------------------


def test_a_stranger_is_sent_to_the_login_and_comes_back(app: Mainspring) -> None:
    dashboard = guarded(app)
    answer = Client(dashboard).get("/queues?q=mail")
    assert (answer.status, answer.headers["location"]) == (303, "/login?next=%2Fqueues%3Fq%3Dmail")
    client = Client(dashboard)
    token = _token(client.get("/login?next=/queues").text)
    form = {"name": "ann", "password": PASSWORD, "csrf": token}
    answer = client.post("/login?next=/queues", form, csrf=False)
    assert answer.headers["location"] == "/queues"
    assert client.get("/queues").status == 200


@pytest.mark.parametrize(
    ("name", "password"), [("ann", "wrong"), ("nobody", PASSWORD), ("Ann", PASSWORD), ("ann.evil", PASSWORD), ("", "")]
)
def test_a_wrong_name_or_password_is_refused(app: Mainspring, name: str, password: str) -> None:
    client, answer = log_in(guarded(app), name, password)
    assert answer.status == 401
    assert client.get("/queues").status == 303


def test_too_many_tries_have_to_wait(app: Mainspring) -> None:
    dashboard = guarded(app)
    for _ in range(TRIES):
        assert log_in(dashboard, "ann", "wrong")[1].status == 401
    assert log_in(dashboard, "ann")[1].status == 429


def test_the_limit_ends_with_time() -> None:
    now = [0.0]
    limit = LoginLimit(lambda: now[0])
    for _ in range(TRIES):
        limit.fail("ann")
    assert limit.wait("ann") > 0
    now[0] = 61.0
    assert limit.wait("ann") == 0


def test_the_session_cookie_is_for_us_alone(app: Mainspring) -> None:
    cookie = log_in(guarded(app), "ann")[1].headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


def test_a_session_ends_and_cannot_be_forged() -> None:
    now = [1_000_000.0]
    key = SessionKey(b"k" * 32, lambda: now[0])
    cookie = key.write(key.begin("vera"))
    assert key.read(cookie) is not None
    assert SessionKey(b"other" * 8).read(cookie) is None
    forged = cookie.replace(b"vera".hex(), b"ann".hex())
    assert key.read(forged) is None
    for junk in ("", ".", "a.b.c.d", "x" * 5000, "ü.1.2"):
        assert key.read(junk) is None
    now[0] += 13 * 3600
    assert key.read(cookie) is None


def test_a_role_that_is_taken_away_is_gone_at_once(app: Mainspring, tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(f"otto operate {HASHED}\n")
    dashboard = DashboardApp(app, accounts=Accounts(file=file))
    client, _ = log_in(dashboard, "otto")
    assert "needs the role" not in client.get("/queues").text
    file.write_text(f"# only looks\notto view {HASHED}\n")
    assert "needs the role" in client.get("/queues").text
    file.write_text(f"ann admin {HASHED}\n")
    assert client.get("/queues").status == 303


def test_a_file_of_accounts_is_checked(tmp_path: Path) -> None:
    for text, message in (
        ("", "names no account"),
        ("ann admin secret", "is no account"),
        (f"a boss {HASHED}", "boss"),
    ):
        file = tmp_path / "users"
        file.write_text(text)
        with pytest.raises(ConfigurationError, match=message):
            Accounts(file=file)


def test_a_login_of_ones_own_takes_the_place_of_accounts(app: Mainspring) -> None:
    def identify(scope: Any) -> tuple[str, str] | None:
        name = dict(scope["headers"]).get(b"x-user", b"").decode()
        return (name, "view") if name else None

    dashboard = DashboardApp(app, identify=identify)
    assert Client(dashboard).get("/queues").status == 401
    assert "needs the role" in Client(dashboard).get("/queues", x_user="vera").text


def test_metrics_take_a_password_in_the_request(app: Mainspring) -> None:
    import base64

    dashboard = guarded(app)
    assert Client(dashboard).get("/metrics").status == 401
    word = base64.b64encode(f"vera:{PASSWORD}".encode()).decode()
    answer = Client(dashboard).get("/metrics", authorization=f"Basic {word}")
    assert answer.status == 200
    assert 'mainspring_queue_waiting{queue="mail"} 0' in answer.text


# -- addresses -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:x()", ""])
def test_nobody_is_sent_elsewhere(path: str) -> None:
    assert own_path(path) == "/"


@pytest.mark.parametrize(
    "query", ["range=1e9", "range=", "range=1h&range=24h", f"range={'x' * 5000}", "range=%00", "range='--"]
)
def test_a_parameter_that_cannot_be_used_is_400_with_a_sentence(app: Mainspring, query: str) -> None:
    answer = Client(DashboardApp(app)).get(f"/?{query}")
    assert answer.status == 400
    assert "range" in answer.words


@pytest.mark.parametrize("path", ["/runs", "/", "/nowhere", "/live/regions"])
def test_too_many_parameters_are_refused_and_break_nothing(app: Mainspring, path: str) -> None:
    query = "&".join(f"p{number}=1" for number in range(500))
    assert Client(DashboardApp(app)).get(f"{path}?{query}").status in (200, 400, 404)


def test_a_stream_is_given_for_pages_only(app: Mainspring) -> None:
    assert Client(DashboardApp(app)).get("/live?view=/nowhere").status == 404


def test_too_many_watched_pages_are_refused(app: Mainspring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.dashboard.asgi.MOST_VIEWS", 0)
    assert Client(DashboardApp(app)).get("/live?view=/runs").status == 503


def test_those_who_ask_for_updates_share_what_was_rendered(app: Mainspring, monkeypatch: pytest.MonkeyPatch) -> None:
    dashboard = DashboardApp(app)
    rendered: list[ViewKey] = []
    live = dashboard._builder.live

    def render(key: ViewKey) -> LiveState:
        rendered.append(key)
        return live(key)

    monkeypatch.setattr(dashboard._builder, "live", render)
    for _ in range(5):
        assert Client(dashboard).get("/live/regions?view=/queues").status == 200
    assert len(rendered) == 1
