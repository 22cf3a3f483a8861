"""Requests that share a prefix are brought together: those whose prefix is cached come first in their line.

While a prefix is cached, computing another prompt instead may evict it, and then it is computed twice. So
among the next WINDOW prompts of one class and priority, those come first of which a good part is cached:
the declared shared prefix, or else half of the prompt. That bounds itself: **once a prompt has been passed
over for `max_wait_s`, nobody behind it in the line comes before it any more.**
"""

from collections.abc import Callable

from firsttoken_runtime.cache import prefix
from firsttoken_runtime.scheduler.sequence import Sequence

WINDOW = 32
"""Prompts that are looked at in a step."""


def index(sequence: Sequence, block_size_tokens: int) -> int | None:
    """The block by which it is judged; None = it has nothing to share."""
    if not sequence.reads_cache:
        return None
    most = prefix.whole_blocks(sequence.num_tokens, block_size_tokens)
    declared = min(sequence.shared_prefix_tokens // block_size_tokens, most)
    num_blocks = declared or (sequence.num_tokens // 2) // block_size_tokens
    return num_blocks - 1 if num_blocks else None


def arrange(
    in_line: list[Sequence], is_cached: Callable[[Sequence], bool], max_wait_s: float, now: float
) -> list[Sequence]:
    """The same prompts in the order in which they are to be considered. `in_line`: by rank."""
    if len(in_line) < 2:
        return in_line
    first: list[Sequence] = []
    others: list[Sequence] = []
    line = in_line[0].rank[:3]
    for position, sequence in enumerate(in_line):
        if sequence.rank[:3] != line or _is_due(sequence, max_wait_s, now):
            return first + others + in_line[position:]
        (first if is_cached(sequence) else others).append(sequence)
    return first + others


def _is_due(sequence: Sequence, max_wait_s: float, now: float) -> bool:
    since_s = sequence.passed_over_since_s
    return since_s is not None and now - since_s >= max_wait_s


def note_passed_over(in_line: list[Sequence], admitted: Callable[[Sequence], bool], now: float) -> None:
    """After a step: those in front of somebody who was admitted. `in_line`: by rank."""
    passed: list[Sequence] = []
    for sequence in in_line:
        if not admitted(sequence):
            passed.append(sequence)
            continue
        for one in passed:
            if one.passed_over_since_s is None:
                one.passed_over_since_s = now
        passed.clear()
