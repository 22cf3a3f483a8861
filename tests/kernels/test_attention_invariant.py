"""Batch-invariant attention: the bits of a query do not change with chunks, neighbours or physical slots."""

import random

import pytest
import torch

from firsttoken_kernels import attention, paged_cache
from kernels import caches

CPU = torch.device("cpu")
BLOCK = 16
FULL_BLOCKS = 10
POOL_BLOCKS = 80


class Sequences:
    """One sequence whose queries are computed piece by piece beside another, over a pool full of NaN."""

    def __init__(
        self, draw: random.Random, shape: tuple[int, int, int], dtype: torch.dtype, kind: str
    ) -> None:
        """kind: of the slots behind the first blocks of each sequence (see `caches`)."""
        kv_heads, group, head_dim = shape
        self.kind = kind
        self.draw = draw
        self.dtype = dtype
        self.length, self.other_length = draw.randint(2, 210), draw.randint(1, 150)
        self.num_full, self.other_num_full = draw.randint(0, 4), draw.randint(0, 4)
        """Blocks of a declared prefix."""
        self.keys_values = caches.spread(2, self.length, kv_heads, head_dim).to(dtype)
        self.other_keys_values = caches.spread(2, self.other_length, kv_heads, head_dim).to(dtype)
        self.queries = torch.randn(self.length, kv_heads * group, head_dim).to(dtype)

    def attend(
        self, pieces: list[int], *, beside: bool, window: int | None, softcap: float | None
    ) -> torch.Tensor:
        """All queries, in pieces of these sizes, in blocks drawn anew."""
        full_slots, all_slots = FULL_BLOCKS * BLOCK, POOL_BLOCKS * BLOCK
        free_full = self.draw.sample(range(FULL_BLOCKS), FULL_BLOCKS)
        free = self.draw.sample(range(FULL_BLOCKS, POOL_BLOCKS), POOL_BLOCKS - FULL_BLOCKS)

        def take(length: int, num_full: int) -> list[int]:
            needed = -(-length // BLOCK)
            full = min(needed, num_full)
            return [free_full.pop() for _ in range(full)] + [free.pop() for _ in range(needed - full)]

        table = take(self.length, self.num_full)
        other_table = take(self.other_length, self.other_num_full)
        cache = caches.poisoned(
            full_slots,
            all_slots - full_slots,
            *self.keys_values.shape[2:],
            kind=self.kind,
            dtype=self.dtype,
        )
        num_full_slots = None if self.kind == "full" else full_slots
        for blocks, (keys, values) in ((table, self.keys_values), (other_table, self.other_keys_values)):
            slots = torch.tensor([blocks[i // BLOCK] * BLOCK + i % BLOCK for i in range(len(keys))])
            cache.write(keys, values, paged_cache.slots(slots, CPU, num_full_slots))
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
                num_full_slots=num_full_slots,
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


@pytest.mark.parametrize("kind", ["full", *caches.KINDS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 8), (3, 3, 64), (1, 4, 20)], ids=str)
@pytest.mark.parametrize(("window", "softcap"), [(None, None), (20, None), (None, 5.0)])
def test_chunks_neighbours_and_slots_change_no_bit(
    shape: tuple[int, int, int], dtype: torch.dtype, window: int | None, softcap: float | None, kind: str
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    torch.manual_seed(seed)
    sequences = Sequences(draw, shape, dtype, kind)
    length = sequences.length
    whole = sequences.attend([length], beside=False, window=window, softcap=softcap)
    assert whole.isfinite().all()
    for sizes in ((100,), (1, 1, 3, 17, 64)):
        cut = pieces(draw, length, sizes)
        again = sequences.attend(cut, beside=True, window=window, softcap=softcap)
        assert torch.equal(again, whole), cut
