import random

import pytest

from firsttoken_runtime.bench import lengths

MIXTURE = lengths.Mixture(lengths.Uniform(32, 128), lengths.Uniform(512, 768), rare_share=0.10)


def test_a_share_is_exact_and_spread_over_the_draws():
    drawn = lengths.draw_many(MIXTURE, random.Random(3), 120)
    long = [place for place, length in enumerate(drawn) if length >= 512]
    assert len(drawn) == 120
    assert len(long) == 12
    assert long != list(range(12))
    assert all(32 <= length <= 128 or 512 <= length <= 768 for length in drawn)


def test_a_seed_is_the_same_lengths():
    assert lengths.draw_many(MIXTURE, random.Random(5), 33) == lengths.draw_many(
        MIXTURE, random.Random(5), 33
    )
    assert lengths.draw_many(MIXTURE, random.Random(5), 33) != lengths.draw_many(
        MIXTURE, random.Random(6), 33
    )


def test_a_long_tail_keeps_its_median_and_its_bounds():
    tail = lengths.LogNormal(median=64, sigma=1.0, low=8, high=768)
    drawn = sorted(lengths.draw_many(tail, random.Random(1), 4001))
    assert drawn[2000] == pytest.approx(64, rel=0.1)
    assert drawn[0] >= 8
    assert drawn[-1] <= 768
    # One standard deviation above: 16 % of all draws are over median x e.
    assert drawn[int(0.84 * 4001)] == pytest.approx(64 * 2.718, rel=0.15)
