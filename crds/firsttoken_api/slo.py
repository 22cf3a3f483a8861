"""`spec.slo`: the latency objective, and request classes with objectives of their own."""

from typing import Annotated

from pydantic import Field

from firsttoken_api import cel, duration
from firsttoken_api.base import SpecModel

ClassName = Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]


class RequestClass(SpecModel):
    """A class of requests."""

    name: ClassName
    """Name that requests and routes use."""
    ttft_p99: Annotated[str, duration.Within("spec.slo.classes[].ttftP99", "1ms", "10m")]
    """99th percentile of the time to first token."""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Larger is more urgent."""
    max_tokens: Annotated[int, Field(ge=1, le=1_048_576)] | None = None
    """Default of max_tokens."""


class SloSpec(SpecModel):
    """The latency objective."""

    ttft_p95: Annotated[str, duration.Within("spec.slo.ttftP95", "1ms", "10m")] = "500ms"
    """95th percentile of the time to first token, requests that still wait included."""
    tpot_p95: Annotated[str, duration.Within("spec.slo.tpotP95", "1ms", "1m")] | None = None
    """95th percentile of the time per output token."""
    window: Annotated[str, duration.Within("spec.slo.window", "10s", "1h")] = "5m"
    """Time over which percentiles are taken."""
    default_class: ClassName | None = None
    """Class of requests that name none."""
    classes: Annotated[
        tuple[RequestClass, ...], Field(max_length=8, json_schema_extra=cel.list_map("name"))
    ] = ()
    """Request classes."""
