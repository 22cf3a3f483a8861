"""What an engine and its sidecar report about themselves: the JSON of `GET /state`.

The operator scrapes the sidecar's. Fields are only ever added; a reader ignores what it does not know.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from firsttoken_api.step_time import StepTime

STATE_VERSION = 1

Count = Annotated[int, Field(ge=0, le=2**53 - 1)]
"""A number that survives every JSON reader and fits into a status: images are the users' own."""

Measure = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Phase(StrEnum):
    """Where an engine is in its life."""

    LOADING = "Loading"
    READY = "Ready"
    FAILED = "Failed"


class FlagsState(_Report):
    """The hot settings in force. Generation 0: the engine's own defaults, nothing applied yet."""

    generation: Count = 0
    hash: str = ""
    enabled: tuple[str, ...] = ()
    error: str = ""
    """Why the newest settings could not be applied, with the flag or parameter named; else empty."""


class KvState(_Report):
    """The KV block pool. A block is `block_size_tokens` slots."""

    block_size_tokens: Count = 0
    blocks_total: Count = 0
    blocks_used: Count = 0
    blocks_recommended: Count = 0
    """Peak concurrency x mean sequence length / block size, as measured; 0: nothing was served yet."""
    live_slots: Count = 0
    """Slots that hold the KV of a token."""
    allocated_slots: Count = 0
    """Slots of all blocks that sequences hold."""
    needed_slots: Count = 0
    """Of those, slots that a known token (prompt and output so far) has or will have."""
    live_slot_seconds_total: Measure = 0.0
    allocated_slot_seconds_total: Measure = 0.0
    needed_slot_seconds_total: Measure = 0.0
    """The three above, integrated over the time in which at least one request waited. Readers that want a
    window of their own take differences."""
    use_ratio: Ratio = 0.0
    """Live / allocated slot seconds since start; 0 while no request has waited."""
    waste_ratio: Ratio = 0.0
    """Internal waste, 1 - needed / allocated slot seconds since start; 0 while no request has waited."""


class DeviationState(_Report):
    """How far quantized keys move attention, as sampled while serving: the largest change of a probability
    over the keys of each (query, head)."""

    worst_layer_mean: Measure = 0.0
    p999: Measure = 0.0
    """The 99.9th percentile over all samples."""
    largest: Measure = 0.0
    relative_l2: Measure = 0.0
    """Of the attention output, worst layer."""
    samples: Count = 0


class CacheState(_Report):
    """The prefix cache: what was looked up and found, in tokens, and under which numerics."""

    kv_type: str = "full"
    """`full`, `int8` or `fp8`: of tokens outside of declared shared prefixes."""
    kv_bytes_per_token: Count = 0
    """Of such a token, all layers together; 0: not known."""
    query_tokens_total: Count = 0
    hit_tokens_total: dict[str, Count] = Field(default_factory=dict)
    """Of those, found, by tier: `device`, `host`."""
    cached_blocks: Count = 0
    """Blocks that can be found and that no sequence holds."""
    evictions_total: Count = 0
    host_blocks: Count = 0
    host_bytes: Count = 0
    host_problems_total: dict[str, Count] = Field(default_factory=dict)
    """What went wrong in the host tier, by reason; each was a miss."""
    saves_total: Count = 0
    loads_total: Count = 0
    """Blocks copied to the host tier and back."""
    rule_decisions_total: dict[str, Count] = Field(default_factory=dict)
    """How requests were stored and reused, by reason."""
    lineage: str = ""
    """What the KV was computed under; a switch that changes numbers changes it."""
    lineage_changes_total: Count = 0
    recompute_debt_tokens: Count = 0
    """Known tokens of running sequences that are to be computed again."""
    switch_pause_s: Measure = 0.0
    """Last switch of the layout: from its request to the first step under it."""
    switch_gap_s: Measure = 0.0
    """The largest gap in a stream that it made."""
    deviation: DeviationState | None = None
    """None: nothing was sampled."""


class EngineState(_Report):
    """`GET /state` of the engine's ops port."""

    version: int = STATE_VERSION
    phase: Phase
    load_progress: float = Field(default=0.0, ge=0, le=1)
    error: str = ""
    model: str = ""
    architecture: str = ""
    device: str = ""
    dtype: str = ""
    max_model_len: Count = 0
    kv: KvState = KvState()
    cache: CacheState = CacheState()
    flags: FlagsState = FlagsState()
    running: Count = 0
    waiting: Count = 0
    backlog_tokens: Count = 0
    """Prompt tokens of queued and running requests that are not computed yet."""
    preemptions_total: Count = 0
    waiting_by_class: dict[str, Count] = Field(default_factory=dict)
    """Of `waiting`, by request class; "" is the one class of a service that declares none."""
    prefill_tokens_per_s: Measure = 0.0
    """Measured; 0: not known yet."""
    tpot_p95_s: Measure = 0.0
    """Of the last 30 s; 0: nothing was generated."""
    batch_invariant: bool = False
    """The numbers of a request do not depend on what else is in its batch."""
    backlog_by_class: dict[str, Count] = Field(default_factory=dict)
    """`backlog_tokens` by request class."""
    step_time: StepTime | None = None
    """Fitted to the engine's own steps; None: it does not say."""
    chunk_tokens: Count = 0
    """Prompt tokens that a step takes at most, as things are; 0: not known."""
    max_prefill_batch: Count = 0
    """Prompts that a step takes at most; 0: not known."""
    max_num_seqs: Count = 0
    """Sequences that run at once at most; 0: not known."""
    decoding: Count = 0
    """Of `running`, those that have their prompt computed."""
    context_tokens: Count = 0
    """That they read in each step, all together."""
    tpot_mean_s: Measure = 0.0
    """Seconds between two tokens of an answer, decaying mean; 0: not known."""
    output_tokens_by_class: dict[str, Measure] = Field(default_factory=dict)
    """Median length of the answers of each class that has finished one."""


