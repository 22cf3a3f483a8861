"""The requests of a load, made from a seed: the same seed is the same requests, token for token. Pure.

Prompts are random token ids, so that lengths are exact and no two prompts share a prefix (`sharing` makes
those that do). A lane is a list of requests and how they are sent; lanes of one load run side by side.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

SAFE_TOKEN_IDS = range(1000, 30_000)
"""Inside the vocabulary of every model of these sizes, and clear of special tokens."""


TEXT_BYTES = 4


@dataclass(frozen=True)
class Request:
    """One request."""

    prompt_token_ids: tuple[int, ...]
    output_tokens: int | None
    """Exactly so many are generated; None: the client names no limit."""
    group: str = ""
    """Whose figures it belongs to, e.g. `short`."""
    request_class: str = ""
    """Sent as X-Firsttoken-Class where it is not empty."""
    arrival_s: float | None = None
    """Open loop: when it is sent, from the start of the load. None: closed loop, when a client is free."""
    shared_prefix_tokens: int = 0
    """So many leading tokens are declared as shared; 0 says nothing of it."""
    text: str = ""
    """Sent in place of token ids where it is not empty, of about `TEXT_BYTES` a token."""

    @property
    def prompt_tokens(self) -> int:
        return len(self.prompt_token_ids) or -(-len(self.text) // TEXT_BYTES)


@dataclass(frozen=True)
class Lane:
    """Requests in order, and how many may be open at once."""

    requests: tuple[Request, ...]
    concurrency: int
    """Closed loop: the number of clients. Open loop: a bound that keeps the client alive; never reached."""
    is_background: bool = False
    """Repeats from its beginning until the other lanes are done."""


def prompt(generator: random.Random, tokens: int, token_ids: range = SAFE_TOKEN_IDS) -> tuple[int, ...]:
    return tuple(generator.choices(token_ids, k=tokens))


def requests(
    generator: random.Random,
    lengths: Sequence[tuple[int, int | None]],
    *,
    group: str = "",
    request_class: str = "",
    token_ids: range = SAFE_TOKEN_IDS,
) -> list[Request]:
    """One request for each (prompt tokens, output tokens)."""
    return [
        Request(prompt(generator, prompt_tokens, token_ids), output_tokens, group, request_class)
        for prompt_tokens, output_tokens in lengths
    ]


def closed(requests: Sequence[Request], concurrency: int) -> Lane:
    return Lane(tuple(requests), concurrency)


def opened(requests: Sequence[Request], arrivals_s: Sequence[float]) -> Lane:
    """The same requests at given times."""
    assert len(requests) == len(arrivals_s)
    timed = [
        replace(one, arrival_s=arrival_s) for one, arrival_s in zip(requests, sorted(arrivals_s), strict=True)
    ]
    return Lane(tuple(timed), len(timed))


def totals(lanes: Sequence[Lane]) -> tuple[int, int]:
    """(prompt tokens, stated output tokens) of all lanes, once through."""
    everything = [request for lane in lanes for request in lane.requests]
    return (
        sum(len(request.prompt_token_ids) for request in everything),
        sum(request.output_tokens or 0 for request in everything),
    )
