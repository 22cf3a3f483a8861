"""A scheduled step through the decoder: layouts come and go, hooks are called, deviation is sampled."""

from pathlib import Path

import pytest
import torch

from firsttoken_kernels import paged_cache
from firsttoken_runtime import core
from firsttoken_runtime.cache import layout as cache_layout
from firsttoken_runtime.cache import storage
from firsttoken_runtime.cache.formats import Counts
from firsttoken_runtime.engine.runner import Runner
from firsttoken_runtime.model import decoder, layers
from firsttoken_runtime.scheduler.sequence import ScheduledStep, Sequence, Work
from runtime import families, tiny_model

BLOCK = 16
INVARIANT = layers.Numerics(batch_invariant=True, least_rows=8, most_rows=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.write(tmp_path_factory.mktemp("model"), num_hidden_layers=3)


class Cache:
    """One buffer and the layouts it is cut into."""

    def __init__(self, model: decoder.Decoder) -> None:
        config = model.config
        self.shape = cache_layout.Shape(config.num_layers, config.num_kv_heads, config.head_dim, 4)
        self.buffer = storage.allocate(200_000, config.num_layers, torch.device("cpu"))

    def layout(self, kv_type: cache_layout.KvType) -> cache_layout.Layout:
        if kv_type == "full":
            return cache_layout.Layout(self.shape, BLOCK, Counts(12))
        return cache_layout.Layout(self.shape, BLOCK, Counts(4, 12), kv_type, 1)

    def carve(self, kv_type: cache_layout.KvType) -> tuple[cache_layout.Layout, list[paged_cache.LayerCache]]:
        self.buffer.fill_(0x7F)  # NaN in every type but int8, whose scales are NaN then
        layout = self.layout(kv_type)
        return layout, storage.carve(self.buffer, layout, torch.float32)


def runner(model: decoder.Decoder, kv_type: cache_layout.KvType, *, batch_invariant: bool = False) -> Runner:
    layout, cut = Cache(model).carve(kv_type)
    return Runner(model, cut, num_full_slots=layout.num_full_slots, batch_invariant=batch_invariant)


def sequence(table: list[int], length: int = 50) -> Sequence:
    made = Sequence(1, [(7 * index) % 131 for index in range(length)], core.SamplingParams(max_tokens=3), 0.0)
    made.block_table = table
    return made


def prefill(one: Runner, of: Sequence, cuts: list[int]) -> torch.Tensor:
    """Logits of the last token, computed in chunks that end there."""
    first, logits = 0, torch.empty(0)
    for last in cuts:
        step = ScheduledStep(0, prefills=(Work(of, first, last - first, samples=last == cuts[-1]),))
        logits, first = one.execute(step, BLOCK).logits, last
    assert logits.isfinite().all()
    return logits


MIXED = [2, 9, 4, 11]
"""Block 2 is FULL where there are two formats."""


@pytest.mark.parametrize("kv_type", ["int8", "fp8"])
def test_write_then_read_in_any_chunks_is_the_same(folder: Path, kv_type: cache_layout.KvType) -> None:
    model = families.load(folder, numerics=INVARIANT)
    whole = prefill(runner(model, kv_type, batch_invariant=True), sequence(MIXED), [50])
    for cuts in ([16, 50], [1, 15, 17, 49, 50], [33, 34, 50]):
        cut = prefill(runner(model, kv_type, batch_invariant=True), sequence([3, 15, 6, 5]), cuts)
        assert torch.equal(cut, whole), cuts
    full = prefill(runner(model, "full", batch_invariant=True), sequence(MIXED), [50])
    assert not torch.equal(full, whole)
    assert (full - whole).abs().max() < 0.2 * full.abs().max()


def test_another_layout_is_as_if_it_had_been_there_from_the_start(folder: Path) -> None:
    model = families.load(folder)
    cache = Cache(model)
    layout, cut = cache.carve("full")
    one = Runner(model, cut)
    full = prefill(one, sequence(MIXED), [50])
    for kv_type in ("int8", "fp8", "full"):
        layout, cut = cache.carve(kv_type)
        one.replace(cut, layout.num_full_slots)
        expected = prefill(runner(model, kv_type), sequence(MIXED), [50])
        assert torch.equal(prefill(one, sequence(MIXED), [50]), expected)
        assert torch.equal(expected, full) == (kv_type == "full")


def test_each_layer_is_announced_in_order(folder: Path) -> None:
    seen: list[int] = []
    one = runner(families.load(folder), "int8")
    one.execute(ScheduledStep(0, prefills=(Work(sequence(MIXED), 0, 50, samples=True),)), BLOCK, seen.append)
    assert seen == [0, 1, 2]


def test_deviation_is_sampled_while_serving_but_not_in_batch_invariant_mode(folder: Path) -> None:
    model = families.load(folder)
    one = runner(model, "int8")
    assert one.kv_deviation() is None
    prefill(one, sequence(MIXED), [30, 50])
    found = one.kv_deviation()
    assert found is not None
    assert found.num_samples == 30 * model.config.num_heads, "of the first chunk, in one layer"
    one.replace(*_full(model))
    prefill(one, sequence(MIXED), [50])
    assert one.kv_deviation() is None
    invariant = runner(families.load(folder, numerics=INVARIANT), "int8", batch_invariant=True)
    prefill(invariant, sequence(MIXED), [50])
    assert invariant.kv_deviation() is None


def _full(model: decoder.Decoder) -> tuple[list[paged_cache.LayerCache], int | None]:
    layout, cut = Cache(model).carve("full")
    return cut, layout.num_full_slots
