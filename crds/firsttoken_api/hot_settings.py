"""The document that carries hot settings from the operator to a running engine.

The operator writes it as JSON under `names.FLAGS_KEY` into the revision's ConfigMap; the sidecar reads
it from the mounted folder and puts it to the engine (`PUT /flags` on the engine's ops port). It carries
a schema version, so that an operator and pods up to two minor versions apart understand each other.
"""

import hashlib
import json
from typing import Self

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
    routes: tuple[RouteSettings, ...] = ()
    hash: str = ""

    @model_validator(mode="after")
    def _hash_matches(self) -> Self:
        if self.hash and self.hash != self.content_hash():
            raise ValueError(f"hash {self.hash} does not match the content ({self.content_hash()})")
        return self

    def content_hash(self) -> str:
        """Hash of everything but the generation. What is left at its default is left out of it, so that a
        document that does not use a newer field has the hash that older pods compute."""
        content = self.model_dump(mode="json", include={"flags", "objective"})
        if self.objective.tpot_p95_s is None:
            del content["objective"]["tpot_p95_s"]
        newer = {"classes", "default_class", "routes"}
        content |= self.model_dump(mode="json", include=newer, exclude_defaults=True)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def sealed(self) -> Self:
        """The same settings with their hash filled in."""
        return self.model_copy(update={"hash": self.content_hash()})
