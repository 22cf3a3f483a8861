"""What the server measures, under vLLM's names where one exists, so that dashboards fit both engines.

Gauges are set when somebody reads; counters of the engine arrive as totals and are counted on.
"""

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from firsttoken_api import exposition, flags, metrics
from firsttoken_api.state import EngineState
from firsttoken_runtime import core
from firsttoken_runtime.server import stages
from firsttoken_runtime.server.cache_metrics import CacheMetrics

NOT_FINITE = "not_finite"
"""The code of a failure whose logits held a NaN."""
NOTHING_SEEN = core.Stats(
    running=0,
    waiting=0,
    backlog_tokens=0,
    blocks_used=0,
    blocks_total=0,
    block_size_tokens=0,
    preemptions_total=0,
)


class Metrics:
    """One server's metrics, in a registry of their own; the rows are `firsttoken_api.metrics`."""

    def __init__(self, model_name: str) -> None:
        self.registry = CollectorRegistry()
        self._labels = (model_name, "0")
        self._ttft = self._histogram(metrics.VLLM_TTFT)
        self._gap = self._histogram(metrics.VLLM_ITL)
        self._tpot = self._histogram(metrics.VLLM_TPOT)
        self._latency = self._histogram(metrics.VLLM_E2E)
        self._queue = self._histogram(metrics.VLLM_QUEUE_TIME)
        self._prefill = self._histogram(metrics.VLLM_PREFILL_TIME)
        self._decode = self._histogram(metrics.VLLM_DECODE_TIME)
        self._inference = self._histogram(metrics.VLLM_INFERENCE_TIME)
        self._params_n = self._histogram(metrics.VLLM_PARAMS_N)
        self._params_max_tokens = self._histogram(metrics.VLLM_PARAMS_MAX_TOKENS)
        self._step_tokens = self._histogram(metrics.VLLM_ITERATION_TOKENS)
        self._stages = exposition.histogram(metrics.ENGINE_TTFT_STAGE, self.registry)
        self._prompt_length = self._histogram(metrics.VLLM_PROMPT_LENGTH)
        self._generation_length = self._histogram(metrics.VLLM_GENERATION_LENGTH)
        self._running = self._gauge(metrics.VLLM_RUNNING)
        self._waiting = self._gauge(metrics.VLLM_WAITING)
        self._kv_usage = self._gauge(metrics.VLLM_KV_USAGE)
        self._backlog = self._gauge(metrics.ENGINE_BACKLOG)
        self._kv_blocks = self._gauge(metrics.ENGINE_KV_BLOCKS)
        self._kv_blocks_used = self._gauge(metrics.ENGINE_KV_BLOCKS_USED)
        self._kv_memory_use = self._gauge(metrics.ENGINE_KV_MEMORY_USE)
        self._kv_internal_waste = self._gauge(metrics.ENGINE_KV_INTERNAL_WASTE)
        self._prefill_rate = self._gauge(metrics.ENGINE_PREFILL_RATE)
        self._waiting_by_class = exposition.gauge(metrics.ENGINE_WAITING, self.registry)
        self._load_progress = self._gauge(metrics.ENGINE_LOAD_PROGRESS)
        self._flags_generation = self._gauge(metrics.ENGINE_FLAGS_GENERATION)
        self._flag_enabled = exposition.gauge(metrics.ENGINE_FLAG_ENABLED, self.registry)
        self._prompt_tokens = self._counter(metrics.VLLM_PROMPT_TOKENS)
        self._generation_tokens = self._counter(metrics.VLLM_GENERATION_TOKENS)
        self._preemptions = self._counter(metrics.VLLM_PREEMPTIONS)
        self._success = exposition.counter(metrics.VLLM_REQUEST_SUCCESS, self.registry)
        self._kv_live = self._counter(metrics.ENGINE_KV_LIVE_SLOT_SECONDS)
        self._kv_allocated = self._counter(metrics.ENGINE_KV_ALLOCATED_SLOT_SECONDS)
        self._kv_needed = self._counter(metrics.ENGINE_KV_NEEDED_SLOT_SECONDS)
        self._corrupted = self._counter(metrics.VLLM_CORRUPTED)
        self._admission_rejections = self._counter(metrics.VLLM_ADMISSION_REJECTIONS)
        self._admission_refused = exposition.counter(metrics.ENGINE_ADMISSION_REFUSED, self.registry)
        self._failures = exposition.counter(metrics.ENGINE_FAILURES, self.registry)
        self._rejected = exposition.counter(metrics.ENGINE_REQUESTS_REJECTED, self.registry)
        self._cache = CacheMetrics(self.registry, self._labels)
        self._seen = NOTHING_SEEN

    def accepted(self, prompt_tokens: int) -> None:
        self._prompt_tokens.inc(prompt_tokens)

    def rejected(self, status: int) -> None:
        """A request for tokens was answered with an error."""
        self._rejected.labels(*self._labels, str(status)).inc()

    def scheduled(self, queue_s: float) -> None:
        self._queue.observe(queue_s)

    def first_text(self, timing: stages.Timing) -> None:
        self._ttft.observe(timing.ttft_s)
        for stage, seconds in timing.stages_s.items():
            self._stages.labels(*self._labels, stage.value).observe(seconds)

    def token_gap(self, gap_s: float, tokens: int) -> None:
        """`tokens` came together, `gap_s` after the ones before."""
        for _ in range(tokens):
            self._gap.observe(gap_s / tokens)

    def asked(self, choices: int, max_tokens: int | None) -> None:
        """A request was accepted: how many answers of which length it asks for."""
        self._params_n.observe(choices)
        if max_tokens is not None:
            self._params_max_tokens.observe(max_tokens)

    def refused(self, reason: str) -> None:
        """A request was not admitted."""
        self._admission_rejections.inc()
        self._admission_refused.labels(*self._labels, reason).inc()

    def pace(self, tpot_s: float) -> None:
        """One answer took so long for each token after its first."""
        self._tpot.observe(tpot_s)

    def ended(self, ended: stages.Ended) -> None:
        """A request ended: by itself (`stop`, `length`, `tool_calls`), or by `abort` or `error`."""
        self._success.labels(*self._labels, ended.reason).inc()
        self._latency.observe(ended.latency_s)
        self._prompt_length.observe(ended.prompt_tokens)
        self._generation_length.observe(ended.completion_tokens)
        if ended.times is not None:
            self._prefill.observe(ended.times.sampled_s - ended.times.scheduled_s)
            self._decode.observe(max(0.0, ended.ended_s - ended.times.sampled_s))
            self._inference.observe(max(0.0, ended.ended_s - ended.times.scheduled_s))

    def step(self, output: core.StepOutput) -> None:
        """Count what the engine did in a step."""
        self._generation_tokens.inc(len(output.tokens))
        if output.computed_tokens:
            self._step_tokens.observe(output.computed_tokens)
        for failure in output.failures:
            self._failures.labels(*self._labels, failure.code).inc()
            if failure.code == NOT_FINITE:
                self._corrupted.inc()
        stats, seen = output.stats, self._seen
        for counter, total, before in (
            (self._preemptions, stats.preemptions_total, seen.preemptions_total),
            (self._kv_live, stats.kv_live_slot_seconds_total, seen.kv_live_slot_seconds_total),
            (self._kv_needed, stats.kv_needed_slot_seconds_total, seen.kv_needed_slot_seconds_total),
            (self._kv_allocated, stats.kv_allocated_slot_seconds_total, seen.kv_allocated_slot_seconds_total),
        ):
            counter.inc(max(0.0, total - before))
        self._cache.step(stats, seen)
        self._seen = stats

    def exposition(self, state: EngineState) -> bytes:
        """The text format, version 0.0.4, with the gauges as in `state`."""
        self._running.set(state.running)
        self._waiting.set(state.waiting)
        self._backlog.set(state.backlog_tokens)
        self._kv_blocks.set(state.kv.blocks_total)
        self._kv_blocks_used.set(state.kv.blocks_used)
        self._kv_usage.set(state.kv.blocks_used / state.kv.blocks_total if state.kv.blocks_total else 0.0)
        self._kv_memory_use.set(state.kv.use_ratio)
        self._kv_internal_waste.set(state.kv.waste_ratio)
        self._prefill_rate.set(state.prefill_tokens_per_s)
        self._cache.show(state.cache)
        self._waiting_by_class.clear()  # a class that is no longer declared is no longer reported
        for name, waiting in state.waiting_by_class.items():
            self._waiting_by_class.labels(*self._labels, name).set(waiting)
        self._load_progress.set(state.load_progress)
        self._flags_generation.set(state.flags.generation)
        for name in flags.BUILT:
            self._flag_enabled.labels(*self._labels, name).set(name in state.flags.enabled)
        return prometheus_client.generate_latest(self.registry)

    def _histogram(self, row: metrics.Metric) -> Histogram:
        return exposition.histogram(row, self.registry).labels(*self._labels)

    def _gauge(self, row: metrics.Metric) -> Gauge:
        return exposition.gauge(row, self.registry).labels(*self._labels)

    def _counter(self, row: metrics.Metric) -> Counter:
        return exposition.counter(row, self.registry).labels(*self._labels)
