"""What the server measures, under vLLM's names where one exists, so that dashboards fit both engines.

All times are on this process's monotonic clock. TTFT runs from the arrival of the request to the moment
its first text was written (for a whole answer: was ready); a request without text counts at its end.
"""

import time
from collections.abc import Callable, Sequence

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from firsttoken_api import exposition, flags, metrics
from firsttoken_api.state import EngineState
from firsttoken_runtime import core


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
        self._preemptions_seen = 0

    def accepted(self, prompt_tokens: int) -> None:
        self._prompt_tokens.inc(prompt_tokens)

    def rejected(self, status: int) -> None:
        """A request for tokens was answered with an error."""
        self._rejected.labels(*self._labels, str(status)).inc()

    def scheduled(self, queue_s: float) -> None:
        self._queue.observe(queue_s)

    def first_text(self, ttft_s: float) -> None:
        self._ttft.observe(ttft_s)

    def token_gap(self, gap_s: float, tokens: int) -> None:
        """`tokens` came together, `gap_s` after the ones before."""
        for _ in range(tokens):
            self._gap.observe(gap_s / tokens)

    def ended(
        self, reason: str, latency_s: float, ttft_s: float | None, prompt_tokens: int, completion_tokens: int
    ) -> None:
        """A request ended: by itself (`stop`, `length`), or by `abort` or `error`."""
        self._success.labels(*self._labels, reason).inc()
        self._latency.observe(latency_s)
        self._prompt_length.observe(prompt_tokens)
        self._generation_length.observe(completion_tokens)
        if ttft_s is not None and completion_tokens > 1:
            self._tpot.observe((latency_s - ttft_s) / (completion_tokens - 1))

    def step(self, output: core.StepOutput) -> None:
        """Count what the engine did in a step."""
        self._generation_tokens.inc(len(output.tokens))
        self._preemptions.inc(max(0, output.stats.preemptions_total - self._preemptions_seen))
        self._preemptions_seen = output.stats.preemptions_total

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


class RequestTimer:
    """The clock of one request; reports to `Metrics` exactly once, when it ends."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self.arrival_s = clock()
        self._last_token_s: float | None = None
        self._ttft_s: float | None = None

    def tokens(self, tokens: Sequence[core.Token]) -> None:
        """Tokens, at least one, have arrived from the engine."""
        now = self._clock()
        if self._last_token_s is not None:
            self._metrics.token_gap(now - self._last_token_s, len(tokens))
        elif (times := tokens[0].times) is not None:
            self._metrics.scheduled(max(0.0, times.scheduled_s - self.arrival_s))
        self._last_token_s = now

    def text(self) -> None:
        """Text, or the end without any, has been written."""
        if self._ttft_s is None:
            self._ttft_s = self._clock() - self.arrival_s
            self._metrics.first_text(self._ttft_s)

    def end(self, reason: str, prompt_tokens: int, completion_tokens: int) -> None:
        latency_s = self._clock() - self.arrival_s
        self._metrics.ended(reason, latency_s, self._ttft_s, prompt_tokens, completion_tokens)
