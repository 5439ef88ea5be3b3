"""Alerts by webhook: real requests to a local server, signed, tried again, and sent by others after a kill."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.alerts import Alert, Webhook, verify
from mainspring.core.run import Status
from mainspring.errors import AlertRefused
from mainspring.schedulers.background import BackgroundScheduler
from tests.app.kit import LASTING, LIMIT, MakeApp
from tests.waiting import until

SECRET = "a secret of the tests"


class Receiver:
    """A server that remembers requests, and answers as it is told."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[int] = []
        self.hold = threading.Event()
        self.hold.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def _take(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                receiver.requests.append((self.command, {k.lower(): v for k, v in self.headers.items()}, body))
                receiver.hold.wait(LIMIT)
                status = receiver.answers.pop(0) if receiver.answers else 204
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_POST = do_GET = _take

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook/secret-path"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, _, body in self.requests]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.hold.set()
    made.server.shutdown()
    made.server.server_close()


def alert() -> Alert:
    from datetime import UTC, datetime

    now = datetime(2026, 5, 4, 9, tzinfo=UTC)
    return Alert(
        id="alert-1", app="shop", job="nightly", name="nightly", health="down", before="up", reason="it failed",
        since=now, run="r1", at=now,
    )  # fmt: skip


def test_a_request_carries_the_change_as_json_and_a_signature(receiver: Receiver) -> None:
    assert Webhook(receiver.url, secret=SECRET, headers={"X-Team": "shop"})(alert()) == 204
    [(method, headers, body)] = receiver.requests
    assert (method, headers["content-type"], headers["idempotency-key"], headers["x-team"]) == (
        "POST", "application/json", "alert-1", "shop",
    )  # fmt: skip
    assert json.loads(body) == {
        "event": "job.health", "text": "nightly is down: it failed", "id": "alert-1", "app": "shop", "job": "nightly",
        "name": "nightly", "health": "down", "before": "up", "reason": "it failed", "run": "r1",
        "since": "2026-05-04T09:00:00Z", "at": "2026-05-04T09:00:00Z",
    }  # fmt: skip
    signature = headers["x-mainspring-signature"]
    assert verify(SECRET, body, signature)
    assert not verify(SECRET, body + b" ", signature)
    assert not verify("another", body, signature)
    assert not verify(SECRET, body, signature, now=time.time() + 3600)
    assert not verify(SECRET, body, "nonsense")


def test_a_body_of_ones_own_and_no_secret_in_a_repr(receiver: Receiver) -> None:
    hook = Webhook(receiver.url, body=lambda alert: {"text": alert.text})
    hook(alert())
    assert receiver.documents() == [{"text": "nightly is down: it failed"}]
    assert "secret-path" not in repr(hook)


@pytest.mark.parametrize("status", [302, 404, 500])
def test_any_answer_but_2xx_is_a_failure(receiver: Receiver, status: int) -> None:
    receiver.answers = [status]
    with pytest.raises(AlertRefused, match=rf"http://127\.0\.0\.1:\d+ answered {status}"):
        Webhook(receiver.url)(alert())


def test_a_server_that_does_not_answer_is_left_after_the_time_out(receiver: Receiver) -> None:
    receiver.hold.clear()
    with pytest.raises(OSError, match="timed out"):
        Webhook(receiver.url, timeout=0.2)(alert())


def fail() -> None:
    raise ValueError("no answer")


def work() -> None: ...


@LASTING
def test_a_node_that_only_schedules_tells_of_a_job_that_no_worker_runs(app: Mainspring, receiver: Receiver) -> None:
    receiver.answers = [500]
    app.alert(receiver.url, secret=SECRET)
    app.schedule("interval", seconds=1, id="work", late_after=1)(work)
    app.start()
    until(lambda: app.find(job="work", status="pending"))
    until(lambda: app.now() > app.find(job="work", status="pending")[0].record.fire_time + 2_000_000)  # type: ignore[operator]
    app.node.links["default"].janitor.health.look()  # type: ignore[union-attr]
    until(lambda: len(receiver.requests) == 2)
    first, second = receiver.documents()
    assert first == second  # the same alert, sent again
    assert (first["job"], first["health"]) == ("work", "late")
    [run] = until(lambda: app.find(group="mainspring:alerts", status="succeeded"))
    assert (run.result, run.failures, run.status) == (204, 1, Status.SUCCEEDED)
    assert "secret-path" not in repr(run.to_dict())


def test_a_scheduler_of_apschedulers_has_alerts_too(receiver: Receiver) -> None:
    scheduler = BackgroundScheduler(timezone="UTC", alerts=[receiver.url])
    heard: list[str] = []
    scheduler.alert(lambda alert: heard.append(alert.health), name="heard", on=["down"])
    scheduler.add_job(fail, "interval", seconds=1, id="failing")
    scheduler.start()
    try:
        until(lambda: scheduler.get_runs("failing", status="failed"))
        scheduler._node.links["default"].janitor.health.look()  # type: ignore[union-attr]
        until(lambda: receiver.requests and heard)
        assert (receiver.documents()[0]["health"], heard) == ("down", ["down"])
    finally:
        scheduler.shutdown()


PROGRAM = """
import sys, time
from mainspring import Mainspring
app = Mainspring(sys.argv[1], alerts=sys.argv[2], timezone="UTC", lease=1.0)
app.start()
app.node.links["default"].janitor.health.look()
time.sleep(600)
"""


def test_an_alert_is_sent_by_another_process_if_its_sender_is_killed(
    receiver: Receiver, make_app: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.node.watch.alerts.SEND_LEASE_SECONDS", 2.0)
    url = f"sqlite:///{tmp_path}/jobs.db"
    app = make_app(url, alerts=receiver.url, lease=1.0)
    app.add_job("tests.app.listening.test_webhooks:work", "interval", hours=1, id="work", next_run_time="2020-01-01")
    app.pause_queue("default")
    receiver.hold.clear()
    program = PROGRAM.replace(
        "app = M", "import mainspring.node.watch.alerts as a; a.SEND_LEASE_SECONDS = 2.0\napp = M"
    )
    child = subprocess.Popen([sys.executable, "-c", program, url, receiver.url])
    try:
        until(lambda: receiver.requests)  # it waits for an answer
    finally:
        child.kill()
        child.wait()
    # The health of the job may have changed once more before the sender was killed: that alert waits behind this one.
    [stuck] = app.find(group="mainspring:alerts", status="running")
    made = app.count(group="mainspring:alerts")
    receiver.hold.set()
    app.start(schedule=False)
    until(lambda: app.count(group="mainspring:alerts", status="succeeded") == made)
    assert stuck.id in {document["id"] for document in receiver.documents()}
    assert app.count(group="mainspring:alerts") == made


def test_a_success_pings_a_monitor_and_a_failure_does_not(make_app: MakeApp, receiver: Receiver) -> None:
    receiver.answers = [500]
    app = make_app()
    app.ping(receiver.url, ["nightly*", "failing"])
    app.task(work)
    app.task(fail)
    for job_id, func in (("nightly-1", work), ("other", work)):
        app.add_job(func, "interval", hours=1, id=job_id)
    failing = app.add_job(fail, "interval", hours=1, id="failing")
    app.start(work=True)
    for job_id in (failing.id, "other", "nightly-1"):
        app.wait([app.run_now(job_id)], LIMIT)
    until(lambda: len(receiver.requests) == 2)  # the first was refused
    assert {method for method, _, _ in receiver.requests} == {"GET"}
    with pytest.raises(ValueError, match="URL such as"):
        app.ping("hc-ping.com/x", "nightly")
