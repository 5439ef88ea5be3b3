"""The dashboard inside other apps: below a path, in ASGI and in WSGI; and beside `dev` and `demo`."""

from __future__ import annotations

import asyncio
import io
import re
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest
from jinja2 import Environment
from starlette.applications import Starlette
from starlette.routing import Mount

from mainspring import Mainspring
from mainspring.dashboard import DashboardApp
from tests.dashboard.client import Client


def make_app() -> Mainspring:
    return Mainspring("memory://", queues=["mail"])


def test_mounted_below_a_path_all_links_stay_below_it() -> None:
    app = Starlette(routes=[Mount("/jobs-admin", app=make_app().asgi())])
    answer = Client(app).get("/jobs-admin/queues")
    assert answer.status == 200
    links = re.findall(r'(?:href|src|action)="(/[^"]*)"', answer.text)
    assert links
    assert [link for link in links if not link.startswith("/jobs-admin/")] == []
    assert Client(app).get(next(link for link in links if ".css" in link)).status == 200


def test_after_the_warm_up_no_visitor_waits_for_a_template(monkeypatch: pytest.MonkeyPatch) -> None:
    dashboard = DashboardApp(make_app())
    dashboard.warm_up()
    monkeypatch.setattr(Environment, "compile", None)
    for path in ("/", "/runs", "/jobs", "/queues/mail", "/nodes", "/system", "/runs/nobody"):
        assert Client(dashboard).get(path).status in (200, 404), path


def test_mounted_below_a_path_a_form_acts_and_comes_back() -> None:
    jobs = make_app()
    client = Client(Starlette(routes=[Mount("/admin", app=jobs.asgi())]))
    token = re.findall(r'name="csrf" value="([^"]+)"', client.get("/admin/queues").text)[0]
    form = {"csrf": token, "next": "/queues"}
    answer = client.post("/admin/queues/mail/pause", form, csrf=False, accept="text/html")
    assert (answer.status, answer.headers["location"]) == (303, "/admin/queues")
    assert next(queue for queue in jobs.queues() if queue.name == "mail").paused


def ask_wsgi(app: Any, path: str, **more: Any) -> tuple[str, dict[str, str], str]:
    environ: dict[str, Any] = {}
    setup_testing_defaults(environ)
    environ |= {
        "PATH_INFO": path,
        "HTTP_HOST": "localhost",
        "REMOTE_ADDR": "127.0.0.1",
        "SCRIPT_NAME": "/admin",
        **more,
    }
    told: list[Any] = []
    content = b"".join(app(environ, lambda status, headers: told.extend((status, headers))))
    return told[0], dict(told[1]), content.decode()


def test_in_a_wsgi_app_pages_are_answered_and_updates_are_asked_for() -> None:
    app = make_app().wsgi()
    status, headers, text = ask_wsgi(app, "/queues")
    assert status == "200 OK"
    assert "default-src 'self'" in headers["content-security-policy"]
    assert 'href="/admin/jobs"' in text
    assert ask_wsgi(app, "/live")[0].startswith("503")
    status, _, text = ask_wsgi(app, "/live/regions", QUERY_STRING="view=/queues")
    assert status == "200 OK"
    assert '"table"' in text


def test_in_a_wsgi_app_a_form_acts() -> None:
    jobs = make_app()
    app = jobs.wsgi()
    _, headers, text = ask_wsgi(app, "/queues")
    token = re.findall(r'name="csrf" value="([^"]+)"', text)[0]
    body = f"csrf={token}&next=/queues".encode()
    status, headers, _ = ask_wsgi(
        app,
        "/queues/mail/pause",
        REQUEST_METHOD="POST",
        CONTENT_TYPE="application/x-www-form-urlencoded",
        CONTENT_LENGTH=str(len(body)),
        HTTP_COOKIE=headers["set-cookie"].partition(";")[0],
        HTTP_ACCEPT="text/html",
        **{"wsgi.input": io.BytesIO(body)},
    )
    assert status.startswith("303")
    assert headers["location"] == "/admin/queues"
    assert next(queue for queue in jobs.queues() if queue.name == "mail").paused


def test_two_requests_of_a_wsgi_server_share_one_loop() -> None:
    app = make_app().wsgi()
    assert [ask_wsgi(app, "/healthz")[0] for _ in range(2)] == ["200 OK"] * 2
    assert not asyncio.iscoroutinefunction(app)
