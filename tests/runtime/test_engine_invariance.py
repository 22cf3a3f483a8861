"""The probe's answer holds: rows of a linear do not depend on their neighbours, for counts it never tried."""

import random

import pytest
import torch

from firsttoken_runtime.engine import invariance
from firsttoken_runtime.model import layers

CPU = torch.device("cpu")
DTYPES = [torch.float32, torch.bfloat16]


def random_linear(
    out: int, into: int, dtype: torch.dtype, numerics: layers.Numerics, *, bias: bool
) -> layers.Linear:
    weight = torch.randn(out, into).div_(into**0.5).to(dtype)
    return layers.Linear(weight, torch.randn(out).to(dtype) if bias else None, numerics=numerics)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_of_a_linear_depend_on_nothing_else(dtype: torch.dtype) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    torch.manual_seed(seed)
    shapes = [(960, 576), (576, 1536), (131, 48), (48, 40), (draw.randint(1, 700), draw.randint(1, 700))]
    numerics = invariance.probe(shapes, dtype, CPU).numerics
    for out, into in shapes:
        linear = random_linear(out, into, dtype, numerics, bias=draw.random() < 0.5)
        x = torch.randn(301, into).to(dtype)
        with torch.inference_mode():
            every = linear(x)
            for _ in range(6):
                rows = draw.sample(range(len(x)), draw.choice((1, 2, 3, 8, 65, 100, draw.randint(1, 301))))
                assert torch.equal(linear(x[rows]), every[rows]), (out, into, len(rows), numerics)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_tiled_linear_is_the_linear(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    weight, bias, x = torch.randn(33, 20).to(dtype), torch.randn(33).to(dtype), torch.randn(301, 20).to(dtype)
    tiled = layers.Linear(weight, bias, numerics=layers.Numerics(batch_invariant=True, least_rows=8))
    with torch.inference_mode():
        expected = (x.double() @ weight.double().T + bias.double()).to(dtype)
        torch.testing.assert_close(
            tiled(x), expected, rtol=0.02 if dtype == torch.bfloat16 else 1e-5, atol=1e-5
        )


@pytest.mark.parametrize(
    ("rows", "tiles"), [(1, [4]), (4, [4]), (5, [8]), (32, [32]), (33, [32, 4]), (75, [32, 32, 16])]
)
def test_only_agreeing_row_counts_are_used(rows: int, tiles: list[int]) -> None:
    assert layers.Numerics(batch_invariant=True, least_rows=4, most_rows=32).tiles(rows) == tiles


class Linear:
    """Stands in for a library: what it adds to a row depends on the number of rows as told."""

    def __init__(self, added: dict[int, float], by_place: float) -> None:
        self._added = added
        self._by_place = by_place

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x + self._added.get(len(x), 0.0) + self._by_place * torch.arange(len(x))[:, None]


@pytest.mark.parametrize(
    ("added", "range_of_rows"),
    [
        ({}, (1, 128)),
        ({1: 0.5}, (2, 128)),
        ({1: 0.5, 8: 0.25}, (16, 128)),
        ({128: 0.5}, (1, 64)),
        ({64: 0.5, 128: 0.25}, (64, 64)),
        ({16: 0.1, 32: 0.2, 64: 0.5, 128: 0.25}, (64, 64)),
        ({rows: float(rows) for rows in (1, 2, 4, 8, 16, 32)}, (64, 128)),
    ],
)
def test_the_counts_that_agree_are_found(
    added: dict[int, float], range_of_rows: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invariance.layers, "Linear", lambda weight: Linear(added, 0.0))
    found = invariance.probe([(20, 12)], torch.float32, CPU)
    assert found.numerics == layers.Numerics(True, *range_of_rows)
    assert range_of_rows[1] not in found.failed
    assert all(shape == (20, 12) for shape in found.failed.values())


def test_where_the_place_matters_a_call_has_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invariance.layers, "Linear", lambda weight: Linear({}, 1.0))
    assert invariance.probe([(20, 12)], torch.float32, CPU).numerics == layers.Numerics(True, 1, 1)


def test_shapes_of_the_linears_of_a_model() -> None:
    tensors = {
        "embed_tokens.weight": (131, 48),
        "norm.weight": (48,),
        "layers.0.self_attn.q_proj.weight": (48, 48),
        "layers.0.self_attn.k_proj.weight": (16, 48),
        "layers.0.self_attn.v_proj.weight": (16, 48),
        "layers.0.self_attn.q_proj.bias": (48,),
        "layers.0.self_attn.o_proj.weight": (48, 40),
        "layers.0.mlp.gate_proj.weight": (80, 48),
        "layers.0.mlp.up_proj.weight": (80, 48),
        "layers.0.mlp.down_proj.weight": (48, 80),
    }
    assert invariance.linear_shapes(tensors) == {(131, 48), (80, 48), (48, 40), (160, 48), (48, 80)}
