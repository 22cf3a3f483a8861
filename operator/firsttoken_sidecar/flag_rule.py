"""Which flags document is to be in force, decided from what was read. Pure.

An engine that has no settings yet takes the newest document in the mount. One that has waits until the
pod's own annotation (`<generation>.<try>`) names the document's generation, so that replicas switch one at
a time, in the operator's order.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from pydantic import ValidationError

from firsttoken_api import flags, names
from firsttoken_api.hot_settings import HotSettings
from firsttoken_api.state import FlagsState


class BadDocumentError(ValueError):
    """A flags document that cannot be used. The message says where it is wrong."""


@dataclass(frozen=True)
class Document:
    """A flags document that parsed. The engine gets the bytes as they were written."""

    settings: HotSettings
    content: bytes
    content_hash: str


@dataclass(frozen=True)
class Named:
    """What the pod's annotation asks for."""

    generation: int
    attempt: int


def parse_document(content: bytes) -> Document:
    """Raises BadDocumentError."""
    try:
        settings = HotSettings.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "document"
        raise BadDocumentError(f"{names.FLAGS_KEY}: {place}: {first['msg']}") from error
    return Document(settings, content, settings.content_hash())


_ANNOTATION = re.compile(
    rf"^{re.escape(names.ANNOTATION_FLAGS)}" r'="([0-9]{1,15})[.]([0-9]{1,9})"$', re.MULTILINE
)


def parse_annotations(content: bytes) -> Named | None:
    """Reads the downward API's file: one `key="value"` a line. None without our annotation."""
    found = _ANNOTATION.search(content.decode(errors="replace"))
    return Named(int(found[1]), int(found[2])) if found else None


def taken_back(settings: HotSettings, in_force: FlagsState) -> tuple[str, ...]:
    """Flags that are on and are to be off. One that the document does not list has its default."""
    listed = {each.name: each.enabled for each in settings.flags}
    return tuple(
        name
        for name in in_force.enabled
        if not listed.get(name, name in flags.BY_NAME and flags.BY_NAME[name].on_by_default)
    )


class Step(StrEnum):
    """What is to be done with the newest document."""

    NO_DOCUMENT = "NoDocument"
    ENGINE_NOT_READY = "EngineNotReady"
    IN_FORCE = "InForce"
    NOT_NAMED = "NotNamed"
    APPLY = "Apply"


def next_step(
    document: Document | None, named: Named | None, first_generation: int, in_force: FlagsState | None
) -> Step:
    """The rule. `first_generation`: the newest at start; `in_force`: None while the engine is not ready."""
    if document is None:
        return Step.NO_DOCUMENT
    if in_force is None:
        return Step.ENGINE_NOT_READY
    settings = document.settings
    if in_force.generation == settings.generation and in_force.hash in ("", document.content_hash):
        return Step.IN_FORCE
    if in_force.generation == 0:
        return Step.APPLY
    allowed = named.generation if named is not None else first_generation
    return Step.APPLY if settings.generation == allowed else Step.NOT_NAMED
