"""Brings the flags that the operator wrote into the running engine, in the operator's order.

The operator writes the revision's ConfigMap, then names a generation in this pod's own annotation
(`<generation>.<try>`). An engine that has no settings yet takes the newest document in the mount; one
that has waits until its own annotation names the document's generation, so that replicas switch one at
a time. A document that does not parse keeps the last good one; why is on /state. What the engine
refuses is not asked again before the document or the annotation changes or the engine restarts.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import ValidationError

from firsttoken_api import names
from firsttoken_api.hot_settings import HotSettings, Objective
from firsttoken_api.state import FlagsState
from firsttoken_sidecar import engines, logs, metrics, mounts, watch

INTERVAL_S = 0.1
FIRST_RETRY_S = 0.2
LONGEST_RETRY_S = 5.0

logger = logging.getLogger(__name__)


class BadDocumentError(ValueError):
    """A flags document that cannot be used. The message says where it is wrong."""


@dataclass(frozen=True)
class Document:
    """A flags document that parsed. The engine gets the bytes as they were written."""

    settings: HotSettings
    content: bytes


@dataclass(frozen=True)
class Named:
    """What the pod's annotation asks for."""

    generation: int
    attempt: int


def parse_document(content: bytes) -> Document:
    """Raises BadDocumentError."""
    try:
        return Document(HotSettings.model_validate_json(content), content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "document"
        raise BadDocumentError(f"{names.FLAGS_KEY}: {place}: {first['msg']}") from error


_ANNOTATION = re.compile(rf'^{re.escape(names.ANNOTATION_FLAGS)}="(\d+)\.(\d+)"$', re.MULTILINE)


def parse_annotations(content: bytes) -> Named | None:
    """Reads the downward API's file: one `key="value"` a line. None without our annotation."""
    found = _ANNOTATION.search(content.decode(errors="replace"))
    return Named(int(found[1]), int(found[2])) if found else None


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
    if in_force.generation == settings.generation and in_force.hash in ("", settings.content_hash()):
        return Step.IN_FORCE
    if in_force.generation == 0:
        return Step.APPLY
    allowed = named.generation if named is not None else first_generation
    return Step.APPLY if settings.generation == allowed else Step.NOT_NAMED


class Follower:
    """Follows the mounted files, one tick after the other."""

    def __init__(
        self,
        engine: engines.Engine,
        watched: watch.Watch,
        flags_folder: Path,
        pod_info_folder: Path,
        clock: Callable[[], float],
        set_objective: Callable[[Objective], None],
        counts: metrics.Counts,
    ) -> None:
        self._engine = engine
        self._watch = watched
        self._clock = clock
        self._set_objective = set_objective
        self._document_file = mounts.MountedFile(flags_folder, names.FLAGS_KEY)
        self._annotations_file = mounts.MountedFile(pod_info_folder, names.POD_ANNOTATIONS_FILE)
        self._document: Document | None = None
        self._named: Named | None = None
        self._first_generation = 0
        self._has_objective = False
        self._refused: tuple[bytes, Named | None, int] | None = None
        self._retry_at = 0.0
        self._retry_s = FIRST_RETRY_S
        self._document_error = f"no {self._document_file.path} yet"
        self._apply_error = ""
        self._counts = counts

    @property
    def error(self) -> str:
        """Why the newest document is not in force; empty when it is, or waits its turn."""
        return self._document_error or self._apply_error

    def report(self) -> FlagsState:
        """For /state: what the engine has in force, and what keeps it from the newest."""
        state = self._watch.state
        in_force = state.flags if state is not None else FlagsState()
        return in_force.model_copy(update={"error": self.error or in_force.error})

    async def tick(self) -> None:
        """Reads what changed and does the next step."""
        self._read_files()
        in_force = self._watch.state.flags if self._watch.is_ready and self._watch.state is not None else None
        step = next_step(self._document, self._named, self._first_generation, in_force)
        if self._document is not None:
            self._follow_objective(self._document, step)
        if step is not Step.APPLY or self._document is None:
            if step is Step.IN_FORCE:
                self._apply_error = ""
            return
        attempt = (self._document.content, self._named, self._watch.starts)
        if attempt == self._refused or self._clock() < self._retry_at:
            return
        await self._apply(self._document, attempt)

    async def run(self) -> None:
        """Ticks until cancelled."""
        while True:
            await self.tick()
            await asyncio.sleep(INTERVAL_S)

    def _read_files(self) -> None:
        if self._annotations_file.changed():
            named = parse_annotations(self._annotations_file.read() or b"")
            if named != self._named:
                self._named = named
                self._retry_at = 0.0
        if not self._document_file.changed():
            return
        content = self._document_file.read()
        if content is None:
            self._document_error = f"no {self._document_file.path}"
            return
        try:
            self._document = parse_document(content)
        except BadDocumentError as error:
            self._document_error = str(error)
            self._counts.flags_errors[metrics.FlagsErrorReason.DOCUMENT] += 1
            logger.warning("flags document kept out", extra=logs.fields(error=str(error)))
            return
        self._document_error = ""
        self._retry_at = 0.0
        if self._first_generation == 0:
            self._first_generation = self._document.settings.generation

    def _follow_objective(self, document: Document, step: Step) -> None:
        """The objective travels with the flags and changes with them; any is better than none."""
        if step in (Step.APPLY, Step.IN_FORCE) or not self._has_objective:
            self._has_objective = True
            self._set_objective(document.settings.objective)

    async def _apply(self, document: Document, attempt: tuple[bytes, Named | None, int]) -> None:
        generation = document.settings.generation
        started = self._clock()
        try:
            state = await self._engine.apply_flags(document.content)
        except engines.FlagsRefusedError as error:
            self._refused = attempt
            self._failed(generation, str(error), metrics.FlagsErrorReason.REFUSED)
            return
        except engines.EngineUnreachableError as error:
            self._retry_at = self._clock() + self._retry_s
            self._retry_s = min(2 * self._retry_s, LONGEST_RETRY_S)
            self._failed(generation, str(error), metrics.FlagsErrorReason.UNREACHABLE)
            return
        self._watch.note_flags(state)
        self._apply_error = ""
        self._refused = None
        self._retry_s = FIRST_RETRY_S
        self._counts.flags_applied += 1
        took_s = round(self._clock() - started, 3)
        logger.info("flags applied", extra=logs.fields(generation=generation, took_s=took_s))

    def _failed(self, generation: int, error: str, reason: metrics.FlagsErrorReason) -> None:
        self._apply_error = error
        self._counts.flags_errors[reason] += 1
        logger.warning("flags not applied", extra=logs.fields(generation=generation, error=error))
