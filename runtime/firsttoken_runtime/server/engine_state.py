"""What an engine reports about itself: the document of `GET /state`, from its last messages. Pure."""

from firsttoken_api.state import CacheState, DeviationState, EngineState, FlagsState, KvState
from firsttoken_runtime import core
from firsttoken_runtime.server.life import Life


def document(
    life: Life,
    ready: core.Ready | None,
    stats: core.Stats | None,
    flags: FlagsState,
    *,
    kv_bytes_per_token: int = 0,
) -> EngineState:
    """`ready` is None while the model loads, `stats` until the first step or heartbeat. kv_bytes_per_token:
    of the layout in force; 0 = not known."""
    state = EngineState(phase=life.phase, load_progress=life.progress, error=life.error, flags=flags)
    if ready is not None:
        state = state.model_copy(
            update={
                "architecture": ready.architecture,
                "device": ready.device,
                "dtype": ready.dtype,
                "max_model_len": ready.max_model_len,
                "batch_invariant": ready.batch_invariant,
                "kv": KvState(block_size_tokens=ready.block_size_tokens, blocks_total=ready.kv_blocks),
                "cache": CacheState(kv_type=ready.kv_type, kv_bytes_per_token=kv_bytes_per_token),
            }
        )
    if stats is None:
        return state
    return state.model_copy(
        update={
            "kv": _kv(stats),
            "cache": _cache(stats, kv_bytes_per_token),
            "running": stats.running,
            "waiting": stats.waiting,
            "waiting_by_class": stats.waiting_by_class,
            "backlog_tokens": stats.backlog_tokens,
            "preemptions_total": stats.preemptions_total,
            "prefill_tokens_per_s": stats.prefill_tokens_per_s,
            "tpot_p95_s": stats.tpot_p95_s,
            "backlog_by_class": stats.backlog_by_class,
            "tpot_mean_s": stats.tpot_mean_s,
            "step_time": stats.step_time,
            "chunk_tokens": stats.chunk_tokens,
            "max_prefill_batch": stats.max_prefill_batch,
            "max_num_seqs": stats.max_num_seqs,
            "decoding": stats.decoding,
            "context_tokens": stats.context_tokens,
            "output_tokens_by_class": stats.lengths_by_class,
        }
    )


def _kv(stats: core.Stats) -> KvState:
    allocated = stats.kv_allocated_slot_seconds_total
    return KvState(
        block_size_tokens=stats.block_size_tokens,
        blocks_total=stats.blocks_total,
        blocks_used=stats.blocks_used,
        blocks_recommended=stats.reference_blocks,
        live_slots=stats.live_slots,
        allocated_slots=stats.allocated_slots,
        needed_slots=stats.needed_slots,
        live_slot_seconds_total=stats.kv_live_slot_seconds_total,
        allocated_slot_seconds_total=allocated,
        needed_slot_seconds_total=stats.kv_needed_slot_seconds_total,
        use_ratio=min(1.0, stats.kv_live_slot_seconds_total / allocated) if allocated else 0.0,
        waste_ratio=max(0.0, 1 - stats.kv_needed_slot_seconds_total / allocated) if allocated else 0.0,
    )


def _cache(stats: core.Stats, kv_bytes_per_token: int) -> CacheState:
    seen = stats.kv_deviation
    return CacheState(
        kv_type=stats.kv_type,
        kv_bytes_per_token=kv_bytes_per_token,
        query_tokens_total=stats.prefix_query_tokens_total,
        hit_tokens_total=stats.prefix_hit_tokens_total,
        cached_blocks=stats.cached_blocks,
        evictions_total=stats.evictions_total,
        host_blocks=stats.host_blocks,
        host_bytes=stats.host_bytes,
        host_problems_total=stats.host_problems,
        saves_total=stats.saves_total,
        loads_total=stats.loads_total,
        rule_decisions_total=stats.rule_decisions,
        lineage=stats.lineage,
        lineage_changes_total=stats.lineage_changes_total,
        recompute_debt_tokens=stats.recompute_debt_tokens,
        switch_pause_s=stats.switch_pause_s,
        switch_gap_s=stats.switch_gap_s,
        deviation=None
        if seen is None
        else DeviationState(
            worst_layer_mean=seen.worst_layer_mean,
            p999=seen.p999,
            largest=seen.largest,
            relative_l2=seen.relative_l2,
            samples=seen.num_samples,
        ),
    )