class TtftWindow(_Report):
    """Decided TTFTs of the last `window_s` seconds as a histogram, so that pods can be merged.

    `counts[i]` requests had edges_s[i-1] < TTFT <= edges_s[i]; the last count is past the last edge.
    """

    window_s: float
    slo_s: float
    edges_s: tuple[float, ...]
    counts: tuple[int, ...]


class LoadState(_Report):
    """What lies before a request that comes to this sidecar now; `ttft_estimate` reads it.

    Priorities are whole numbers as text, larger = more urgent.
    """

    ahead_tokens_by_priority: dict[str, Count] = Field(default_factory=dict)
    """Prompt tokens of requests that were let in and have no first token yet, less what the cache has."""
    ahead_requests_by_priority: dict[str, Count] = Field(default_factory=dict)
    arriving_share_by_priority: dict[str, Measure] = Field(default_factory=dict)
    """The part of the engine's time that the requests let in lately take."""
    step_time: StepTime | None = None
    chunk_tokens: Count = 0
    max_prefill_batch: Count = 0
    max_num_seqs: Count = 0
    decoding: Count = 0
    context_tokens: Count = 0
    prefill_tokens_per_s: Measure = 0.0
    """Now, with the answers that run; 0: not known."""
    slot_wait_s: Measure = 0.0
    """Until one more request has a slot and room for its KV."""
    running: Count = 0
    waiting: Count = 0
    limit_s: dict[str, Measure] = Field(default_factory=dict)
    """Largest estimate that is let in, by priority: the limit of the class, less what estimates err by."""


class ClassWindow(_Report):
    """What was decided about one class of requests in the last `TtftWindow.window_s` seconds.

    A request is decided once: at its first token, or when its age reaches the limit of its class, whichever
    comes first. One that is refused is a breach, once for each client and body in 60 s. One that ends before
    either is undecided.
    """

    name: str = ""
    """"" is the one class of a service that declares none."""
    limit_s: Measure
    allowed_fraction: Ratio
    """Share of the decided requests that may be breaches."""
    hits: Count = 0
    breaches: Count = 0
    waiting: Count = 0
    """Now, without a first token."""
    overdue: Count = 0
    """Of those, past the limit: they are among the breaches."""
    arrivals_total: Count = 0
    undecided_total: Count = 0


class KeyUse(_Report):
    """What was taken of the limits of one API key at one replica, since its start."""

    requests_total: Count = 0
    tokens_total: Count = 0
    returned_tokens_total: Count = 0
    """Of those, given back by requests that used fewer than they might have."""

    @property
    def tokens(self) -> int:
        return self.tokens_total - self.returned_tokens_total


class SidecarState(_Report):
    """`GET /state` of the sidecar's ops port."""

    version: int = STATE_VERSION
    pod: str = ""
    ready: bool = False
    draining: bool = False
    in_flight: Count = 0
    overdue: Count = 0
    """Requests that have waited longer than the limit of their class without a first token."""
    arrivals_total: Count = 0
    """Requests for tokens, before admission; each at the sidecar that its client talks to."""
    rejected_by_class: dict[str, Count] = Field(default_factory=dict)
    """Requests since the start that could not be served within their limit and were told to come back."""
    demand_tokens_total: Count = 0
    """Prompt tokens that were to be computed, not found in the cache, of served and of refused requests
    alike; a refused one counts once for each client and body in 60 s, and its retry adds nothing."""
    zone: str = ""
    """Topology zone of the pod's node; empty where it is not known."""
    evaluating: bool = False
    """The replica is under test and takes no requests from peers."""
    auth_error: str = ""
    """Why the newest API keys are not in force, with the entry named and no key; empty: they are."""
    key_uses: dict[str, KeyUse] = Field(default_factory=dict)
    """Of API keys that have a limit, by the key's name: for the peers, whose limit it is too."""
    flags: FlagsState = FlagsState()
    ttft: TtftWindow | None = None
    """Of the default class, which is held to the service's objective; None before the first document."""
    by_class: tuple[ClassWindow, ...] = ()
    load: LoadState | None = None
    """What a request would find here; None where nobody can tell."""
    engine: EngineState | None = None
    """None while the engine does not answer."""
