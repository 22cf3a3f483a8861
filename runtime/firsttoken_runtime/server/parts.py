"""What an answer consists of for a client: text, thoughts, calls of tools.

Parsers turn the growing text of a model into these; the pieces joined do not depend on how the text was cut.
"""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Content:
    """Text to show."""

    text: str


@dataclass(frozen=True)
class Reasoning:
    """Text the model wrote for itself before its answer."""

    text: str


@dataclass(frozen=True)
class CallStart:
    """A tool is called; its arguments follow."""

    index: int
    name: str
    call_id: str = field(default_factory=lambda: f"call_{uuid.uuid4().hex}")


@dataclass(frozen=True)
class Arguments:
    """The next piece of the arguments (JSON text) of call `index`."""

    index: int
    text: str


Part = Content | Reasoning | CallStart | Arguments


def joined(parts: Iterable[Part]) -> Iterator[Part]:
    """Neighbours of one kind as one part; empty ones are gone."""
    last: Part | None = None
    for part in parts:
        if not isinstance(part, CallStart) and not part.text:
            continue
        if last is not None and _is_same_text(last, part):
            last = replace(last, text=last.text + part.text)  # type: ignore[union-attr, call-arg]
            continue
        if last is not None:
            yield last
        last = part
    if last is not None:
        yield last


def _is_same_text(last: Part, part: Part) -> bool:
    if isinstance(last, Arguments) and isinstance(part, Arguments):
        return last.index == part.index
    return type(last) is type(part) and not isinstance(part, CallStart)
