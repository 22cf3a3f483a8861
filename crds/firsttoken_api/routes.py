"""`spec.routes`: named kinds of requests with settings of their own, and pinned prefixes."""

from typing import Annotated

from pydantic import Field

from firsttoken_api.base import SpecModel
from firsttoken_api.references import ConfigMapSource
from firsttoken_api.slo import ClassName


class Route(SpecModel):
    """A named kind of requests."""

    name: Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    """Name that requests use."""
    request_class: ClassName | None = Field(default=None, alias="class")
    """Class of its requests; by default `slo.defaultClass`."""
    max_tokens: Annotated[int, Field(ge=1, le=1_048_576)] | None = None
    """While the flag length-control is on: max_tokens of requests that give none. Goes before the class's."""
    flags: Annotated[tuple[Annotated[str, Field(max_length=40)], ...], Field(max_length=32)] = ()
    """Flags that apply to this route only."""
    params: Annotated[
        dict[Annotated[str, Field(max_length=40)], Annotated[str, Field(max_length=64)]], Field(max_length=16)
    ] = Field(default_factory=dict)
    """Parameters of those flags."""


def check_names(routes: tuple[Route, ...]) -> tuple[Route, ...]:
    """What the API server checks by the list's map key."""
    if len({each.name for each in routes}) != len(routes):
        raise ValueError("spec.routes names a route twice")
    return routes


class CachePins(ConfigMapSource):
    """Prompts that stay in the prefix cache: a JSON list of texts and chats under the key `pins.json`. Read
    when a pod starts."""
