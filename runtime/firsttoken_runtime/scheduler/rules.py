"""The rule table: what is decided about a sequence's KV, and why. Pure; one reason code per decision.

**Precision is a function of the request and the flag set, never of what is cached.** With quantization on,
the declared shared prefix is stored in the compute dtype and every later token quantized, on a miss and on
a hit alike: what a request gets cannot depend on what others asked before.
"""

import sys
from enum import StrEnum
from typing import NamedTuple, Protocol

ALL_BLOCKS = sys.maxsize
"""Every block of a sequence, however long it becomes."""


class Reason(StrEnum):
    """Why a decision was what it was; counted, and a label of metrics."""

    PRECISION_ONE_FORMAT = "precision_one_format"
    """Nothing is quantized."""
    PRECISION_DECLARED = "precision_declared"
    """The declared shared prefix in the compute dtype, the rest quantized."""
    PRECISION_DECLARED_CUT = "precision_declared_cut"
    """The same, but more was declared than may be."""
    PRECISION_DECLARED_SHORT = "precision_declared_short"
    """All quantized: what was declared fills no block."""
    PRECISION_UNDECLARED = "precision_undeclared"
    """All quantized."""

    REUSE_OFF = "reuse_off"
    """Nothing is kept."""
    REUSE_PROMPT_LOGPROBS = "reuse_prompt_logprobs"
    """Every prompt token is computed, because its logprobs were asked for."""
    REUSE_MISS = "reuse_miss"
    REUSE_DEVICE = "reuse_device"
    """Found on the device."""
    REUSE_HOST = "reuse_host"
    """Some of it is loaded from the host tier."""
    REUSE_HOST_TOO_SHORT = "reuse_host_too_short"
    """More is in the host tier, but sooner computed than loaded."""

    SHARING_WAITS = "sharing_waits"
    """Another sequence computes its prefix."""
    SHARING_STALLED = "sharing_stalled"
    """It no longer waits: the other one made no progress."""
    SHARING_GONE = "sharing_gone"
    """It no longer waits: the other one stopped."""

    VICTIM_SWAPPED = "victim_swapped"
    """Its blocks go to the host tier when they are evicted."""
    VICTIM_RECOMPUTED = "victim_recomputed"
    """There is no host tier, or copies cost more than computing again."""


class BreakEven(Protocol):
    """Whether copies are quicker than computing, as measured. prefill_tokens_per_s: of now; 0 = not known,
    which leaves that of the start."""

    def worth_it(self, num_tokens: int, prefill_tokens_per_s: float) -> bool: ...

    def worth_swapping(self, num_tokens: int, prefill_tokens_per_s: float) -> bool: ...


class Precision(NamedTuple):
    """The first `num_full_blocks` blocks are FULL, all others QUANTIZED."""

    num_full_blocks: int
    reason: Reason


def precision(
    declared_tokens: int, *, is_quantizing: bool, block_size_tokens: int, most_full_tokens: int
) -> Precision:
    """How the tokens of a request are stored. declared_tokens: of its shared prefix; most_full_tokens: of
    one sequence, a constant of the flag set, so that the pool of FULL blocks can always hold them."""
    if not is_quantizing:
        return Precision(ALL_BLOCKS, Reason.PRECISION_ONE_FORMAT)
    if declared_tokens <= 0:
        return Precision(0, Reason.PRECISION_UNDECLARED)
    num_blocks = min(declared_tokens, most_full_tokens) // block_size_tokens
    if num_blocks == 0:
        return Precision(0, Reason.PRECISION_DECLARED_SHORT)
    if declared_tokens > most_full_tokens:
        return Precision(num_blocks, Reason.PRECISION_DECLARED_CUT)
    return Precision(num_blocks, Reason.PRECISION_DECLARED)


def refuses_reuse(*, is_caching: bool, has_prompt_logprobs: bool) -> Reason | None:
    """Why a sequence does not look anything up; None: it does."""
    if not is_caching:
        return Reason.REUSE_OFF
    if has_prompt_logprobs:
        return Reason.REUSE_PROMPT_LOGPROBS
    return None


def reuse(*, device_blocks: int, host_blocks: int, is_host_worth_it: bool) -> Reason:
    """What was found of a prompt, and where. `host_blocks`: behind those on the device."""
    if host_blocks:
        return Reason.REUSE_HOST if is_host_worth_it else Reason.REUSE_HOST_TOO_SHORT
    return Reason.REUSE_DEVICE if device_blocks else Reason.REUSE_MISS


def is_load_worth_it(num_tokens: int, break_even: BreakEven | None, prefill_tokens_per_s: float) -> bool:
    """True if so many tokens are sooner copied than computed. `break_even`: None = always."""
    return num_tokens > 0 and (break_even is None or break_even.worth_it(num_tokens, prefill_tokens_per_s))


def is_swap_worth_it(num_tokens: int, break_even: BreakEven | None, prefill_tokens_per_s: float) -> bool:
    """The same, copied out before."""
    return num_tokens > 0 and (
        break_even is None or break_even.worth_swapping(num_tokens, prefill_tokens_per_s)
    )


def victim(*, has_host_tier: bool, is_swap_worth_it: bool) -> Reason:
    """What becomes of the whole blocks of a preempted sequence."""
    return Reason.VICTIM_SWAPPED if has_host_tier and is_swap_worth_it else Reason.VICTIM_RECOMPUTED
