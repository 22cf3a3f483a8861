"""The longest prefix that is found, at every length around whole blocks."""

import pytest

from firsttoken_runtime.cache import blocks, keys, prefix
from firsttoken_runtime.cache.block import Block
from firsttoken_runtime.cache.formats import Format

SIZE = 4
ROOT = keys.root(b"lineage", "")
PROMPT = list(range(100, 100 + 4 * SIZE))


def quantized_after(num_full: int) -> list[Format]:
    return [Format.FULL if i < num_full else Format.QUANTIZED for i in range(9)]


def pool_with(
    token_ids: list[int], *, num_full: int = 9, root: bytes = ROOT
) -> tuple[blocks.Pool, list[int]]:
    """A pool that a request with these tokens has left, and the ids of its whole blocks."""
    pool = blocks.Pool(8, SIZE, num_quantized=8, caching=blocks.Caching(1.0))
    chain, formats, table = keys.Chain(root, SIZE), quantized_after(num_full), []
    for index in range(len(token_ids) // SIZE):
        table += pool.allocate(1, formats[index])
        key = chain.key(token_ids, index, formats[index])
        assert pool.publish(table[-1], key, chain.parent(index), token_ids[index * SIZE : (index + 1) * SIZE])
    pool.release(table)
    pool.check_integrity()
    return pool, table


def longest(pool: blocks.Pool, token_ids: list[int], *, num_full: int = 9, root: bytes = ROOT) -> list[int]:
    return prefix.longest(pool, keys.Chain(root, SIZE), token_ids, quantized_after(num_full).__getitem__)


@pytest.mark.parametrize(
    ("num_tokens", "expected"),
    [(0, 0), (1, 0), (SIZE - 1, 0), (SIZE, 0), (SIZE + 1, 1), (2 * SIZE, 1), (2 * SIZE + 1, 2)],
)
def test_one_token_at_least_is_computed(num_tokens: int, expected: int) -> None:
    """A prompt of whole blocks that is found whole would leave a step without a query."""
    assert prefix.whole_blocks(num_tokens, SIZE) == expected
    pool, table = pool_with(PROMPT)
    assert longest(pool, PROMPT[:num_tokens]) == table[:expected]


@pytest.mark.parametrize("changed", range(len(PROMPT)))
def test_the_prefix_ends_before_the_first_other_token(changed: int) -> None:
    pool, table = pool_with(PROMPT)
    other = [*PROMPT, 7]
    other[changed] += 1
    assert longest(pool, other) == table[: changed // SIZE]


def test_nothing_is_found_under_another_salt_or_lineage() -> None:
    pool, table = pool_with(PROMPT)
    assert longest(pool, [*PROMPT, 7]) == table
    assert longest(pool, [*PROMPT, 7], root=keys.root(b"lineage", "tenant")) == []
    assert longest(pool, [*PROMPT, 7], root=keys.root(b"other", "")) == []


def test_a_block_is_found_in_the_format_it_is_asked_for() -> None:
    pool, table = pool_with(PROMPT, num_full=2)
    assert longest(pool, [*PROMPT, 7], num_full=2) == table
    assert longest(pool, [*PROMPT, 7], num_full=1) == table[:1]
    assert longest(pool, [*PROMPT, 7], num_full=3) == table[:2]


def test_equal_keys_of_other_tokens_are_no_hit_and_are_counted() -> None:
    pool, table = pool_with(PROMPT)
    key = keys.chain(ROOT, PROMPT[:SIZE], Format.FULL)
    assert pool.find(key, PROMPT[:SIZE]) == table[0]
    assert pool.find(key, [1, 2, 3, 4]) is None
    assert pool.key_mismatches_total == 1


def test_what_comes_and_goes_changes_the_version() -> None:
    pool, _ = pool_with(PROMPT)
    before = pool.findable_version
    longest(pool, PROMPT)
    assert pool.findable_version == before
    pool.forget_all()
    assert pool.num_findable == 0
    assert pool.findable_version != before


def named(block_id: int, key: bytes, parent_key: bytes) -> Block:
    block = Block(block_id, Format.FULL)
    block.name(key, parent_key, [block_id])
    return block


def test_children_are_known_though_their_parent_comes_later() -> None:
    index = prefix.Index()
    child, sibling, parent = named(0, b"c", b"p"), named(1, b"s", b"p"), named(2, b"p", b"r")
    assert index.add(child) is None
    assert index.add(parent) is None
    assert index.has_children(b"p")
    assert index.add(sibling) is parent
    assert index.remove(child) is None
    assert index.remove(sibling) is parent
    assert not index.has_children(b"p")
    assert index.add(child) is parent
    index.check_integrity([child, parent])


def test_ends_come_first_whatever_was_published_first() -> None:
    index = prefix.Index()
    chain = [named(i, bytes([i + 1]), bytes([i])) for i in range(4)]
    for position in (2, 0, 3, 1):
        index.add(chain[position])
    assert index.leaves_first() == chain[::-1]
    index.remove(chain[1])
    assert {block.block_id for block in index.leaves_first()} == {0, 2, 3}
