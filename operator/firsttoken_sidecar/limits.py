"""How much one API key may ask for in a minute: requests and tokens, as two token buckets for each key. Pure.

A bucket holds one minute's worth and is full at first. A request takes what is known of it when it comes, the
prompt and the `max_tokens` it asks for, and gives back or adds the difference when it has ended, so an answer
without `max_tokens` can leave a debt that later requests wait for. One that is larger than a whole minute's
worth is let through when the bucket is full: never would be no answer.

Each replica counts by itself.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass

from firsttoken_api import errors
from firsttoken_sidecar.caller import Caller

MINUTE_S = 60.0
SLACK_S = 0.001
"""Whoever comes back exactly when told is not sent away for a rounding error."""


@dataclass
class _Bucket:
    """What is left of one limit. Negative: a debt."""

    level: float
    at_s: float

    def refill(self, per_minute: int, now: float) -> None:
        """Also follows a limit that was changed."""
        grown = self.level + max(0.0, now - self.at_s) * per_minute / MINUTE_S
        self.level = min(float(per_minute), grown)
        self.at_s = now

    def wait_s(self, amount: int, per_minute: int) -> float:
        """Seconds until so much is there; 0 if it is."""
        return max(0.0, min(amount, per_minute) - self.level) * MINUTE_S / per_minute


class Charge:
    """The tokens that one request took; `settle` says what they were in the end."""

    def __init__(self, tokens: int, bucket: _Bucket | None) -> None:
        self._tokens = tokens
        self._bucket = bucket

    def settle(self, used_tokens: int) -> None:
        """Once, at the end; a second time does nothing. Without it the request keeps what it took."""
        if self._bucket is not None:
            self._bucket.level += self._tokens - used_tokens
            self._bucket = None


class Limits:
    """The buckets of all keys."""

    def __init__(self) -> None:
        self._requests: dict[str, _Bucket] = {}
        self._tokens: dict[str, _Bucket] = {}

    def take(self, caller: Caller, tokens: int, now: float) -> Charge:
        """Takes one request of so many tokens. Raises errors.RateLimitedError, and then takes nothing."""
        of_requests = _refilled(self._requests, caller.name, "requests", caller.requests_per_minute, 1, now)
        of_tokens = _refilled(self._tokens, caller.name, "tokens", caller.tokens_per_minute, tokens, now)
        if of_requests is not None:
            of_requests.level -= 1
        if of_tokens is not None:
            of_tokens.level -= tokens
        return Charge(tokens, of_tokens)

    def keep_only(self, names: Collection[str]) -> None:
        """Forgets keys that are no more."""
        for buckets in (self._requests, self._tokens):
            for name in buckets.keys() - set(names):
                del buckets[name]


def _refilled(
    buckets: dict[str, _Bucket], name: str, unit: str, per_minute: int | None, amount: int, now: float
) -> _Bucket | None:
    """The bucket that has so much; None where there is no limit. Raises errors.RateLimitedError."""
    if per_minute is None:
        return None
    bucket = buckets.setdefault(name, _Bucket(float(per_minute), now))
    bucket.refill(per_minute, now)
    wait_s = bucket.wait_s(amount, per_minute)
    if wait_s > SLACK_S:
        raise errors.RateLimitedError(
            f"This API key may use {per_minute} {unit} a minute, and has.",
            retry_after_s=max(1, math.ceil(wait_s)),
        )
    return bucket
