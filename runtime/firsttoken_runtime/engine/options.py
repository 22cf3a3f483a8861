"""Resolving `auto` in the cold settings into the scheduler's limits. Pure."""

from firsttoken_runtime import core
from firsttoken_runtime.engine import flags
from firsttoken_runtime.scheduler import limits

CPU_STEP_TOKENS = 512
"""A step of this many tokens takes a fraction of a second on a core: decodes are not held up longer."""
GPU_STEP_TOKENS = 8192
PREFILL_PRIORITIES = ("normal", "low")


class BadOption(ValueError):  # noqa: N818
    """An option that cannot be honoured; the message names it."""


def scheduler_limits(
    settings: core.EngineSettings,
    in_force: flags.InForce,
    max_model_len: int,
    *,
    is_cpu: bool,
    max_full_tokens: int | None = None,
) -> limits.Limits:
    """max_full_tokens: what a layout allows a declared prefix to have in full precision. Raises BadOption."""
    batched = settings.max_num_batched_tokens
    if batched is None:
        batched = max(CPU_STEP_TOKENS if is_cpu else GPU_STEP_TOKENS, settings.max_num_seqs)
    for option, value in (
        ("--max-num-seqs", settings.max_num_seqs),
        ("--max-prefill-batch", settings.max_prefill_batch),
        ("--block-size", settings.block_size_tokens),
    ):
        if value < 1:
            raise BadOption(f"{option} is {value}, at least 1 is needed")
    if batched < settings.max_num_seqs:
        raise BadOption(
            f"--max-num-batched-tokens {batched} is below --max-num-seqs {settings.max_num_seqs}; "
            "every running sequence needs a token a step"
        )
    if settings.prefill_priority not in PREFILL_PRIORITIES:
        allowed = ", ".join(PREFILL_PRIORITIES)
        raise BadOption(f"--prefill-priority is {settings.prefill_priority!r}, it is one of {allowed}")
    return limits.Limits(
        max_model_len=max_model_len,
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=batched,
        max_prefill_batch=settings.max_prefill_batch,
        continuous_batching=in_force.continuous_batching,
        chunk_tokens=in_force.chunk_tokens,
        priority=in_force.priority,
        length_control=in_force.length_control,
        prefill_only_when_idle=settings.prefill_priority == "low",
        tpot_p95_s=in_force.tpot_p95_s,
        in_flight_sharing=in_force.prefix_cache is not None,
        prefix_affinity_max_wait_s=in_force.affinity_max_wait_s,
        max_full_tokens=max_full_tokens,
    )
