"""The cache tensor has one row a slot."""

import torch

from firsttoken_runtime.cache import storage


def test_shape_and_type() -> None:
    cache = storage.allocate(3, 160, 2, 8, torch.bfloat16, torch.device("cpu"))
    assert cache.shape == (3, 2, 160, 2, 8)
    assert cache.dtype == torch.bfloat16
