"""Functions of single elements give the same bits for a row whatever its neighbours, also with threads."""

import random
from collections.abc import Callable, Iterator

import pytest
import torch

from firsttoken_kernels import gelu_mul, rows, silu_mul

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu_mul": lambda x: silu_mul.silu_mul(x, alike=True),
    "gelu_mul": lambda x: gelu_mul.gelu_mul(x, alike=True),
    "tanh": lambda x: rows.alike(torch.tanh, x),
    "cos": lambda x: rows.alike(torch.cos, x),
}


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """Only then the library cuts large tensors."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("width", [2, 154, 2000])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_row_depends_on_nothing_else(name: str, width: int, dtype: torch.dtype) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    torch.manual_seed(seed)
    x = (torch.randn(130, width) * 3).to(dtype)
    every = FUNCTIONS[name](x)
    for count in (1, 2, 63, 65, draw.randint(1, 130)):
        chosen = draw.sample(range(130), count)
        assert torch.equal(FUNCTIONS[name](x[chosen]), every[chosen]), count


def test_nothing_but_the_rounding_changes() -> None:
    x = torch.randn(7, 3, 11)
    assert rows.alike(torch.tanh, x).shape == x.shape
    torch.testing.assert_close(rows.alike(torch.tanh, x), torch.tanh(x))
