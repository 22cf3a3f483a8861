"""What was computed is known by its prefixes; how much of it is found is learned."""

import pytest

from firsttoken_sidecar.seen_prefixes import SeenPrefixes

KEYS = tuple(b"%d" % number for number in range(9))


def test_a_prompt_is_known_as_far_as_it_was_seen() -> None:
    one = SeenPrefixes()
    assert one.seen_pieces(KEYS) == 0
    one.note(KEYS[:5])
    assert one.seen_pieces(KEYS) == 5
    assert one.seen_pieces(KEYS[:3]) == 3
    assert one.seen_pieces((b"other", *KEYS[1:])) in range(9), "chained keys differ from the start on"
    assert one.seen_pieces(()) == 0


def test_the_start_of_what_is_used_is_kept_longest() -> None:
    one = SeenPrefixes(most_keys=4)
    one.note(KEYS[:4])
    one.note((b"a", b"b"))
    assert one.seen_pieces(KEYS) == 2
    assert one.seen_pieces((b"a", b"b", b"c")) == 2


def test_trust_follows_what_is_found() -> None:
    one = SeenPrefixes()
    for _ in range(100):
        one.found(1000, 250)
    assert one.trust == pytest.approx(0.25, abs=0.02)
    one.found(0, 5)
    for _ in range(100):
        one.found(10, 5000)
    assert one.trust == pytest.approx(1.0, abs=0.02)
