"""Builders: requests that come to a block pool, are computed, and go."""

from collections.abc import Sequence

from firsttoken_runtime.cache import blocks, keys, prefix
from firsttoken_runtime.cache.formats import Counts, Format

SIZE = 4
ROOT = keys.root(b"lineage", "")


def pool(
    num_full: int = 20,
    num_quantized: int = 0,
    *,
    most: float = 1.0,
    protected: float = 0.8,
    reserved: int = 0,
) -> blocks.Pool:
    caching = blocks.Caching(most, protected, Counts(reserved, reserved))
    return blocks.Pool(num_full, SIZE, num_quantized=num_quantized, caching=caching)


def prompt(number: int, num_blocks: int, *, shared: int = 0) -> list[int]:
    """Tokens of so many whole blocks and one token more; the first `shared` blocks are everybody's."""
    return [1] * (shared * SIZE) + [number] * ((num_blocks - shared) * SIZE) + [0]


def formats(num_full: int, num_blocks: int) -> list[Format]:
    return [Format.FULL if index < num_full else Format.QUANTIZED for index in range(num_blocks)]


def path(token_ids: list[int], num_full: int = 1000) -> list[bytes]:
    """The keys of its whole blocks."""
    chain = keys.Chain(ROOT, SIZE)
    count = len(token_ids) // SIZE
    return [chain.key(token_ids, i, fmt) for i, fmt in enumerate(formats(num_full, count))]


def found(one: blocks.Pool, token_ids: list[int], num_full: int = 1000) -> list[int]:
    chosen = formats(num_full, len(token_ids))
    return prefix.longest(one, keys.Chain(ROOT, SIZE), token_ids, chosen.__getitem__)


def admit(one: blocks.Pool, token_ids: list[int], num_full: int = 1000) -> list[int]:
    """-> its block table: what is found is held, the rest is new."""
    table = found(one, token_ids, num_full)
    one.hold(table)
    for fmt in formats(num_full, one.blocks_for(len(token_ids)))[len(table) :]:
        table += one.allocate(1, fmt)
    return table


def publish(one: blocks.Pool, token_ids: list[int], table: list[int], num_full: int = 1000) -> int:
    """Its whole blocks are computed. -> how many became findable, or were."""
    parent, count = ROOT, 0
    for index, key in enumerate(path(token_ids, num_full)):
        tokens = token_ids[index * SIZE : (index + 1) * SIZE]
        count += one.publish(table[index], key, parent, tokens)
        parent = key
    return count


def serve(
    one: blocks.Pool, token_ids: list[int], num_full: int = 1000, held: Sequence[int] = ()
) -> list[int]:
    """A request comes, is computed, and goes, while others hold `held`. -> the blocks it found."""
    hits = found(one, token_ids, num_full)
    table = admit(one, token_ids, num_full)
    publish(one, token_ids, table, num_full)
    one.check_integrity([*held, *table])
    one.release(table)
    one.check_integrity(held)
    return hits
