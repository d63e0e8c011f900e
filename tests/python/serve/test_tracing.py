"""Traces of requests, as a receiver of OTLP gets them."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from serving import serving, tiny_settings

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
LONG = {"prompt": "a", "max_tokens": 30, "ignore_eos": True}


@contextmanager
def receiver() -> Iterator[tuple[str, list[Span]]]:
    """Its address, and the spans that it got so far."""
    spans: list[Span] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                data = gzip.decompress(data)
            request = ExportTraceServiceRequest.FromString(data)
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    spans.extend(scope.spans)
            self.send_response(200)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1/traces", spans
        finally:
            server.shutdown()
            thread.join()


def attributes(span: Span) -> dict[str, Any]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_has_spans_of_its_phases_within_the_callers_trace(
    tiny_folder: Path, stream: bool
) -> None:
    with receiver() as (url, spans):
        with serving(tiny_settings(tiny_folder, traces_endpoint=url)) as served:
            head = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "mine"}
            body = {**LONG, "stream": stream}
            answer = served.post("/v1/completions", body, headers=head)
            assert answer.status_code == 200
        # The server has ended: all was sent.
        by_name = {span.name: span for span in spans}
    assert len(spans) == len(by_name) == 4
    root = by_name["POST /v1/completions"]
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    assert root.parent_span_id.hex() == PARENT
    assert root.kind == Span.SPAN_KIND_SERVER
    found = attributes(root)
    assert found["pagewheel.request_id"] == "mine"
    assert found["gen_ai.request.model"] == "tiny"
    assert found["gen_ai.usage.output_tokens"] == 30
    assert found["gen_ai.usage.input_tokens"] > 0
    assert found["http.response.status_code"] == 200
    phases = [by_name[name] for name in ("queue", "prefill", "decode")]
    assert all(span.parent_span_id == root.span_id for span in phases)
    moments = [phases[0].start_time_unix_nano]
    for span in phases:
        assert span.start_time_unix_nano == moments[-1]
        moments.append(span.end_time_unix_nano)
    assert moments == sorted(moments)
    assert root.start_time_unix_nano <= moments[0]
    assert moments[-1] <= root.end_time_unix_nano


def test_a_request_without_a_trace_begins_one_and_probes_have_none(tiny_folder: Path) -> None:
    with receiver() as (url, spans):
        with serving(tiny_settings(tiny_folder, traces_endpoint=url)) as served:
            assert served.http.get("/health").status_code == 200
            assert served.post("/v1/completions", {"prompt": 3}).status_code == 400
        (span,) = spans
    assert span.parent_span_id == b""
    assert attributes(span)["http.response.status_code"] == 400


def test_a_receiver_that_is_not_there_harms_no_request(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pagewheel.serve.tracing._EXPORT_SECONDS", 0.2)  # so long the end waits
    settings = tiny_settings(tiny_folder, traces_endpoint="http://127.0.0.1:9/v1/traces")
    with serving(settings) as served:
        assert served.post("/v1/completions", LONG).status_code == 200
