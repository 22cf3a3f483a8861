"""Batch-invariant attention: the bits of a query do not change with chunks, neighbours or physical slots."""

import random

import pytest
import torch

from firsttoken_kernels import attention

CPU = torch.device("cpu")
BLOCK = 16
POOL_BLOCKS = 80


class Sequences:
    """One sequence whose queries are computed piece by piece beside another, over a pool full of NaN."""

    def __init__(self, draw: random.Random, shape: tuple[int, int, int], dtype: torch.dtype) -> None:
        kv_heads, group, head_dim = shape
        self.draw = draw
        self.dtype = dtype
        self.length, self.other_length = draw.randint(2, 210), draw.randint(1, 150)
        self.keys_values = torch.randn(2, self.length, kv_heads, head_dim).to(dtype)
        self.other_keys_values = torch.randn(2, self.other_length, kv_heads, head_dim).to(dtype)
        self.queries = torch.randn(self.length, kv_heads * group, head_dim).to(dtype)

    def attend(
        self, pieces: list[int], *, beside: bool, window: int | None, softcap: float | None
    ) -> torch.Tensor:
        """All queries, in pieces of these sizes, in blocks drawn anew."""
        mine, other = -(-self.length // BLOCK), -(-self.other_length // BLOCK)
        blocks = self.draw.sample(range(POOL_BLOCKS), mine + other)
        table, other_table = blocks[:mine], blocks[mine:]
        cache = torch.full((2, POOL_BLOCKS * BLOCK, *self.keys_values.shape[2:]), torch.nan).to(self.dtype)
        for blocks, keys_values in ((table, self.keys_values), (other_table, self.other_keys_values)):
            slots = [blocks[i // BLOCK] * BLOCK + i % BLOCK for i in range(keys_values.shape[1])]
            cache[:, slots] = keys_values
        out = torch.empty_like(self.queries)
        first = 0
        for size in pieces:
            neighbours = self.draw.randint(1, 6) if beside else 0
            tables, contexts = (
                [other_table] * neighbours,
                self.draw.choices(range(1, self.other_length + 1), k=neighbours),
            )
            prefills = []
            place = neighbours
            if size == 1 and first > 0:  # as a decode, among the others
                place = self.draw.randint(0, neighbours)
                tables, contexts = [*tables], [*contexts]
                tables.insert(place, table)
                contexts.insert(place, first + 1)
            else:
                prefills = [attention.Prefill(table, size, first + size)]
            widest = max(map(len, tables), default=0)
            plan = attention.plan(
                torch.tensor([one + [-1] * (widest - len(one)) for one in tables], dtype=torch.int64).view(
                    len(tables), widest
                ),
                torch.tensor(contexts, dtype=torch.int64),
                prefills,
                BLOCK,
                CPU,
                windows=() if window is None else (window,),
                invariant=True,
            )
            around = torch.randn(neighbours, *self.queries.shape[1:]).to(self.dtype)
            rows = torch.cat((around[:place], self.queries[first : first + size], around[place:]))
            given = attention.attention(rows, cache, plan, 0.3, window=window, softcap=softcap)
            out[first : first + size] = given[place : place + size]
            first += size
        return out


def pieces(draw: random.Random, length: int, sizes: tuple[int, ...]) -> list[int]:
    found: list[int] = []
    while sum(found) < length:
        found.append(min(draw.choice(sizes), length - sum(found)))
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 8), (3, 3, 64), (1, 4, 20)], ids=str)
@pytest.mark.parametrize(("window", "softcap"), [(None, None), (20, None), (None, 5.0)])
def test_chunks_neighbours_and_slots_change_no_bit(
    shape: tuple[int, int, int], dtype: torch.dtype, window: int | None, softcap: float | None
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    torch.manual_seed(seed)
    sequences = Sequences(draw, shape, dtype)
    length = sequences.length
    whole = sequences.attend([length], beside=False, window=window, softcap=softcap)
    assert whole.isfinite().all()
    for sizes in ((100,), (1, 1, 3, 17, 64)):
        cut = pieces(draw, length, sizes)
        again = sequences.attend(cut, beside=True, window=window, softcap=softcap)
        assert torch.equal(again, whole), cut
