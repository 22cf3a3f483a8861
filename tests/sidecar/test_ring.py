"""Homes are alike everywhere, move little, and are shared out evenly."""

import subprocess
import sys
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from firsttoken_sidecar import ring

KEYS = [f"key {i}".encode() for i in range(3_000)]
MEMBERS = [f"10.1.{i}.{i * 7 % 250}" for i in range(1, 8)]
members = st.lists(st.sampled_from(MEMBERS), min_size=1, unique=True)


def test_order_of_members_does_not_matter() -> None:
    there = ring.Ring(MEMBERS)
    back = ring.Ring(reversed(MEMBERS))
    assert [there.home(key, MEMBERS) for key in KEYS] == [back.home(key, MEMBERS) for key in KEYS]


def test_another_process_finds_the_same_home() -> None:
    code = f"from firsttoken_sidecar import ring; print(ring.Ring({MEMBERS}).home(b'key 5', {MEMBERS}))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == ring.Ring(MEMBERS).home(b"key 5", MEMBERS)


def test_shares_are_even() -> None:
    homes = Counter(ring.Ring(MEMBERS[:4]).home(key, MEMBERS) for key in KEYS)
    assert len(homes) == 4
    assert max(homes.values()) < 1.5 * len(KEYS) / 4


@given(members, st.binary(max_size=20))
def test_who_leaves_moves_only_its_own_keys(those: list[str], key: bytes) -> None:
    whole = ring.Ring(those)
    home = whole.home(key, those)
    for gone in those:
        rest = [each for each in those if each != gone]
        moved = whole.home(key, rest)
        assert moved == ring.Ring(rest).home(key, rest)
        assert gone == home or moved == home


def test_without_an_eligible_member_there_is_no_home() -> None:
    assert ring.Ring(MEMBERS).home(b"key", ["10.9.9.9"]) is None
    assert ring.Ring(()).home(b"key", MEMBERS) is None
