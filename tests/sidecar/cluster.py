"""Replicas with their routers as a simulation in virtual time: real policy, no real engines.

Each engine computes prompts one after another at a given rate and keeps an LRU cache of prefix pieces. Each
router sees its own engine as it is and the others as they were at its last look. Clients come to the routers
in turn, as behind a Service.
"""

import heapq
import random
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from firsttoken_api.routing import RoutingStrategy
from firsttoken_sidecar import prefix_memory, ring, routing

LOOK_EVERY_S = 0.1
HOP_S = 0.001
PIECE_TOKENS = 128


@dataclass(frozen=True)
class Prompt:
    """One request: its prefix keys, in pieces of `PIECE_TOKENS`, and some tokens that are no whole piece."""

    at_s: float
    keys: tuple[bytes, ...]
    rest_tokens: int = 16

    @property
    def tokens(self) -> int:
        return len(self.keys) * PIECE_TOKENS + self.rest_tokens


@dataclass
class Engine:
    """One prompt after another; `free_s` is when the last one accepted will be done."""

    name: str
    tokens_per_s: float = 8_000.0
    cache_pieces: float = 2_000
    free_s: float = 0.0
    hit_tokens: int = 0
    prompt_tokens: int = 0
    dies_s: float = float("inf")
    cache: OrderedDict[bytes, None] = field(default_factory=OrderedDict)

    def wait_s(self, now: float) -> float:
        return max(0.0, self.free_s - now)

    def accept(self, prompt: Prompt, now: float) -> float:
        """When its first token comes."""
        hits = 0
        for key in prompt.keys:
            if key not in self.cache:
                break
            hits += 1
        for key in reversed(prompt.keys):
            self.cache[key] = None
            self.cache.move_to_end(key)
        while len(self.cache) > self.cache_pieces:
            self.cache.popitem(last=False)
        self.hit_tokens += hits * PIECE_TOKENS
        self.prompt_tokens += prompt.tokens
        self.free_s = max(self.free_s, now) + (prompt.tokens - hits * PIECE_TOKENS) / self.tokens_per_s
        return self.free_s


@dataclass
class Look:
    """What a router knows of one replica."""

    at_s: float
    free_s: float
    sent_s: float = 0.0
    """Work sent there since."""


class Gateway:
    """One router, beside the engine of its name."""

    def __init__(self, name: str, engines: dict[str, Engine], strategy: RoutingStrategy, seed: int) -> None:
        self.name = name
        self.strategy = strategy
        self.memory = prefix_memory.PrefixMemory()
        self.random = random.Random(seed)
        self.engines = engines
        self.ring = ring.Ring(engines)
        self.looks: dict[str, Look] = {}
        self.aside_until_s: dict[str, float] = {}
        self.reasons: list[routing.Reason] = []

    def route(self, prompt: Prompt, now: float) -> str:
        if self.strategy is RoutingStrategy.NONE:
            return self.name
        accepting = {
            name: self._replica(name, now)
            for name, engine in self.engines.items()
            if self.aside_until_s.get(name, 0.0) <= now and (name != self.name or now < engine.dies_s)
        }
        self.memory.arrived(prompt.keys, now)
        cached = self.memory.cached_pieces(prompt.keys, now)
        label = self.memory.label(prompt.keys, routing.LOAD_BOUND / len(accepting), now)
        home = None
        if label.key is not None and self.strategy is RoutingStrategy.PREFIX_AWARE:
            home = self.ring.home(label.key, accepting)
        replicas = {
            name: self._facing(
                prompt,
                name,
                wait_s,
                max(cached.get(name, 0), label.common_pieces),
                label.expected_pieces if name == home else 0,
            )
            for name, wait_s in accepting.items()
        }
        choice = routing.choose(self.strategy, replicas, self.name, home, "", self.random)
        self.reasons.append(choice.reason)
        self.memory.sent(prompt.keys, choice.name, now)
        if choice.name != self.name:
            chosen = replicas[choice.name]
            self.looks[choice.name].sent_s += chosen.first_token_s - chosen.wait_s
        return choice.name

    def _replica(self, name: str, now: float) -> float:
        engine = self.engines[name]
        if name == self.name:
            return engine.wait_s(now)
        look = self.looks.get(name)
        if look is None or now - look.at_s >= LOOK_EVERY_S:
            look = self.looks[name] = Look(now, engine.free_s)
        return max(0.0, look.free_s - now) + look.sent_s

    def _facing(
        self, prompt: Prompt, name: str, wait_s: float, pieces: int, expected_pieces: int
    ) -> routing.Replica:
        hit_tokens = pieces * PIECE_TOKENS
        uncached_tokens = prompt.tokens - max(pieces, expected_pieces) * PIECE_TOKENS
        compute_s = uncached_tokens / self.engines[name].tokens_per_s
        return routing.Replica(name, "", wait_s, wait_s + compute_s, hit_tokens)


@dataclass
class Outcome:
    """What came of a load."""

    ttfts_s: list[float]
    hit_ratio: float
    lost: int
    engines: list[Engine]
    reasons: list[routing.Reason]

    def p95_s(self) -> float:
        return sorted(self.ttfts_s)[int(len(self.ttfts_s) * 0.95)]


def serve(
    prompts: Sequence[Prompt],
    strategy: RoutingStrategy,
    *,
    replicas: int = 4,
    seed: int = 1,
    dies_s: float = float("inf"),
    **of_engines: float,
) -> Outcome:
    """Serves the prompts in order of arrival. `dies_s`: when the first engine ends, with what it accepted."""
    addresses = [f"10.0.0.{i + 1}" for i in range(replicas)]
    engines = {name: Engine(name, **of_engines) for name in addresses}  # type: ignore[arg-type]
    gateways = [Gateway(name, engines, strategy, seed + i) for i, name in enumerate(engines)]
    next(iter(engines.values())).dies_s = dies_s
    ttfts_s: list[float] = []
    lost = 0
    # (time, order, prompt, gateway, tries): arrivals, and requests whose replica failed them.
    coming = [(prompt.at_s, order, prompt, order % replicas, 0) for order, prompt in enumerate(prompts)]
    heapq.heapify(coming)
    while coming:
        now, order, prompt, turn, tries = heapq.heappop(coming)
        gateway = gateways[turn]
        name = gateway.route(prompt, now)
        engine = engines[name]
        if name != gateway.name:
            gateways[list(engines).index(name)].memory.sent(prompt.keys, name, now)
        arrives_s = now + (HOP_S if name != gateway.name else 0.0)
        done_s = engine.accept(prompt, arrives_s) if arrives_s < engine.dies_s else float("inf")
        if done_s <= engine.dies_s:
            ttfts_s.append(done_s - prompt.at_s)
        elif tries == 1:
            lost += 1
        else:
            # The connection breaks when the engine ends; whoever notices later is told so at once.
            failed_s = max(arrives_s, engine.dies_s)
            for each in gateways:
                each.aside_until_s[name] = float("inf")
            heapq.heappush(coming, (failed_s, order, prompt, turn, 1))
    total = sum(each.prompt_tokens for each in engines.values())
    return Outcome(
        ttfts_s,
        sum(each.hit_tokens for each in engines.values()) / total,
        lost,
        list(engines.values()),
        [reason for each in gateways for reason in each.reasons],
    )
