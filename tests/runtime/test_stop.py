"""Stop strings: cut where a reader of the whole text would cut, hold back no more than needed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_runtime.server.stop import StopMatcher


def _run(pieces: list[str], stops: tuple[str, ...], include_stop: bool = False) -> tuple[str, str | None]:
    matcher = StopMatcher(stops, include_stop)
    shown = ""
    for piece in pieces:
        match = matcher.feed(piece)
        shown += match.text
        if match.stop is not None:
            return shown, match.stop
    return shown + matcher.flush(), None


@pytest.mark.parametrize(
    ("pieces", "stops", "shown", "stop"),
    [
        (["abc"], (), "abc", None),
        (["ab", "cd", "ef"], ("cd",), "ab", "cd"),
        (["ab", "c", "d", "ef"], ("cd",), "ab", "cd"),
        (["a", "a", "a", "b"], ("aab",), "a", "aab"),
        (["abc"], ("b", "bc"), "a", "b"),
        (["xxab"], ("ab", "xa"), "x", "xa"),
        (["ends with c"], ("cd",), "ends with c", None),
        (["\n", "\n"], ("\n\n",), "", "\n\n"),
    ],
)
def test_where_the_text_is_cut(pieces, stops, shown, stop):
    assert _run(pieces, stops) == (shown, stop)


def test_the_stop_is_kept_when_asked_for():
    assert _run(["ab", "c", "d", "ef"], ("cd",), include_stop=True) == ("abcd", "cd")


def test_only_a_possible_beginning_is_held_back():
    matcher = StopMatcher(("<end>",))
    assert matcher.feed("hello").text == "hello"
    assert matcher.feed(" <en").text == " "
    assert matcher.feed("ough").text == "<enough"


@given(
    st.lists(st.text("ab", max_size=4), max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3).map(tuple),
)
def test_pieces_and_whole_text_agree(pieces, stops):
    whole = "".join(pieces)
    shown, stop = _run(pieces, stops)
    by_letter, _ = _run(list(whole), stops)
    assert whole.startswith(shown)
    if stop is None:
        assert shown == whole
        assert not any(one in whole for one in stops)
    else:
        assert whole[len(shown) :].startswith(stop)
        assert len(shown) <= len(by_letter) + max(len(one) for one in stops)
