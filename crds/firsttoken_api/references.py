"""References to other objects of the service's own namespace, and the types of names."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from firsttoken_api import bounded_text
from firsttoken_api.base import SpecModel

NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
LONGEST_NAME = 253
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, pattern=NAME_PATTERN)]
"""A DNS subdomain, as most Kubernetes objects are named."""


@dataclass(frozen=True)
class ClaimNames(bounded_text.Values):
    """Names of claims, in parameters of flags."""

    pattern = NAME_PATTERN
    max_length = LONGEST_NAME
    kind = "the name of a claim"


LabelKey = Annotated[str, Field(max_length=317)]
LabelValue = Annotated[str, Field(max_length=63, pattern=r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")]


class LocalReference(SpecModel):
    """An object of the same namespace."""

    name: Name
    """Name of the object."""


class ConfigMapSource(SpecModel):
    """A document kept in a ConfigMap."""

    config_map_ref: LocalReference
    """The ConfigMap."""
