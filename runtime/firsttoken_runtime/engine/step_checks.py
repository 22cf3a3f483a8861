"""What the loop notes and asserts of a step between its copies and its forward pass."""

from firsttoken_runtime.cache import blocks
from firsttoken_runtime.scheduler.sequence import ScheduledStep


def note_loaded(step: ScheduledStep, now: float) -> None:
    """The copies of this step were issued: what they bring is not waited for any longer."""
    if not step.loads:
        return
    for work in step.prefills:
        if work.sequence.cached_tokens_by_tier["host"]:
            work.sequence.note_loaded(now)


def assert_writable(step: ScheduledStep, pool: blocks.Pool) -> None:
    """No slot that is written may lie in a block that others see: one that is findable, or shared."""
    if not __debug__:
        return
    size = pool.block_size_tokens
    for work in step.work:
        first, last = work.first_token // size, (work.first_token + work.num_tokens - 1) // size
        for block_id in work.sequence.block_table[first : last + 1]:
            assert pool.is_writable(block_id), f"block {block_id} of {work.sequence} is not its own"
