"""What an answer consists of for a client: text, thoughts, calls of tools.

Parsers turn the growing text of a model into these; the pieces joined do not depend on how the text was cut.
"""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field


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
    """Neighbours of one kind as one part."""
    last: Part | None = None
    for part in parts:
        both = None if last is None else _merged(last, part)
        if last is not None and both is None:
            yield last
        last = both or part
    if last is not None:
        yield last


def _merged(last: Part, part: Part) -> Part | None:
    match last, part:
        case Content(), Content():
            return Content(last.text + part.text)
        case Reasoning(), Reasoning():
            return Reasoning(last.text + part.text)
        case Arguments(), Arguments() if last.index == part.index:
            return Arguments(last.index, last.text + part.text)
    return None
