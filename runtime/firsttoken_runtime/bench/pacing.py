"""The simulated engine behind `paced_engine`: which sequence gets which tokens of a step, and how long the
step takes. Pure; `now` comes from the caller.

It stands in for an engine where a machine cannot carry as many real ones as an experiment needs. Steps take
what the rates say, prompts are computed in chunks in the order of class and arrival, and whole blocks of a
prompt are found again. It knows nothing of preemption, of the host tier or of in-flight sharing.
"""

import hashlib
import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

TOKEN_BYTES = 4
"""A token of a prompt that is text. Token ids are packed into as many."""
KEY_BYTES = 16


@dataclass(frozen=True)
class Pace:
    """How fast it is, and how much it holds."""

    fixed_s: float = 0.004
    per_prefill_token_s: float = 1 / 4000
    per_decode_s: float = 0.0005
    chunk_tokens: int = 256
    max_num_seqs: int = 32
    block_size_tokens: int = 16
    blocks: int = 8192

    def step_s(self, prefill_tokens: int, decoding: int) -> float:
        return self.fixed_s + self.per_prefill_token_s * prefill_tokens + self.per_decode_s * decoding

    @property
    def prefill_tokens_per_s(self) -> float:
        """With nothing else to do."""
        return self.chunk_tokens / self.step_s(self.chunk_tokens, 0)


@dataclass(eq=False)
class Simulated:
    """One request. Times are the caller's, in seconds."""

    prompt_tokens: int
    output_tokens: int
    keys: tuple[bytes, ...]
    """Of the prompt's whole blocks, each for all tokens up to its end."""
    priority: int = 0
    request_class: str = ""
    arrival_s: float = 0.0
    cached_tokens: int = 0
    computed_tokens: int = 0
    emitted_tokens: int = 0
    scheduled_s: float | None = None
    """When it was first given tokens."""
    prefilled_s: float | None = None
    """When the step with its last prompt token ended."""

    @property
    def uncomputed_tokens(self) -> int:
        return self.prompt_tokens - self.computed_tokens

    @property
    def is_done(self) -> bool:
        return self.emitted_tokens >= self.output_tokens


def block_keys(prompt: bytes, salt: str, block_size_tokens: int) -> tuple[bytes, ...]:
    """Chained keys of the whole blocks of a prompt of `TOKEN_BYTES` a token."""
    size = TOKEN_BYTES * block_size_tokens
    keys = []
    parent = hashlib.blake2b(salt.encode(), digest_size=KEY_BYTES).digest()
    for start in range(0, len(prompt) - size + 1, size):
        parent = hashlib.blake2b(parent + prompt[start : start + size], digest_size=KEY_BYTES).digest()
        keys.append(parent)
    return tuple(keys)


class PrefixCache:
    """Blocks that can be found again; the one that was not used for the longest time makes way."""

    def __init__(self, blocks: int) -> None:
        self._room = blocks
        self._keys: OrderedDict[bytes, None] = OrderedDict()
        self.query_tokens = 0
        self.hit_tokens = 0

    def __len__(self) -> int:
        return len(self._keys)

    def found_blocks(self, keys: Sequence[bytes]) -> int:
        """How many of the first ones are there. Changes nothing."""
        return next((index for index, key in enumerate(keys) if key not in self._keys), len(keys))

    def publish(self, keys: Sequence[bytes]) -> None:
        # The deepest first: a block is of no use without those before it.
        for key in reversed(keys):
            self._keys[key] = None
            self._keys.move_to_end(key)
        while len(self._keys) > self._room:
            self._keys.popitem(last=False)


@dataclass(frozen=True)
class Step:
    """What one step does."""

    duration_s: float
    prefills: tuple[tuple[Simulated, int], ...]
    """(sequence, prompt tokens)."""
    decodes: tuple[Simulated, ...]


