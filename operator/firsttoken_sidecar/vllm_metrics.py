"""What vLLM's /metrics says at one moment: the few of its series that we need, as one frozen sample. Pure.

Names are those of vLLM 0.32 (`vllm/v1/metrics/loggers.py`). Series of several engine processes behind one
server (data parallel) are added up; a share is the largest of theirs.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

PREFIX = "vllm:"
CACHE_INFO = "cache_config_info"

_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


class NotVllmError(ValueError):
    """The exposition is not vLLM's. The message names what is missing."""


@dataclass(frozen=True)
class Histogram:
    """Of observations since the start."""

    count: float = 0.0
    total: float = 0.0
    buckets: tuple[tuple[float, float], ...] = ()
    """(upper edge, observations up to it), ascending; the last edge is infinite."""

    def since(self, before: "Histogram") -> "Histogram":
        """What was observed after an earlier look; edges are the same ones."""
        known = dict(before.buckets)
        buckets = tuple((edge, number - known.get(edge, 0.0)) for edge, number in self.buckets)
        return Histogram(self.count - before.count, self.total - before.total, buckets)

    def quantile(self, share: float) -> float:
        """Interpolated inside its bucket; 0 without observations, the last finite edge beyond that."""
        wanted, below, low = share * self.count, 0.0, 0.0
        if self.count <= 0:
            return 0.0
        for edge, number in self.buckets:
            if number >= wanted:
                if edge == float("inf"):
                    return low
                return low + (edge - low) * (wanted - below) / max(number - below, 1e-9)
            below, low = number, edge
        return low

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count > 0 else 0.0


@dataclass(frozen=True)
class Sample:
    """One look at the metrics."""

    at_s: float
    model: str = ""
    running: int = 0
    waiting: int = 0
    kv_use: float = 0.0
    """Share of the KV blocks that requests hold."""
    blocks: int = 0
    block_tokens: int = 0
    kv_type: str = ""
    query_tokens: int = 0
    hit_tokens: int = 0
    preemptions: int = 0
    generated_tokens: int = 0
    steps: int = 0
    step_tokens: float = 0.0
    """Prompt tokens that were computed, and generated ones, over all steps."""
    prompt_tokens: Histogram = field(default_factory=Histogram)
    """Of requests that ended, like the three below."""
    output_tokens: Histogram = field(default_factory=Histogram)
    token_time: Histogram = field(default_factory=Histogram)
    """Mean seconds per output token of a request."""
    token_gap: Histogram = field(default_factory=Histogram)
    """Seconds between two tokens; counted as they come."""

    @property
    def blocks_used(self) -> int:
        return round(self.kv_use * self.blocks)

    @property
    def context_tokens(self) -> int:
        """Room of the blocks that requests hold: what they read in each step, rounded up."""
        return self.blocks_used * self.block_tokens


def read(exposition: bytes, at_s: float) -> Sample:
    """Raises NotVllmError."""
    lines = [line for line in exposition.decode(errors="replace").splitlines() if line.startswith(PREFIX)]
    sums: dict[str, float] = {}
    shares: dict[str, float] = {}
    buckets: dict[str, dict[float, float]] = {}
    model, info = "", {}
    for name, labels, value in _series(lines):
        if name == CACHE_INFO:
            info = dict(_LABEL.findall(labels))
        elif name.endswith("_bucket"):
            edges = buckets.setdefault(name.removesuffix("_bucket"), {})
            edge = float(dict(_LABEL.findall(labels)).get("le", "inf").replace("+Inf", "inf"))
            edges[edge] = edges.get(edge, 0.0) + value
        else:
            sums[name] = sums.get(name, 0.0) + value
            shares[name] = max(shares.get(name, 0.0), value)
            if name == "num_requests_running":
                model = dict(_LABEL.findall(labels)).get("model_name", "")
    if "num_requests_running" not in sums:
        raise NotVllmError(f"no {PREFIX}num_requests_running among {len(lines)} series of vLLM")

    def whole(name: str) -> int:
        return int(sums.get(name, 0.0))

    def histogram(name: str) -> Histogram:
        edges = tuple(sorted(buckets.get(name, {}).items()))
        return Histogram(sums.get(f"{name}_count", 0.0), sums.get(f"{name}_sum", 0.0), edges)

    return Sample(
        at_s=at_s,
        model=model,
        running=whole("num_requests_running"),
        waiting=whole("num_requests_waiting"),
        kv_use=min(max(shares.get("kv_cache_usage_perc", 0.0), 0.0), 1.0),
        blocks=_number(info.get("num_gpu_blocks", "")),
        block_tokens=_number(info.get("block_size", "")),
        kv_type=info.get("cache_dtype", ""),
        query_tokens=whole("prefix_cache_queries_total"),
        hit_tokens=whole("prefix_cache_hits_total"),
        preemptions=whole("num_preemptions_total"),
        generated_tokens=whole("generation_tokens_total"),
        steps=whole("iteration_tokens_total_count"),
        step_tokens=sums.get("iteration_tokens_total_sum", 0.0),
        prompt_tokens=histogram("request_prompt_tokens"),
        output_tokens=histogram("request_generation_tokens"),
        token_time=histogram("request_time_per_output_token_seconds"),
        token_gap=histogram("inter_token_latency_seconds"),
    )


NEEDED = frozenset(
    {
        CACHE_INFO,
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_usage_perc",
        "prefix_cache_queries_total",
        "prefix_cache_hits_total",
        "num_preemptions_total",
        "generation_tokens_total",
        "iteration_tokens_total_count",
        "iteration_tokens_total_sum",
        *(
            f"{name}_{part}"
            for name in (
                "request_prompt_tokens",
                "request_generation_tokens",
                "request_time_per_output_token_seconds",
                "inter_token_latency_seconds",
            )
            for part in ("bucket", "count", "sum")
        ),
    }
)


def _series(lines: list[str]) -> Iterator[tuple[str, str, float]]:
    """(name without the prefix, labels, value) of what is needed. A value that is no number is passed over:
    a gauge may be NaN before it is first set."""
    for line in lines:
        name, brace, rest = line[len(PREFIX) :].partition("{")
        if not brace:
            name, _, rest = name.partition(" ")
        if name not in NEEDED:
            continue
        labels, _, tail = rest.rpartition("}") if brace else ("", "", rest)
        try:
            value = float(tail.split()[0])
        except (IndexError, ValueError):
            continue
        if value == value and abs(value) != float("inf"):
            yield name, labels, value


def _number(text: str) -> int:
    """Labels carry numbers as text, or `None`."""
    return int(text) if text.isdecimal() else 0
