"""The parts of the time to the first token as a client sees it, and what the engine says about its own. Pure.

The engine gives durations, never points in time: it may be on another machine. What its stages and our own
do not explain is the way between us and it (`forward`), so the stages of a request always add up to its TTFT.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

import msgspec

FormT = TypeVar("FormT", bound=msgspec.Struct)


class Stage(StrEnum):
    """What a request waits for, in order."""

    SIDECAR_QUEUE = "sidecar_queue"
    """From its arrival until it is sent on: its body, admission, a computation that it may join."""
    FORWARD = "forward"
    """Between the sidecar and the engine, both ways. All of the engine's time where it gives no stages."""
    TOKENIZE = "tokenize"
    QUEUE = "queue"
    TIER_LOAD = "tier_load"
    PREFILL = "prefill"
    FIRST_SAMPLE = "first_sample"
    WRITE = "write"
    DECODE = "decode"
    """Of an answer that is not streamed: from its first token to its last."""
    SIDECAR_WRITE = "sidecar_write"
    """From the arrival of the first content here until it is written to the client."""


ENGINE_STAGES = (
    Stage.TOKENIZE, Stage.QUEUE, Stage.TIER_LOAD, Stage.PREFILL, Stage.FIRST_SAMPLE, Stage.WRITE,
    Stage.DECODE,
)  # fmt: skip


MOST_TOKENS = 10**8
"""No prompt is longer, whatever an engine says: images are the users' own."""


@dataclass(frozen=True)
class Stamps:
    """What the engine says about one request."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    ttft_s: float = 0.0
    stages_s: Mapping[str, float] = field(default_factory=dict)
    """By the engine's names, which are those of `ENGINE_STAGES`; they add up to `ttft_s` (and `decode`)."""
    choices: int = 1
    """Answers of the request, which share its stream."""
    completion_tokens: int | None = None
    """Of all choices; known at the end only."""

    @property
    def uncached_tokens(self) -> int:
        return min(max(0, self.prompt_tokens - self.cached_tokens), MOST_TOKENS)


class _First(msgspec.Struct):
    """The engine's words at the first content. Unknown keys are ignored."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    ttft_ms: float = 0.0
    stages_ms: dict[str, float] = {}
    choices: int = 1


class _End(msgspec.Struct):
    """The engine's words at the end."""

    completion_tokens: int | None = None
    cached_tokens: int | None = None


class _Whole(_First):
    """Both at once, of an answer that is not streamed."""

    completion_tokens: int | None = None


def first(document: bytes | str) -> Stamps | None:
    """What came with the first content, or in the header of a whole answer; None: it is not understood."""
    said = _decoded(document, _Whole)
    if said is None:
        return None
    return Stamps(
        prompt_tokens=said.prompt_tokens,
        cached_tokens=said.cached_tokens,
        ttft_s=said.ttft_ms / 1000,
        stages_s={name: ms / 1000 for name, ms in said.stages_ms.items()},
        choices=max(1, said.choices),
        completion_tokens=said.completion_tokens,
    )


def completed(stamps: Stamps | None, document: bytes) -> Stamps | None:
    """The same with what came at the end."""
    said = _decoded(document, _End)
    if said is None:
        return stamps
    before = stamps or Stamps()
    cached_tokens = before.cached_tokens if said.cached_tokens is None else said.cached_tokens
    return replace(before, completion_tokens=said.completion_tokens, cached_tokens=cached_tokens)


def split(ttft_s: float, queue_s: float, write_s: float, stamps: Stamps | None) -> dict[Stage, float]:
    """Seconds of each stage; they add up to `ttft_s`, and none is negative.

    Where the engine explains more than there was, its last stages count first: whoever joined a computation
    that had begun has waited for its rest only.
    """
    write_s = min(max(0.0, write_s), ttft_s)
    queue_s = min(max(0.0, queue_s), ttft_s - write_s)
    left_s = ttft_s - write_s - queue_s
    found = dict.fromkeys(Stage, 0.0)
    found[Stage.SIDECAR_QUEUE] = queue_s
    found[Stage.SIDECAR_WRITE] = write_s
    for stage in reversed(ENGINE_STAGES):
        said_s = stamps.stages_s.get(stage, 0.0) if stamps is not None else 0.0
        found[stage] = min(max(0.0, said_s), left_s)
        left_s -= found[stage]
    found[Stage.FORWARD] = left_s
    return found


def _decoded(document: bytes | str, form: type[FormT]) -> FormT | None:
    try:
        return msgspec.json.decode(document, type=form)
    except (msgspec.MsgspecError, UnicodeError):
        return None
