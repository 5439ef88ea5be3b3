"""OpenTelemetry: the trace goes on in the worker, because its context travels with the run."""

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mainspring import Mainspring
from mainspring.contrib.opentelemetry import instrument

exporter = InMemorySpanExporter()  # in production: the exporter of your tracing system
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

app = Mainspring("memory://")
instrument(app)


@app.task
def send_mail(to: str) -> str:
    with trace.get_tracer("shop").start_as_current_span("smtp"):
        return f"sent to {to}"


with app:
    app.start(work=True)
    with trace.get_tracer("shop").start_as_current_span("POST /orders"):
        handle = send_mail.enqueue("ann@example.org")
    handle.result(timeout=10)

spans = sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0)
names = {span.context.span_id: span.name for span in spans if span.context}
for span in spans:
    print(span.name, "<-", names[span.parent.span_id] if span.parent else "nothing")
print("traces:", len({span.context.trace_id for span in spans if span.context}))
