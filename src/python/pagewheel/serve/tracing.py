"""A trace of each request, for OpenTelemetry: in the queue, in prefill, in decode."""

from __future__ import annotations

import time
from collections.abc import Mapping

from opentelemetry.propagate import extract
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from pagewheel.serve.metrics import RequestTimes

# Of sending to a receiver that does not answer; the server's end waits for no longer.
_EXPORT_SECONDS = 3


def otlp_exporter(endpoint: str) -> SpanExporter:
    """Sends spans by HTTP; OTEL_EXPORTER_OTLP_HEADERS and such count too."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_SECONDS)


class Tracing:
    """Spans are sent by a thread of its own."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": "pagewheel"}), shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("pagewheel.serve")

    def begin(self, headers: Mapping[str, str], request_id: str) -> RequestTrace:
        """The span belongs to the trace of the request's `traceparent`."""
        span = self._tracer.start_span(
            "request",
            extract(headers),
            SpanKind.SERVER,
            attributes={"pagewheel.request_id": request_id},
        )
        return RequestTrace(self._tracer, span)

    def close(self) -> None:
        """Sends what is left. Waits for it."""
        self._provider.shutdown()


class RequestTrace:
    def __init__(self, tracer: Tracer, span: Span) -> None:
        self._tracer = tracer
        self._span = span

    def generated(self, model: str, times: RequestTimes, usage: Mapping[str, int]) -> None:
        """Names of attributes are OpenTelemetry's for models."""
        self._span.set_attribute("gen_ai.request.model", model)
        for name, count in usage.items():
            self._span.set_attribute(f"gen_ai.usage.{name}", count)
        begin = time.time_ns() - round(times.whole * 1e9)
        ends = {
            "queue": times.whole if times.queue is None else times.queue,
            "prefill": times.first_token,
            "decode": times.last_token,
        }
        past = 0.0
        for name, end in ends.items():
            if end is None:
                break
            end = max(past, end)
            phase = self._tracer.start_span(
                name, set_span_in_context(self._span), start_time=begin + round(past * 1e9)
            )
            phase.end(begin + round(end * 1e9))
            past = end

    def end(self, method: str, path: str, status: int) -> None:
        self._span.update_name(f"{method} {path}")
        self._span.set_attribute("http.request.method", method)
        self._span.set_attribute("http.route", path)
        self._span.set_attribute("http.response.status_code", status)
        if status >= 500:
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()
