"""What the sidecar that asks gets to know of a request, beside its answer: tokens, and where its TTFT went.

In a stream these are comments, which a client would ignore and the sidecar takes out: one with the first
piece of text, one before the end. Beside a whole answer it is a header. Durations only: the clocks of two
machines have nothing in common.
"""

from collections.abc import Sequence

import msgspec

from firsttoken_runtime.server import stages
from firsttoken_runtime.server.choice import Choice
from firsttoken_runtime.server.replies import usage

DECODE = "decode"
"""A stage of whole answers only: from the first token to the last."""

_encode = msgspec.json.Encoder().encode


def first(choices: Sequence[Choice], timing: stages.Timing) -> bytes:
    """The event that goes with the first text."""
    return b": firsttoken-first " + _encode(_first(choices, timing)) + b"\n\n"


def end(choices: Sequence[Choice]) -> bytes:
    """The event before the end of the stream."""
    return b": firsttoken-end " + _encode(_end(choices)) + b"\n\n"


def header(choices: Sequence[Choice], timing: stages.Timing, decode_s: float) -> str:
    """The header of a whole answer, which was ready `decode_s` after its first token."""
    said = _first(choices, timing) | _end(choices)
    said["stages_ms"] = {**timing.document()["stages_ms"], DECODE: decode_s * 1000}
    return _encode(said).decode()


def _first(choices: Sequence[Choice], timing: stages.Timing) -> dict[str, object]:
    used = usage(choices)
    return {
        "prompt_tokens": used["prompt_tokens"],
        "cached_tokens": used["prompt_tokens_details"]["cached_tokens"],
        "choices": len(choices),
        **timing.document(),
    }


def _end(choices: Sequence[Choice]) -> dict[str, object]:
    used = usage(choices)
    return {
        "completion_tokens": used["completion_tokens"],
        "cached_tokens": used["prompt_tokens_details"]["cached_tokens"],
    }
