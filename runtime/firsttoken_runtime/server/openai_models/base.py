"""What all request bodies share: strict types, finite numbers, `null` as the default."""

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

LARGEST_INT = 2**31 - 1
MAX_TOP_LOGPROBS = 20
MAX_SEQUENCES = 256
"""Most answers of one request: prompts times `n`."""

TokenId = Annotated[int, Field(ge=0, le=LARGEST_INT)]


def _key(name: Any) -> Any:
    return int(name) if isinstance(name, str) and re.fullmatch("[0-9]{1,10}", name) else name


TokenKey = Annotated[int, BeforeValidator(_key), Field(ge=0, le=LARGEST_INT)]
"""A token id as the name of a JSON member."""

TokenIds = Annotated[list[TokenId], Field(fail_fast=True, max_length=2**20)]
"""The first wrong one ends the look at the list: a finding for each would take seconds."""


def at_most(members: int) -> BeforeValidator:
    """A limit for an object that is checked before its members are, not after."""

    def check(value: Any) -> Any:
        if isinstance(value, dict) and len(value) > members:
            raise PydanticCustomError(
                "too_long", "at most {most} entries, not {given}", {"most": members, "given": len(value)}
            )
        return value

    return BeforeValidator(check)


Label = Annotated[str, StringConstraints(max_length=1024)]
"""A text that only says who asks."""


class Part(BaseModel):
    """A JSON object of a body. Names that it does not define are kept, so that they can be warned of."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, body: Any) -> Any:
        """`null` is the default, whatever the parameter."""
        if not isinstance(body, dict):
            return body
        return {name: value for name, value in body.items() if value is not None or name in cls.nullable()}

    @classmethod
    def nullable(cls) -> frozenset[str]:
        """Parameters whose `null` differs from leaving them out."""
        return frozenset()


class Body(Part):
    """A whole request body."""

    model: str | None = None

    def check(self) -> None:
        """What no single parameter tells. Raises BadRequestError."""


class CachedBody(Body):
    """A request whose prompts leave KV behind that others may find."""

    cache_salt: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = None
    """Cached KV is only found by requests with the same salt."""
    shared_prefix_tokens: int | None = Field(default=None, ge=0, le=LARGEST_INT)
    """So many tokens at the start of each prompt are those of others too; None = of a chat its system part,
    of a text nothing."""