@dataclass
class Scheduler:
    """Waiting and running sequences."""

    pace: Pace
    cache: PrefixCache = field(init=False)
    waiting: list[Simulated] = field(default_factory=list)
    running: list[Simulated] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cache = PrefixCache(self.pace.blocks)

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running)

    @property
    def decoding(self) -> int:
        return sum(1 for one in self.running if not one.uncomputed_tokens)

    @property
    def backlog_tokens(self) -> int:
        return sum(one.uncomputed_tokens for one in (*self.waiting, *self.running))

    @property
    def context_tokens(self) -> int:
        return sum(
            one.prompt_tokens + one.emitted_tokens for one in self.running if not one.uncomputed_tokens
        )

    def hit_tokens(self, prompt_tokens: int, keys: Sequence[bytes]) -> int:
        """Found now, in whole blocks, so that one token is left to compute."""
        size = self.pace.block_size_tokens
        most = max(0, prompt_tokens - 1) // size
        return min(most, self.cache.found_blocks(keys)) * size

    def ahead_tokens(self, priority: int) -> int:
        """Prompt tokens that come before those of a request that arrives now, less what is found."""
        running = sum(one.uncomputed_tokens for one in self.running if one.priority >= priority)
        waiting = sum(
            one.prompt_tokens - self.hit_tokens(one.prompt_tokens, one.keys)
            for one in self.waiting
            if one.priority >= priority
        )
        return running + waiting

    def add(self, sequence: Simulated) -> None:
        assert sequence.prompt_tokens > 0
        assert sequence.output_tokens > 0
        self.waiting.append(sequence)

    def drop(self, sequence: Simulated) -> None:
        """Its client has left. One that has ended already is passed over."""
        for place in (self.waiting, self.running):
            if sequence in place:
                place.remove(sequence)

    def begin(self, now: float) -> Step:
        """Decodes first; what is left of the chunk goes to prompts in order. Needs work."""
        assert self.has_work
        self._admit()
        decodes = tuple(one for one in self.running if not one.uncomputed_tokens)
        room = self.pace.chunk_tokens
        prefills: list[tuple[Simulated, int]] = []
        for one in sorted(self.running, key=_order):
            if room <= 0:
                break
            if one.uncomputed_tokens:
                if one.scheduled_s is None:
                    self._look_up(one)
                    one.scheduled_s = now
                tokens = min(room, one.uncomputed_tokens)
                prefills.append((one, tokens))
                room -= tokens
        computed = sum(tokens for _, tokens in prefills)
        return Step(self.pace.step_s(computed, len(decodes)), tuple(prefills), decodes)

    def end(self, step: Step, now: float) -> Iterator[Simulated]:
        """Those that got a token, those that have ended with it included; they are gone from here then."""
        for one, tokens in step.prefills:
            one.computed_tokens += tokens
            if not one.uncomputed_tokens:
                one.prefilled_s = now
                self.cache.publish(one.keys)
        finished_prompts = (one for one, _ in step.prefills if not one.uncomputed_tokens)
        for one in (*step.decodes, *finished_prompts):
            if one in self.running:
                one.emitted_tokens += 1
                if one.is_done:
                    self.running.remove(one)
                yield one

    def _admit(self) -> None:
        self.waiting.sort(key=_order)
        while self.waiting and len(self.running) < self.pace.max_num_seqs:
            self.running.append(self.waiting.pop(0))

    def _look_up(self, one: Simulated) -> None:
        """When its turn has come: what was before it and begins alike has been computed by then."""
        one.cached_tokens = one.computed_tokens = self.hit_tokens(one.prompt_tokens, one.keys)
        self.cache.query_tokens += one.prompt_tokens
        self.cache.hit_tokens += one.cached_tokens
        self.cache.publish(one.keys[: one.cached_tokens // self.pace.block_size_tokens])


def _order(one: Simulated) -> tuple[int, float]:
    return (-one.priority, one.arrival_s)


def tokens_of(prompt: bytes) -> int:
    return max(1, math.ceil(len(prompt) / TOKEN_BYTES))
