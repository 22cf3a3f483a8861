"""How the bytes of the KV cache are used: bytes per token and block, and how many blocks of each format.

Keys and values of a token are 2 x KV heads x head size elements in each layer. FULL blocks keep them in the
compute dtype. QUANTIZED blocks keep one byte an element and one fp16 scale per head, but for the last
`full_precision_layers`, which are in 16 bit: the compute dtype, or fp16 where that is fp32.

Both formats share one byte budget. Every layout has QUANTIZED blocks for the longest sequence and FULL ones
for the longest declared prefix; what is left follows demand. Pure arithmetic.
"""

from dataclasses import dataclass
from typing import Literal

from firsttoken_runtime.cache.formats import Counts, Format

KvType = Literal["full", "int8", "fp8"]
ALIGNMENT_BYTES = 64
"""Of every tensor in the buffer: a cache line."""
_TENSORS_A_LAYER = 3
_SCALE_BYTES = 2
_HALF_BYTES = 2


class DoesNotFit(Exception):  # noqa: N818
    """The budget is too small for one sequence of the longest length; the message has the numbers."""


@dataclass(frozen=True)
class Shape:
    """What of a model decides the bytes."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    itemsize: int
    """Of the compute dtype, in bytes."""

    @property
    def elements(self) -> int:
        """Of one token in one layer."""
        return 2 * self.num_kv_heads * self.head_dim

    @property
    def half_token_bytes(self) -> int:
        """Of a token with everything in 16 bit: what others are compared with."""
        return self.num_layers * self.elements * _HALF_BYTES


@dataclass(frozen=True)
class Layout:
    """How many blocks of each format, and how large they are."""

    shape: Shape
    block_size_tokens: int
    counts: Counts
    kv_type: KvType = "full"
    full_precision_layers: int = 0
    max_full_prefix_tokens: int = 0
    """Whole blocks that a declared prefix may have in FULL. Only where the budget is for hardly more than
    one sequence is this less than half of the longest sequence."""

    def __post_init__(self) -> None:
        if self.kv_type == "full":
            assert self.counts.quantized == 0, self.counts
        else:
            assert 0 <= self.full_precision_layers < self.shape.num_layers, "none would be quantized"

    @property
    def is_quantized(self) -> bool:
        return self.kv_type != "full"

    @property
    def num_full_slots(self) -> int | None:
        """Slots from here on are QUANTIZED; None: none are."""
        return self.counts.full * self.block_size_tokens if self.is_quantized else None

    def is_quantized_layer(self, index: int) -> bool:
        """Whether QUANTIZED blocks hold codes in this layer."""
        return self.is_quantized and index < self.shape.num_layers - self.full_precision_layers

    def token_bytes(self, fmt: Format) -> int:
        """All layers together."""
        shape = self.shape
        if fmt is Format.FULL:
            return shape.num_layers * shape.elements * shape.itemsize
        coded = shape.elements + 2 * shape.num_kv_heads * _SCALE_BYTES
        num_coded = shape.num_layers - self.full_precision_layers
        return num_coded * coded + self.full_precision_layers * shape.elements * _HALF_BYTES

    def block_bytes(self, fmt: Format) -> int:
        """All layers together."""
        return self.block_size_tokens * self.token_bytes(fmt)

    @property
    def private_token_bytes(self) -> int:
        """Of a token outside of declared shared prefixes."""
        return self.token_bytes(Format.QUANTIZED if self.is_quantized else Format.FULL)

    @property
    def num_bytes(self) -> int:
        """All blocks, without what alignment adds."""
        return sum(self.counts[fmt] * self.block_bytes(fmt) for fmt in Format)

    def sentence(self) -> str:
        """How the bytes follow from the model, for people."""
        shape, layers, kept = self.shape, self.shape.num_layers, self.full_precision_layers
        heads, size = shape.num_kv_heads, shape.head_dim
        if not self.is_quantized:
            formula = f"2 x {layers} layers x {heads} KV heads x {size} x {shape.itemsize}"
            return (
                f"KV cache in {8 * shape.itemsize} bit: a token takes {formula} = "
                f"{self.private_token_bytes:,} bytes; {self._blocks()}"
            )
        codes = f"{layers - kept} layers x ({size} + {_SCALE_BYTES})"
        plain = f" + {kept} layers x {size} x {_HALF_BYTES}" if kept else ""
        ratio = shape.half_token_bytes / self.private_token_bytes
        return (
            f"KV cache in {self.kv_type} with fp16 scales, the last {kept} layers in 16 bit: a token takes "
            f"2 x {heads} KV heads x ({codes}{plain}) = {self.private_token_bytes:,} bytes, "
            f"{100 * (1 - 1 / ratio):.1f} % less than {shape.half_token_bytes:,} in 16 bit, so "
            f"{ratio:.2f} times the tokens; {self._blocks()}"
        )

    def _blocks(self) -> str:
        full, quantized = (f"{self.counts[fmt] * self.block_size_tokens:,} tokens" for fmt in Format)
        mib = self.num_bytes / 1024**2
        if not self.is_quantized:
            return f"{full} in {mib:,.0f} MiB"
        return (
            f"{quantized} and {full} of declared prefixes in {8 * self.shape.itemsize} bit, in {mib:,.0f} MiB"
        )


def buffer_bytes(budget_bytes: int, num_layers: int) -> int:
    """What to allocate, once, so that every layout `within` the budget fits."""
    return budget_bytes + num_layers * _TENSORS_A_LAYER * ALIGNMENT_BYTES


def within(
    budget_bytes: int,
    shape: Shape,
    block_size_tokens: int,
    max_model_len: int,
    *,
    kv_type: KvType = "full",
    full_precision_layers: int = 0,
    full_share: float = 0.0,
) -> Layout:
    """The layout of a budget. full_share: the part of all blocks to be FULL, where there is a choice.

    Raises DoesNotFit.
    """
    assert 0 <= full_share <= 1, full_share
    none = Layout(shape, block_size_tokens, Counts(), kv_type, full_precision_layers)
    full_bytes, quantized_bytes = (none.block_bytes(fmt) for fmt in Format)
    longest = -(-max_model_len // block_size_tokens)
    needed = longest * (quantized_bytes if none.is_quantized else full_bytes)
    if needed > budget_bytes:
        raise DoesNotFit(
            f"a sequence of {max_model_len:,} tokens needs {needed:,} bytes of KV cache, "
            f"{budget_bytes:,} are there"
        )
    if not none.is_quantized:
        return Layout(shape, block_size_tokens, Counts(budget_bytes // full_bytes, 0))
    most_full = (budget_bytes - needed) // full_bytes
    least_full = min(max_model_len // 2 // block_size_tokens, most_full)
    mean_bytes = full_share * full_bytes + (1 - full_share) * quantized_bytes
    wanted = int(full_share * (budget_bytes / mean_bytes))
    full = min(max(wanted, least_full), most_full)
    return Layout(
        shape,
        block_size_tokens,
        Counts(full, (budget_bytes - full * full_bytes) // quantized_bytes),
        kv_type,
        full_precision_layers,
        least_full * block_size_tokens,
    )
