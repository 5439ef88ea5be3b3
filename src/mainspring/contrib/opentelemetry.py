"""Traces and metrics with OpenTelemetry: `instrument(app)`. It needs the extra `otel`; your program sets up an SDK.

The names follow the semantic conventions for messaging. An enqueue is a `create` span, and the run's headers carry its
context. Each execution is a `process` span: a child of the `create` span that also links to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from mainspring import __version__
from mainspring.core.references import iscoroutinefunction_partial
from mainspring.core.run import Run
from mainspring.errors import Cancel, ConfigurationError, Retry, install_command
from mainspring.executors.current_run import CurrentRun

try:
    from opentelemetry import context, metrics, propagate, trace
except ImportError as error:
    raise ConfigurationError(
        f"traces and metrics need {error.name}, which is not installed: {install_command('otel')}"
    ) from error

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["instrument"]

SYSTEM: Final = "mainspring"
"""The value of `messaging.system`."""


def instrument(
    app: Mainspring,
    *,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
) -> None:
    """Trace and measure the enqueues and executions of an app; the default providers are the global ones."""
    telemetry = _Telemetry(tracer_provider, meter_provider)
    app.on("pre_enqueue", telemetry.created)
    app.middleware(telemetry.process)


class _Telemetry:
    """The spans and measurements of one app."""

    def __init__(
        self, tracer_provider: trace.TracerProvider | None, meter_provider: metrics.MeterProvider | None
    ) -> None:
        self._tracer = trace.get_tracer(SYSTEM, __version__, tracer_provider)
        meter = metrics.get_meter(SYSTEM, __version__, meter_provider)
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", unit="{message}", description="Calls that were enqueued."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", unit="{message}", description="Runs that were started."
        )
        self._took = meter.create_histogram(
            "messaging.process.duration", unit="s", description="How long executions took."
        )

    def created(self, run: Run) -> None:
        """Make the span of an enqueue, and store its context in the run's headers."""
        span = self._tracer.start_as_current_span(
            f"create {run.queue}", kind=trace.SpanKind.PRODUCER, attributes=_attributes(run, "create", "enqueue")
        )
        with span:
            propagate.inject(run.headers)
        self._sent.add(1, _labels(run, "enqueue"))

    def process(self, run: CurrentRun | None, call_next: Callable[[], Any]) -> Any:
        """Execute a run inside a span; for a coroutine function, the span ends after the await."""
        if run is None:
            return call_next()
        if iscoroutinefunction_partial(call_next):
            return self._process_async(run.record, call_next)
        with self._span(run.record):
            return call_next()

    async def _process_async(self, run: Run, call_next: Callable[[], Any]) -> Any:
        with self._span(run):
            return await call_next()

    @contextmanager
    def _span(self, run: Run) -> Iterator[None]:
        parent = propagate.extract(run.headers)
        origin = trace.get_current_span(parent).get_span_context()
        span = self._tracer.start_span(
            f"process {run.queue}",
            parent,
            kind=trace.SpanKind.CONSUMER,
            attributes=_attributes(run, "process", "execute") | {"mainspring.run.attempt": run.attempt},
            links=[trace.Link(origin)] if origin.is_valid else [],
        )
        labels, began, token = _labels(run, "execute"), time.perf_counter(), context.attach(parent)
        self._consumed.add(1, labels)
        try:
            with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
                try:
                    yield
                except BaseException as error:
                    if not isinstance(error, Retry | Cancel):  # a task raises these as requests, not errors
                        labels["error.type"] = _note_error(span, error)
                    raise
        finally:
            context.detach(token)
            self._took.record(time.perf_counter() - began, labels)


def _note_error(span: trace.Span, error: BaseException) -> str:
    kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    span.record_exception(error)
    span.set_attribute("error.type", kind)
    span.set_status(trace.Status(trace.StatusCode.ERROR, f"{kind}: {error}"))
    return kind


def _attributes(run: Run, kind: str, verb: str) -> dict[str, Any]:
    found: dict[str, Any] = _labels(run, verb) | {
        "messaging.operation.type": kind,
        "messaging.message.id": run.id,
        "mainspring.run.name": run.name,
    }
    return found if run.job_id is None else found | {"mainspring.job.id": run.job_id}


def _labels(run: Run, verb: str) -> dict[str, str]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": verb,
        "messaging.destination.name": run.queue,
        "mainspring.task": run.call.task_name,
    }
