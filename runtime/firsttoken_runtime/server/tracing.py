"""OpenTelemetry spans of requests: one for the request, one below it for each stage of its TTFT.

On when the standard variables name an endpoint (OTEL_EXPORTER_OTLP_ENDPOINT, or the one for traces), which
in a pod come from `spec.runtime.env`. A request's `traceparent` header is continued. Spans are made at the
end of a request from its recorded times; they are exported by a thread of the library, which drops spans
rather than memory or time of requests when its queue is full.
"""

import os
import time
from collections.abc import Mapping
from typing import Protocol

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from firsttoken_runtime.server import stages

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROVIDER_NAME = "firsttoken"


class Tracer(Protocol):
    """Where ended requests go."""

    def record(self, ended: stages.Ended) -> None: ...

    def close(self) -> None: ...


class NoTracer:
    """Tracing is not configured."""

    def record(self, ended: stages.Ended) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


NO_TRACER = NoTracer()


class SpanTracer:
    """Turns ended requests into spans."""

    def __init__(self, provider: TracerProvider, model_name: str) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("firsttoken_runtime")
        self._model_name = model_name

    def record(self, ended: stages.Ended) -> None:
        # Spans carry wall-clock times; the offset between the clocks is taken once for all of a request's.
        offset_s = time.time() - time.monotonic()

        def nanoseconds(monotonic_s: float) -> int:
            return int((monotonic_s + offset_s) * 1e9)

        span = self._tracer.start_span(
            f"{ended.operation} {self._model_name}",
            context=_parent(ended.headers),
            kind=SpanKind.SERVER,
            start_time=nanoseconds(ended.arrival_s),
            attributes=self._attributes(ended),
        )
        if ended.timing is not None:
            inside = trace.set_span_in_context(span)
            start_s = ended.arrival_s
            for stage, seconds in ended.timing.stages_s.items():
                part = self._tracer.start_span(stage.value, context=inside, start_time=nanoseconds(start_s))
                start_s += seconds
                part.end(nanoseconds(start_s))
        if ended.reason == "error":
            span.set_status(StatusCode.ERROR)
        span.end(nanoseconds(ended.ended_s))

    def close(self) -> None:
        """Export what is left, for a few seconds at most."""
        self._provider.shutdown()

    def _attributes(self, ended: stages.Ended) -> dict[str, str | int | float | list[str]]:
        attributes: dict[str, str | int | float | list[str]] = {
            "gen_ai.operation.name": ended.operation,
            "gen_ai.provider.name": PROVIDER_NAME,
            "gen_ai.request.model": self._model_name,
            "gen_ai.usage.input_tokens": ended.prompt_tokens,
            "gen_ai.usage.output_tokens": ended.completion_tokens,
            "gen_ai.response.finish_reasons": [ended.reason],
        }
        if ended.timing is not None:
            attributes["gen_ai.latency.time_to_first_token"] = ended.timing.ttft_s
        return attributes


def _parent(headers: Mapping[str, str]) -> Context | None:
    return TraceContextTextMapPropagator().extract(headers) if headers else None


def is_configured(environment: Mapping[str, str]) -> bool:
    return any(environment.get(name) for name in ENDPOINT_VARIABLES)


def tracer(model_name: str, environment: Mapping[str, str] | None = None) -> Tracer:
    """The tracer that the environment asks for."""
    if not is_configured(os.environ if environment is None else environment):
        return NO_TRACER
    provider = TracerProvider(resource=Resource.create({"service.name": f"firsttoken:{model_name}"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return SpanTracer(provider, model_name)
