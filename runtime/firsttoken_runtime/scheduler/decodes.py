"""The first half of a step: a token for each sequence that decodes.

They are visited in order of class and arrival. Who needs a block when none can be had takes it from the
last in that order, itself perhaps: so nobody who was given a token in this step becomes a victim here.
"""

from firsttoken_runtime.scheduler import preemption
from firsttoken_runtime.scheduler.roster import Roster
from firsttoken_runtime.scheduler.sequence import Sequence
from firsttoken_runtime.scheduler.step import Draft


def add(draft: Draft, roster: Roster, now: float) -> None:
    """Give every decoding sequence its token, and the block for it."""
    block_size = roster.memory.pool.block_size_tokens
    for sequence in tuple(roster.running.decoding):
        if draft.preempted and sequence not in roster.running:
            continue
        num_tokens = len(sequence.token_ids)
        if num_tokens > len(sequence.block_table) * block_size:
            _make_room(sequence, draft, roster, now)
            if sequence not in roster.running:
                continue
            roster.memory.take_block(sequence)
        draft.add_decode(sequence)


def _make_room(sequence: Sequence, draft: Draft, roster: Roster, now: float) -> None:
    """See that the block for the newest token can be had. The victims may include the sequence itself."""
    memory, fmt = roster.memory, sequence.format_of(len(sequence.block_table))
    while sequence in roster.running and not memory.can_take_block(sequence):
        victim = next(
            one
            for one in roster.running.last_first()
            if preemption.can_be_victim(one) and (one is sequence or memory.freed(one)[fmt] > 0)
        )
        assert victim.sequence_id not in draft.decodes, "decodes are visited in the reverse order"
        draft.withdraw(victim)
        roster.preempt(victim, now)
