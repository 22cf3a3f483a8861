"""Prefixes that are being computed: who waits for whom.

A sequence whose next missing block another one is computing waits for it and then finds the blocks in the
cache. Who computes is ranked no worse than the best of those that wait (`followers_rank`). Keys contain
the salt and the lineage, so nobody waits across either.

Whoever waits is told when the last block they share is there, or when that will not be: the other one
stopped, or was given no tokens in MAX_STALLED_STEPS steps that gave some to others. It then takes its place
in the line again and is looked at anew, so the first of them in line computes and the others follow it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from firsttoken_runtime.scheduler.sequence import Sequence

MAX_STALLED_STEPS = 2


@dataclass
class _Lead:
    """What one sequence computes for others."""

    sequence: Sequence
    keys: dict[bytes, None] = field(default_factory=dict)
    """Of the blocks that are still to come, in order."""
    followers: dict[int, Sequence] = field(default_factory=dict)


@dataclass(frozen=True)
class _Wait:
    """Of one follower."""

    leader_id: int
    key: bytes
    """Of the last block that it waits for."""


class InFlight:
    """Blocks that running sequences are computing."""

    def __init__(self) -> None:
        self._by_key: dict[bytes, _Lead] = {}
        self._leads: dict[int, _Lead] = {}
        self._waits: dict[int, _Wait] = {}
        self._waiting_for: dict[bytes, dict[int, Sequence]] = {}

    def __len__(self) -> int:
        """Blocks."""
        return len(self._by_key)

    @property
    def num_followers(self) -> int:
        return len(self._waits)

    def lead(self, sequence: Sequence, keys: Iterable[bytes]) -> None:
        """It will compute the blocks with these keys, unless somebody else does already."""
        one = _Lead(sequence)
        for key in keys:
            if self._by_key.setdefault(key, one) is one:
                one.keys[key] = None
        if one.keys:
            self._leads[sequence.sequence_id] = one

    def leader_of_key(self, key: bytes) -> Sequence | None:
        """Who computes the block with that key."""
        found = self._by_key.get(key)
        return found.sequence if found is not None else None

    def leader_of(self, follower: Sequence) -> Sequence | None:
        wait = self._waits.get(follower.sequence_id)
        return None if wait is None else self._leads[wait.leader_id].sequence

    def follow(self, follower: Sequence, leader: Sequence, last_key: bytes) -> None:
        """It waits until the block with `last_key` is there."""
        assert follower.sequence_id not in self._waits, follower
        lead = self._leads[leader.sequence_id]
        assert self._by_key[last_key] is lead, "waits for a block that nobody computes"
        self._waits[follower.sequence_id] = _Wait(leader.sequence_id, last_key)
        self._waiting_for.setdefault(last_key, {})[follower.sequence_id] = follower
        lead.followers[follower.sequence_id] = follower
        self._lend(lead)

    def leave(self, follower: Sequence) -> None:
        """It waits no longer, whether or not it did."""
        wait = self._waits.pop(follower.sequence_id, None)
        if wait is None:
            return
        waiting = self._waiting_for[wait.key]
        del waiting[follower.sequence_id]
        if not waiting:
            del self._waiting_for[wait.key]
        lead = self._leads[wait.leader_id]
        del lead.followers[follower.sequence_id]
        self._lend(lead)

    def arrived(self, key: bytes) -> tuple[Sequence, list[Sequence]] | None:
        """A block with that key is there, whoever was first. -> who was to compute it, and who waited for
        just that. None: nobody was."""
        lead = self._by_key.pop(key, None)
        if lead is None:
            return None
        del lead.keys[key]
        ready = list(self._waiting_for.get(key, {}).values())
        for follower in ready:
            self.leave(follower)
        if not lead.keys:
            assert not lead.followers, "somebody waits for nothing"
            del self._leads[lead.sequence.sequence_id]
        return lead.sequence, ready

    def stop(self, leader: Sequence) -> list[Sequence]:
        """It computes nothing for others any more. -> who waited for it, first come first."""
        lead = self._leads.get(leader.sequence_id)
        if lead is None:
            return []
        followers = list(lead.followers.values())
        for follower in followers:
            self.leave(follower)
        for key in lead.keys:
            del self._by_key[key]
        del self._leads[leader.sequence_id]
        return followers

    def note_step(self, served: Iterable[int]) -> list[Sequence]:
        """A step gave tokens to these prompts, at least one. -> leaders that stall, with followers."""
        given = set(served)
        stalled = []
        for lead in self._leads.values():
            leader = lead.sequence
            if not lead.followers or leader.sequence_id in given:
                leader.stalled_steps = 0
            else:
                leader.stalled_steps += 1
                if leader.stalled_steps >= MAX_STALLED_STEPS:
                    stalled.append(leader)
        return stalled

    def clear(self) -> list[Sequence]:
        """Nobody waits or is waited for. -> who waited."""
        followers = [one for lead in self._leads.values() for one in lead.followers.values()]
        for lead in self._leads.values():
            lead.followers.clear()
            self._lend(lead)
        for table in (self._by_key, self._leads, self._waits, self._waiting_for):
            table.clear()
        return followers

    def check_integrity(self, parked: Iterable[int], running: Iterable[int]) -> None:
        """Assert that just the parked ones wait, each for somebody who runs."""
        assert set(self._waits) == set(parked), "who waits for a prefix is not known"
        assert self._leads.keys() <= set(running), "a leader does not run"
        keys = {key for lead in self._leads.values() for key in lead.keys}
        assert keys == set(self._by_key), "keys and leaders disagree"
        assert set(self._waiting_for) <= keys, "somebody waits for a block that nobody computes"
        for lead in self._leads.values():
            assert set(lead.followers) == {
                one for one, wait in self._waits.items() if wait.leader_id == lead.sequence.sequence_id
            }

    def _lend(self, lead: _Lead) -> None:
        ranks = [follower.rank for follower in lead.followers.values()]
        lead.sequence.followers_rank = min(ranks, default=None)
