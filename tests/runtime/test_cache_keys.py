"""Keys of blocks: equal for equal beginnings under equal numerics, else different."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_runtime.cache import keys
from firsttoken_runtime.cache.formats import Format

ROOT = keys.root(b"lineage", "")
TOKENS = [5, 0, 7, 3_000_000_000, 7, 7, 1]


def test_a_key_is_the_same_in_every_process() -> None:
    """Keys are in files that another process reads."""
    assert ROOT.hex() == "52264ec803ec02b2b2471278e38be80dfe6014a1892b2ba137a0476c7fc386a0"
    assert (
        keys.chain(ROOT, [1, 2, 3], Format.QUANTIZED).hex()
        == "e7ee671e459f8494f08ddb4fa21f674afee4cdea0c14ca8905f4a7491ac4c48b"
    )


def test_what_a_root_depends_on() -> None:
    roots = [keys.root(b"a", "b"), keys.root(b"b", "b"), keys.root(b"a", "c"), keys.root(b"ab", ""), ROOT]
    assert len(set(roots)) == len(roots)


@pytest.mark.parametrize(
    ("parent", "tokens", "fmt"),
    [
        (keys.root(b"other", ""), [1, 2, 3], Format.FULL),
        (keys.root(b"lineage", "tenant"), [1, 2, 3], Format.FULL),
        (ROOT, [1, 2, 4], Format.FULL),
        (ROOT, [2, 1, 3], Format.FULL),
        (ROOT, [1, 2], Format.FULL),
        (ROOT, [1, 2, 3], Format.QUANTIZED),
    ],
)
def test_what_a_key_depends_on(parent: bytes, tokens: list[int], fmt: Format) -> None:
    assert keys.chain(parent, tokens, fmt) != keys.chain(ROOT, [1, 2, 3], Format.FULL)


def test_a_chain_is_the_links_one_after_the_other() -> None:
    chain = keys.Chain(ROOT, 3)
    first = keys.chain(ROOT, TOKENS[:3], Format.FULL)
    second = keys.chain(first, TOKENS[3:6], Format.QUANTIZED)
    assert chain.key(TOKENS, 0, Format.FULL) == first
    assert chain.key(TOKENS, 1, Format.QUANTIZED) == second
    assert (chain.parent(0), chain.parent(1)) == (ROOT, first)


def test_a_chain_may_begin_with_what_is_everybody_s() -> None:
    first = keys.chain(ROOT, TOKENS[:2], Format.QUANTIZED)
    salted = keys.root(first, "tenant")
    chain = keys.Chain(salted, 2, [(first, Format.QUANTIZED)])
    assert chain.key(TOKENS, 0, Format.QUANTIZED) == first
    assert chain.key(TOKENS, 1, Format.QUANTIZED) == keys.chain(salted, TOKENS[2:4], Format.QUANTIZED)
    assert chain.key(TOKENS, 2, Format.QUANTIZED) == keys.chain(
        chain.parent(2), TOKENS[4:6], Format.QUANTIZED
    )
    assert (chain.num_public, chain.parent(1), chain.parent(2)) == (
        1,
        salted,
        chain.key(TOKENS, 1, Format.QUANTIZED),
    )
    assert chain.key(TOKENS, 1, Format.QUANTIZED) not in (
        keys.chain(first, TOKENS[2:4], Format.QUANTIZED),
        keys.chain(keys.root(first, "other"), TOKENS[2:4], Format.QUANTIZED),
    )


@given(st.lists(st.integers(0, 2**32 - 1), max_size=20), st.integers(1, 5), st.data())
def test_a_chain_may_be_asked_in_any_order_while_tokens_come(
    token_ids: list[int], size: int, data: st.DataObject
) -> None:
    expected, parent = [], ROOT
    for index in range(len(token_ids) // size):
        parent = keys.chain(parent, token_ids[index * size : (index + 1) * size], Format.FULL)
        expected.append(parent)
    chain = keys.Chain(ROOT, size)
    if expected:
        for index in data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=9)):
            known = data.draw(st.integers((index + 1) * size, len(token_ids)))
            assert chain.key(token_ids[:known], index, Format.FULL) == expected[index]


def test_a_block_that_is_not_whole_has_no_key() -> None:
    with pytest.raises(AssertionError):
        keys.Chain(ROOT, 4).key(TOKENS, 1, Format.FULL)


def test_a_block_has_one_format() -> None:
    chain = keys.Chain(ROOT, 3)
    chain.key(TOKENS, 0, Format.FULL)
    with pytest.raises(AssertionError, match="two formats"):
        chain.key(TOKENS, 0, Format.QUANTIZED)
