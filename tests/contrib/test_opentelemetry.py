"""Traces and metrics, with OpenTelemetry's own SDK."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mainspring import Mainspring, Retry
from mainspring.contrib.opentelemetry import instrument

LIMIT = 90.0


class Telemetry:
    """Keeps the spans and measures of an app."""

    def __init__(self, app: Mainspring) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        instrument(app, tracer_provider=self.provider, meter_provider=MeterProvider([self.reader]))

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def measures(self) -> dict[str, list[Any]]:
        data: Any = self.reader.get_metrics_data()
        found = [metric for each in data.resource_metrics for scope in each.scope_metrics for metric in scope.metrics]
        return {metric.name: list(metric.data.data_points) for metric in found}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Mainspring]:
    with Mainspring(f"sqlite:///{tmp_path}/jobs.db", secret_key="k" * 32) as app:
        yield app


def test_the_trace_and_its_baggage_go_on_in_the_worker(app: Mainspring) -> None:
    @app.task(queue="mail")
    def plain() -> Any:
        return baggage.get_baggage("tenant"), trace.get_current_span().get_span_context().span_id

    @app.task(queue="mail")
    async def waiting() -> Any:
        return baggage.get_baggage("tenant"), trace.get_current_span().get_span_context().span_id

    telemetry = Telemetry(app)
    app.start(work=True, queues=["mail"])
    token = context.attach(baggage.set_baggage("tenant", "acme"))
    try:
        with telemetry.provider.get_tracer("shop").start_as_current_span("request") as request:
            handles = [plain.enqueue(), waiting.enqueue()]
    finally:
        context.detach(token)
    results = [handle.result(timeout=LIMIT) for handle in handles]
    app.stop()

    created, processed = telemetry.spans("create mail"), telemetry.spans("process mail")
    assert [span.kind.name for span in (*created, *processed)] == ["PRODUCER"] * 2 + ["CONSUMER"] * 2
    assert {span.context.trace_id for span in (*created, *processed) if span.context} == {request.context.trace_id}  # type: ignore[attr-defined]
    by_id = {span.attributes["messaging.message.id"]: span for span in created if span.attributes}
    for span in processed:
        assert span.attributes is not None
        assert span.parent is not None
        origin = by_id[span.attributes["messaging.message.id"]].context
        assert origin is not None
        assert span.parent.span_id == origin.span_id
        assert [link.context.span_id for link in span.links] == [origin.span_id]
        assert span.attributes["messaging.system"] == "mainspring"
        assert span.attributes["messaging.operation.type"] == "process"
        assert span.attributes["messaging.destination.name"] == "mail"
    assert {tenant for tenant, _ in results} == {"acme"}
    assert {inner for _, inner in results} == {span.context.span_id for span in processed if span.context}


def test_each_attempt_is_a_span_and_errors_are_noted(app: Mainspring) -> None:
    tries: list[int] = []

    @app.task(retries=2, backoff=[0.0])
    def flaky() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ZeroDivisionError("torn")
        if len(tries) == 2:
            raise Retry(0)

    telemetry = Telemetry(app)
    app.start(work=True)
    flaky.enqueue().result(timeout=LIMIT)
    app.stop()

    spans = telemetry.spans("process default")
    assert [span.status.status_code.name for span in spans] == ["ERROR", "UNSET", "UNSET"]
    assert [dict(span.attributes or {})["mainspring.run.attempt"] for span in spans] == [1, 2, 3]
    assert dict(spans[0].attributes or {})["error.type"] == "ZeroDivisionError"
    assert [event.name for event in spans[0].events] == ["exception"]
    measures = telemetry.measures()
    assert [point.value for point in measures["messaging.client.sent.messages"]] == [1]
    assert [point.value for point in measures["messaging.client.consumed.messages"]] == [3]
    took = {point.attributes.get("error.type"): point.count for point in measures["messaging.process.duration"]}
    assert took == {"ZeroDivisionError": 1, None: 2}


def test_a_fired_job_begins_a_trace_of_its_own(app: Mainspring) -> None:
    @app.schedule("0 3 * * *", id="nightly")
    def report() -> None: ...

    telemetry = Telemetry(app)
    app.start(work=True)
    app.run_now("nightly").result(timeout=LIMIT)
    app.stop()

    (span,) = telemetry.spans("process default")
    assert (span.parent, list(span.links)) == (None, [])
    assert dict(span.attributes or {})["mainspring.job.id"] == "nightly"
