"""How much one API key may ask for in a minute: requests and tokens, as two token buckets for each key. Pure.

A bucket holds one minute's worth and is full at first. A request takes what is known of it when it comes, the
prompt and the `max_tokens` it asks for, and gives back or adds the difference when it has ended, so an answer
without `max_tokens` can leave a debt that later requests wait for. One that is larger than a whole minute's
worth is let through when the bucket is full: never would be no answer.

A limit is one for all replicas: each says on /state what was taken of it there, and takes from its own
buckets what its peers say. Between two looks at a peer a key can have more than its limit, by what it asks
for in that time; what was taken before a peer was first seen does not count.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from firsttoken_api import errors
from firsttoken_api.state import KeyUse
from firsttoken_sidecar.caller import Caller

MINUTE_S = 60.0
SLACK_S = 0.001
"""Whoever comes back exactly when told is not sent away for a rounding error."""
FORGOTTEN_S = 600.0
"""What a peer said is kept for so long after it was last heard of."""


class _Bucket:
    """What is left of one limit. A negative level is a debt."""

    def __init__(self, unit: str, per_minute: int, now: float) -> None:
        self._unit = unit
        self._per_minute = per_minute
        self._level = float(per_minute)
        self._at_s = now

    def change(self, per_minute: int, now: float) -> None:
        """Another limit holds from now on; what was used of the old one is used of it too."""
        if per_minute != self._per_minute:
            self._refill(now)
            self._level += per_minute - self._per_minute
            self._per_minute = per_minute

    def check(self, amount: int, now: float) -> None:
        """Raises errors.RateLimitedError unless so much is there."""
        self._refill(now)
        missing = min(amount, self._per_minute) - self._level
        wait_s = missing * MINUTE_S / self._per_minute
        if wait_s > SLACK_S:
            raise errors.RateLimitedError(
                f"This API key may use {self._per_minute} {self._unit} a minute, and has.",
                retry_after_s=max(1, math.ceil(wait_s)),
            )

    def take(self, amount: int) -> None:
        """Negative: gives back."""
        self._level -= amount

    def take_elsewhere(self, amount: int, now: float) -> None:
        """What came at a peer. It may be told late and at once, and is worth a minute at most."""
        self._refill(now)
        self._level -= min(amount, self._per_minute)

    def _refill(self, now: float) -> None:
        grown = self._level + max(0.0, now - self._at_s) * self._per_minute / MINUTE_S
        self._level = min(float(self._per_minute), grown)
        self._at_s = now


@dataclass
class _Account:
    """The limits of one key, and what was taken of them here since the start."""

    requests: _Bucket | None = None
    tokens: _Bucket | None = None
    requests_total: int = 0
    tokens_total: int = 0
    returned_tokens_total: int = 0

    def use(self) -> KeyUse:
        return KeyUse(
            requests_total=self.requests_total,
            tokens_total=self.tokens_total,
            returned_tokens_total=self.returned_tokens_total,
        )


class Charge:
    """The tokens that one request took; `settle` says what they were in the end."""

    def __init__(self, tokens: int, account: _Account | None) -> None:
        self._tokens = tokens
        self._account = account

    def settle(self, used_tokens: int) -> None:
        """Once, at the end; a second time does nothing. Without it the request keeps what it took."""
        account, self._account = self._account, None
        if account is None:
            return
        more = used_tokens - self._tokens
        account.tokens_total += max(more, 0)
        account.returned_tokens_total += max(-more, 0)
        if account.tokens is not None:
            account.tokens.take(more)


@dataclass
class _Peer:
    """What a peer said at the last look."""

    heard_s: float
    uses: Mapping[str, KeyUse] = field(default_factory=dict)


class Limits:
    """The buckets of all keys that have a limit."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}
        self._peers: dict[str, _Peer] = {}

    def follow(self, callers: Iterable[Caller], now: float) -> None:
        """These are the keys from now on. What was used of those that stay is kept."""
        before, self._accounts = self._accounts, {}
        for caller in callers:
            if caller.requests_per_minute is None and caller.tokens_per_minute is None:
                continue
            account = self._accounts[caller.name] = before.get(caller.name, _Account())
            account.requests = _changed(account.requests, "requests", caller.requests_per_minute, now)
            account.tokens = _changed(account.tokens, "tokens", caller.tokens_per_minute, now)

    def take(self, caller: Caller, tokens: int, now: float) -> Charge:
        """Takes one request of so many tokens. Raises errors.RateLimitedError, and then takes nothing."""
        account = self._accounts.get(caller.name)
        if account is None:
            return Charge(tokens, None)
        if account.requests is not None:
            account.requests.check(1, now)
        if account.tokens is not None:
            account.tokens.check(tokens, now)
            account.tokens.take(tokens)
        if account.requests is not None:
            account.requests.take(1)
        account.requests_total += 1
        account.tokens_total += tokens
        return Charge(tokens, account)

    def uses(self) -> dict[str, KeyUse]:
        """What was taken here, for the peers; keys that nobody has used are left out."""
        return {name: account.use() for name, account in self._accounts.items() if account.requests_total}

    def taken_elsewhere(self, peer: str, uses: Mapping[str, KeyUse], now: float) -> None:
        """What a peer says was taken there since its start; what is new of it counts here."""
        known = self._peers.get(peer)
        self._peers[peer] = _Peer(now, uses)
        for name in [each for each, said in self._peers.items() if now - said.heard_s > FORGOTTEN_S]:
            del self._peers[name]
        if known is None:
            return
        for name, use in uses.items():
            account = self._accounts.get(name)
            earlier = known.uses.get(name, KeyUse())
            if account is None or use.requests_total < earlier.requests_total:
                continue  # not ours, or the peer has started again
            if account.requests is not None:
                account.requests.take_elsewhere(use.requests_total - earlier.requests_total, now)
            if account.tokens is not None:
                account.tokens.take_elsewhere(use.tokens - earlier.tokens, now)


def _changed(bucket: _Bucket | None, unit: str, per_minute: int | None, now: float) -> _Bucket | None:
    if per_minute is None:
        return None
    if bucket is None:
        return _Bucket(unit, per_minute, now)
    bucket.change(per_minute, now)
    return bucket
