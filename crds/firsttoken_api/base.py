"""The base of every resource type: camelCase on the wire, frozen in memory, attribute docstrings kept.

The docstrings become the descriptions of the CRD and of `docs/reference/crd.md`.
"""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class SpecModel(BaseModel):
    """Part of what a user writes. An unknown field is an error, never dropped in silence."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )


class StatusModel(BaseModel):
    """Part of what the operator reports. Unknown fields, say of a newer operator, are ignored."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )
