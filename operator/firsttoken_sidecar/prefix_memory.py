"""What a sidecar remembers of prompts: how common each prefix is, and which replicas have computed it. Pure.

Two questions are answered from it. *Where does a prefix belong?* At the shallowest piece that is not too
common: a system prompt that a few requests share is one label, so all of them have one home, whatever
follows; a prefix that more requests share than one replica can carry is no label, the pieces below it are,
and the common part is soon cached everywhere. All sidecars see samples of the same traffic, so they come to
the same labels without talking to each other. *How much of a prompt is cached at a replica?* As far down as
it was sent there not long ago.

Bounded: the least recently used keys are forgotten, and of a long prompt only some depths are kept.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

MOST_KEYS = 32_768
FORGOTTEN_AFTER_S = 600.0
"""A prefix sent to a replica so long ago is no longer counted on: its cache may have made room."""
HALF_LIFE_S = 60.0
"""Of the counts behind "how common": the mix of prompts may change, and labels then follow."""
LEAST_REQUESTS = 20.0
"""Below so many recent requests nothing counts as common: every prefix is all of the traffic at first."""
FIRST_RECURRING = 0.5
RECURRING_WEIGHT = 0.05
"""Of the newest request in the running share of prompts that was known."""
MOST_REPLICAS = 8
"""Remembered for one key; the longest ago is dropped."""


@dataclass(frozen=True, slots=True)
class Label:
    """What a prompt is filed under."""

    key: bytes | None
    """Decides the home. None: the prompt is short, or all of it is common."""
    common_pieces: int
    """So many of the first pieces are so common that every replica has them, or soon will."""
    expected_pieces: int
    """So many of the first pieces the home may have, by how much of other prompts recurred: what this sidecar
    sees for the first time, others may have sent there."""


class _Record:
    __slots__ = ("requests", "sent_s", "updated_s")

    def __init__(self, now: float) -> None:
        self.requests = 0.0
        self.updated_s = now
        self.sent_s: dict[str, float] = {}

    def count(self, now: float) -> None:
        self.requests = _faded(self.requests, self.updated_s, now) + 1.0
        self.updated_s = now


class PrefixMemory:
    """The prefixes of one sidecar's recent requests. Times are of one monotonic clock, in seconds."""

    def __init__(self, most_keys: int = MOST_KEYS) -> None:
        self._most_keys = most_keys
        self._records: OrderedDict[bytes, _Record] = OrderedDict()
        self._all = _Record(0.0)
        self._recurring = FIRST_RECURRING

    def __len__(self) -> int:
        return len(self._records)

    def arrived(self, keys: Sequence[bytes], now: float) -> None:
        """A request with these prefix keys came from a client, whichever replica will answer.

        Not for what peers send on: here that is mostly what has its home here, which is no fair sample.
        """
        self._all.count(now)
        known_pieces = 0
        for depth in _kept_depths(len(keys)):
            if keys[depth] in self._records:
                known_pieces = depth + 1
            self._record(keys[depth], now).count(now)
        if keys:
            self._recurring += RECURRING_WEIGHT * (known_pieces / len(keys) - self._recurring)

    def sent(self, keys: Sequence[bytes], replica: str, now: float) -> None:
        """A request was sent to this replica, which has the whole prompt in its cache soon."""
        for depth in _kept_depths(len(keys)):
            sent_s = self._record(keys[depth], now).sent_s
            sent_s[replica] = now
            if len(sent_s) > MOST_REPLICAS:
                del sent_s[min(sent_s, key=sent_s.__getitem__)]

    def _record(self, key: bytes, now: float) -> _Record:
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = _Record(now)
            if len(self._records) > self._most_keys:
                self._records.popitem(last=False)
        else:
            self._records.move_to_end(key)
        return record

    def label(self, keys: Sequence[bytes], largest_share: float, now: float) -> Label:
        """The first key that at most this share of all requests has."""
        recent = _faded(self._all.requests, self._all.updated_s, now)
        # The others together see several times as much as this one: where half is known here, most is known.
        expected_pieces = int((1 - (1 - self._recurring) ** 2) * len(keys))
        if recent < LEAST_REQUESTS:
            return Label(keys[0] if keys else None, 0, expected_pieces)
        common_pieces = 0
        for depth in _kept_depths(len(keys)):
            record = self._records.get(keys[depth])
            if record is None or _faded(record.requests, record.updated_s, now) <= largest_share * recent:
                return Label(keys[depth], common_pieces, expected_pieces)
            common_pieces = depth + 1
        return Label(None, common_pieces, expected_pieces)

    def cached_pieces(self, keys: Sequence[bytes], now: float) -> dict[str, int]:
        """By replica, how many of the first pieces are taken to be in its cache."""
        pieces: dict[str, int] = {}
        for depth in _kept_depths(len(keys)):
            record = self._records.get(keys[depth])
            if record is None:
                break
            for replica, sent_s in record.sent_s.items():
                if now - sent_s <= FORGOTTEN_AFTER_S:
                    pieces[replica] = depth + 1
        return pieces


def _kept_depths(count: int) -> list[int]:
    """Every piece of a short prompt, then every fourth, then every sixteenth: at most 40 of 256."""
    return [*range(min(count, 16)), *range(19, min(count, 64), 4), *range(79, count, 16)]


def _faded(value: float, updated_s: float, now: float) -> float:
    return float(value * 0.5 ** ((now - updated_s) / HALF_LIFE_S))
