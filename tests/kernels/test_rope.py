"""RoPE against its formula in fp64."""

import pytest
import torch

from firsttoken_kernels import rope


@pytest.mark.parametrize("head_dim", [2, 6, 64])
def test_matches_the_formula(head_dim: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 3, head_dim)
    positions = torch.tensor([0, 1, 17, 1023, 8191])
    frequencies = rope.frequencies(head_dim, 10_000.0, torch.device("cpu"))
    cos, sin = rope.cos_sin(positions, frequencies, torch.float32)
    actual = rope.rotate(x, cos, sin)
    # At position 8,191 an fp32 angle is off by up to 5e-4.
    torch.testing.assert_close(actual, rope.reference(x, positions, 10_000.0), rtol=0, atol=2e-3)
    torch.testing.assert_close(actual[:3], rope.reference(x, positions, 10_000.0)[:3], rtol=0, atol=1e-5)


def test_position_0_changes_nothing() -> None:
    x = torch.randn(1, 2, 8)
    cos, sin = rope.cos_sin(
        torch.tensor([0]), rope.frequencies(8, 10_000.0, torch.device("cpu")), torch.float32
    )
    assert torch.equal(rope.rotate(x, cos, sin), x)
