"""Quantized KV as data, and measured with a tiny random model."""

import math
import random

import pytest

from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import kv, kv_engine, kv_report
from runtime import tiny_model
from runtime.bench_results import context


def passage(full: float, int8: float, fp8: float = 10.0, tokens: int = 10) -> kv.Passage:
    return kv.Passage(tokens, {"full": full, "int8": int8, "fp8": fp8})


def layer(index: int, mean: float = 0.01, p999: float = 0.05, largest: float = 0.5, l2: float = 0.02):
    return kv.Layer(index, mean, p999, largest, l2, 100)


SMALL = kv.Bytes(548, 1000, 1.82, "A sentence.", 800)


def test_perplexity_is_over_all_tokens():
    passages = [passage(20.0, 20.0), passage(10.0, 10.0, tokens=30)]
    assert kv.perplexity(passages, "full") == pytest.approx(math.exp(30 / 40))
    assert kv.perplexity([], "full") is None
    assert kv.change([passage(20.0, 20.1)], "int8") == pytest.approx(math.exp(0.01) - 1)


def test_a_change_either_way_misses_the_bar():
    def reached(int8: float) -> bool | None:
        return kv.judge([passage(20.0, int8)] * 8, {}, {})[2].is_reached

    assert [reached(value) for value in (20.0, 20.04, 20.06, 19.94)] == [True, True, False, False]


def test_the_worst_layer_is_judged():
    good = kv.judge([passage(20.0, 20.0)] * 200, {"int8": SMALL}, {"int8": [layer(0), layer(1)]})
    assert [one.is_reached for one in good] == [True] * 7
    assert good[0].value == pytest.approx(0.548)
    bad_layer = layer(1, mean=0.03, p999=0.2, l2=0.06)
    bad = kv.judge([], {"int8": kv.Bytes(560, 1000, 1.79, "", 1)}, {"int8": [layer(0), bad_layer]})
    assert [one.is_reached for one in bad] == [False, False, None, False, False, False, False]
    assert kv.judge([], {}, {"fp8": [bad_layer]})[4].value is None


def test_variants_differ_in_the_type_alone():
    full, int8 = kv.variant("full", 2), kv.variant("int8", 3)
    assert set(int8.flags_on) - set(full.flags_on) == {"kv-int8"}
    assert int8.params == {"kv-int8": {"fullPrecisionLayers": "3"}}


def test_the_report_has_types_and_layers(tmp_path):
    done = kv_report.Measured(
        (passage(20.0, 20.1, 21.0),),
        {"int8": SMALL},
        {"int8": [layer(0), layer(1)], "fp8": [layer(1)]},
        11,
        "somewhere",
        context(),
        "stopped",
    )
    text = kv_report.markdown(done)
    assert "| int8 | 548 (-45.2%) | 1.82 | 800 | 7.4633 | +1.005% |" in text
    assert "| full | – | – | – | 7.3891 | +0.000% |" in text
    assert "| 0 | 0.0100 / 0.050 / 0.500 | 0.0200 | – | – |" in text
    assert "- A sentence." in text
    assert "**Not complete**: stopped." in text
    assert kv_report.document(done)["bytes"]["int8"]["token_bytes"] == 548
    kv_report.draw(done, tmp_path / "plot.png")
    kv_report.draw(kv_report.Measured((), {}, {}, 1, "", context()), tmp_path / "empty.png")
    assert (tmp_path / "plot.png").exists()


@pytest.fixture(scope="module")
def scorer(tmp_path_factory) -> kv_engine.Scorer:
    folder = tiny_model.write(tmp_path_factory.mktemp("model") / "tiny", num_hidden_layers=3)
    return kv_engine.Scorer.load(folder, 37, 1, threads=1, dtype="float32", device_option="cpu")


def passages(count: int) -> list[list[int]]:
    generator = random.Random(1)
    return [generator.choices(range(3, 130), k=37) for _ in range(count)]


def test_types_give_other_likelihoods_and_the_same_one_the_same_again(scorer):
    found = {}
    for kv_type in (*kv.TYPES, "full"):
        scorer.use(kv_type)
        found.setdefault(kv_type, []).append(scorer.losses(passages(9)))
    assert found["full"][0] == pytest.approx(found["full"][1], rel=1e-5)
    for kv_type in kv.QUANTIZED:
        assert found[kv_type][0] != found["full"][0]
        assert found[kv_type][0] == pytest.approx(found["full"][0], rel=0.05)
    assert all(36 * 2 < loss < 36 * 10 for loss in found["full"][0])


def test_all_quantized_layers_are_measured_and_no_other(scorer):
    scorer.use("int8")
    layers = scorer.layers(passages(2))
    assert [one.index for one in layers] == [0, 1]
    for one in layers:
        assert 0 < one.mean <= one.p999 <= one.largest + 1e-3
        assert 0 < one.relative_l2 < 0.1
        assert one.samples == 2 * 37 * 6
    scorer.use("full")
    assert scorer.layers(passages(1)) == []


def test_bytes_follow_from_the_model(scorer):
    """3 layers, 2 KV heads of 8: 16 bit takes 2 x 3 x 2 x 8 x 2; int8 with one layer in 16 bit less."""
    scorer.use("int8")
    int8 = scorer.bytes("int8")
    assert (int8.half_token_bytes, int8.token_bytes) == (192, 2 * (2 * 2 * 8 + 2 * 2 * 2) + 2 * 2 * 8 * 2)
    scorer.use("full")
    full = scorer.bytes("full")
    assert full.token_bytes == 2 * full.half_token_bytes  # this run computes in fp32
    assert full.capacity == pytest.approx(0.5, rel=0.01)
    assert 1.0 < int8.capacity < full.half_token_bytes / int8.token_bytes
    assert int8.pool_tokens > full.pool_tokens > 0


def test_a_model_that_is_none_and_a_type_that_cannot_be_are_clear(tmp_path, scorer):
    with pytest.raises(UserError, match="SOURCE"):
        kv_engine.Scorer.load(tmp_path, 8, 2, threads=1, dtype="auto", device_option="cpu")
    folder = tiny_model.write(tmp_path / "tiny")
    scorer = kv_engine.Scorer.load(folder, 20, 9, threads=1, dtype="float32", device_option="cpu")
    with pytest.raises(UserError, match="refused int8"):
        scorer.use("int8")
