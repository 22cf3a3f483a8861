"""Spans reach a real OTLP endpoint, below the caller's trace, and their lengths are the stages."""

from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from firsttoken_runtime import core
from firsttoken_runtime.server import stages, tracing

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"


class _Collector:
    """Takes spans over HTTP as any OpenTelemetry collector does."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request = ExportTraceServiceRequest.FromString(body)
                for resource in request.resource_spans:
                    for scope in resource.scope_spans:
                        collector.spans += scope.spans
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _ended(**changes: Any) -> stages.Ended:
    times = core.FirstTokenTimes(queued_s=10.5, scheduled_s=11.0, prefilled_s=12.0, sampled_s=12.25)
    given: dict[str, Any] = {
        "arrival_s": 10.0,
        "ended_s": 15.0,
        "reason": "stop",
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "times": times,
        "timing": stages.Timing(2.5, stages.split(10.0, times, 12.5)),
        "headers": {"traceparent": f"00-{TRACE_ID}-{CALLER}-01"},
    } | changes
    return stages.Ended(**given)


def test_a_request_is_a_span_with_its_stages_below(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = _Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    tracer = tracing.tracer("m")
    tracer.record(_ended())
    tracer.close()
    collector.close()
    spans = {span.name: span for span in collector.spans}
    request = spans.pop("chat m")
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == (TRACE_ID, CALLER)
    assert request.end_time_unix_nano - request.start_time_unix_nano == pytest.approx(5e9, abs=1e4)
    assert list(spans) == [stage.value for stage in stages.Stage]
    assert all(span.parent_span_id == request.span_id for span in spans.values())
    lengths = [span.end_time_unix_nano - span.start_time_unix_nano for span in spans.values()]
    assert lengths == pytest.approx([0.5e9, 0.5e9, 0, 1e9, 0.25e9, 0.25e9], abs=1e4)
    attributes = {one.key: one.value for one in request.attributes}
    assert attributes["gen_ai.usage.input_tokens"].int_value == 7
    assert attributes["gen_ai.latency.time_to_first_token"].double_value == 2.5


def test_a_failed_request_is_an_error_without_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = _Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{collector.url}/v1/traces")
    tracer = tracing.tracer("m")
    tracer.record(_ended(reason="error", timing=None, headers={}, operation="text_completion"))
    tracer.close()
    collector.close()
    (span,) = collector.spans
    assert span.name == "text_completion m"
    assert span.status.code == 2
    assert span.parent_span_id == b""


def test_without_an_endpoint_nothing_is_traced() -> None:
    assert tracing.tracer("m", {}) is tracing.NO_TRACER
