"""The bytes of the KV cache: one tensor of flat slots, whatever the block size.

Its memory is not cleared, so a CPU's pages are taken only when a slot is first written; nothing may
read a slot before it was written.
"""

import torch


def allocate(
    num_layers: int,
    num_slots: int,
    num_kv_heads: int,
    head_dim: int,
    dtype: torch.dtype,
    device: torch.device,
) -> torch.Tensor:
    """-> [layers, 2 (keys, values), slots, KV heads, D]."""
    return torch.empty((num_layers, 2, num_slots, num_kv_heads, head_dim), dtype=dtype, device=device)
