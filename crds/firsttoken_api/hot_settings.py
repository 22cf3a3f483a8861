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


class HotSettings(BaseModel):
    """Everything that changes without a restart. Unknown keys are kept out of the hash and ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: int = SCHEMA_VERSION
    generation: int = Field(ge=1)
    flags: tuple[EffectiveFlag, ...]
    objective: Objective
    hash: str = ""

    @model_validator(mode="after")
    def _hash_matches(self) -> Self:
        if self.hash and self.hash != self.content_hash():
            raise ValueError(f"hash {self.hash} does not match the content ({self.content_hash()})")
        return self

    def content_hash(self) -> str:
        """Hash of flags and objective; equal content has an equal hash whatever its generation."""
        content = self.model_dump(mode="json", include={"flags", "objective"})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def sealed(self) -> Self:
        """The same settings with their hash filled in."""
        return self.model_copy(update={"hash": self.content_hash()})
