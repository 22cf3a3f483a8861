"""vLLM's metrics over time as the state that our own engine would report. Pure.

What vLLM does not say stays at its default, "not known", except two things that others plan with and that can
be estimated. The tokens that wait: so many requests, each of the mean length of late. The step time: vLLM
counts steps and tokens, and while it is busy all of the time passes in steps, so the difference of two looks
at a busy engine is one row of the regression that our own engine does with its steps.
"""

from collections import deque

from firsttoken_api.state import CacheState, EngineState, FlagsState, KvState, Phase
from firsttoken_api.step_fit import LOADED_SHARE, StepFit
from firsttoken_api.step_time import StepTime
from firsttoken_sidecar import vllm_metrics
from firsttoken_sidecar.vllm_metrics import Sample

WINDOW_S = 30.0
LONGEST_INTERVAL_S = 3.0
"""Looks that lie further apart say nothing about how busy the engine was between them."""


class History:
    """The looks of the last half minute at one engine process."""

    def __init__(self, max_num_seqs: int, chunk_tokens: int, max_model_len: int = 0) -> None:
        """What vLLM was started with; 0: not known."""
        self._max_num_seqs = max_num_seqs
        self._chunk_tokens = chunk_tokens
        self.max_model_len = max_model_len
        self._samples: deque[Sample] = deque()
        self._fit = StepFit()

    def add(self, sample: Sample) -> None:
        if self._samples:
            before = self._samples[-1]
            if sample.steps < before.steps or sample.generated_tokens < before.generated_tokens:
                # Counters went back: another process answers.
                self._samples.clear()
                self._fit = StepFit()
            else:
                self._learn(before, sample)
        self._samples.append(sample)
        while sample.at_s - self._samples[0].at_s > WINDOW_S:
            self._samples.popleft()

    def state(self, flags: FlagsState) -> EngineState:
        """Of the newest look."""
        first, last = self._samples[0], self._samples[-1]
        step_time = self._fit.step_time
        token_gap = last.token_gap.since(first.token_gap)
        return EngineState(
            phase=Phase.READY,
            load_progress=1.0,
            model=last.model,
            max_model_len=self.max_model_len,
            kv=KvState(
                block_size_tokens=last.block_tokens,
                blocks_total=last.blocks,
                blocks_used=last.blocks_used,
                allocated_slots=last.context_tokens,
            ),
            cache=CacheState(
                kv_type=_kv_type(last.kv_type),
                query_tokens_total=last.query_tokens,
                hit_tokens_total={"device": last.hit_tokens},
            ),
            flags=flags,
            running=last.running,
            waiting=last.waiting,
            backlog_tokens=round(last.waiting * _mean(first.prompt_tokens, last.prompt_tokens)),
            preemptions_total=last.preemptions,
            waiting_by_class={"": last.waiting},
            backlog_by_class={},
            prefill_tokens_per_s=self._prefill_tokens_per_s(step_time, last),
            tpot_p95_s=last.token_time.since(first.token_time).quantile(0.95),
            tpot_mean_s=token_gap.mean or last.token_gap.mean,
            step_time=step_time,
            chunk_tokens=self._chunk_tokens,
            max_prefill_batch=self._max_num_seqs,  # vLLM has no limit of its own for prompts
            max_num_seqs=self._max_num_seqs,
            decoding=last.running,
            context_tokens=last.context_tokens,
            output_tokens_by_class=_median_output(first, last),
        )

    def _learn(self, before: Sample, after: Sample) -> None:
        seconds = after.at_s - before.at_s
        steps = after.steps - before.steps
        is_busy = before.running > 0 and after.running > 0 and steps > 0
        if not is_busy or not 0 < seconds <= LONGEST_INTERVAL_S:
            return
        generated = after.generated_tokens - before.generated_tokens
        prompt = max(0.0, after.step_tokens - before.step_tokens - generated)
        context = (before.context_tokens + after.context_tokens) / 2
        self._fit.note(
            seconds,
            steps=steps,
            prefill_tokens=prompt,
            decoding=generated,
            context_tokens=context * steps,
            is_loaded=after.waiting > 0 or prompt >= LOADED_SHARE * self._chunk_tokens * steps > 0,
        )

    def _prefill_tokens_per_s(self, step_time: StepTime | None, last: Sample) -> float:
        if step_time is None or not self._chunk_tokens:
            return 0.0
        return step_time.prefill_tokens_per_s(self._chunk_tokens, last.running, last.context_tokens)


def _mean(before: vllm_metrics.Histogram, after: vllm_metrics.Histogram) -> float:
    """Of late; of all time where nothing ended lately."""
    return after.since(before).mean or after.mean


def _median_output(first: Sample, last: Sample) -> dict[str, float]:
    """vLLM knows no classes: one number for all."""
    lately = last.output_tokens.since(first.output_tokens)
    median = (lately if lately.count else last.output_tokens).quantile(0.5)
    return {"": median} if median else {}


def _kv_type(text: str) -> str:
    if text.startswith("fp8"):
        return "fp8"
    return "int8" if text.startswith("int8") else "full"
