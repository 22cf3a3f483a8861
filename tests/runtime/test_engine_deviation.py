"""Deviation of quantized attention: the definition against plain loops, what is chosen, and what it says."""

import types

import pytest
import torch

from firsttoken_kernels import attention, paged_cache
from firsttoken_runtime.cache import layout as cache_layout
from firsttoken_runtime.cache import storage
from firsttoken_runtime.cache.formats import Counts
from firsttoken_runtime.engine import deviation
from firsttoken_runtime.model import architecture, decoder
from runtime import families

CPU = torch.device("cpu")
BLOCK = families.BLOCK_SIZE


def plain(
    queries: torch.Tensor,
    exact: torch.Tensor,
    stored: torch.Tensor,
    scale: float,
    window: int | None,
    softcap: float | None,
) -> tuple[list[float], float]:
    """Largest |change| of each (query, head), and the relative L2, in fp64 one query at a time."""
    group = queries.shape[1] // exact.shape[2]
    largest, changed, squares = [], 0.0, 0.0
    for row in range(len(queries)):
        first = 0 if window is None else max(row - window + 1, 0)
        for head in range(queries.shape[1]):
            weights, outputs = [], []
            for keys, values in (exact.double(), stored.double()):
                scores = keys[first : row + 1, head // group] @ queries[row, head].double() * scale
                if softcap is not None:
                    scores = softcap * torch.tanh(scores / softcap)
                weights.append(scores.softmax(0))
                outputs.append(weights[-1] @ values[first : row + 1, head // group])
            largest.append((weights[1] - weights[0]).abs().max().item())
            changed += (outputs[1] - outputs[0]).square().sum().item()
            squares += outputs[0].square().sum().item()
    return largest, (changed / squares) ** 0.5


@pytest.mark.parametrize(("window", "softcap"), [(None, None), (7, None), (None, 1.5), (13, 2.0)])
@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 2), (3, 3), (4, 1)])
def test_the_definition(heads: int, kv_heads: int, window: int | None, softcap: float | None) -> None:
    torch.manual_seed(0)
    queries, exact = torch.randn(31, heads, 10), torch.randn(2, 31, kv_heads, 10)
    stored = exact + torch.randn_like(exact) / 20
    measured = deviation.measure(queries, exact, stored, 0.4, window=window, softcap=softcap)
    largest, relative_l2 = plain(queries, exact, stored, 0.4, window, softcap)
    assert sorted(measured.largest_changes.flatten().tolist()) == pytest.approx(sorted(largest), abs=1e-5)
    tally = deviation.LayerTally()
    tally.add(measured)
    assert tally.num_samples == 31 * heads
    assert tally.mean == pytest.approx(sum(largest) / len(largest), abs=1e-5)
    assert tally.largest == pytest.approx(max(largest), abs=1e-5)
    assert tally.relative_l2 == pytest.approx(relative_l2, rel=1e-3)


def test_a_long_chunk_is_measured_at_some_queries() -> None:
    torch.manual_seed(0)
    queries, exact = torch.randn(1000, 2, 8), torch.randn(2, 1000, 1, 8)
    measured = deviation.measure(queries, exact, exact, 0.4)
    assert deviation.MOST_QUERIES // 2 < len(measured.largest_changes) <= deviation.MOST_QUERIES
    assert not measured.largest_changes.any()
    assert measured.changed_squares == 0


def test_percentiles() -> None:
    assert deviation.percentile([0, 0, 0, 0], 0.999) == 0
    assert deviation.percentile([999, 0, 0, 1], 0.999) == 0.25
    assert deviation.percentile([998, 0, 1, 1], 0.999) == 0.75
    assert deviation.percentile([0, 0, 0, 1], 0.5) == 1


def test_what_is_not_finite_is_left_out() -> None:
    tally = deviation.LayerTally()
    tally.add(deviation.Measured(torch.tensor([[0.1, torch.nan]]), 1.0, 1.0))
    tally.add(deviation.Measured(torch.tensor([[0.1]]), torch.nan, 1.0))
    assert tally.num_samples == 0
    tally.add(deviation.Measured(torch.tensor([[0.25]]), 0.04, 1.0))
    assert (tally.mean, tally.relative_l2) == (0.25, pytest.approx(0.2))


