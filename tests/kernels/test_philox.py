"""Philox4x32-10 against the known answers of Random123, and what the uniforms must not depend on."""

import numpy as np
import pytest

from firsttoken_kernels import philox

# kat_vectors of Random123: counter, key, result.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        (0xFFFFFFFF, 0xFFFFFFFF),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...]) -> None:
    words = [np.array([word], dtype=np.uint64) for word in (*counter, *key)]
    result = philox.philox4x32((words[0], words[1], words[2], words[3]), (words[4], words[5]))
    assert tuple(int(word[0]) for word in result) == expected


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    together = philox.uniforms([1, 2**63 - 1, -5], [0, 0, 1], [0, 7, 2**40])
    alone = [philox.uniforms([1], [0], [0])[0], philox.uniforms([2**63 - 1], [0], [7])[0]]
    assert together[:2].tolist() == alone


def test_uniforms_are_spread_over_0_to_1() -> None:
    drawn = philox.uniforms([3] * 20_000, [0] * 20_000, list(range(20_000)))
    counts, _ = np.histogram(drawn, bins=20, range=(0.0, 1.0))
    assert drawn.min() >= 0.0
    assert drawn.max() < 1.0
    chi_square = float(((counts - 1000) ** 2 / 1000).sum())
    assert chi_square < 43.8  # 19 degrees of freedom, P = 0.001
    assert len(set(philox.uniforms([4, 5, 4, 4], [0, 0, 1, 0], [0, 0, 0, 1]).tolist())) == 4
