"""How many slots the KV cache gets, and how they are cut into blocks. Pure arithmetic on facts.

The bytes for the cache are what is left of `memory_fraction` of the memory after weights and a
reserve for the process itself and its activations. On a CPU the automatic size is also capped by what
can ever be in use (`max_num_seqs` full contexts) and by `CPU_CAP_BYTES`: the memory is shared with
whatever else the machine does.
"""

import math
from dataclasses import dataclass

MIB = 1024**2
RESERVE_BYTES = 600 * MIB
"""The interpreter, the libraries and the activations of one step."""
CPU_CAP_BYTES = 4096 * MIB
FLOOR_TOKENS = 256
"""With `max_model_len` automatic, a pool below this is no use to anybody."""


@dataclass(frozen=True)
class Facts:
    """What the size is decided from."""

    memory_limit_bytes: int
    """Device memory, or the smaller of the machine's and the cgroup's."""
    available_bytes: int
    """Of it, what nobody uses yet, before the weights are loaded."""
    memory_fraction: float
    weight_bytes: int
    kv_bytes_per_token: int
    trained_length: int
    max_num_seqs: int
    block_size_tokens: int
    max_model_len: int | None
    """None = automatic: as long as trained and as fits."""
    kv_blocks: int | None
    """None = automatic."""
    is_cpu: bool


@dataclass(frozen=True)
class Size:
    """The cache to allocate."""

    num_slots: int
    max_model_len: int


class NotEnough(Exception):  # noqa: N818
    """The model does not fit; the message says what is needed and which option to change."""


class TooLong(Exception):  # noqa: N818
    """A context longer than the model was trained for was asked for."""


def decide(facts: Facts) -> Size:
    """Raises NotEnough or TooLong."""
    budget = min(int(facts.memory_limit_bytes * facts.memory_fraction), facts.available_bytes)
    left = budget - facts.weight_bytes - RESERVE_BYTES
    shortest = facts.max_model_len or min(facts.trained_length, FLOOR_TOKENS)
    if facts.max_model_len is not None and facts.max_model_len > facts.trained_length:
        raise TooLong(
            f"--max-model-len {facts.max_model_len} is above the {facts.trained_length} tokens the model was "
            "trained for; lower --max-model-len"
        )
    if facts.kv_blocks is not None:
        num_slots = facts.kv_blocks * facts.block_size_tokens
        if num_slots < shortest:
            raise NotEnough(
                f"--kv-blocks {facts.kv_blocks} of {facts.block_size_tokens} tokens hold {num_slots} tokens, "
                f"one sequence may need {shortest}; raise --kv-blocks or lower --max-model-len"
            )
        needed = num_slots * facts.kv_bytes_per_token
        if needed > left:
            raise NotEnough(_too_little(facts, needed, "lower --kv-blocks"))
    else:
        num_slots = max(left, 0) // facts.kv_bytes_per_token
        if facts.is_cpu:
            longest = facts.max_model_len or facts.trained_length
            at_most = max(CPU_CAP_BYTES // facts.kv_bytes_per_token, shortest)
            num_slots = min(num_slots, facts.max_num_seqs * longest, at_most)
        if num_slots < shortest:
            raise NotEnough(_too_little(facts, shortest * facts.kv_bytes_per_token, "lower --max-model-len"))
    # A whole number of blocks at least as long as the longest sequence.
    longest = facts.max_model_len or min(facts.trained_length, num_slots)
    block = facts.block_size_tokens
    num_slots = max(num_slots // block, -(-longest // block)) * block
    return Size(num_slots, longest)


def _too_little(facts: Facts, kv_bytes: int, or_else: str) -> str:
    needed = facts.weight_bytes + RESERVE_BYTES + kv_bytes
    budget = min(int(facts.memory_limit_bytes * facts.memory_fraction), facts.available_bytes)
    return (
        f"needs {_mib(needed)} (weights {_mib(facts.weight_bytes)}, KV cache {_mib(kv_bytes)}, "
        f"reserve {_mib(RESERVE_BYTES)}) but may use {_mib(budget)}: --memory-fraction "
        f"{facts.memory_fraction:.2f} of {_mib(facts.memory_limit_bytes)}, {_mib(facts.available_bytes)} "
        f"available; give it more memory (spec.resources.memory), raise --memory-fraction or {or_else}"
    )


def _mib(num_bytes: int) -> str:
    return f"{-(-num_bytes // MIB)} MiB"


def reference_blocks(peak_concurrency: int, mean_length_tokens: float, block_size_tokens: int) -> int:
    """Blocks that the published formula asks for: peak concurrency x mean length / block size.

    It counts the tokens that are live when everybody is at the mean; what is in force is sized from memory.
    """
    return math.ceil(peak_concurrency * mean_length_tokens / block_size_tokens)


def partition(num_slots: int, block_size_tokens: int, max_model_len: int, *, paged: bool) -> tuple[int, int]:
    """(blocks, tokens per block) of the same slots; not paged = one block holds the longest sequence."""
    size = block_size_tokens if paged else max_model_len
    return num_slots // size, size
