"""`spec.model`: which weights are served, and under which name."""

import re
from typing import Annotated, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from firsttoken_api import cel
from firsttoken_api.base import SpecModel
from firsttoken_api.references import LocalReference, Name

_PVC_PATTERN = r"^pvc://[a-z0-9][-a-z0-9.]*/[^/].*$"
_REMOTE_PATTERN = r"^(hf|s3|oci)://[^/].*$"
_DOT_SEGMENT_PATTERN = r"/[.]{1,2}(/|$)"
_DIGEST_PATTERN = r"^sha256:[0-9a-f]{64}$"

SOURCE_SHAPE = cel.Rule(
    f"self.matches('{_PVC_PATTERN}') || self.matches('{_REMOTE_PATTERN}')",
    "spec.model.source must be pvc://<claim>/<path>, hf://<org>/<name>, s3://<bucket>/<path> or oci://<image>",
)
SOURCE_INSIDE = cel.Rule(
    f"!self.matches('{_DOT_SEGMENT_PATTERN}')",
    'spec.model.source must not contain the path segments "." or ".."',
)
REVISION_IS_DIGEST = cel.Rule(
    "!self.source.startsWith('pvc://') || !has(self.revision) || self.revision == ''"
    f" || self.revision.matches('{_DIGEST_PATTERN}')",
    "spec.model.revision of a pvc:// source must be empty or sha256:<64 hex digits>",
    field_path=".revision",
)


def _check_source(source: str) -> str:
    SOURCE_SHAPE.check(bool(re.search(_PVC_PATTERN, source) or re.search(_REMOTE_PATTERN, source)))
    SOURCE_INSIDE.check(not re.search(_DOT_SEGMENT_PATTERN, source))
    return source


class ModelCache(SpecModel):
    """Where downloaded weights are kept."""

    claim_name: Name
    """PersistentVolumeClaim of the same namespace."""


class ModelSpec(SpecModel):
    """The model to serve."""

    model_config = ConfigDict(json_schema_extra=cel.rules(REVISION_IS_DIGEST))

    source: Annotated[
        str,
        Field(min_length=7, max_length=512, json_schema_extra=cel.rules(SOURCE_SHAPE, SOURCE_INSIDE)),
        AfterValidator(_check_source),
    ]
    """Where the weights are: `pvc://<claim>/<path>` of a .gguf file or a folder of safetensors."""
    revision: Annotated[str, Field(max_length=128)] = ""
    """Pins the content. For pvc:// `sha256:<hex>`, compared with the content before anything starts."""
    served_name: Annotated[str, Field(max_length=128, pattern=r"^[A-Za-z0-9][-A-Za-z0-9_./:]*$")] | None = (
        None
    )
    """The model's name in requests and answers. Absent: the name of the InferenceService."""
    draft: Annotated[str, Field(max_length=512)] = ""
    """Source of a small model that drafts for spec-decode."""
    credentials_ref: LocalReference | None = None
    """Secret with the credentials of a remote source."""
    cache: ModelCache | None = None
    """Where downloaded weights are kept."""

    @model_validator(mode="after")
    def _revision_is_digest(self) -> Self:
        is_claim = self.source.startswith("pvc://")
        REVISION_IS_DIGEST.check(
            not is_claim or not self.revision or bool(re.search(_DIGEST_PATTERN, self.revision))
        )
        return self

    @property
    def scheme(self) -> str:
        """`pvc`, `hf`, `s3` or `oci`."""
        return self.source.partition("://")[0]

    @property
    def claim_name(self) -> str:
        """The claim of a pvc:// source."""
        assert self.scheme == "pvc", self.source
        return self.source.removeprefix("pvc://").partition("/")[0]

    @property
    def path(self) -> str:
        """The path of a pvc:// source inside its claim, without a leading slash."""
        assert self.scheme == "pvc", self.source
        return self.source.removeprefix("pvc://").partition("/")[2]
