import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_sidecar import stamp_filter

FIRST = b': firsttoken-first {"prompt_tokens":3}\n\n'
END = b': firsttoken-end {"completion_tokens":2}\n\n'
TEXT = b'data: {"choices":[{"delta":{"content":"a: firsttoken-first {}"}}]}\n\n'
DONE = b"data: [DONE]\n\n"

PIECES = st.sampled_from(
    [
        FIRST,
        END,
        TEXT,
        DONE,
        b": keep-alive\n\n",
        b": firsttoken-first\n\n",
        b": firsttoken-else {}\n\n",
        b": firsttoken-first {}\n",
        b": firsttoken-end {} \n\n",
        b": firsttoken-",
        b": fir",
        b":",
        b"\n",
        b"\r\n",
        b"\n\n",
        b"x",
        b" {}",
        "ö€\U0001f600".encode(),
    ]
)


def passed(chunks: list[bytes]) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    made = stamp_filter.StampFilter()
    found = b"".join([*map(made.feed, chunks), made.finish()])
    return found, made.taken


def expected(stream: bytes) -> bytes:
    """The same in one look at the whole: stamps at the start of a line, a cut-off one at the end as well."""
    whole = re.sub(rb"(?:(?<=\n)|\A): firsttoken-(?:first|end) \{[^\r\n]*\}\n\n", b"", stream)
    # Where one was removed a line starts, whatever now stands before it; so look for the cut one in the raw.
    cut = re.search(rb"(?:(?<=\n)|\A): firsttoken-(?:[^\r\n]*|(?:first|end) \{[^\r\n]*\}\n)\Z", stream)
    return whole[: len(whole) - len(cut[0])] if cut else whole


def test_stamps_are_taken_out_and_nothing_else() -> None:
    stream = TEXT + FIRST + TEXT + END + DONE
    found, taken = passed([stream])
    assert found == TEXT + TEXT + DONE
    assert taken == [(b"first", b'{"prompt_tokens":3}'), (b"end", b'{"completion_tokens":2}')]


def test_byte_by_byte() -> None:
    stream = FIRST + TEXT + END + DONE
    found, taken = passed([stream[i : i + 1] for i in range(len(stream))])
    assert found == TEXT + DONE
    assert [kind for kind, _ in taken] == [stamp_filter.FIRST, stamp_filter.END]


def test_other_bytes_are_not_held_back() -> None:
    made = stamp_filter.StampFilter()
    for chunk in (TEXT[:20], TEXT[20:], b": keep-alive\n\n", b"data: :", b"\n\n"):
        assert made.feed(chunk) == chunk
    assert made.feed(b": first") == b""
    assert made.feed(b"ly\n") == b": firstly\n"


def test_a_chunk_that_passes_is_the_same_object() -> None:
    made = stamp_filter.StampFilter()
    assert made.feed(TEXT) is TEXT


@pytest.mark.parametrize("ending", [b": fi", b":", b": firsttoken"])
def test_what_was_no_stamp_comes_at_the_end(ending: bytes) -> None:
    assert passed([TEXT, ending]) == (TEXT + ending, [])


@pytest.mark.parametrize("cut", range(len(b": firsttoken-"), len(FIRST)))
def test_a_stamp_that_was_cut_off_does_not_show(cut: int) -> None:
    assert passed([TEXT + FIRST[:cut]]) == (TEXT, [])


def test_an_endless_line_is_not_kept() -> None:
    made = stamp_filter.StampFilter()
    sent = b": firsttoken-first {" + b"x" * 3 * stamp_filter.LONGEST_BYTES
    got = b"".join(made.feed(sent[i : i + 1000]) for i in range(0, len(sent), 1000))
    assert sent.startswith(got)
    assert len(got) > stamp_filter.LONGEST_BYTES


@given(st.lists(PIECES, max_size=12), st.lists(st.integers(0, 400), max_size=12))
def test_every_split_of_every_stream_gives_the_same(pieces: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(pieces)
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[a:b] for a, b in itertools.pairwise(places)]
    found, taken = passed(chunks)
    assert (found, taken) == passed([stream])
    assert found == expected(stream)
