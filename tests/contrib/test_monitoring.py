"""Prometheus and Sentry, with their own packages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import sentry_sdk
from prometheus_client.parser import text_string_to_metric_families
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from mainspring import Mainspring
from mainspring.contrib.prometheus import metrics_text, serve_metrics
from mainspring.contrib.sentry import monitor_jobs
from mainspring.triggers.base import BaseTrigger
from mainspring.triggers.cron import CronTrigger
from mainspring.triggers.interval import IntervalTrigger

LIMIT = 90.0


@pytest.fixture
def app() -> Iterator[Mainspring]:
    with Mainspring("memory://") as app:
        yield app


def numbers(text: str) -> dict[tuple[str, str], float]:
    families = text_string_to_metric_families(text)
    return {(s.name, "".join(s.labels.values())): s.value for family in families for s in family.samples}


def test_numbers_are_served_and_read_by_prometheus(app: Mainspring) -> None:
    app.task(name="work")(lambda: None).options(queue="mail").enqueue()
    server = serve_metrics(app, port=0)
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        with urlopen(f"{address}/metrics") as answer:
            found = numbers(answer.read().decode())
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"{address}/other")
    finally:
        server.shutdown()
        server.server_close()
    assert found["mainspring_queue_waiting", "mail"] == 1
    assert found["mainspring_runs_ended_total", "succeeded"] == 0


def test_a_counter_keeps_all_its_digits(app: Mainspring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "counters", lambda: {"succeeded": 123_456_789, "jobs": 0})
    assert numbers(metrics_text(app))["mainspring_runs_ended_total", "succeeded"] == 123_456_789


class Envelopes(Transport):
    """Keeps what Sentry's client would send."""

    sent: ClassVar[list[tuple[str, Any]]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.sent.extend((str(item.type), item.payload.json) for item in envelope.items)


@pytest.fixture
def sent() -> Iterator[list[tuple[str, Any]]]:
    Envelopes.sent = []
    sentry_sdk.init(dsn="https://key@sentry.invalid/1", transport=Envelopes, auto_enabling_integrations=False)
    yield Envelopes.sent
    sentry_sdk.init(auto_enabling_integrations=False)


def test_sentry_gets_each_error_once_and_the_check_ins_of_jobs(app: Mainspring, sent: list[tuple[str, Any]]) -> None:
    tries: list[int] = []

    @app.schedule("interval", hours=2, id="Nightly report", retries=1, backoff=[0.0])
    def report() -> None:
        tries.append(1)
        if len(tries) != 2:
            raise LookupError("no orders")

    @app.schedule("0 3 * * *", id="quiet")
    def quiet() -> None: ...

    monitor_jobs(app, "Nightly*", max_runtime=5)
    app.start(work=True)
    for _ in range(2):
        app.wait([app.run_now("Nightly report")], timeout=LIMIT)
    app.run_now("quiet").result(timeout=LIMIT)
    app.stop()

    errors = [body for kind, body in sent if kind == "event"]
    assert [body["exception"]["values"][0]["type"] for body in errors] == ["LookupError"] * 3
    assert [body["contexts"]["mainspring"]["attempt"] for body in errors] == [1, 1, 2]
    checks = [body for kind, body in sent if kind == "check_in"]
    assert [body["status"] for body in checks] == ["in_progress", "ok", "in_progress", "error"]
    assert {body["monitor_slug"] for body in checks} == {"nightly-report"}
    assert checks[0]["check_in_id"] == checks[1]["check_in_id"] != checks[2]["check_in_id"]
    assert checks[0]["monitor_config"] == {
        "schedule": {"type": "interval", "value": 2, "unit": "hour"},
        "max_runtime": 5,
    }


@pytest.mark.parametrize(
    ("trigger", "schedule"),
    [
        (CronTrigger.from_crontab("*/5 9-17 * * 1-5", timezone="UTC"), "*/5 9-17 * * mon-fri"),
        (CronTrigger(minute=0, hour=3, timezone="UTC"), "0 3 * * *"),
        (CronTrigger(day="last", timezone="UTC"), None),
        (CronTrigger(second="*/5", timezone="UTC"), None),
        (IntervalTrigger(seconds=90), None),
    ],
)
def test_a_trigger_is_said_in_the_terms_of_sentry_or_not_at_all(trigger: BaseTrigger, schedule: str | None) -> None:
    from mainspring.contrib.sentry import _schedule

    found = _schedule(trigger)
    assert schedule == (None if found is None else found["schedule"]["value"])
