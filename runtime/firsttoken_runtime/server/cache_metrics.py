"""What is measured of the cache: hits by tier, the rule table's decisions, lineage, the host tier.

Counters of the engine arrive as totals, some of them by a word; they are counted on by what they grew.
"""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge

from firsttoken_api import exposition, metrics
from firsttoken_api.state import CacheState
from firsttoken_runtime import core

KV_TYPES = ("full", "int8", "fp8")
TIERS = ("device", "host")


class CacheMetrics:
    """A part of `Metrics`, in its registry."""

    def __init__(self, registry: CollectorRegistry, labels: tuple[str, ...]) -> None:
        self._registry = registry
        self._labels = labels
        self._queries = self._counter(metrics.VLLM_PREFIX_QUERIES)
        self._hits = self._counter(metrics.VLLM_PREFIX_HITS)
        self._evictions = self._counter(metrics.ENGINE_EVICTIONS)
        self._saves = self._counter(metrics.ENGINE_HOST_SAVES)
        self._loads = self._counter(metrics.ENGINE_HOST_LOADS)
        self._lineage_changes = self._counter(metrics.ENGINE_LINEAGE_CHANGES)
        self._samples = self._counter(metrics.ENGINE_KV_DEVIATION_SAMPLES)
        self._hits_by_tier = exposition.counter(metrics.ENGINE_PREFIX_HITS, registry)
        self._decisions = exposition.counter(metrics.ENGINE_RULE_DECISIONS, registry)
        self._problems = exposition.counter(metrics.ENGINE_HOST_PROBLEMS, registry)
        self._cached_blocks = self._gauge(metrics.ENGINE_CACHED_BLOCKS)
        self._host_blocks = self._gauge(metrics.ENGINE_HOST_BLOCKS)
        self._host_bytes = self._gauge(metrics.ENGINE_HOST_BYTES)
        self._recompute_debt = self._gauge(metrics.ENGINE_RECOMPUTE_DEBT)
        self._switch_pause = self._gauge(metrics.ENGINE_SWITCH_PAUSE)
        self._switch_gap = self._gauge(metrics.ENGINE_SWITCH_GAP)
        self._kv_type = exposition.gauge(metrics.ENGINE_KV_TYPE, registry)
        self._deviation = exposition.gauge(metrics.ENGINE_KV_DEVIATION, registry)
        for tier in TIERS:  # a rate of a series that is not there yet is no 0
            self._hits_by_tier.labels(*labels, tier)

    def step(self, stats: core.Stats, seen: core.Stats) -> None:
        """Count what grew since `seen`."""
        hits, hits_seen = stats.prefix_hit_tokens_total, seen.prefix_hit_tokens_total
        for counter, total, before in (
            (self._queries, stats.prefix_query_tokens_total, seen.prefix_query_tokens_total),
            (self._hits, sum(hits.values()), sum(hits_seen.values())),
            (self._evictions, stats.evictions_total, seen.evictions_total),
            (self._saves, stats.saves_total, seen.saves_total),
            (self._loads, stats.loads_total, seen.loads_total),
            (self._lineage_changes, stats.lineage_changes_total, seen.lineage_changes_total),
            (self._samples, _samples(stats), _samples(seen)),
        ):
            counter.inc(max(0, total - before))
        self._grow(self._hits_by_tier, hits, hits_seen)
        self._grow(self._decisions, stats.rule_decisions, seen.rule_decisions)
        self._grow(self._problems, stats.host_problems, seen.host_problems)

    def show(self, state: CacheState) -> None:
        """Set the gauges."""
        self._cached_blocks.set(state.cached_blocks)
        self._host_blocks.set(state.host_blocks)
        self._host_bytes.set(state.host_bytes)
        self._recompute_debt.set(state.recompute_debt_tokens)
        self._switch_pause.set(state.switch_pause_s)
        self._switch_gap.set(state.switch_gap_s)
        for kv_type in KV_TYPES:
            self._kv_type.labels(*self._labels, kv_type).set(kv_type == state.kv_type)
        if (deviation := state.deviation) is None:
            self._deviation.clear()  # what was measured of an earlier KV type says nothing of this one
            return
        for measure, value in (
            ("mean", deviation.worst_layer_mean),
            ("p999", deviation.p999),
            ("max", deviation.largest),
            ("output", deviation.relative_l2),
        ):
            self._deviation.labels(*self._labels, measure).set(value)

    def _grow(self, counter: Counter, totals: Mapping[str, int], before: Mapping[str, int]) -> None:
        for word, total in totals.items():
            counter.labels(*self._labels, word).inc(max(0, total - before.get(word, 0)))

    def _counter(self, row: metrics.Metric) -> Counter:
        return exposition.counter(row, self._registry).labels(*self._labels)

    def _gauge(self, row: metrics.Metric) -> Gauge:
        return exposition.gauge(row, self._registry).labels(*self._labels)


def _samples(stats: core.Stats) -> int:
    return 0 if stats.kv_deviation is None else stats.kv_deviation.num_samples
