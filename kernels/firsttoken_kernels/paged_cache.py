"""Where the keys and values of one layer lie: written and read by slot, whatever the stored type.

Slots from `num_full_slots` on are *compact*: eight-bit codes with scales, or plain 16 bit in the layers that
are not quantized. Those before are *full*: in the type of the computation. A step's own tokens are read
back through here like all others, so neither the end of a chunk nor a hit changes what is attended to.
Which slots are of which format is found once a step on the host (`slots`), not in each layer.

Slots that lie one behind the other are read in place; full ones without a copy. On a CPU a compiled kernel
copies rows of which some are compact (`kv_copy`).
"""

import functools
from dataclasses import dataclass

import torch

from firsttoken_kernels import cache_memory, kv_copy, kv_quant

_HALF_LARGEST = torch.finfo(torch.float16).max


@dataclass(frozen=True)
class Part:
    """Those of some slots that are of one format."""

    places: torch.Tensor
    """[n] int64, which of the slots these are."""
    slots: torch.Tensor
    """[n] int64, counted from the first slot of the format."""
    first: int | None
    """The slots are this one and those right behind it; None: they are scattered."""


@dataclass(frozen=True)
class Slots:
    """N slots in the order in which they are wanted."""

    all: torch.Tensor
    """[N] int64."""
    first: int | None
    """All are of one format and lie one behind the other from here on; None: they do not."""
    full: Part | None = None
    """None: there is no such slot among them, or there are no compact ones at all."""
    compact: Part | None = None


def slots(
    wanted: torch.Tensor, device: torch.device, num_full_slots: int | None = None, *, in_place: bool = True
) -> Slots:
    """wanted: [N] int64 on the host. num_full_slots: slots from here on are compact; None: none are.
    in_place: look whether they lie one behind the other."""
    if num_full_slots is None:
        return Slots(wanted.to(device), _first(wanted) if in_place else None)
    is_full = wanted < num_full_slots

    def part(chosen: torch.Tensor, start: int) -> Part | None:
        places = chosen.nonzero().squeeze(1)
        if not len(places):
            return None
        moved = wanted[places] - start
        return Part(places.to(device), moved.to(device), _first(moved) if in_place else None)

    full, compact = part(is_full, 0), part(~is_full, num_full_slots)
    first = None
    if compact is None and full is not None:
        first = full.first
    elif full is None and compact is not None and compact.first is not None:
        first = compact.first + num_full_slots
    return Slots(wanted.to(device), first, full, compact)


def _first(wanted: torch.Tensor) -> int | None:
    if not len(wanted):
        return None
    first = int(wanted[0])
    return first if torch.equal(wanted, torch.arange(first, first + len(wanted))) else None


class Compact:
    """Compact slots of one layer."""

    def __init__(self, stored: torch.Tensor, scales: torch.Tensor | None = None) -> None:
        """stored: [2 (keys, values), slots, KV heads, D] int8 or e4m3 with scales [2, slots, KV heads] fp16,
        or of a plain type without."""
        assert (scales is None) == (stored.dtype.itemsize > 1), stored.dtype
        self.stored = stored
        self.scales = scales
        # The library copies bytes by index, but not e4m3.
        self._copied = stored if scales is None else stored.view(torch.uint8)

    def write(self, both: torch.Tensor, slots: torch.Tensor) -> None:
        """both: [2, n, KV heads, D]; slots: [n], counted from the first compact one."""
        if self.scales is None:
            self._copied.index_copy_(1, slots, narrowed(both, self.stored.dtype))
            return
        quantize = kv_quant.quantize_int8 if self.stored.dtype == torch.int8 else kv_quant.quantize_fp8
        codes, scales = quantize(both)
        self._copied.index_copy_(1, slots, codes.view(torch.uint8))
        self.scales.index_copy_(1, slots, scales)

    def read(self, part: Part, dtype: torch.dtype) -> torch.Tensor:
        """-> [2, n, KV heads, D]."""
        copied = _read(self._copied, part.slots, part.first)
        if self.scales is None:
            return copied.to(dtype)
        scales = _read(self.scales, part.slots, part.first)
        return kv_quant.dequantize(copied.view(self.stored.dtype), scales, dtype)


