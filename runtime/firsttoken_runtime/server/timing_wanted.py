"""Who is to hear where the time to the first token went: the client in its answer, and its sidecar."""

from collections.abc import Mapping
from dataclasses import dataclass

from firsttoken_api import errors, names


@dataclass(frozen=True)
class TimingWanted:
    """What one request asks for."""

    is_in_answer: bool = False
    is_stamped: bool = False
    """For the sidecar that asks, which takes it out of the answer."""


NOTHING = TimingWanted()


def of_headers(headers: Mapping[str, str]) -> TimingWanted:
    """`true` or `false`, and a sidecar adds `stamps` after a comma. Raises BadRequestError."""
    value = headers.get(names.HEADER_TIMING, "false")
    asked = {part.strip() for part in value.split(",")}
    is_stamped = names.TIMING_STAMPS in asked
    asked.discard(names.TIMING_STAMPS)
    if not asked <= {"true", "false"} or len(asked) > 1:
        raise errors.BadRequestError(
            f"{names.HEADER_TIMING} is true or false, not {value[:64]!r}", param=names.HEADER_TIMING
        )
    return TimingWanted(is_in_answer="true" in asked, is_stamped=is_stamped)
