"""What was computed is found again: whole blocks, under its own salt, no more than the pool holds."""

from hypothesis import given
from hypothesis import strategies as st

from firsttoken_runtime.server.prefix_index import PrefixIndex

SIZE = 4
TEXT = list(range(100, 130))


def note(index: PrefixIndex, token_ids: list[int], salt: str = "", most_blocks: int = 100) -> None:
    index.note(token_ids, salt, block_size_tokens=SIZE, most_blocks=most_blocks)


def cached(index: PrefixIndex, token_ids: list[int], salt: str = "", size: int = SIZE) -> int:
    return index.cached_tokens(token_ids, salt, block_size_tokens=size)


def test_whole_blocks_are_found_and_one_token_is_always_computed() -> None:
    index = PrefixIndex()
    note(index, TEXT[:13])
    assert cached(index, TEXT[:13]) == 12
    assert cached(index, TEXT[:12]) == 8
    assert cached(index, TEXT) == 12
    assert cached(index, TEXT[:3]) == cached(index, []) == 0


def test_only_what_is_equal_from_the_start_is_found() -> None:
    index = PrefixIndex()
    note(index, TEXT)
    assert cached(index, [1, *TEXT]) == 0
    assert cached(index, [*TEXT[:9], 1, *TEXT[10:]]) == 8


def test_a_salt_finds_its_own() -> None:
    index = PrefixIndex()
    note(index, TEXT, "mine")
    assert cached(index, TEXT, "mine") == 28
    assert cached(index, TEXT) == cached(index, TEXT, "yours") == 0


def test_the_least_recently_used_is_forgotten_and_its_start_last() -> None:
    index = PrefixIndex()
    other = [token + 1000 for token in TEXT]
    note(index, TEXT[:24], most_blocks=8)
    note(index, other[:20], most_blocks=8)
    assert len(index) == 8
    assert cached(index, other) == 20
    assert cached(index, TEXT) == 12, "the deepest blocks of the older one made way"


def test_a_prompt_longer_than_the_pool_is_kept_as_far_as_it_goes() -> None:
    index = PrefixIndex()
    note(index, TEXT, most_blocks=3)
    assert cached(index, TEXT) == 12


def test_another_block_size_is_another_cache() -> None:
    index = PrefixIndex()
    note(index, TEXT)
    assert cached(index, TEXT, size=5) == 0
    index.note(TEXT, "", block_size_tokens=5, most_blocks=10)
    assert cached(index, TEXT, size=5) == 25
    index.clear()
    assert cached(index, TEXT, size=5) == 0


@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.integers(0, 3), max_size=40))
def test_never_more_than_the_common_start(one: list[int], other: list[int]) -> None:
    index = PrefixIndex()
    note(index, one)
    common = 0
    while common < min(len(one), len(other)) and one[common] == other[common]:
        common += 1
    assert cached(index, other) == min(common, max(len(other) - 1, 0)) // SIZE * SIZE
