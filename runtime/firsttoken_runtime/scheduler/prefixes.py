"""What of a sequence is already computed: laid out, looked up, and published when it is.

A sequence is laid out once under a lineage: how its tokens are stored (`rules`) and under which keys. Keys
are hashed when they are first needed and then kept. Hits are whole blocks, first those on the device, then
those in the host tier, and always leave one token to compute.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from firsttoken_runtime.cache import blocks, host, keys, prefix
from firsttoken_runtime.cache.formats import Format
from firsttoken_runtime.scheduler import affinity, rules
from firsttoken_runtime.scheduler import sequence as sequences
from firsttoken_runtime.scheduler.sequence import Sequence


class Hits(NamedTuple):
    """Of the first blocks of a sequence, in their order."""

    device: list[int]
    """Ids of blocks."""
    host: list[int]
    """Slots of the host tier, of the blocks behind them."""
    reason: rules.Reason

    @property
    def num_blocks(self) -> int:
        return len(self.device) + len(self.host)


class Prefixes:
    """Of one pool and the host tier behind it, under one lineage."""

    def __init__(
        self,
        pool: blocks.Pool,
        lineage: bytes,
        most_full_tokens: int,
        host_index: host.HostIndex | None,
        break_even: rules.BreakEven | None,
        decisions: Counter[str],
    ) -> None:
        self.pool = pool
        self.lineage = lineage
        self.host = host_index
        self.break_even = break_even
        self.most_full_tokens = most_full_tokens
        self._decisions = decisions

    @property
    def is_caching(self) -> bool:
        return self.pool.caching is not None

    def lay_out(self, sequence: Sequence) -> None:
        """Decide how its tokens are stored and what its keys begin with, unless that is done."""
        if sequence.chain is None:
            decided = self.precision(sequence.shared_prefix_tokens)
            self._decisions[decided.reason] += 1
            sequence.num_full_blocks = decided.num_full_blocks
            public = self._pinned_part(sequence) if sequence.cache_salt else []
            parent = public[-1][0] if public else self.lineage
            sequence.chain = keys.Chain(
                keys.root(parent, sequence.cache_salt), self.pool.block_size_tokens, public
            )

    def _pinned_part(self, sequence: Sequence) -> list[tuple[bytes, Format]]:
        """Keys of its first blocks as far as they are pinned and cached. Those are found under every salt,
        because that they are there says nothing of what anybody asked."""
        size, token_ids = self.pool.block_size_tokens, sequence.token_ids
        chain = keys.Chain(keys.root(self.lineage, ""), size)
        found: list[tuple[bytes, Format]] = []
        most = prefix.whole_blocks(len(token_ids), size) if self.pool.num_pinned else 0
        for index in range(most):
            fmt = sequence.format_of(index)
            key = chain.key(token_ids, index, fmt)
            tokens = token_ids[index * size : (index + 1) * size]
            if not self.pool.has_pin(key) or self.pool.find(key, tokens) is None:
                break
            found.append((key, fmt))
        return found

    def precision(self, declared_tokens: int) -> rules.Precision:
        return rules.precision(
            declared_tokens,
            is_quantizing=self.pool.totals.quantized > 0,
            block_size_tokens=self.pool.block_size_tokens,
            most_full_tokens=self.most_full_tokens,
        )

    def find(self, sequence: Sequence, prefill_tokens_per_s: float) -> Hits:
        """The longest prefix that need not be computed. Nothing changes: `Memory.hold` it before anything
        else is allocated."""
        refusal = rules.refuses_reuse(
            is_caching=self.is_caching, has_prompt_logprobs=not sequence.reads_cache
        )
        if refusal is not None:
            return Hits([], [], refusal)
        device = list(self._on_device(sequence))
        slots = list(self._on_host(sequence, len(device)))
        reason = rules.reuse(
            device_blocks=len(device),
            host_blocks=len(slots),
            is_host_worth_it=rules.is_load_worth_it(
                len(slots) * self.pool.block_size_tokens, self.break_even, prefill_tokens_per_s
            ),
        )
        return Hits(device, slots if reason is rules.Reason.REUSE_HOST else [], reason)

    def is_mostly_cached(self, sequence: Sequence) -> bool:
        """True if so much of it is on the device that affinity counts; see `affinity`."""
        size = self.pool.block_size_tokens
        index = affinity.index(sequence, size)
        if index is None:
            return False
        tokens = sequence.token_ids[index * size : (index + 1) * size]
        return self.pool.find(sequence.key(index), tokens) is not None

    def publish(self, sequence: Sequence) -> range:
        """Make its newly filled blocks findable. -> their indexes."""
        size, chain = self.pool.block_size_tokens, sequence.chain
        assert chain is not None, sequence
        # What is everybody's is left to those without a salt, should it be gone.
        first = max(sequence.num_published_blocks, chain.num_public)
        end = sequence.num_computed_tokens // size
        for index in range(first, end):
            key = sequence.key(index)
            tokens = sequence.token_ids[index * size : (index + 1) * size]
            self.pool.publish(sequence.block_table[index], key, chain.parent(index), tokens)
        self.note_published(sequence, end)
        return range(first, end)

    def note_published(self, sequence: Sequence, num_blocks: int) -> None:
        """So many of its first blocks are, or need not be, published."""
        sequence.num_published_blocks = num_blocks
        size = self.pool.block_size_tokens
        sequence.publish_at_tokens = (num_blocks + 1) * size if self.is_caching else sequences.NEVER

    def pin(self, prompts: list[list[int]]) -> int:
        """Keep the blocks of these prompts once they are computed, and no others. -> how many of the blocks
        found no room."""
        self.pool.unpin_all()
        refused = 0
        size = self.pool.block_size_tokens
        for token_ids in prompts:
            decided = self.precision(len(token_ids))
            chain = keys.Chain(keys.root(self.lineage, ""), size)
            for index in range(len(token_ids) // size):
                fmt = Format.FULL if index < decided.num_full_blocks else Format.QUANTIZED
                if not self.pool.pin(chain.key(token_ids, index, fmt), fmt):
                    refused += 1
        return refused

    def _on_device(self, sequence: Sequence) -> Iterator[int]:
        size, token_ids, find = self.pool.block_size_tokens, sequence.token_ids, self.pool.find
        for index in range(prefix.whole_blocks(len(token_ids), size)):
            found = find(sequence.key(index), token_ids[index * size : (index + 1) * size])
            if found is None:
                return
            yield found

    def _on_host(self, sequence: Sequence, first: int) -> Iterator[int]:
        if self.host is None:
            return
        size, token_ids = self.pool.block_size_tokens, sequence.token_ids
        for index in range(first, prefix.whole_blocks(len(token_ids), size)):
            tokens = token_ids[index * size : (index + 1) * size]
            found = self.host.find(sequence.key(index), tokens, sequence.format_of(index))
            if found is None:
                return
            yield found
