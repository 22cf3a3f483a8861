"""The document that carries hot settings from the operator to a running engine.

The operator writes it as JSON under `names.FLAGS_KEY` into the revision's ConfigMap; the sidecar reads
it from the mounted folder and puts it to the engine (`PUT /flags` on the engine's ops port). It carries
a schema version, so that an operator and pods up to two minor versions apart understand each other.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

SCHEMA_VERSION = 1


class EffectiveFlag(BaseModel):
    """One flag as it is to be in force."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    enabled: bool
    params: dict[str, str] = Field(default_factory=dict)


class Objective(BaseModel):
    """The TTFT objective that the sidecar measures against. Seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ttft_p95_s: float = Field(gt=0)
    window_s: float = Field(default=300.0, gt=0)
    tpot_p95_s: float | None = Field(default=None, gt=0)


class ClassSettings(BaseModel):
    """A class of requests. Larger priority = more urgent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    priority: int = 0
    ttft_p99_s: float = Field(gt=0)
    max_tokens: int | None = Field(default=None, ge=1)


class RouteSettings(BaseModel):
    """A named kind of requests."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    request_class: str | None = None
    max_tokens: int | None = Field(default=None, ge=1)


def _twice(names: Iterable[str]) -> str:
    """The first name that is there more than once; empty if there is none."""
    return next((name for name, count in Counter(names).items() if count > 1), "")


class HotSettings(BaseModel):
    """Everything that changes without a restart. Unknown keys are kept out of the hash and ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: int = SCHEMA_VERSION
    generation: int = Field(ge=1)
    flags: tuple[EffectiveFlag, ...]
    objective: Objective
    classes: tuple[ClassSettings, ...] = ()
    """Empty: one class without a name, with the objective of the service."""
    default_class: str = ""
    """Class of requests that name none. Empty: the first class."""
    routes: tuple[RouteSettings, ...] = ()
    hash: str = ""

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        known = [each.name for each in self.classes]
        declared = f"classes are {', '.join(known) or 'none'}"
        if name := _twice(known):
            raise ValueError(f"classes names {name!r} twice")
        if name := _twice(each.name for each in self.routes):
            raise ValueError(f"routes names {name!r} twice")
        if self.default_class and self.default_class not in known:
            raise ValueError(f"default_class is {self.default_class!r}, {declared}")
        for route in self.routes:
            if route.request_class is not None and route.request_class not in known:
                raise ValueError(f"the class of route {route.name!r} is {route.request_class!r}, {declared}")
        return self

    @model_validator(mode="after")
    def _hash_matches(self) -> Self:
        if self.hash and self.hash != self.content_hash():
            raise ValueError(f"hash {self.hash} does not match the content ({self.content_hash()})")
        return self

    def content_hash(self) -> str:
        """Hash of everything but the generation. What is left at its default is left out of it, so that a
        document that does not use a newer field has the hash that older pods compute."""
        content = self._content()
        for key in ("schema_version", "generation", "hash"):
            del content[key]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """The document. A newer field that is at its default is not written: older pods refuse a key that
        they do not know inside the objective."""
        return json.dumps(self._content(), separators=(",", ":"))

    def _content(self) -> dict[str, Any]:
        newer = {"classes", "default_class", "routes"}
        content = self.model_dump(mode="json", exclude=newer)
        if self.objective.tpot_p95_s is None:
            del content["objective"]["tpot_p95_s"]
        return content | self.model_dump(mode="json", include=newer, exclude_defaults=True)

    def sealed(self) -> Self:
        """The same settings with their hash filled in."""
        return self.model_copy(update={"hash": self.content_hash()})