class LayerCache:
    """Keys and values of one layer in every slot: views into memory that others own."""

    def __init__(self, full: torch.Tensor, compact: Compact | None = None) -> None:
        """full: [2 (keys, values), slots, KV heads, D] in the type of the computation. compact: the slots
        behind those; None: all slots lie in `full`."""
        self.full = full
        self.keys, self.values = full[0], full[1]
        self.compact = compact

    @functools.cached_property
    def memory(self) -> cache_memory.CacheMemory:
        """For the compiled kernels."""
        if self.compact is None:
            return cache_memory.CacheMemory(self.full)
        return cache_memory.CacheMemory(self.full, self.compact.stored, self.compact.scales)

    @property
    def num_kv_heads(self) -> int:
        return self.full.shape[2]

    @property
    def head_dim(self) -> int:
        return self.full.shape[3]

    @property
    def dtype(self) -> torch.dtype:
        """What `gather` gives."""
        return self.full.dtype

    @property
    def is_quantized(self) -> bool:
        """Some slots hold eight-bit codes."""
        return self.compact is not None and self.compact.scales is not None

    def has_compact(self, where: Slots) -> bool:
        """Some of these slots are compact."""
        return self.compact is not None and where.compact is not None

    def write(self, keys: torch.Tensor, values: torch.Tensor, where: Slots) -> None:
        """Store the keys and values of a step's tokens.  keys, values: [T, KV heads, D]; distinct slots."""
        if self.compact is None or where.compact is None:
            self.keys.index_copy_(0, where.all, keys)
            self.values.index_copy_(0, where.all, values)
            return
        if self._can_copy:
            kv_copy.write((keys, values), self.memory, where.all)
            return
        both = torch.stack((keys, values))  # [2, T, KV heads, D]
        if where.full is None:
            self.compact.write(both, where.compact.slots)
            return
        self.full.index_copy_(1, where.full.slots, both.index_select(1, where.full.places))
        self.compact.write(both.index_select(1, where.compact.places), where.compact.slots)

    def gather(self, where: Slots) -> torch.Tensor:
        """-> [2, N, KV heads, D] in the type of the computation, in the order of the slots. It may be a view
        of the cache: do not write to it."""
        if self.compact is None or where.compact is None:
            return _read(self.full, where.all, where.first)
        if where.full is None and not (self._can_copy and self.is_quantized):
            return self.compact.read(where.compact, self.dtype)
        out = self.full.new_empty((2, len(where.all), self.num_kv_heads, self.head_dim))
        if self._can_copy:
            kv_copy.read(tuple(out), self.memory, where.all)
            return out
        assert where.full is not None
        out.index_copy_(1, where.full.places, _read(self.full, where.full.slots, where.full.first))
        return out.index_copy_(1, where.compact.places, self.compact.read(where.compact, self.dtype))

    @property
    def _can_copy(self) -> bool:
        return kv_copy.can_run(self.memory)

    def pieces(self, fmt: int) -> tuple[torch.Tensor, ...]:
        """All that holds bytes of the full (0) or compact (1) slots, to copy whole blocks: each [2, slots
        of that format, ...], a slot's bytes without gaps."""
        if fmt == 0:
            return (self.full,)
        if self.compact is None:
            return ()
        if self.compact.scales is None:
            return (self.compact.stored,)
        return (self.compact.stored, self.compact.scales)


def _read(stored: torch.Tensor, slots: torch.Tensor, first: int | None) -> torch.Tensor:
    if first is None:
        return stored.index_select(1, slots)
    return stored[:, first : first + len(slots)]


def narrowed(both: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """fp16 ends at 65,504: more than that is stored as that. Infinities, which are somebody's mistake, become
    NaN so that they are seen."""
    if dtype != torch.float16 or both.dtype == torch.float16:
        return both.to(dtype)
    return both.masked_fill(both.isinf(), torch.nan).clamp_(-_HALF_LARGEST, _HALF_LARGEST).to(dtype)


def reference(cache: LayerCache, slot: int) -> torch.Tensor:
    """Keys and values of one slot in fp64, from the stored numbers.  -> [2, KV heads, D]."""
    num_full = cache.full.shape[1]
    if cache.compact is None or slot < num_full:
        return cache.full[:, slot].double()
    stored = cache.compact.stored[:, slot - num_full].float().double()
    if cache.compact.scales is None:
        return stored
    return stored * cache.compact.scales[:, slot - num_full].double()[..., None]
