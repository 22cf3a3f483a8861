"""What the scheduler tells the server after each step."""

from firsttoken_runtime import core
from firsttoken_runtime.cache import pool as cache_pool
from firsttoken_runtime.scheduler.roster import Roster


def look(roster: Roster, now: float, prefill_budget_tokens: int) -> core.Stats:
    """A look at all counts; none of them visits what waits. prefill_budget_tokens: of the last step."""
    pool, record, host_index = roster.memory.pool, roster.record, roster.reuse.transfers.host
    held = tuple(roster.held.values())
    # Every class in force is listed, so that its number falls to 0 and does not vanish.
    every_class = {one.name: 0 for one in roster.order.table.classes}
    waiting_by_class = every_class | roster.waiting.count_by_class
    backlog_by_class = every_class | roster.waiting.backlog_by_class
    for sequence in held:
        name = sequence.class_in_force.name
        waiting_by_class[name] = waiting_by_class.get(name, 0) + 1
    for sequence in (*roster.running.prefilling, *held):
        name = sequence.class_in_force.name
        backlog_by_class[name] = backlog_by_class.get(name, 0) + sequence.backlog_tokens
    return core.Stats(
        running=len(roster.running),
        waiting=len(roster.waiting) + len(held),
        backlog_tokens=sum(backlog_by_class.values()),
        blocks_used=pool.num_used,
        blocks_total=pool.num_blocks,
        block_size_tokens=pool.block_size_tokens,
        preemptions_total=record.preemptions_total,
        waiting_by_class=waiting_by_class,
        backlog_by_class=backlog_by_class,
        live_slots=roster.live_slots,
        allocated_slots=roster.allocated_slots,
        needed_slots=roster.needed_slots(),
        kv_live_slot_seconds_total=record.memory_use.live_slot_seconds,
        kv_needed_slot_seconds_total=record.memory_use.needed_slot_seconds,
        kv_allocated_slot_seconds_total=record.memory_use.allocated_slot_seconds,
        prefill_tokens_per_s=record.speed.prefill_tokens_per_s,
        tpot_p95_s=record.speed.tpot_p95_s(now),
        tpot_mean_s=record.speed.tpot_s,
        step_time=record.step_fit.step_time,
        chunk_tokens=prefill_budget_tokens,
        max_prefill_batch=roster.limits.max_prefill_batch,
        max_num_seqs=roster.limits.max_num_seqs,
        decoding=len(roster.running.decoding),
        context_tokens=roster.computed_tokens,
        lengths_by_class=record.lengths.medians(),
        reference_blocks=cache_pool.reference_blocks(
            record.peak_concurrency, record.lengths.mean_tokens, pool.block_size_tokens
        ),
        prefix_query_tokens_total=record.looked_up_tokens,
        prefix_hit_tokens_total=dict(record.found_tokens),
        cached_blocks=pool.num_cached,
        evictions_total=roster.reuse.evictions_total,
        host_blocks=host_index.num_blocks if host_index is not None else 0,
        recompute_debt_tokens=roster.debt_tokens,
        rule_decisions=dict(record.decisions),
    )
