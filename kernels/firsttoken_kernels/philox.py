"""Philox4x32-10: counter-based random numbers (Salmon et al., SC 2011), vectorised over rows.

One uniform for each (seed, choice, position). There is no state to carry, so neither preemption nor
neighbours in the batch can shift what a sequence draws. NumPy, because 32-bit wrap-around is exact
there and the work is a few numbers a step.
"""

import numpy as np
from numpy.typing import NDArray

_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = 0x9E3779B9, 0xBB67AE85
_MASK = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_ROUNDS = 10

Words = NDArray[np.uint64]
"""32-bit words held in 64 bits, so that products do not overflow."""


def philox4x32(counter: tuple[Words, Words, Words, Words], key: tuple[Words, Words]) -> tuple[Words, ...]:
    """Ten rounds. Four counter words and two key words -> four random words, element by element."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for round_ in range(_ROUNDS):
        if round_:
            k0, k1 = (k0 + np.uint64(_WEYL_0)) & _MASK, (k1 + np.uint64(_WEYL_1)) & _MASK
        product_0, product_1 = _MULTIPLIER_0 * c0, _MULTIPLIER_1 * c2
        c0, c1, c2, c3 = (
            (product_1 >> _SHIFT) ^ c1 ^ k0,
            product_1 & _MASK,
            (product_0 >> _SHIFT) ^ c3 ^ k1,
            product_0 & _MASK,
        )
    return c0, c1, c2, c3


def uniforms(seeds: list[int], choices: list[int], positions: list[int]) -> NDArray[np.float64]:
    """One number in [0, 1) a row, of 53 random bits.

    Key = the low 64 bits of the seed (negative seeds wrap), counter = (position, choice).
    """
    keys = np.array([seed & 0xFFFF_FFFF_FFFF_FFFF for seed in seeds], dtype=np.uint64)
    position = np.array(positions, dtype=np.uint64)
    choice = np.array(choices, dtype=np.uint64)
    zero = np.zeros_like(keys)
    word_0, word_1, _, _ = philox4x32(
        (position & _MASK, position >> _SHIFT, choice & _MASK, zero), (keys & _MASK, keys >> _SHIFT)
    )
    bits = ((word_0 << _SHIFT) | word_1) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53