class Served:
    """A tiny model over a quantized cache with a monitor."""

    def __init__(self, config: architecture.ModelConfig, model: decoder.Decoder, **options: object) -> None:
        shape = cache_layout.Shape(config.num_layers, config.num_kv_heads, config.head_dim, 4)
        layout = cache_layout.Layout(shape, BLOCK, Counts(4, 12), "int8", 1)
        buffer = storage.allocate(layout.num_bytes, config.num_layers, CPU)
        self.layers = storage.carve(buffer, layout, torch.float32)
        self.num_full_slots = layout.num_full_slots
        self.model = model
        self.now_s = 0.0
        self.monitor = deviation.Monitor(config, self.layers, clock=lambda: self.now_s, **options)  # type: ignore[arg-type]

    def compute(self, table: list[int], first: int, last: int) -> list[int]:
        """Tokens first .. last of a sequence in these blocks. Returns the layers that were measured."""
        plan = attention.plan(
            torch.zeros(0, 0, dtype=torch.int64),
            torch.zeros(0, dtype=torch.int64),
            [attention.Prefill(table, last - first, last)],
            BLOCK,
            CPU,
            windows=self.model.config.windows,
            num_full_slots=self.num_full_slots,
        )
        before = {layer: tally.num_samples for layer, tally in self.monitor.tallies.items()}
        step = decoder.StepInput(
            token_ids=torch.arange(first, last) % families.VOCABULARY,
            positions=torch.arange(first, last),
            attention_plan=plan,
            logit_rows=torch.arange(last - first),
            observed=self.monitor.observers(plan),
        )
        with torch.inference_mode():
            assert self.model(step, self.layers).isfinite().all()
        return [layer for layer, tally in self.monitor.tallies.items() if tally.num_samples > before[layer]]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> types.SimpleNamespace:
    path = families.save(families.transformers_model("gemma2"), tmp_path_factory.mktemp("gemma2"))
    model = families.load(path)
    return types.SimpleNamespace(config=model.config, model=model)


QUANTIZED, MIXED, FULL = [5, 9, 4, 7], [0, 2, 9, 4], [0, 1, 2, 3]
"""Tables: blocks below 4 are FULL."""


def test_one_layer_in_turn_at_a_low_rate(served: types.SimpleNamespace) -> None:
    one = Served(served.config, served.model)
    assert one.monitor.summary() is None
    assert one.compute(QUANTIZED, 0, 50) == [0]
    assert one.compute(QUANTIZED, 0, 50) == [], "too soon"
    one.now_s = 9.9
    assert one.compute(QUANTIZED, 0, 50) == []
    one.now_s = 10.0
    assert one.compute(MIXED, 0, 50) == [1]
    one.now_s = 21.0
    assert one.compute(QUANTIZED, 50, 60) == [], "the exact keys of its beginning are gone"
    assert one.compute(FULL, 0, 50) == [], "nothing was quantized"
    assert one.compute(QUANTIZED, 0, 3) == [], "too short"
    assert one.compute(QUANTIZED, 0, 50) == [2]
    one.now_s = 40.0
    assert one.compute(QUANTIZED, 0, 50) == [0], "the last layer is not quantized"


def test_all_layers_on_demand_and_what_is_reported(served: types.SimpleNamespace) -> None:
    one = Served(served.config, served.model, every_s=0.0, all_layers=True)
    assert one.compute(QUANTIZED, 0, 50) == [0, 1, 2]
    assert one.compute(MIXED, 0, 40) == [0, 1, 2]
    summary = one.monitor.summary()
    assert summary is not None
    tallies = one.monitor.tallies.values()
    assert summary.num_samples == 3 * 6 * (50 + 40)
    assert 0 < summary.worst_layer_mean == max(tally.mean for tally in tallies) < 0.02
    assert summary.worst_layer_mean <= summary.p999 + 0.001
    assert summary.largest == max(tally.largest for tally in tallies) <= summary.p999 + 0.05
    assert 0 < summary.relative_l2 < 0.05
    one.monitor.replace(one.layers)
    assert one.monitor.summary() is None


def test_a_full_cache_is_never_measured(served: types.SimpleNamespace) -> None:
    monitor = deviation.Monitor(served.config, families.cache(served.config))
    plan = attention.plan(
        torch.zeros(0, 0, dtype=torch.int64),
        torch.zeros(0, dtype=torch.int64),
        [attention.Prefill([0, 1], 20, 20)],
        BLOCK,
        CPU,
    )
    assert monitor.observers(plan) == {}
    assert monitor.summary() is None


def test_a_shift_of_stored_keys_shows(served: types.SimpleNamespace) -> None:
    """What the monitor is for: a scale that is lost."""
    one = Served(served.config, served.model, every_s=0.0, all_layers=True)
    write = paged_cache.Compact.write

    def broken(self: paged_cache.Compact, both: torch.Tensor, slots: torch.Tensor) -> None:
        write(self, both, slots)
        if self.scales is not None:
            self.scales[0, slots] = 1.0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paged_cache.Compact, "write", broken)
        one.compute(QUANTIZED, 0, 50)
    summary = one.monitor.summary()
    assert summary is not None
    assert summary.worst_layer_mean > 0.1
