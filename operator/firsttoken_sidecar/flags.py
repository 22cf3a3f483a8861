"""Brings the flags that the operator wrote into the running engine.

Follows the mounted ConfigMap and this pod's own annotation; `flag_rule` decides. A document that does not
parse keeps the last good one; why is on /state. What the engine refuses is not asked again before the
document or the annotation changes or the engine restarts; what it fails to do is tried again, later and
later.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from firsttoken_api import names
from firsttoken_api.hot_settings import HotSettings
from firsttoken_api.state import FlagsState
from firsttoken_sidecar import engines, flag_rule, logs, metrics, mounts, watch

INTERVAL_S = 0.1
FIRST_RETRY_S = 0.2
LONGEST_RETRY_S = 5.0
RECALL_S = 30.0
"""A flag that is to be off and is still on after this time takes the pod out of service. The operator gives
up at the same age (`flag_rollout.GIVE_UP_S`) and then deletes the pod."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Attempt:
    """What an answer of the engine is good for: another one of these is worth another try."""

    content: bytes
    named: flag_rule.Named | None
    engine_starts: int


class Follower:
    """Follows the mounted files, one tick after the other."""

    def __init__(
        self,
        engine: engines.Engine,
        watched: watch.Watch,
        flags_folder: Path,
        pod_info_folder: Path,
        clock: Callable[[], float],
        set_settings: Callable[[HotSettings], None],
        counts: metrics.Counts,
    ) -> None:
        self._engine = engine
        self._watch = watched
        self._clock = clock
        self._set_settings = set_settings
        self._document_file = mounts.MountedFile(flags_folder, names.FLAGS_KEY)
        self._annotations_file = mounts.MountedFile(pod_info_folder, names.POD_ANNOTATIONS_FILE)
        self._document: flag_rule.Document | None = None
        self._named: flag_rule.Named | None = None
        self._first_generation = 0
        self.settings: HotSettings | None = None
        """What was last handed on: objective, classes and routes as they are to be followed."""
        self._attempt: Attempt | None = None
        self._retry_at: float | None = None
        """When the attempt may be repeated; None: never, it was refused."""
        self._retry_s = FIRST_RETRY_S
        self._recalled: tuple[str, ...] = ()
        """Flags that the engine was asked to take back and has not."""
        self._recalled_at = 0.0
        self._document_error = f"no {self._document_file.path} yet"
        self._apply_error = ""
        self._counts = counts

    @property
    def error(self) -> str:
        """Why the newest document is not in force; empty when it is, or waits its turn."""
        return self._document_error or self._apply_error

    def why_not_ready(self) -> str:
        """Empty unless a flag that may harm answers stays on.

        A document that the engine refuses is another matter: the pod goes on with what it has, for one that
        takes its place would refuse it too.
        """
        is_refused = self._attempt is not None and self._retry_at is None
        if not self._recalled or is_refused or self._clock() - self._recalled_at < RECALL_S:
            return ""
        named = ", ".join(self._recalled)
        return f"{named} is to be off and still on after {RECALL_S:.0f} s: {self.error or 'no answer'}"

    def report(self) -> FlagsState:
        """For /state: what the engine has in force, and what keeps it from the newest."""
        state = self._watch.state
        in_force = state.flags if state is not None else FlagsState()
        return in_force.model_copy(update={"error": self.error or in_force.error})

    async def tick(self) -> None:
        """Reads what changed and does the next step."""
        self._read_files()
        in_force = self._watch.state.flags if self._watch.is_ready and self._watch.state is not None else None
        step = flag_rule.next_step(self._document, self._named, self._first_generation, in_force)
        if self._document is not None:
            self._follow_settings(self._document, step)
        self._follow_recall(step, in_force)
        if step is not flag_rule.Step.APPLY or self._document is None:
            if step is flag_rule.Step.IN_FORCE:
                self._apply_error = ""
            return
        attempt = Attempt(self._document.content, self._named, self._watch.starts)
        if attempt != self._attempt:
            self._attempt = attempt
            self._retry_at = self._clock()
            self._retry_s = FIRST_RETRY_S
        if self._retry_at is not None and self._clock() >= self._retry_at:
            await self._apply(self._document)

    async def run(self) -> None:
        """Ticks until cancelled: at the interval, and at once when the engine becomes ready."""
        while True:
            await self.tick()
            # Not wait_for: Python 3.11's forgets to be cancelled when what it waits for comes at that moment.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL_S):
                    await self._watch.turned_ready.wait()
            self._watch.turned_ready.clear()

    def _read_files(self) -> None:
        if self._annotations_file.changed():
            self._named = flag_rule.parse_annotations(self._annotations_file.read() or b"")
        if not self._document_file.changed():
            return
        content = self._document_file.read()
        if content is None:
            self._document_error = f"no {self._document_file.path}"
            return
        try:
            self._document = flag_rule.parse_document(content)
        except flag_rule.BadDocumentError as error:
            self._document_error = str(error)
            self._counts.flags_errors[metrics.FlagsErrorReason.DOCUMENT] += 1
            logger.warning("flags document kept out", extra=logs.fields(error=str(error)))
            return
        self._document_error = ""
        if self._first_generation == 0:
            self._first_generation = self._document.settings.generation

    def _follow_settings(self, document: flag_rule.Document, step: flag_rule.Step) -> None:
        """Objective and classes travel with the flags and change with them; any are better than none."""
        if step in (flag_rule.Step.APPLY, flag_rule.Step.IN_FORCE) or self.settings is None:
            self.settings = document.settings
            self._set_settings(document.settings)

    def _follow_recall(self, step: flag_rule.Step, in_force: FlagsState | None) -> None:
        """Since when flags were to be off. A document that comes meanwhile and asks the same starts nothing
        anew."""
        recalled: tuple[str, ...] = ()
        if step is flag_rule.Step.APPLY and self._document is not None and in_force is not None:
            recalled = flag_rule.taken_back(self._document.settings, in_force)
        if recalled and not self._recalled:
            self._recalled_at = self._clock()
        self._recalled = recalled

    async def _apply(self, document: flag_rule.Document) -> None:
        generation = document.settings.generation
        started = self._clock()
        try:
            state = await self._engine.apply_flags(document.content)
        except engines.FlagsRefusedError as error:
            self._retry_at = None
            self._failed(generation, str(error), metrics.FlagsErrorReason.REFUSED)
            return
        except engines.EngineUnreachableError as error:
            self._retry_at = self._clock() + self._retry_s
            self._retry_s = min(2 * self._retry_s, LONGEST_RETRY_S)
            self._failed(generation, str(error), metrics.FlagsErrorReason.UNREACHABLE)
            return
        self._watch.note_flags(state)
        self._recalled = ()
        self._apply_error = ""
        self._counts.flags_applied += 1
        took_s = round(self._clock() - started, 3)
        logger.info("flags applied", extra=logs.fields(generation=generation, took_s=took_s))

    def _failed(self, generation: int, error: str, reason: metrics.FlagsErrorReason) -> None:
        self._apply_error = error
        self._counts.flags_errors[reason] += 1
        logger.warning("flags not applied", extra=logs.fields(generation=generation, error=error))
